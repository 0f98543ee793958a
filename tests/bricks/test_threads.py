"""Threads and asyncio tasks time their bricks side by side: none is lost or nested across them."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_flamegate.bricks import BrickProfiler, brick, profiled, start, stop
from pytest_flamegate.bricks.record import Sync
from pytest_flamegate.core.errors import UsageError
from tests.bricks.clocks import FakeClock, by_name

THREADS, CALLS = 6, 700


def test_threads_lose_no_call_and_do_not_nest_in_each_other() -> None:
    barrier = threading.Barrier(THREADS)

    def work() -> None:
        barrier.wait()
        for number in range(CALLS):
            with brick("Outer", layer=number % 3), brick("Inner", elements=number):
                pass
        # A thread that ends early would leave its number to one that has not begun.
        barrier.wait()

    with BrickProfiler(keep_calls=2 * CALLS * THREADS) as profiler:
        threads = [threading.Thread(target=work, name=f"w{n}") for n in range(THREADS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            partial = profiler.recorded()
            assert all(each.self_ns <= partial.wall_ns for each in partial.lanes)
            assert all(0 <= t.self_ns <= t.total_ns for t in partial.totals)
    recorded = profiler.recorded()
    inner = [total for total in recorded.totals if total.name == "Inner"]
    outer = [total for total in recorded.totals if total.name == "Outer"]
    assert sum(total.calls for total in outer) == THREADS * CALLS
    assert sum(total.elements for total in inner) == THREADS * sum(range(CALLS))
    assert sum(total.total_ns - total.self_ns for total in outer) == inner[0].total_ns
    assert sorted((each.name, each.calls) for each in recorded.lanes) == [
        (f"w{number}", 2 * CALLS) for number in range(THREADS)
    ]
    assert all(0 < each.self_ns <= recorded.wall_ns for each in recorded.lanes)
    assert len(recorded.calls) == 2 * CALLS * THREADS
    for call in recorded.calls:
        assert (call.name == "Outer") is (call.parent is None)
        parent = recorded.calls[call.parent] if call.parent is not None else call
        assert (parent.name, parent.lane) == ("Outer", call.lane)
        assert parent.start_ns <= call.start_ns <= call.end_ns <= parent.end_ns


def test_interleaved_tasks_do_not_nest_in_each_other() -> None:
    clock = FakeClock()

    @profiled("Work")
    async def work(rounds: int) -> None:
        for _ in range(rounds):
            with brick("Step", elements=1):
                clock.pass_(1)
                await asyncio.sleep(0)
                clock.pass_(1)

    async def main() -> None:
        with brick("Main"):
            await asyncio.gather(*(work(rounds) for rounds in range(1, 6)))

    with BrickProfiler(clock=clock, keep_calls=100) as profiler, brick("Thread"):
        asyncio.run(main())
    recorded = profiler.recorded()
    totals = by_name(recorded)
    assert (totals["Work"].calls, totals["Step"].calls, totals["Step"].elements) == (5, 15, 15)
    assert totals["Main"].self_ns == totals["Main"].total_ns == recorded.wall_ns == 30
    assert totals["Thread"].self_ns == 30
    assert sorted(each.calls for each in recorded.lanes) == [1, 1, 2, 3, 4, 5, 6]
    assert all(each.self_ns <= recorded.wall_ns for each in recorded.lanes)
    calls = recorded.calls
    parents = {each.name: calls[each.parent].name for each in calls if each.parent is not None}
    assert parents == {"Step": "Work"}
    assert all(calls[each.parent or 0].lane == each.lane for each in calls if each.parent)


def test_tasks_are_split_even_if_asyncio_is_imported_late() -> None:
    script = """
import sys
from pytest_flamegate.bricks import BrickProfiler, brick
with BrickProfiler() as profiler:
    with brick("Before"):
        pass
    assert "asyncio" not in sys.modules
    import asyncio
    async def work():
        with brick("Work"):
            await asyncio.sleep(0)
    async def main():
        await asyncio.gather(work(), work())
    asyncio.run(main())
assert not any(finder is profiler for finder in sys.meta_path)
print([each.calls for each in profiler.recorded().lanes], profiler.recorded().unended)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[1, 1, 1] 0\n"


@pytest.mark.parametrize("sync", ["none", "immediate"])
def test_number_of_an_ended_thread_is_reused(sync: Sync) -> None:
    clock = FakeClock()

    async def work() -> None:
        with brick("Work"):
            clock.pass_(1)
            await asyncio.sleep(0)
            clock.pass_(1)

    async def main() -> None:
        for _ in range(200):
            await asyncio.gather(work(), work())

    def sequence() -> None:
        with brick("Thread"):
            clock.pass_(3)

    with BrickProfiler(clock=clock, sync=sync, synchronise=lambda: None) as profiler:
        for _ in range(300):
            thread = threading.Thread(target=sequence)
            thread.start()
            thread.join()
        asyncio.run(main())
    recorded = profiler.recorded()
    # Each task is in its brick also while the other works.
    assert len(recorded.lanes) == 2
    assert sum(each.calls for each in recorded.lanes) == 700
    assert recorded.wall_ns == 1_700
    assert [each.self_ns for each in recorded.lanes] == [900 + 200 * 3, 200 * 3]


@pytest.mark.parametrize(
    ("name", "recorded"), [("x" * 300, "x" * 256), ("", "unnamed"), ("\ud800", r"\ud800")]
)
def test_name_of_a_thread_is_valid(name: str, recorded: str) -> None:
    def work() -> None:
        threading.current_thread().name = name
        stop(start("A"))

    with BrickProfiler() as profiler:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [each.name for each in profiler.recorded().lanes] == [recorded]


def test_end_in_another_thread_raises() -> None:
    clock = FakeClock()
    with BrickProfiler(clock=clock) as profiler, ThreadPoolExecutor(1) as pool, brick("Around"):
        handle = start("A")
        clock.pass_(7)
        with pytest.raises(UsageError, match=r"E_BRICK_END.*MainThread"):
            pool.submit(stop, handle).result()
    recorded = profiler.recorded()
    assert {n: t.self_ns for n, t in by_name(recorded).items()} == {"Around": 7}
    assert recorded.unended == 1


def test_interleaved_generators_raise() -> None:
    def values(name: str) -> Iterator[int]:
        with brick(name):
            yield 1
        yield 2

    with BrickProfiler() as profiler:
        first, second = values("A"), values("B")
        next(first)
        next(second)
        next(first)
        with pytest.raises(UsageError, match=r"E_BRICK_END.*generator"):
            next(second)
    recorded = profiler.recorded()
    assert ([t.name for t in recorded.totals], recorded.unended) == (["A"], 1)
