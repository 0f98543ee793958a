"""The first tensor in which two runs differ, by bytes or beyond a tolerance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_flamegate.core.errors import UndecidedError, UsageError
from pytest_flamegate.graph.divergence import Tolerance, divergence, sentence
from pytest_flamegate.graph.tensors import Digests, Tensor, TensorDigest, TensorKey

EXACT = Tolerance()
NAN, INF = math.nan, math.inf


def run(*tensors: tuple[str, Any], values_bytes: int = 1 << 20) -> Digests:
    found = Digests(values_bytes=values_bytes)
    for position, (name, values) in enumerate(tensors):
        array = values if isinstance(values, np.ndarray) else np.array(values, np.float32)
        found.record(name, array, layer=1, position=position)
    return found


def test_equal_runs_are_the_same() -> None:
    found = divergence(run(("a", [1.0]), ("b", [2.0])), run(("a", [1.0]), ("b", [2.0])))
    assert found.same
    assert (found.compared, found.first) == (2, None)
    assert sentence(found) == "All 2 tensors that both runs have are the same."


def test_first_difference_is_named_with_both_digests() -> None:
    one = run(("z", [1.0]), ("b", [2.0]), ("a", [3.0]))
    other = run(("z", [1.0]), ("b", [2.5]), ("a", [3.5]))
    found = divergence(one, other)
    assert not found.same
    assert found.differing == 2
    assert found.first is not None
    assert found.first.key == TensorKey("b", 1, 1)
    text = sentence(found)
    for digests in (one, other):
        digest = digests.get(TensorKey("b", 1, 1))
        assert digest is not None
        assert digest.sha256[:16] in text
    assert text.startswith("The runs differ from b, layer 1, position 1 on: float32 [1] ")
    assert text.endswith("2 of 3 tensors differ.")


def test_missing_and_extra_tensors_are_a_difference() -> None:
    found = divergence(run(("a", [1.0]), ("b", [2.0])), run(("a", [1.0]), ("c", [2.0])))
    assert not found.same
    assert found.first is None
    assert (found.missing, found.extra) == ((TensorKey("b", 1, 1),), (TensorKey("c", 1, 1),))
    assert "1 are only in the first run: b, layer 1, position 1." in sentence(found)
    assert "1 are only in the second run: c" in sentence(found)
    nothing = divergence(run(("a", [1.0])), run(("b", [1.0])))
    assert not nothing.same
    assert sentence(nothing).startswith("The runs have no tensor in common.")


@pytest.mark.parametrize("empty", [0, 1])
def test_empty_run_raises(empty: int) -> None:
    runs = [run(("a", [1.0])), run(("a", [1.0]))]
    runs[empty] = Digests()
    with pytest.raises(UndecidedError, match="E_NO_DIGESTS"):
        divergence(*runs)
    with pytest.raises(UndecidedError, match="E_NO_DIGESTS"):
        divergence(Digests(), Digests())


def test_other_order_is_noted() -> None:
    one, other = Digests(), Digests()
    for name in ("a", "b", "c"):
        one.record(name, np.ones(1))
    for name in ("a", "c", "b"):
        other.record(name, np.ones(1))
    found = divergence(one, other)
    assert found.same
    assert found.reordered == TensorKey("b")
    assert "order of recording differs from b on" in sentence(found)


def both(one: Any, other: Any, *limits: float) -> Any:
    return divergence(run(("a", one)), run(("a", other)), tolerance=Tolerance(*limits))


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
        ([1.0], [NAN], 1e30, 1, False),
        ([INF], [INF], 0, 0, True),
        ([INF], [-INF], 1e30, 1e30, False),
        ([INF], [3e38], 1e30, 1e30, False),
        ([1.0], [INF], 1e30, 0, False),
        ([-INF], [NAN], 1e30, 0, False),
        (np.array([1e308]), np.array([-1e308]), 1e300, 1, False),
        (np.array([2**63 - 1]), np.array([-(2**63)]), 1e18, 0, False),
        (np.array([2**62]), np.array([2**62 + 1]), 0, 0, False),
        (np.array([2**62]), np.array([2**62 + 1]), 1, 0, True),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64), 0, 0, False),
        (np.array([True]), np.array([False]), 0, 0, False),
        (np.array([1 + 2j]), np.array([1 + 2.5j]), 0.4, 0, False),
        (np.array([1 + 2j]), np.array([1 + 2.5j]), 0.5, 0, True),
        (np.array([1.0], np.float16), np.array([1.0], np.float32), 0, 0, True),
        (np.array([1], np.int32), np.array([1], np.int64), 9, 9, False),
        (np.array([1.0]), np.array([1]), 9, 9, False),
        (np.ones((1, 2)), np.ones((2, 1)), 9, 9, False),
        (np.ones((0, 2)), np.ones((0, 2)), 0, 0, True),
    ],
)
def test_values_agree_within_the_tolerance(
    one: Any, other: Any, atol: float, rtol: float, same: bool
) -> None:
    assert both(one, other, atol, rtol).same is same


def test_largest_difference_is_located() -> None:
    one = np.arange(12, dtype=np.float32).reshape(3, 4)
    other = one.copy()
    other[2, 1] += 0.5
    other[0, 3] -= 0.25
    found = both(one, other, 0.3)
    assert found.first.values.beyond == 1
    assert (found.largest.index, found.largest.difference) == ((2, 1), 0.5)
    assert (found.largest.first, found.largest.second) == ("9", "9.5")
    assert sentence(found) == (
        "The runs differ from a, layer 1, position 0 on: 1 values, at most 0.5 (9 against 9.5) at "
        "[2, 1]; 1 of 1 tensors differ beyond the tolerance. The largest difference is 0.5 "
        "(9 against 9.5) at [2, 1] of a, layer 1, position 0."
    )
    within = both(one, other, 1)
    assert within.same
    assert within.largest.index == (2, 1)
    assert "the same within the tolerance. The largest difference is 0.5" in sentence(within)


def test_largest_difference_is_one_beyond_the_tolerance() -> None:
    """A large value may differ by more and still be within a relative tolerance."""
    found = both([1e6, 1.0], [1e6 + 100, 1.1], 0, 1e-3)
    assert found.first.values.largest.index == (1,)


def test_values_that_are_not_finite_are_counted() -> None:
    found = both([1.0, NAN, INF], [NAN, NAN, INF], 1)
    assert found.first.values.beyond == 1
    assert found.not_finite == 2
    assert (found.largest.first, found.largest.second) == ("1", "nan")
    text = sentence(found)
    assert "at most inf (1 against nan) at [0]" in text
    assert "2 values are NaN or infinite in both." in text


def test_complex_value_is_located() -> None:
    found = both(np.array([[1j, 2j], [3j, 4j]]), np.array([[1j, 2j], [3j, 5j]]), 0.5)
    assert found.largest.index == (1, 1)


def test_bfloat16_is_compared_with_float32() -> None:
    one = Digests(values_bytes=100)
    one.record("a", np.array([1.0, 2.0], np.float32))
    bits = np.array([0x3F80, 0x4001], "<u2")
    narrow = Tensor("bfloat16", (2,), bits)
    found = Digests()
    found.add(TensorDigest(TensorKey("a"), "bfloat16", (2,), narrow.sha256, 1, bits.tobytes()))
    assert divergence(one, found, tolerance=Tolerance(0, 0.01)).same
    assert not divergence(one, found, tolerance=Tolerance(0, 0.001)).same


def test_tolerance_needs_the_values() -> None:
    with pytest.raises(UndecidedError, match="E_NO_VALUES"):
        divergence(
            run(("a", [1.0]), values_bytes=0), run(("a", [1.0]), values_bytes=0), tolerance=EXACT
        )


@pytest.mark.parametrize("limits", [(-1.0, 0.0), (0.0, -1e-9), (INF, 0.0), (0.0, NAN)])
def test_invalid_tolerance_raises(limits: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="E_TOLERANCE"):
        both([1.0], [1.0], *limits)
