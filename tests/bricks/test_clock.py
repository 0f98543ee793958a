"""The brick clock: exact sums on a fake clock, and one error for each wrong use."""

from array import array
from collections import Counter
from contextlib import ExitStack
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.bricks import BrickProfiler, brick, start, stop
from pytest_flamegate.bricks.marks import FOLD_AT
from pytest_flamegate.bricks.record import find_bucket
from pytest_flamegate.bricks.totals import CallSums
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from tests.bricks.clocks import FakeClock, FakeDevice, by_name


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_record_of_a_brick_within_another(clock: FakeClock) -> None:
    with BrickProfiler(clock=clock) as profiler:
        for elements in (8, 16):
            with brick("GateProjection", elements=elements, layer=2, bytes=5, flops=7):
                clock.pass_(100)
                activation = start("SiLU", elements=1, layer=2)
                clock.pass_(40)
                stop(activation, elements=2)
                clock.pass_(10)
    recorded = profiler.recorded()
    gate, silu = (by_name(recorded)[name] for name in ("GateProjection", "Activation"))
    assert (gate.calls, gate.total_ns, gate.self_ns) == (2, 300, 220)
    assert (gate.min_ns, gate.max_ns) == (150, 150)
    assert gate.durations == {str(find_bucket(150)): 2}
    assert (gate.elements, gate.bytes, gate.flops) == (24, 10, 14)
    assert (gate.layer, gate.category, gate.provenance) == (2, "FFN", "measured_wall")
    assert (silu.calls, silu.total_ns, silu.elements) == (2, 80, 6)
    assert (recorded.wall_ns, recorded.unended) == (300, 0)
    assert [(thread.self_ns, thread.calls) for thread in recorded.lanes] == [(300, 4)]


def test_own_times_between_calls_within_are_cut_to_the_fastest_quarter(clock: FakeClock) -> None:
    with BrickProfiler(clock=clock) as profiler:
        for own_ns in (30, 20, 5_000, 20, 25):
            with brick("FeedForward"):
                clock.pass_(own_ns)
                with brick("Activation"):
                    clock.pass_(own_ns * 10)
        with brick("FeedForward"):
            clock.pass_(7)
    block, leaf = (by_name(profiler.recorded())[name] for name in ("FeedForward", "Activation"))
    assert block.self_ns == 5_102
    assert block.typical_ns == pytest.approx(5 * 20 + 7, abs=1)  # buckets have a width
    assert leaf.typical_ns is None


def test_own_times_do_not_depend_on_how_calls_are_split_over_threads() -> None:
    pairs = [(1_000, 1_000 + own_ns) for own_ns in (30, 20, 5_000, 20, 25, 7, 900_000, 21)]
    whole, parts = CallSums(), CallSums()
    whole.add_log(array("q"), array("q", chain(*pairs)), is_recursive=False)
    for pair in pairs:
        one = CallSums()
        one.add_log(array("q"), array("q", pair), is_recursive=False)
        parts.merge(one)
    joined, split = (
        each.build_totals("B", None, "decode", "Other", "measured_wall") for each in (whole, parts)
    )
    assert joined == split
    assert joined.typical_ns == pytest.approx(7 * 20 + 7, rel=0.02)


def test_rows_are_split_by_name_layer_and_phase(clock: FakeClock) -> None:
    with BrickProfiler(clock=clock) as profiler:
        profiler.phase = "prefill"
        with brick("Qkv", layer=0), brick("Quantize", category="FFN"):
            profiler.phase = "decode"
        with brick("QkvProjection", layer=1):
            pass
        with brick("Quantize"):
            pass
    assert [(t.name, t.layer, t.phase, t.category) for t in profiler.recorded().totals] == [
        ("QkvProjection", 0, "prefill", "Attention"),
        ("QkvProjection", 1, "decode", "Attention"),
        ("Quantize", None, "decode", "FFN"),
        ("Quantize", None, "prefill", "FFN"),
    ]


def test_folding_loses_no_call(clock: FakeClock) -> None:
    durations = [number % 300 for number in range(2 * FOLD_AT + 7)]
    with BrickProfiler(clock=clock) as profiler:
        for duration in durations:
            with brick("A"):
                clock.pass_(duration)
                with brick("B"):
                    clock.pass_(1)
        assert profiler._recording is not None
        (thread,) = profiler._recording._running.values()
        logs = [log for by_layer in thread.logs.values() for log in by_layer.values()]
        assert sum(len(log.leaves) + len(log.nested) for log in logs) <= 3 * FOLD_AT
    a = by_name(profiler.recorded())["A"]
    assert (a.calls, a.self_ns) == (len(durations), sum(durations))
    buckets = Counter(find_bucket(duration + 1) for duration in durations)
    assert a.durations == {str(number): calls for number, calls in buckets.items()}


TREES = st.recursive(
    st.tuples(st.sampled_from("ABC"), st.integers(0, 50), st.just(())),
    lambda inner: st.tuples(
        st.sampled_from("ABC"), st.integers(0, 50), st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=30,
)


def _run(
    tree: Any, clock: FakeClock, sums: dict[str, list[int]], above: tuple[str, ...] = ()
) -> int:
    """Run a tree of calls, add calls, total, own time and elements to ``sums``; return its time."""
    name, ns, within = tree
    took: int = ns * (len(within) + 1)
    row = sums.setdefault(name, [0, 0, 0, 0])
    row[2] += took
    with brick(name, elements=ns):
        for each in within:
            clock.pass_(ns)
            took += _run(each, clock, sums, (*above, name))
        clock.pass_(ns)
    for place, value in ((0, 1), (1, 0 if name in above else took), (3, ns)):
        row[place] += value
    return took


@given(st.lists(TREES, max_size=4))
def test_random_call_trees_match_a_plain_reference(trees: list[Any]) -> None:
    for keep_calls in (0, 1_000):
        clock = FakeClock()
        sums: dict[str, list[int]] = {}
        with BrickProfiler(clock=clock, keep_calls=keep_calls) as profiler:
            wall_ns = sum(_run(tree, clock, sums) for tree in trees)
        recorded = profiler.recorded()
        assert {
            name: [each.calls, each.total_ns, each.self_ns, each.elements]
            for name, each in by_name(recorded).items()
        } == sums
        assert recorded.wall_ns == wall_ns == sum(thread.self_ns for thread in recorded.lanes)
        assert sum(call.self_ns for call in recorded.calls) == (wall_ns if keep_calls else 0)


NAMES: tuple[Any, ...] = ("", 7, [], "A" * 257, "A\ud800")
INVALID: tuple[dict[str, Any], ...] = (
    *({"name": name} for name in NAMES),
    {"name": [], "category": "FFN"},
    {"category": "Magic"},
    *({"layer": layer} for layer in (-1, 2**63, "first")),
    *({"elements": elements} for elements in (-1, "3", np.ones(3))),
    {"bytes": -1},
    {"elements": -1, "bytes": None},
    {"flops": "3"},
)


@pytest.mark.parametrize("keep_calls", [0, 9])
@pytest.mark.parametrize("arguments", INVALID, ids=lambda each: str(each)[:40])
def test_invalid_argument_raises(arguments: dict[str, Any], keep_calls: int) -> None:
    with BrickProfiler(keep_calls=keep_calls), pytest.raises(UsageError, match="E_BRICK_ARGUMENT"):
        brick(**{"name": "A", **arguments})


@pytest.mark.parametrize("kernel", [5, "k" * 257, "\ud800"])
def test_invalid_kernel_raises(kernel: Any) -> None:
    with BrickProfiler(keep_calls=2), pytest.raises(UsageError, match="E_BRICK_ARGUMENT"):
        brick("A", kernel=kernel)


def test_name_has_one_category() -> None:
    with BrickProfiler():
        brick("A", category="FFN")
        for name, category in (("A", "Norm"), ("Qkv", "FFN")):
            with pytest.raises(UsageError, match=r"E_BRICK_ARGUMENT.*elsewhere"):
                brick(name, category=category)  # type: ignore[arg-type]


DEVICE = FakeDevice(FakeClock())


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"keep_calls": 9}, {"sync": "immediate", "synchronise": int}),
        {"sync": "deferred", "synchronise": int, "event": DEVICE.event},
    ],
    ids=["plain", "kept", "immediate", "deferred"],
)
def test_wrong_end_raises(options: dict[str, Any]) -> None:
    with BrickProfiler(**options) as profiler:
        outer, inner = start("A"), start("B")
        stop(outer)
        for handle in (inner, outer):
            with pytest.raises(UsageError, match="E_BRICK_END"):
                stop(handle)
        with pytest.raises(UsageError, match="E_BRICK_ARGUMENT"):
            stop(start("A"), elements="3")  # type: ignore[arg-type]
        # An exception of the engine is not replaced.
        outside, inside = brick("A"), brick("B")
        outside.__exit__(None, None, None)
        inside.__exit__(KeyError, KeyError(), None)
    recorded = profiler.recorded()
    assert (by_name(recorded)["A"].calls, recorded.unended) == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "E_BRICKS_STATE"),
        ({"sync": "soon"}, "E_BRICK_ARGUMENT"),
        ({"sync": "immediate"}, "E_BRICK_ARGUMENT"),
        ({"sync": "deferred", "synchronise": int}, "E_BRICK_ARGUMENT"),
    ],
)
def test_profiler_that_cannot_record_raises(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError, match=code):
        BrickProfiler(**arguments).recorded()
    with BrickProfiler(), pytest.raises(UsageError, match=code):
        BrickProfiler(**arguments).__enter__()


@pytest.mark.parametrize("elements", [(1.5,), (3, -4), (2**62, 2**62)])
def test_record_with_an_invalid_sum_raises(elements: tuple[Any, ...]) -> None:
    with BrickProfiler() as profiler:
        stop(start("A", *elements[:1]), *elements[1:])
    with pytest.raises(UsageError, match="E_BRICK_ARGUMENT"):
        profiler.recorded()


def test_calls_that_never_end_are_only_counted(clock: FakeClock) -> None:
    with BrickProfiler(clock=clock) as profiler:
        with brick("A"):
            clock.pass_(1)
            lost = start("Lost")
            clock.pass_(10)
            with brick("B"):
                clock.pass_(100)
            clock.pass_(1_000)
        with pytest.raises(UsageError, match="E_BRICK_END"):
            stop(lost)
        start("Open")
    recorded = profiler.recorded()
    assert {n: (t.total_ns, t.self_ns) for n, t in by_name(recorded).items()} == {
        "A": (1_111, 1_011),
        "B": (100, 100),
    }
    assert recorded.unended == 2


def test_calls_that_outlive_the_profiler_end_silently(clock: FakeClock) -> None:
    with ExitStack() as stack:
        profiler = stack.enter_context(BrickProfiler(clock=clock))
        with brick("A"):
            clock.pass_(2)
        with brick("B"):
            stack.close()
            clock.pass_(4)
    recorded = profiler.recorded()
    assert {n: t.total_ns for n, t in by_name(recorded).items()} == {"A": 2}
    assert (recorded.wall_ns, recorded.unended) == (2, 1)


def test_second_use_of_a_profiler_starts_afresh(clock: FakeClock) -> None:
    profiler = BrickProfiler(clock=clock, keep_calls=5)
    for name in "AB":
        with profiler, brick(name):
            clock.pass_(1)
    recorded = profiler.recorded()
    assert [total.name for total in recorded.totals] == ["B"]
    assert [call.name for call in recorded.calls] == ["B"]


def test_record_while_the_profiler_is_on(clock: FakeClock) -> None:
    with BrickProfiler(clock=clock) as profiler:
        assert profiler.recorded().totals == ()
        with brick("A"), brick("B"):
            clock.pass_(3)
            first = profiler.recorded()
        second = profiler.recorded()
    assert (first.totals, first.unended) == ((), 2)
    assert {t.name: t.total_ns for t in second.totals} == {"A": 3, "B": 3}
    assert profiler.recorded() == second


def test_clock_that_goes_back_raises(clock: FakeClock) -> None:
    with BrickProfiler(clock=clock) as profiler:
        with brick("A"):
            clock.pass_(10)
            with brick("B"):
                clock.pass_(-1)
        clock.pass_(100)
        with pytest.raises(ToolError, match="E_BRICKS_CLOCK"):
            profiler.recorded()
    with pytest.raises(FlamegateError, match="E_BRICKS_CLOCK"):
        profiler.recorded()


def test_last_calls_are_kept_with_their_arguments(clock: FakeClock) -> None:
    with BrickProfiler(clock=clock, keep_calls=3) as profiler:
        profiler.phase = "decode"
        for token in range(5):
            with brick("Layer", layer=token):
                clock.pass_(10)
                with brick("Gate", elements=token, bytes=8, kernel="gemv"):
                    clock.pass_(1)
    before, layer, inner = profiler.recorded().calls
    assert (before.name, before.layer, before.parent) == ("Layer", 3, None)
    assert (layer.name, layer.layer, layer.phase, layer.parent) == ("Layer", 4, "decode", None)
    assert (inner.name, inner.parent, inner.elements, inner.bytes) == ("GateProjection", 1, 4, 8)
    assert (layer.start_ns, layer.end_ns, layer.self_ns, inner.self_ns) == (1_044, 1_055, 10, 1)
    assert (inner.kernel, layer.kernel) == ("gemv", "")
