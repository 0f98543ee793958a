"""The last calls are kept in order, with their parents, and in little memory."""

from __future__ import annotations

import tracemalloc

from pytest_flamegate.bricks import BrickProfiler, brick
from tests.bricks.clocks import FakeClock


def test_the_last_calls_are_kept_with_what_they_told() -> None:
    clock = FakeClock()
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


def test_a_reset_keeps_the_calls_of_the_next_token_only() -> None:
    with BrickProfiler(keep_calls=100) as profiler:
        for token in range(3):
            profiler.reset()
            for layer in range(4):
                with brick("Layer", layer=layer, elements=token):
                    pass
    assert [(c.layer, c.elements) for c in profiler.recorded().calls] == [
        (layer, 2) for layer in range(4)
    ]


def test_a_kept_call_takes_few_bytes_and_an_aggregated_one_none() -> None:
    calls = 10_000
    taken = {}
    for keep_calls in (0, calls):
        with BrickProfiler(keep_calls=keep_calls):
            with brick("A"):
                pass
            tracemalloc.start()
            for _ in range(calls):
                with brick("A"):
                    pass
            taken[keep_calls], _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert taken[calls] <= 100 * calls
    # What is not yet folded: no more at the end of many calls than of few.
    assert taken[0] <= 200_000
