"""Where two runs of an engine differ: the first tensor, by bytes or beyond a tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pytest_flamegate.core.errors import UndecidedError, UsageError
from pytest_flamegate.graph.tensors import Digests, TensorDigest, TensorKey

_NAMED = 3


class Tolerance(NamedTuple):
    """Two floats agree if they differ by at most ``atol + rtol × |first|``."""

    atol: float = 0.0
    rtol: float = 0.0


@dataclass(frozen=True, slots=True)
class LargestDifference:
    """The values of two tensors that differ most, at ``index``; infinite if one is not finite."""

    index: tuple[int, ...]
    first: float
    second: float
    difference: float

    def __str__(self) -> str:
        at = f"[{', '.join(map(str, self.index))}]"
        return f"{self.difference:.3g} ({self.first:.9g} against {self.second:.9g}) at {at}"


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """Two tensors of one key. With a tolerance, ``beyond`` of their values differ by more."""

    first: TensorDigest
    second: TensorDigest
    beyond: int | None = None
    largest: LargestDifference | None = None

    @property
    def differs(self) -> bool:
        """Whether the tensors differ: beyond the tolerance, or without one in any byte."""
        one, other = self.first, self.second
        if self.beyond is not None:
            return self.beyond > 0
        return (one.sha256, one.dtype, one.shape) != (other.sha256, other.dtype, other.shape)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The comparison of two runs.

    ``first`` is the first of the ``differing`` tensors, in the order of the first run; ``largest``
    has the largest difference of all, which needs a tolerance. ``missing`` are only in the first
    run, ``extra`` only in the second.
    """

    compared: int
    differing: int
    first: TensorDifference | None
    largest: TensorDifference | None
    missing: tuple[TensorKey, ...]
    extra: tuple[TensorKey, ...]

    @property
    def same(self) -> bool:
        """Whether both runs have the same tensors and all of them agree."""
        return not (self.differing or self.missing or self.extra)


def divergence(a: Digests, b: Digests, *, tolerance: Tolerance | None = None) -> Divergence:
    """Compare run ``b`` with run ``a``.

    Without a tolerance, type, shape and every byte must be equal. With one, floats of one shape
    and any width must agree within it; other types are compared by their bytes.

    Raises:
        UndecidedError: ``E_NO_DIGESTS`` if a run has no tensor, ``E_NO_VALUES`` if a tolerance
            needs values that were not kept.
        UsageError: ``E_TOLERANCE`` for a negative or infinite tolerance.
    """
    one, other = a.tensors, b.tensors
    if not one or not other:
        raise UndecidedError(
            "E_NO_DIGESTS",
            f"The {'second' if one else 'first'} run has no tensors, so there is nothing to "
            "compare.",
            "Record digests in both runs.",
        )
    if tolerance is not None and not all(math.isfinite(part) and part >= 0 for part in tolerance):
        raise UsageError(
            "E_TOLERANCE",
            f"atol = {tolerance.atol} and rtol = {tolerance.rtol} are not a tolerance.",
            "Pass two finite numbers of at least 0.",
        )
    compared = [
        _compare_tensors(first, other[key], tolerance) for key, first in one.items() if key in other
    ]
    differing = [each for each in compared if each.differs]
    largest = max(
        (each for each in compared if each.largest is not None),
        key=lambda each: each.largest.difference if each.largest else 0.0,
        default=None,
    )
    return Divergence(
        compared=len(compared),
        differing=len(differing),
        first=differing[0] if differing else None,
        largest=largest,
        missing=tuple(key for key in one if key not in other),
        extra=tuple(key for key in other if key not in one),
    )


def _compare_tensors(
    first: TensorDigest, second: TensorDigest, tolerance: Tolerance | None
) -> TensorDifference:
    are_floats = "float" in first.dtype and "float" in second.dtype
    if tolerance is None or not are_floats or first.shape != second.shape:
        return TensorDifference(first, second)
    for digest in (first, second):
        if digest.values is None:
            raise UndecidedError(
                "E_NO_VALUES",
                f"A tolerance needs the values of {digest.key}, which were not kept.",
                "Record both runs with Digests(values_bytes=...), or compare without a tolerance.",
            )
    one, other = (each.tensor.numbers.astype(np.float64) for each in (first, second))
    with np.errstate(over="ignore", invalid="ignore"):
        within = np.isclose(other, one, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)
        differences = np.abs(one - other)
    differences[np.isnan(differences)] = math.inf
    differences[(one == other) | (np.isnan(one) & np.isnan(other))] = 0.0
    beyond = int(np.count_nonzero(~within))
    if not differences.size or not differences.max():
        return TensorDifference(first, second, beyond)
    # If some are beyond the tolerance, the largest of those: a larger one may be allowed elsewhere.
    at = int(np.argmax(np.where(within, -1.0, differences) if beyond else differences))
    index = tuple(map(int, np.unravel_index(at, first.shape)))
    values = float(one[at]), float(other[at]), float(differences[at])
    return TensorDifference(first, second, beyond, LargestDifference(index, *values))


def sentence(found: Divergence) -> str:
    """Return the comparison in one or more sentences."""
    first, largest = found.first, found.largest
    if first is not None:
        how = f"{first.first} in the first run, {first.second} in the second"
        if first.largest is not None:
            how = f"{first.beyond:,} values, at most {first.largest}"
        parts = [
            f"The runs differ from {first.first.key} on: {how}; {found.differing:,} of "
            f"{found.compared:,} tensors differ."
        ]
    elif found.compared:
        within = "" if largest is None else " within the tolerance"
        parts = [f"All {found.compared:,} tensors that both runs have are the same{within}."]
    else:
        parts = ["The runs have no tensor in common."]
    for keys, name in ((found.missing, "first"), (found.extra, "second")):
        if keys:
            more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
            named = "; ".join(map(str, keys[:_NAMED]))
            parts.append(f"{len(keys):,} are only in the {name} run: {named}{more}.")
    if largest is not None:
        parts.append(f"The largest difference is {largest.largest} of {largest.first.key}.")
    return " ".join(parts)
