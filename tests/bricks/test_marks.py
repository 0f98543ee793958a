"""A mark costs nothing while no profiler is on, and importing it loads nothing large."""

import asyncio
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from functools import partial

import pytest

from pytest_flamegate.bricks import BrickProfiler, brick, marks, profiled, start, stop
from pytest_flamegate.core.errors import UsageError
from tests.bricks.clocks import FakeClock


@profiled("Work")
def _work() -> None: ...


def _marked(calls: int) -> None:
    for _ in range(calls):
        with brick("RmsNorm", elements=64, layer=3, bytes=4, flops=2, category="Norm", kernel="k"):
            pass
        stop(start("RmsNorm", elements=64), elements=3)
        _work()


def test_marks_read_no_clock_while_off(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(marks, "_clock", clock)
    _marked(10)
    assert clock.reads == 0
    assert brick("A") is brick("B") is marks.OFF
    assert start("A") is None
    with BrickProfiler(clock=clock):
        on = clock.reads
        _marked(10)
    # While on, each of the three kinds of mark reads it twice, and leaving once.
    assert clock.reads - on == 10 * 3 * 2 + 1


def test_marks_allocate_nothing_while_off() -> None:
    _marked(10)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        _marked(1_000)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before <= 500
    # Frames and keyword arguments of one call at a time, whatever the number of calls.
    assert peak - before <= 2_000


def test_marks_load_neither_numpy_nor_asyncio() -> None:
    script = (
        "import sys; from pytest_flamegate.bricks import brick, profiled, start, stop\n"
        "with brick('A'): pass\n"
        "print({'numpy', 'asyncio', 'inspect', 'pytest'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_profiled_functions_keep_names_and_results() -> None:
    clock = FakeClock()

    @profiled
    def double(number: int) -> int:
        """Twice."""
        clock.pass_(3)
        return 2 * number

    @profiled("Slow", elements=2, layer=1, category="FFN")
    async def slow(number: int) -> int:
        clock.pass_(number)
        return number

    with BrickProfiler(clock=clock) as profiler:
        assert (double(4), asyncio.run(slow(7))) == (8, 7)
    totals = {t.name.rpartition(".")[2]: t for t in profiler.recorded().totals}
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert {name: (t.calls, t.total_ns) for name, t in totals.items()} == {
        "double": (1, 3),
        "Slow": (1, 7),
    }
    slow_total = totals["Slow"]
    assert (slow_total.category, slow_total.layer, slow_total.elements) == ("FFN", 1, 2)


class _Doubler:
    def __call__(self, number: int) -> int:
        return 2 * number


def test_callables_without_a_name_have_that_of_their_function_or_class() -> None:
    with BrickProfiler() as profiler:
        assert profiled(partial(partial(_Doubler.__call__, _Doubler())))(3) == 6
        assert profiled(elements=1)(_Doubler())(4) == 8
    assert {t.name for t in profiler.recorded().totals} == {"_Doubler.__call__", "_Doubler"}


def test_generator_cannot_be_profiled() -> None:
    def values() -> Iterator[int]:
        yield 1

    with pytest.raises(UsageError, match=r"E_BRICK_ARGUMENT.*generator"):
        profiled(values)
