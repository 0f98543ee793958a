"""Calls on a device: when it is waited for, and the time of each call by then."""

from __future__ import annotations

import math

import pytest

from pytest_flamegate.bricks import BrickProfiler, brick, start, stop
from pytest_flamegate.bricks.record import Sync
from pytest_flamegate.core.errors import ToolError
from tests.bricks.clocks import FakeClock, FakeDevice, by_name


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice(FakeClock())


def profile(device: FakeDevice, sync: Sync = "deferred", keep_calls: int = 0) -> BrickProfiler:
    return BrickProfiler(
        sync=sync,
        synchronise=device.synchronise,
        event=device.event,
        clock=device.clock,
        keep_calls=keep_calls,
    )


def test_deferred_calls_nest(device: FakeDevice) -> None:
    with profile(device) as profiler:
        with brick("Layer"):
            device.enqueue(5_000)
            start("Lost")
            device.enqueue(7_000)
            with brick("Gate", elements=3, bytes=2):
                device.enqueue(10_000)
                profiler.recorded()
                with brick("Layer"):
                    device.enqueue(100_000)
        device.enqueue(1_000_000)
    recorded = profiler.recorded()
    assert {n: (t.calls, t.total_ns, t.self_ns) for n, t in by_name(recorded).items()} == {
        "Layer": (2, 122_000, 112_000),
        "GateProjection": (1, 110_000, 10_000),
    }
    gate = by_name(recorded)["GateProjection"]
    assert (gate.elements, gate.bytes, recorded.unended) == (3, 2, 1)


def test_device_events_time_the_device(device: FakeDevice) -> None:
    with profile(device, keep_calls=9) as profiler, brick("Layer"):
        for name, work_ns in (("Gate", 3_000), ("Up", 5_000)):
            with brick(name):
                device.clock.pass_(10)
                device.enqueue(work_ns)
        device.enqueue(2_000)
    recorded = profiler.recorded()
    totals = by_name(recorded)
    assert {n: (t.total_ns, t.self_ns) for n, t in totals.items()} == {
        "Layer": (10_010, 2_000),
        "GateProjection": (3_010, 3_010),
        "UpProjection": (5_000, 5_000),
    }
    assert {total.provenance for total in recorded.totals} == {"measured_device_event"}
    assert [(c.name, c.start_ns, c.end_ns) for c in recorded.calls] == [
        ("Layer", 1_000, 11_010),
        ("GateProjection", 1_000, 4_010),
        ("UpProjection", 4_010, 9_010),
    ]


@pytest.mark.parametrize("elapsed_ms", [math.nan, math.inf, -1.0])
def test_invalid_event_times_raise(elapsed_ms: float) -> None:
    class Event:
        def record(self) -> None: ...
        def elapsed_time(self, other: Event) -> float:
            return elapsed_ms

    with BrickProfiler(sync="deferred", synchronise=lambda: None, event=Event) as profiler:
        stop(start("A"))
    with pytest.raises(ToolError, match="E_BRICKS_CLOCK"):
        profiler.recorded()


def test_immediate_calls_time_only_their_own_work(device: FakeDevice) -> None:
    with profile(device, "immediate") as profiler:
        device.enqueue(1_000)
        with brick("Gate"):
            device.enqueue(70)
        with brick("Up"):
            device.enqueue(9)
    totals = by_name(profiler.recorded())
    assert {n: t.total_ns for n, t in totals.items()} == {"GateProjection": 70, "UpProjection": 9}
    assert {t.provenance for t in totals.values()} == {"measured_wall"}


def test_device_is_not_waited_for_without_a_sync_mode(device: FakeDevice) -> None:
    with profile(device, "none"), brick("A"):
        pass
    assert device.syncs == 0


def test_error_of_the_device_passes_and_the_call_is_recorded() -> None:
    clock = FakeClock()
    waits = iter((None, None, RuntimeError("device lost")))

    def synchronise() -> None:
        if (error := next(waits, None)) is not None:
            raise error

    with BrickProfiler(sync="immediate", synchronise=synchronise, clock=clock) as profiler:
        scope = start("A")
        clock.pass_(3)
        with pytest.raises(RuntimeError, match="device lost"):
            stop(scope)
    assert by_name(profiler.recorded())["A"].total_ns == 3
