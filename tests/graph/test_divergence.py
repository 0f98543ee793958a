"""The first tensor in which two runs differ, by bytes or beyond a tolerance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_flamegate.core.errors import UndecidedError, UsageError
from pytest_flamegate.graph.divergence import Tolerance, divergence, sentence
from pytest_flamegate.graph.tensors import Digests, Tensor, TensorDigest, TensorKey

NAN, INF = math.nan, math.inf


def run(*tensors: tuple[str, Any], values_bytes: int = 1 << 20) -> Digests:
    found = Digests(values_bytes=values_bytes)
    for position, (name, values) in enumerate(tensors):
        array = values if isinstance(values, np.ndarray) else np.array(values, np.float32)
        found.record(name, array, layer=1, position=position)
    return found


def both(one: Any, other: Any, *limits: float) -> Any:
    return divergence(run(("a", one)), run(("a", other)), tolerance=Tolerance(*limits))


def test_equal_runs_are_the_same() -> None:
    found = divergence(run(("a", [1.0]), ("b", [2.0])), run(("a", [1.0]), ("b", [2.0])))
    assert found.same
    assert (found.compared, found.first) == (2, None)
    assert sentence(found) == "All 2 tensors that both runs have are the same."


def test_first_difference_is_named_with_both_digests() -> None:
    one = run(("z", [1.0]), ("b", [2.0]), ("a", [3.0]))
    other = run(("z", [1.0]), ("b", [2.5]), ("a", [3.5]))
    found = divergence(one, other)
    assert (found.same, found.differing) == (False, 2)
    assert found.first is not None
    key = TensorKey("b", 1, 1)
    assert found.first.first.key == key
    text = sentence(found)
    assert one.tensors[key].sha256[:16] in text
    assert other.tensors[key].sha256[:16] in text
    assert text.startswith("The runs differ from b, layer 1, position 1 on: float32 [1] ")
    assert text.endswith("2 of 3 tensors differ.")


def test_missing_and_extra_tensors_are_a_difference() -> None:
    found = divergence(run(("a", [1.0]), ("b", [2.0])), run(("a", [1.0]), ("c", [2.0])))
    assert (found.same, found.first) == (False, None)
    assert (found.missing, found.extra) == ((TensorKey("b", 1, 1),), (TensorKey("c", 1, 1),))
    assert "1 are only in the first run: b, layer 1, position 1." in sentence(found)
    assert "1 are only in the second run: c" in sentence(found)
    nothing = divergence(run(*[(name, [1.0]) for name in "abcde"]), run(("z", [1.0])))
    assert not nothing.same
    assert sentence(nothing).startswith("The runs have no tensor in common. 5 are only in the ")
    assert "c, layer 1, position 2 and 2 more." in sentence(nothing)


def test_empty_run_raises() -> None:
    some = run(("a", [1.0]))
    for runs, name in (((Digests(), some), "first"), ((some, Digests()), "second")):
        with pytest.raises(UndecidedError, match=f"E_NO_DIGESTS: The {name} run"):
            divergence(*runs)


@pytest.mark.parametrize(
    ("one", "other", "atol", "rtol", "same"),
    [
        ([1.0], [1.5], 0.5, 0, True),
        ([1.0], [1.5], 0.499, 0, False),
        ([100.0], [101.0], 0, 0.01, True),
        ([100.0], [101.1], 0, 0.01, False),
        ([100.0], [101.5], 0.5, 0.01, True),
        ([0.0], [-0.0], 0, 0, True),
        ([NAN, 1], [NAN, 1], 0, 0, True),
        ([NAN], [1.0], 1e30, 0, False),
        ([INF], [INF], 0, 0, True),
        ([INF], [-INF], 1e30, 1e30, False),
        ([INF], [3e38], 1e30, 1e30, False),
        ([1.0], [INF], 1e30, 0, False),
        (np.array([1e308]), np.array([-1e308]), 1e300, 1, False),
        (np.array([2**62]), np.array([2**62 + 1]), 9, 9, False),
        (np.array([True]), np.array([True]), 0, 0, True),
        (np.array([1.0], np.float16), np.array([1.0], np.float32), 0, 0, True),
        (np.array([1.0]), np.array([1]), 9, 9, False),
        (np.ones((1, 2)), np.ones((2, 1)), 9, 9, False),
        (np.ones((0, 2)), np.ones((0, 2)), 0, 0, True),
    ],
)
def test_floats_agree_within_the_tolerance(
    one: Any, other: Any, atol: float, rtol: float, same: bool
) -> None:
    assert both(one, other, atol, rtol).same is same


def test_largest_difference_is_located() -> None:
    one = np.arange(12, dtype=np.float32).reshape(3, 4)
    other = one.copy()
    other[2, 1] += 0.5
    other[0, 3] -= 0.25
    found = both(one, other, 0.3)
    assert found.first.beyond == 1
    largest = found.largest.largest
    assert (largest.index, largest.difference) == ((2, 1), 0.5)
    assert sentence(found) == (
        "The runs differ from a, layer 1, position 0 on: 1 values, at most 0.5 (9 against 9.5) at "
        "[2, 1]; 1 of 1 tensors differ. The largest difference is 0.5 (9 against 9.5) at [2, 1] of "
        "a, layer 1, position 0."
    )
    within = both(one, other, 1)
    assert within.same
    assert "the same within the tolerance. The largest difference is 0.5" in sentence(within)


def test_largest_difference_is_one_beyond_the_tolerance() -> None:
    # A large value may differ by more and still be within a relative tolerance.
    found = both([1e6, 1.0], [1e6 + 100, 1.1], 0, 1e-3)
    assert found.first.largest.index == (1,)
    unlike = both([1.0, NAN], [NAN, NAN], 1)
    assert unlike.first.beyond == 1
    assert "at most inf (1 against nan) at [0]" in sentence(unlike)


def test_bfloat16_is_compared_with_float32() -> None:
    one = Digests(values_bytes=100)
    one.record("a", np.array([1.0, 2.0], np.float32))
    bits = np.array([0x3F80, 0x4001], "<u2")
    key, narrow = TensorKey("a"), Tensor("bfloat16", (2,), bits)
    found = Digests()
    digest = TensorDigest(key, "bfloat16", (2,), narrow.sha256, 1, bits.tobytes())
    found.tensors[key] = digest
    assert divergence(one, found, tolerance=Tolerance(0, 0.01)).same
    assert not divergence(one, found, tolerance=Tolerance(0, 0.001)).same


def test_tolerance_is_valid_and_needs_the_values() -> None:
    bare = run(("a", [1.0]), values_bytes=0)
    with pytest.raises(UndecidedError, match="E_NO_VALUES"):
        divergence(bare, bare, tolerance=Tolerance())
    for limits in ((-1.0, 0.0), (0.0, -1e-9), (INF, 0.0), (0.0, NAN)):
        with pytest.raises(UsageError, match="E_TOLERANCE"):
            both([1.0], [1.0], *limits)
