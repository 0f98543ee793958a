"""The brick clock: exact sums on a fake clock, and one error for each wrong use."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.bricks import BrickProfiler, brick, profiled, start, stop
from pytest_flamegate.bricks.marks import FOLD_AT
from pytest_flamegate.bricks.record import find_bucket
from pytest_flamegate.bricks.threads import CallLog
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from tests.bricks.clocks import FakeClock, by_name


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_record_of_a_brick_within_another(clock: FakeClock) -> None:
    with BrickProfiler(clock=clock) as profiler:
        for elements in (8, 16):
            with brick("GateProjection", elements=elements, layer=2, bytes=5, flops=7):
                clock.pass_(100)
                with brick("SiLU", elements=3, layer=2):
                    clock.pass_(40)
                clock.pass_(10)
    recorded = profiler.recorded()
    gate, activation = (by_name(recorded)[name] for name in ("GateProjection", "Activation"))
    assert (gate.calls, gate.total_ns, gate.self_ns) == (2, 300, 220)
    assert (gate.min_ns, gate.max_ns) == (150, 150)
    assert gate.durations == {str(find_bucket(150)): 2}
    assert (gate.elements, gate.bytes, gate.flops) == (24, 10, 14)
    assert (gate.layer, gate.category, gate.provenance) == (2, "FFN", "measured_wall")
    assert (activation.calls, activation.total_ns, activation.elements) == (2, 80, 6)
    assert recorded.wall_ns == 300
    assert recorded.unended == 0
    assert [(thread.self_ns, thread.calls) for thread in recorded.lanes] == [(300, 4)]


def test_total_of_a_recursive_brick_counts_its_outermost_call(clock: FakeClock) -> None:
    def walk(depth: int) -> None:
        with brick("Tree", layer=depth):
            clock.pass_(10)
            if depth:
                with brick("Step"):
                    clock.pass_(1)
                    walk(depth - 1)

    with BrickProfiler(clock=clock) as profiler:
        walk(3)
    totals = profiler.recorded().totals
    assert sum(each.total_ns for each in totals if each.name == "Tree") == 43
    assert sum(each.self_ns for each in totals if each.name == "Tree") == 40
    (step,) = (each for each in totals if each.name == "Step")
    assert (step.calls, step.total_ns, step.self_ns, step.max_ns) == (3, 33, 3, 33)


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


def test_call_that_raises_is_recorded_and_its_exception_passes(clock: FakeClock) -> None:
    def fails() -> None:
        with brick("A"), brick("B"):
            clock.pass_(5)
            raise KeyError

    with BrickProfiler(clock=clock) as profiler, pytest.raises(KeyError):
        fails()
    assert {n: (t.calls, t.total_ns) for n, t in by_name(profiler.recorded()).items()} == {
        "A": (1, 5),
        "B": (1, 5),
    }


def test_stop_adds_elements(clock: FakeClock) -> None:
    assert start("A") is None
    stop(None, elements=3)
    with BrickProfiler(clock=clock) as profiler:
        handle = start("A", elements=1)
        clock.pass_(2)
        stop(handle, elements=4)
    assert (by_name(profiler.recorded())["A"].elements, clock.now) == (5, 1_002)


def test_folding_loses_no_call(clock: FakeClock) -> None:
    durations = [number % 300 for number in range(2 * FOLD_AT + 7)]
    with BrickProfiler(clock=clock) as profiler:
        for duration in durations:
            with brick("A"):
                clock.pass_(duration)
                with brick("B"):
                    clock.pass_(1)
        held = sum(len(log.leaves) + len(log.nested) for log in _logs(profiler))
    a = by_name(profiler.recorded())["A"]
    assert held <= 3 * FOLD_AT
    assert (a.calls, a.self_ns) == (len(durations), sum(durations))
    assert a.durations == {
        str(number): calls
        for number, calls in Counter(find_bucket(d + 1) for d in durations).items()
    }


def _logs(profiler: BrickProfiler) -> Iterator[CallLog]:
    assert profiler._recording is not None
    for thread in profiler._recording.list_clocks():
        for logs in thread.logs.values():
            yield from logs.values()


TREES = st.recursive(
    st.tuples(st.sampled_from("ABC"), st.integers(0, 50), st.just(())),
    lambda inner: st.tuples(
        st.sampled_from("ABC"), st.integers(0, 50), st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=30,
)


def _run(tree: Any, clock: FakeClock) -> None:
    name, ns, within = tree
    with brick(name, elements=ns):
        for each in within:
            clock.pass_(ns)
            _run(each, clock)
        clock.pass_(ns)


def _reference(tree: Any, above: tuple[str, ...], sums: dict[str, list[int]]) -> int:
    name, ns, within = tree
    own = ns * (len(within) + 1)
    took: int = own + sum(_reference(each, (*above, name), sums) for each in within)
    row = sums.setdefault(name, [0, 0, 0, 0])
    for place, value in enumerate((1, 0 if name in above else took, own, ns)):
        row[place] += value
    return took


@given(st.lists(TREES, max_size=4))
def test_random_call_trees_match_a_plain_reference(trees: list[Any]) -> None:
    for keep_calls in (0, 1_000):
        clock = FakeClock()
        with BrickProfiler(clock=clock, keep_calls=keep_calls) as profiler:
            for tree in trees:
                _run(tree, clock)
        recorded = profiler.recorded()
        sums: dict[str, list[int]] = {}
        wall = sum(_reference(tree, (), sums) for tree in trees)
        assert {
            name: [each.calls, each.total_ns, each.self_ns, each.elements]
            for name, each in by_name(recorded).items()
        } == sums
        assert recorded.wall_ns == wall == sum(thread.self_ns for thread in recorded.lanes)
        assert sum(call.self_ns for call in recorded.calls) == (wall if keep_calls else 0)


def _ended_twice() -> None:
    handle = start("A")
    stop(handle)
    stop(handle)


def _left_open() -> None:
    outer = start("A")
    inner = start("B")
    stop(outer)
    stop(inner)


def _generator() -> None:
    @profiled
    def values() -> Iterator[int]:
        yield 1


WRONG: dict[str, tuple[str, Callable[[], Any]]] = {
    "ended twice": ("E_BRICK_END", _ended_twice),
    "ended after the one around it": ("E_BRICK_END", _left_open),
    "unknown category": ("E_BRICK_ARGUMENT", lambda: brick("A", category="Magic")),  # type: ignore[arg-type]
    "another category": (
        "E_BRICK_CATEGORY",
        lambda: [brick("A", category="FFN"), brick("A", category="Norm")],
    ),
    "another category than that of a known brick": (
        "E_BRICK_CATEGORY",
        lambda: brick("Qkv", category="FFN"),
    ),
    "negative elements": ("E_BRICK_ARGUMENT", lambda: brick("A", elements=-1)),
    "negative bytes": ("E_BRICK_ARGUMENT", lambda: brick("A", bytes=-1)),
    "empty name": ("E_BRICK_ARGUMENT", lambda: brick("")),
    "a number as a name": ("E_BRICK_ARGUMENT", lambda: brick(7)),  # type: ignore[arg-type]
    "a list as a name": ("E_BRICK_ARGUMENT", lambda: brick([])),  # type: ignore[arg-type]
    "a text as a layer": ("E_BRICK_ARGUMENT", lambda: brick("A", layer="first")),  # type: ignore[arg-type]
    "a list as a name, with a category": (
        "E_BRICK_ARGUMENT",
        lambda: brick([], category="FFN"),  # type: ignore[arg-type]
    ),
    "a long name": ("E_BRICK_ARGUMENT", lambda: brick("A" * 257)),
    "half a surrogate pair as a name": ("E_BRICK_ARGUMENT", lambda: brick("A\ud800")),
    "a negative layer": ("E_BRICK_ARGUMENT", lambda: brick("A", layer=-1)),
    "a layer beyond 63 bits": ("E_BRICK_ARGUMENT", lambda: brick("A", layer=2**63)),
    "a text as elements": ("E_BRICK_ARGUMENT", lambda: brick("A", elements="3")),  # type: ignore[arg-type]
    "an array as elements": ("E_BRICK_ARGUMENT", lambda: brick("A", elements=np.ones(3))),  # type: ignore[arg-type]
    "None as bytes": ("E_BRICK_ARGUMENT", lambda: brick("A", elements=-1, bytes=None)),  # type: ignore[arg-type]
    "a text as operations": ("E_BRICK_ARGUMENT", lambda: brick("A", flops="3")),  # type: ignore[arg-type]
    "a text as elements of stop()": ("E_BRICK_ARGUMENT", lambda: stop(start("A"), elements="3")),  # type: ignore[arg-type]
    "a generator": ("E_BRICK_GENERATOR", _generator),
    "two profilers": ("E_BRICKS_STATE", BrickProfiler().__enter__),
    "unknown sync mode": ("E_BRICKS_SYNC", lambda: BrickProfiler(sync="soon")),  # type: ignore[arg-type]
    "a sync mode without synchronise": ("E_BRICKS_SYNC", lambda: BrickProfiler(sync="immediate")),
    "deferred without events": (
        "E_BRICKS_SYNC",
        lambda: BrickProfiler(sync="deferred", synchronise=int),  # type: ignore[arg-type]
    ),
    "never on": ("E_BRICKS_STATE", lambda: BrickProfiler().recorded()),
}


@pytest.mark.parametrize("keep_calls", [0, 9])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_use_raises_its_code(wrong: str, keep_calls: int) -> None:
    code, use = WRONG[wrong]
    with BrickProfiler(keep_calls=keep_calls), pytest.raises(UsageError) as error:
        use()
    assert error.value.code == code


def _half_an_element() -> None:
    with brick("A", elements=1.5):  # type: ignore[arg-type]
        pass


def _negative_sum() -> None:
    stop(start("A", elements=3), elements=-4)


def _sum_beyond_63_bits() -> None:
    for _ in range(2):
        with brick("A", elements=2**62):
            pass


@pytest.mark.parametrize("use", [_half_an_element, _negative_sum, _sum_beyond_63_bits])
def test_record_with_an_invalid_sum_raises(use: Callable[[], None]) -> None:
    with BrickProfiler() as profiler:
        use()
    with pytest.raises(UsageError, match="E_BRICK_ARGUMENT"):
        profiler.recorded()


@pytest.mark.parametrize("kernel", [5, "k" * 257, "\ud800"])
def test_invalid_kernel_raises(kernel: Any) -> None:
    with BrickProfiler(keep_calls=2), pytest.raises(UsageError, match="E_BRICK_ARGUMENT"):
        brick("A", kernel=kernel)


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


def test_exception_of_the_engine_is_not_replaced() -> None:
    with BrickProfiler() as profiler:
        outer, inner = brick("A"), brick("B")
        outer.__exit__(None, None, None)
        inner.__exit__(KeyError, KeyError(), None)
    assert profiler.recorded().unended == 1


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
