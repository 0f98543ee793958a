"""The clocks of other processes, as kernels and sandboxes report them."""

import os

import pytest

from pytest_flamegate.core import clocks, process_system
from pytest_flamegate.core.clocks import Interval


@pytest.mark.parametrize(("reported", "ticks"), [(0, None), (1, 1), (123456, 123456)])
def test_a_start_of_zero_is_unknown(
    monkeypatch: pytest.MonkeyPatch, reported: int, ticks: int | None
) -> None:
    assert clocks.read_start_ticks(2**22 + 1) is None
    stat = f"7 (a ) b) S {' '.join('9' * 18)} {reported} 5 5\n".encode()
    monkeypatch.setattr(process_system, "read_proc", lambda *_: stat)
    assert clocks.read_start_ticks(7) == ticks


@pytest.mark.parametrize(
    ("wall", "cpu", "delay", "quiet"),
    [
        (100, 90, 0, 100),  # a sleep is the engine's own
        (100, 90, 10, 90),  # a wait for a CPU is the machine's
        (100, 60, 10, 90),
        (100, 100, 5, 100),  # clocks that are read one after another may disagree
        (100, 95, 20, 95),
        (100, 400, 0, 100),  # four threads
        (100, 400, 300, 100),  # their waits overlap
        (400, 400, 0, 400),  # the same work one after another
        (100, 70, None, 70),
    ],
)
def test_scheduler_adjusted_time(wall: int, cpu: int, delay: int | None, quiet: int) -> None:
    assert Interval(wall, cpu, delay).quiet_ns == quiet


@pytest.mark.parametrize(
    ("delay", "idle", "quiet"), [(10, 0, 90), (10, 20, 70), (10, 90, 60), (None, 20, 60)]
)
def test_time_that_the_observer_lost_is_not_the_engines(
    delay: int | None, idle: int, quiet: int
) -> None:
    began = clocks.ClockReading(0, 0, None if delay is None else 0)
    assert began.interval_to(clocks.ClockReading(100, 60, delay), idle).quiet_ns == quiet


@pytest.mark.parametrize(
    ("cores", "spent", "delay", "alone"),
    [
        (2, (90, 90), 20, 90),  # each waited 10 of 100, at the same time
        (2, (90, 40), 10, 90),
        (2, (90, 40), 60, 90),  # some of it while the other computed
        (2, (50, 50), 0, 100),  # they waited for each other
        (2, (50, 50), 5, 95),
        (2, (40, 50), 30, 70),  # the one that computed less
        (1, (50, 50), 100, 100),  # they waited for each other's core
        (2, (0, 0), 90, 50),  # those that computed have ended
    ],
)
def test_delays_of_several_threads_overlap(
    monkeypatch: pytest.MonkeyPatch, cores: int, spent: tuple[int, int], delay: int, alone: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    began = clocks.ClockReading(0, 0, 0, threads={1: (7, 0), 2: (7, 0)})
    after = {1: (7 + spent[0], delay), 2: (7 + spent[1], 0)}
    ended = clocks.ClockReading(100, sum(spent) or 100, delay, 0 if sum(spent) else 100, after)
    assert began.interval_to(ended, threads=2).parallel_ns == alone


def test_what_ended_threads_did_before_is_not_the_intervals() -> None:
    """A server's thread waits and computes for one request, and ends during the next."""
    old, new = (20_000_000, 30_000_000), (20_000_000, 5_000_000)
    began = clocks.ClockReading(0, old[0], old[1], 0, {1: (0, 0), 2: old})
    ended = clocks.ClockReading(30_000_000, 2 * old[0], new[1], old[0], {1: (0, 0), 3: new})
    assert began.interval_to(ended) == Interval(30_000_000, 20_000_000, 5_000_000)


def test_a_few_milliseconds_of_ended_threads_cannot_be_told_from_none() -> None:
    assert clocks.ClockReading(0, 90_000_000, 0, ended_ns=9_000_000).lost_ns == 0
    assert clocks.ClockReading(0, 90_000_000, 0, ended_ns=11_000_000).lost_ns == 11_000_000


def test_what_has_ended_waited_at_most_several_times_as_long_as_it_ran() -> None:
    """Otherwise a thread of some milliseconds would hide a second of sleep."""
    assert Interval(100, 60, 10).with_lost_delay(60).quiet_ns == 60
    assert Interval(100, 60, 50).with_lost_delay(60) == Interval(100, 60, 50)
    assert Interval(1000, 60, 10).with_lost_delay(20) == Interval(1000, 60, 170)
    assert Interval(1000, 60, None).with_lost_delay(20) == Interval(1000, 60, None)


def test_one_that_waits_and_hardly_runs_does_not_wait_for_the_others() -> None:
    """A child of the lowest priority that is always ready would hide that the engine sleeps."""
    began = clocks.ClockReading(0, 0, 0, 0, {1: (0, 0), 2: (0, 0)})
    ended = clocks.ClockReading(150, 51, 190, 0, {1: (50, 50), 2: (1, 140)})
    assert began.interval_to(ended) == Interval(150, 51, 51)
    # Nor if the work goes round many threads, and the spinner runs a little more than each.
    many = dict.fromkeys(range(20), (25, 0))
    ended = clocks.ClockReading(2000, 530, 1400, 0, {**many, 20: (30, 1400)})
    assert clocks.ClockReading(0, 0, 0).interval_to(ended) == Interval(2000, 530, 0)
    # In turn they wait as long as they need for their work.
    ended = clocks.ClockReading(150, 75, 75, 0, {1: (50, 50), 2: (25, 25)})
    assert began.interval_to(ended) == Interval(150, 75, 75)


def test_a_child_that_nobody_waits_for_takes_nothing_of_the_interval_with_it() -> None:
    began = clocks.ClockReading(0, 140, 0, 0, {1: (100, 0), 2: (40, 0)})
    ended = clocks.ClockReading(60, 150, 0, 0, {1: (150, 0)})
    assert began.interval_to(ended) == Interval(60, 50, 0)


@pytest.mark.parametrize(
    ("before", "after", "in_all", "is_awake"),
    [
        (3, 3, 4, True),  # the wait in which it was read is not in its run delay yet
        (3, 3, 3, True),  # its end was not counted
        (3, 4, 5, False),
        (None, 3, 4, False),  # it slept when the interval began
        (3, None, 4, False),
        (3, 3, 7, False),  # another thread slept, or what a thread has replaced
    ],
)
def test_what_never_sleeps_waits_for_a_cpu(
    before: int | None, after: int | None, in_all: int, is_awake: bool
) -> None:
    began = clocks.ClockReading(0, 0, 0, sleeps=before)
    found = began.interval_to_if_awake(clocks.ClockReading(100, 60, 5, sleeps=after), in_all)
    assert found == (Interval(100, 60, 40) if is_awake else None)


@pytest.mark.parametrize(
    ("state", "threads", "sleeps", "has_ended"),
    [("R", 1, 7, False), ("Z", 1, 6, True), ("S", 1, None, False), ("R", 2, None, False)],
)
def test_sleeps_are_those_of_the_only_thread(
    monkeypatch: pytest.MonkeyPatch, state: str, threads: int, sleeps: int | None, has_ended: bool
) -> None:
    status = (
        f"Name:\tR 1\nState:\t{state} (state)\nThreads:\t{threads}\nSeccomp:\t0\n"
        "voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t900\n"
    )
    monkeypatch.setattr(process_system, "read_proc", lambda *_: status.encode())
    assert clocks.count_sleeps(7) == (sleeps, has_ended)
