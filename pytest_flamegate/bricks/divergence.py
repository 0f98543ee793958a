"""Where two runs part: the first tensor, in the order of recording, that is not the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.tolerance import Comparison, Largest, Tolerance, compared
from pytest_flamegate.errors import UndecidedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.bricks.digests import Digests, Key, TensorDigest

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Differing:
    """One tensor that the runs do not agree on.

    ``comparison`` is there where values were held against each other with a tolerance.
    """

    key: Key
    first: TensorDigest
    second: TensorDigest
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """What the comparison of two runs says.

    ``first`` is the first tensor of the first run that differs, ``differing`` how many do of
    the ``compared`` that both have. ``missing`` stand in the first run alone, ``extra`` in the
    second alone. ``reordered`` is the first that the second run recorded in another order.
    ``largest`` is the largest difference of all values, ``not_finite`` counts values that are
    NaN or infinite in both; both only with a tolerance.
    """

    compared: int
    differing: int
    first: Differing | None
    missing: tuple[Key, ...]
    extra: tuple[Key, ...]
    reordered: Key | None
    tolerance: Tolerance | None = None
    largest: Largest | None = None
    not_finite: int = 0

    @property
    def same(self) -> bool:
        """Whether both runs computed the same: the same tensors, all of them agreeing."""
        return not (self.differing or self.missing or self.extra)


def divergence(a: Digests, b: Digests, *, tolerance: Tolerance | None = None) -> Divergence:
    """Compare two runs; ``a`` is the one that ``b`` is held against.

    Without a tolerance type, shape and every byte have to be the same. With one, values of the
    same shape and kind have to agree within it. ``UndecidedError``: ``E_NO_DIGESTS`` for a run
    of which nothing was recorded, ``E_NO_VALUES`` where a tolerance needs values that were not
    kept. ``UsageError`` ``E_TOLERANCE``.
    """
    for run, which in ((a, "first"), (b, "second")):
        if not len(run):
            raise UndecidedError(
                "E_NO_DIGESTS",
                f"Nothing was recorded of the {which} run, and nothing equals nothing.",
                "Record digests in both runs.",
            )
    if tolerance is not None:
        tolerance.check()
    differing: list[Differing] = []
    largest: Largest | None = None
    count = not_finite = 0
    for left in a:
        right = b.get(left.key)
        if right is None:
            continue
        count += 1
        found = None
        if tolerance is not None and _comparable(left, right):
            found = compared(left, right, tolerance)
            not_finite += found.not_finite
            largest = _larger(largest, found.largest)
            differs = found.beyond > 0
        else:
            differs = (left.sha256, left.dtype, left.shape) != (
                right.sha256,
                right.dtype,
                right.shape,
            )
        if differs:
            differing.append(Differing(left.key, left, right, found))
    return Divergence(
        compared=count,
        differing=len(differing),
        first=differing[0] if differing else None,
        missing=tuple(key for key in a.keys if b.get(key) is None),
        extra=tuple(key for key in b.keys if a.get(key) is None),
        reordered=_reordered(a, b),
        tolerance=tolerance,
        largest=largest,
        not_finite=not_finite,
    )


def sentence(found: Divergence) -> str:
    """Say in a line or more what ``found`` holds."""
    told = [_agreement(found)]
    for keys, which in ((found.missing, "first"), (found.extra, "second")):
        if keys:
            told.append(f"{len(keys):,} stand in the {which} run alone: {_named(keys)}.")
    if found.reordered is not None:
        told.append(f"The order of recording differs from {found.reordered} on.")
    if found.largest is not None:
        told.append(f"The largest difference is {_most(found.largest)} of {found.largest.key}.")
    if found.not_finite:
        told.append(f"{found.not_finite:,} values are NaN or infinite in both.")
    return " ".join(told)


def _agreement(found: Divergence) -> str:
    within = "" if found.tolerance is None else " within the tolerance"
    first = found.first
    if first is None:
        if not found.compared:
            return "The runs have no tensor in common."
        return f"All {found.compared:,} tensors that both runs have are the same{within}."
    if first.comparison is None or first.comparison.largest is None:
        how = f"{first.first} in the first run, {first.second} in the second"
    else:
        how = f"{first.comparison.beyond:,} values, most {_most(first.comparison.largest)}"
    return (
        f"The runs part at {first.key}: {how}; "
        f"{found.differing:,} of {found.compared:,} tensors differ{within and ' beyond it'}."
    )


def _most(largest: Largest) -> str:
    at = f"[{', '.join(map(str, largest.place))}]"
    return f"{largest.difference:.3g} ({largest.first} against {largest.second}) at {at}"


def _named(keys: Sequence[Key]) -> str:
    more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
    return "; ".join(map(str, keys[:_NAMED])) + more


def _comparable(left: TensorDigest, right: TensorDigest) -> bool:
    """Whether values can be held against each other: floats of any width, else one type."""
    alike = left.dtype == right.dtype or ("float" in left.dtype and "float" in right.dtype)
    return alike and left.shape == right.shape


def _larger(one: Largest | None, other: Largest | None) -> Largest | None:
    if one is None or other is None:
        return one or other
    return other if other.difference > one.difference else one


def _reordered(a: Digests, b: Digests) -> Key | None:
    first = (key for key in a.keys if b.get(key) is not None)
    second = (key for key in b.keys if a.get(key) is not None)
    return next((left for left, right in zip(first, second, strict=True) if left != right), None)
