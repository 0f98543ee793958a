"""Two tensors held against each other value by value, for devices that round differently."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_flamegate.bricks.tensors import decoded
from pytest_flamegate.errors import UndecidedError, UsageError

if TYPE_CHECKING:
    from pytest_flamegate.bricks.digests import Key, TensorDigest

Values = npt.NDArray[Any]


class Tolerance(NamedTuple):
    """Two values agree where they differ by at most ``atol + rtol × |the first|``."""

    atol: float = 0.0
    rtol: float = 0.0

    def check(self) -> None:
        """Raise ``UsageError`` ``E_TOLERANCE`` for limits that are none."""
        if not all(math.isfinite(each) and each >= 0 for each in self):
            raise UsageError(
                "E_TOLERANCE",
                f"atol = {self.atol} and rtol = {self.rtol} are no tolerance.",
                "Give two finite numbers of at least 0.",
            )


class Largest(NamedTuple):
    """Where two tensors differ most: the place of the value, both values, their difference.

    The difference is infinite where one is not finite and the other is something else.
    """

    key: Key
    place: tuple[int, ...]
    first: str
    second: str
    difference: float


class Comparison(NamedTuple):
    """``beyond`` values differ by more than allowed; ``not_finite`` are the same in both."""

    beyond: int
    not_finite: int
    largest: Largest | None


def compared(a: TensorDigest, b: TensorDigest, tolerance: Tolerance) -> Comparison:
    """Compare two tensors of one shape, both with their values.

    NaN agrees with NaN and an infinity with the same infinity, at the same place, and with
    nothing else. Whole numbers are compared exactly, and so are real and imaginary parts.
    ``UndecidedError`` ``E_NO_VALUES`` where the values of one were not kept.
    """
    first, second = _values(a), _values(b)
    alike = (first == second) | ((first != first) & (second != second))
    with np.errstate(over="ignore", invalid="ignore"):
        differences = _differences(first, second)
        allowed = tolerance.atol + tolerance.rtol * np.abs(first.astype(np.float64))
        within = alike | (np.isfinite(differences) & (differences <= allowed))
    differences[alike] = 0.0
    differences[np.isnan(differences)] = math.inf
    beyond = int(np.count_nonzero(~within))
    not_finite = int(np.count_nonzero(alike & ~np.isfinite(first)))
    if not differences.size or not differences.max():
        return Comparison(beyond, not_finite, None)
    # Of those that are too far apart, where there are any: the largest may be allowed elsewhere.
    at = int(np.argmax(np.where(within, -1.0, differences) if beyond else differences))
    parts = first.size // max(math.prod(a.shape), 1)
    place = tuple(int(each) for each in np.unravel_index(at // parts, a.shape))
    return Comparison(
        beyond,
        not_finite,
        Largest(a.key, place, _shown(first[at]), _shown(second[at]), float(differences[at])),
    )


def _differences(first: Values, second: Values) -> npt.NDArray[np.float64]:
    if first.dtype.kind in "iu":
        # The difference of two whole numbers of 64 bits fits 64 bits, though not as a signed one.
        larger, smaller = np.maximum(first, second), np.minimum(first, second)
        unsigned = larger.astype(np.uint64) - smaller.astype(np.uint64)
        return unsigned.astype(np.float64)
    wide: npt.NDArray[np.float64] = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return wide


def _values(digest: TensorDigest) -> Values:
    if digest.values is None:
        raise UndecidedError(
            "E_NO_VALUES",
            f"The values of {digest.key} were not kept, so that no tolerance can be applied.",
            "Record both runs with Digests(values_bytes=...), or compare without a tolerance.",
        )
    values = decoded(digest.dtype, digest.values)
    if values.dtype.kind == "b":
        return values.view(np.uint8)
    if values.dtype.kind == "c":
        return values.view(f"<f{values.itemsize // 2}")
    return values


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, np.integer) else f"{float(value):.9g}"
