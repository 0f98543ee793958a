"""Calls on a device: when it is waited for, and the time of each call by then."""

from __future__ import annotations

import math

import pytest

from pytest_flamegate.bricks import BrickProfiler, brick, start
from pytest_flamegate.bricks.record import Sync
from pytest_flamegate.core.errors import ToolError, UsageError
from tests.bricks.clocks import FakeClock, FakeDevice, by_name


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def device(clock: FakeClock) -> FakeDevice:
    return FakeDevice(clock)


def _three(clock: FakeClock, until: int) -> None:
    began = clock.now
    for name, at in (("A", 0), ("B", 100), ("C", 300)):
        clock.now = began + at
        with brick(name, elements=2, layer=at):
            clock.pass_(10)
    clock.now = began + until


def test_deferred_calls_last_until_the_next_start(clock: FakeClock) -> None:
    profiler = BrickProfiler(sync="deferred", synchronise=lambda: None, clock=clock, keep_calls=9)
    with profiler:
        _three(clock, until=600)
        queue = profiler._queue
        assert queue is not None
        assert sum(map(len, queue.pending.values())) == 3
    assert not queue.pending
    recorded = profiler.recorded()
    totals = by_name(recorded)
    assert [totals[name].self_ns for name in "ABC"] == [100, 200, 300]
    assert [totals[name].total_ns for name in "ABC"] == [100, 200, 300]
    assert [totals[name].latency_ns for name in "ABC"] == [600, 500, 300]
    assert {total.provenance for total in recorded.totals} == {"derived"}
    assert recorded.lanes[0].self_ns == recorded.wall_ns == 600
    assert [(c.start_ns - 1_000, c.end_ns - 1_000) for c in recorded.calls] == [
        (0, 100),
        (100, 300),
        (300, 600),
    ]


@pytest.mark.parametrize("waits", [0, 400])
def test_per_layer_waits_after_each_layer(clock: FakeClock, waits: int) -> None:
    syncs = []

    def synchronise() -> None:
        syncs.append(clock.now)
        clock.pass_(waits)

    with BrickProfiler(sync="per_layer", synchronise=synchronise, clock=clock) as profiler:
        syncs.clear()
        for layer in (0, 0, 1, 1, 1):
            with brick("Gate", layer=layer):
                clock.pass_(10)
            with brick("Up"):
                clock.pass_(20)
        assert len(syncs) == 1
    assert len(syncs) == 2
    recorded = profiler.recorded()
    gates = {total.layer: total for total in recorded.totals if total.name == "GateProjection"}
    assert {layer: (gate.calls, gate.self_ns) for layer, gate in gates.items()} == {
        0: (2, 20),
        1: (3, 30),
    }
    (up,) = (total for total in recorded.totals if total.name == "UpProjection")
    assert up.self_ns == 5 * 20 + 2 * waits
    assert gates[0].latency_ns == (60 + waits) + (30 + waits)


def test_deferred_calls_nest(clock: FakeClock) -> None:
    profiler = BrickProfiler(sync="deferred", synchronise=lambda: None, clock=clock)
    with profiler:
        with brick("Layer"):
            clock.pass_(5)
            lost = start("Lost")
            clock.pass_(7)
            with brick("Gate"):
                clock.pass_(10)
                profiler.recorded()
                clock.pass_(1)
                with brick("Layer"):
                    clock.pass_(100)
            assert lost is not None
        clock.pass_(1_000)
    recorded = profiler.recorded()
    totals = by_name(recorded)
    assert {n: (t.calls, t.total_ns, t.self_ns) for n, t in totals.items()} == {
        "Layer": (2, 1_115, 1_105),
        "GateProjection": (1, 1_110, 10),
    }
    assert recorded.unended == 1


def test_device_events_time_the_device(clock: FakeClock, device: FakeDevice) -> None:
    profiler = BrickProfiler(
        sync="deferred",
        synchronise=device.synchronise,
        event=device.event,
        clock=clock,
        keep_calls=9,
    )
    with profiler, brick("Layer"):
        for name, work_ns in (("Gate", 3_000), ("Up", 5_000)):
            with brick(name):
                clock.pass_(10)
                device.enqueue(work_ns)
        device.enqueue(2_000)
    recorded = profiler.recorded()
    totals = by_name(recorded)
    assert {n: (t.total_ns, t.self_ns, t.latency_ns) for n, t in totals.items()} == {
        "Layer": (10_010, 2_000, 0),
        "GateProjection": (3_010, 3_010, 0),
        "UpProjection": (5_000, 5_000, 0),
    }
    assert {total.provenance for total in recorded.totals} == {"measured_device_event"}
    assert [(c.name, c.start_ns, c.end_ns) for c in recorded.calls] == [
        ("Layer", 1_000, 11_010),
        ("GateProjection", 1_000, 4_010),
        ("UpProjection", 4_010, 9_010),
    ]


@pytest.mark.parametrize("elapsed_ms", [math.nan, math.inf, -1.0])
def test_invalid_event_times_raise(clock: FakeClock, elapsed_ms: float) -> None:
    class Event:
        def record(self) -> None: ...
        def elapsed_time(self, other: Event) -> float:
            return elapsed_ms

    profiler = BrickProfiler(sync="deferred", synchronise=lambda: None, event=Event, clock=clock)
    with profiler, brick("A"):
        pass
    with pytest.raises(ToolError, match="E_BRICKS_CLOCK"):
        profiler.recorded()


def test_immediate_calls_time_only_their_own_work(clock: FakeClock, device: FakeDevice) -> None:
    with BrickProfiler(
        sync="immediate", synchronise=device.synchronise, event=device.event, clock=clock
    ) as profiler:
        device.enqueue(1_000)
        with brick("Gate"):
            device.enqueue(70)
        with brick("Up"):
            device.enqueue(9)
    totals = by_name(profiler.recorded())
    assert {n: t.total_ns for n, t in totals.items()} == {"GateProjection": 70, "UpProjection": 9}
    assert {t.provenance for t in totals.values()} == {"measured_wall"}


def test_device_is_not_waited_for_without_a_sync_mode(clock: FakeClock, device: FakeDevice) -> None:
    with BrickProfiler(synchronise=device.synchronise, event=device.event, clock=clock), brick("A"):
        pass
    assert device.syncs == 0


def test_error_of_the_device_passes_and_the_call_is_recorded(clock: FakeClock) -> None:
    fails = False

    def synchronise() -> None:
        if fails:
            raise RuntimeError("device lost")

    with BrickProfiler(sync="immediate", synchronise=synchronise, clock=clock) as profiler:
        scope = brick("A")
        clock.pass_(3)
        fails = True
        with pytest.raises(RuntimeError, match="device lost"):
            scope.__exit__(None, None, None)
        fails = False
    assert by_name(profiler.recorded())["A"].total_ns == 3


@pytest.mark.parametrize("sync", ["immediate", "deferred", "per_layer"])
def test_ends_out_of_order_raise_with_a_device(clock: FakeClock, sync: Sync) -> None:
    with BrickProfiler(sync=sync, synchronise=lambda: None, clock=clock) as profiler:
        outer, inner = brick("A"), brick("B")
        outer.__exit__(None, None, None)
        with pytest.raises(UsageError, match="E_BRICK_END"):
            inner.__exit__(None, None, None)
        with pytest.raises(UsageError, match="E_BRICK_END"):
            outer.__exit__(None, None, None)
    recorded = profiler.recorded()
    assert ([t.name for t in recorded.totals], recorded.unended) == (["A"], 1)
