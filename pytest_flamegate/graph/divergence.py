"""Where two runs of an engine differ: the first tensor, by bytes or beyond a tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_flamegate.core.errors import UndecidedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.graph.tensors import Digests, TensorDigest, TensorKey, Values


_NAMED = 3


class Tolerance(NamedTuple):
    """Two values agree if they differ by at most ``atol + rtol × |first|``."""

    atol: float = 0.0
    rtol: float = 0.0


@dataclass(frozen=True, slots=True)
class LargestDifference:
    """The values of a tensor that differ most, at ``index``; infinite if one is not finite."""

    key: TensorKey
    index: tuple[int, ...]
    first: str
    second: str
    difference: float


class ValueComparison(NamedTuple):
    """``beyond`` values differ by more than the tolerance; ``not_finite`` are equal NaN or ±∞."""

    beyond: int
    not_finite: int
    largest: LargestDifference | None


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """A tensor in which two runs differ; ``values`` is there if a tolerance was applied."""

    first: TensorDigest
    second: TensorDigest
    values: ValueComparison | None = None

    @property
    def key(self) -> TensorKey:
        """The key that both have."""
        return self.first.key


@dataclass(frozen=True, slots=True)
class Divergence:
    """The comparison of two runs.

    Of the ``compared`` tensors that both runs have, ``differing`` differ; ``first`` is the first
    of them in the order of the first run. ``missing`` are only in the first run, ``extra`` only
    in the second. ``reordered`` is the first tensor that the second run recorded in another order.
    ``largest`` is the largest difference of all values and ``not_finite`` counts values that are
    NaN or infinite in both; both need a tolerance.
    """

    compared: int
    differing: int
    first: TensorDifference | None
    missing: tuple[TensorKey, ...]
    extra: tuple[TensorKey, ...]
    reordered: TensorKey | None
    tolerance: Tolerance | None = None
    largest: LargestDifference | None = None
    not_finite: int = 0

    @property
    def same(self) -> bool:
        """Whether both runs have the same tensors and all of them agree."""
        return not (self.differing or self.missing or self.extra)


def divergence(a: Digests, b: Digests, *, tolerance: Tolerance | None = None) -> Divergence:
    """Compare run ``b`` with run ``a``.

    Without a tolerance, type, shape and every byte must be equal. With one, values of tensors of
    one shape must agree within it: floats of any width with each other, else of one type.

    Raises:
        UndecidedError: ``E_NO_DIGESTS`` if a run has no tensor, ``E_NO_VALUES`` if a tolerance
            needs values that were not kept.
        UsageError: ``E_TOLERANCE`` for a negative or infinite tolerance.
    """
    for run, name in ((a, "first"), (b, "second")):
        if not len(run):
            raise UndecidedError(
                "E_NO_DIGESTS",
                f"The {name} run has no tensors, so there is nothing to compare.",
                "Record digests in both runs.",
            )
    if tolerance is not None and not all(math.isfinite(part) and part >= 0 for part in tolerance):
        raise UsageError(
            "E_TOLERANCE",
            f"atol = {tolerance.atol} and rtol = {tolerance.rtol} are not a tolerance.",
            "Pass two finite numbers of at least 0.",
        )
    both = [(left, right) for left in a if (right := b.get(left.key)) is not None]
    differing: list[TensorDifference] = []
    largest: LargestDifference | None = None
    not_finite = 0
    for left, right in both:
        values = None
        if tolerance is not None and _has_comparable_values(left, right):
            values = compare_values(left, right, tolerance)
            not_finite += values.not_finite
            largest = max(
                filter(None, (largest, values.largest)), key=lambda it: it.difference, default=None
            )
            differs = values.beyond > 0
        else:
            differs = any(
                getattr(left, name) != getattr(right, name) for name in ("sha256", "dtype", "shape")
            )
        if differs:
            differing.append(TensorDifference(left, right, values))
    order = (right.key for right in b if a.get(right.key) is not None)
    return Divergence(
        compared=len(both),
        differing=len(differing),
        first=differing[0] if differing else None,
        missing=tuple(key for key in a.keys if b.get(key) is None),
        extra=tuple(key for key in b.keys if a.get(key) is None),
        reordered=next(
            (left.key for (left, _), key in zip(both, order, strict=True) if left.key != key), None
        ),
        tolerance=tolerance,
        largest=largest,
        not_finite=not_finite,
    )


def compare_values(a: TensorDigest, b: TensorDigest, tolerance: Tolerance) -> ValueComparison:
    """Compare two tensors of one shape, value by value.

    NaN agrees with NaN and an infinity with the same infinity, and with nothing else. Real and
    imaginary parts are compared separately.

    Raises:
        UndecidedError: ``E_NO_VALUES`` if the values of one were not kept.
    """
    first, second = _read_numbers(a), _read_numbers(b)
    atol, rtol = tolerance
    with np.errstate(over="ignore", invalid="ignore"):
        within = np.isclose(second, first, rtol=rtol, atol=atol, equal_nan=True)
        differences = np.abs(first - second)
    equal = (first == second) | (np.isnan(first) & np.isnan(second))
    differences[np.isnan(differences)] = math.inf
    differences[equal] = 0.0
    beyond = int(np.count_nonzero(~within))
    not_finite = int(np.count_nonzero(equal & ~np.isfinite(first)))
    if not differences.size or not differences.max():
        return ValueComparison(beyond, not_finite, None)
    # If some are beyond the tolerance, the largest of those: a larger one may be allowed elsewhere.
    at = int(np.argmax(np.where(within, -1.0, differences) if beyond else differences))
    parts = first.size // max(math.prod(a.shape), 1)
    index = tuple(int(each) for each in np.unravel_index(at // parts, a.shape))
    largest = LargestDifference(
        a.key, index, _format(first[at]), _format(second[at]), float(differences[at])
    )
    return ValueComparison(beyond, not_finite, largest)


def _has_comparable_values(left: TensorDigest, right: TensorDigest) -> bool:
    are_floats = "float" in left.dtype and "float" in right.dtype
    return (left.dtype == right.dtype or are_floats) and left.shape == right.shape


def _read_numbers(digest: TensorDigest) -> Values:
    if digest.values is None:
        raise UndecidedError(
            "E_NO_VALUES",
            f"A tolerance needs the values of {digest.key}, which were not kept.",
            "Record both runs with Digests(values_bytes=...), or compare without a tolerance.",
        )
    numbers = digest.tensor.numbers
    if numbers.dtype.kind == "c":
        numbers = numbers.view(f"<f{numbers.itemsize // 2}")
    # Where a long double has 64 bits of fraction, differences of 64-bit integers are exact.
    return numbers.astype(np.float64 if numbers.dtype.kind == "f" else np.longdouble)


def _format(value: np.floating) -> str:
    is_whole = value.dtype == np.longdouble and np.isfinite(value)
    return str(int(value)) if is_whole else f"{float(value):.9g}"


def sentence(found: Divergence) -> str:
    """Return the comparison in one or more sentences."""
    parts = [_describe_agreement(found)]
    for keys, name in ((found.missing, "first"), (found.extra, "second")):
        if keys:
            parts.append(f"{len(keys):,} are only in the {name} run: {_list_keys(keys)}.")
    if found.reordered is not None:
        parts.append(f"The order of recording differs from {found.reordered} on.")
    if found.largest is not None:
        at_most = f"{_describe(found.largest)} of {found.largest.key}"
        parts.append(f"The largest difference is {at_most}.")
    if found.not_finite:
        parts.append(f"{found.not_finite:,} values are NaN or infinite in both.")
    return " ".join(parts)


def _describe_agreement(found: Divergence) -> str:
    within = "" if found.tolerance is None else " within the tolerance"
    first = found.first
    if first is None:
        if not found.compared:
            return "The runs have no tensor in common."
        return f"All {found.compared:,} tensors that both runs have are the same{within}."
    if first.values is None or first.values.largest is None:
        how = f"{first.first} in the first run, {first.second} in the second"
    else:
        how = f"{first.values.beyond:,} values, at most {_describe(first.values.largest)}"
    return (
        f"The runs differ from {first.key} on: {how}; {found.differing:,} of {found.compared:,} "
        f"tensors differ{within and ' beyond the tolerance'}."
    )


def _describe(largest: LargestDifference) -> str:
    at = f"[{', '.join(map(str, largest.index))}]"
    return f"{largest.difference:.3g} ({largest.first} against {largest.second}) at {at}"


def _list_keys(keys: Sequence[TensorKey]) -> str:
    more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
    return "; ".join(map(str, keys[:_NAMED])) + more
