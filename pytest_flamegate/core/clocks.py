"""The clocks and counters of another process, read from outside.

They are exact while the process waits, as a served one does between blocks.
"""

from __future__ import annotations

import os
import re
import sys
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from msgspec import Struct

from pytest_flamegate.core import process_system
from pytest_flamegate.core.json import Count

_LOST = 0.1
"""Work of ended threads, relative to all CPU time, from which the run delay is not trusted."""
_LONGEST_WAIT = 8
"""How long work may have waited for its core, in times of itself: that of nine equal programs."""
_STATUS = re.compile(
    rb"^State:\s+([RZ]).*^Threads:\s+1$.*^voluntary_ctxt_switches:\s+(\d+)$",
    re.MULTILINE | re.DOTALL,
)
_NUMBERS = re.compile(rb"^(\w+):\s+(\d+)", re.MULTILINE)
_TREE_TRIES = 8
_IDLE = 0.1
"""CPU time of a process, relative to the busiest one of its tree, below which it only waits."""
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Interval(Struct, frozen=True, gc=False):
    """The time that one process used between two readings of its clocks.

    Attributes:
        run_delay_ns: The time it was runnable and did not run, or stood idle because its observer
            did not run; None if the kernel does not report it.
    """

    wall_ns: Count
    cpu_ns: Count
    run_delay_ns: Count | None

    @property
    def quiet_ns(self) -> int:
        """Scheduler-adjusted time ("quiet clock"): wall time less run delay, else CPU time.

        The delays of several threads overlap by an unknown amount. The result is at least the
        smaller of CPU time and wall time, so that lost parallelism is visible.
        """
        if self.run_delay_ns is None:
            return self.cpu_ns
        return max(self.wall_ns - self.run_delay_ns, min(self.cpu_ns, self.wall_ns))

    def with_lost_delay(self, ended_ns: int) -> Interval:
        """Return the interval with the run delay of threads and children that have ended.

        ``ended_ns`` is their CPU time. The kernel does not tell how long they waited for it: taken
        is the time that the process did not run otherwise, up to ``_LONGEST_WAIT`` times as long.
        """
        if self.run_delay_ns is None:
            return self
        idle_ns = max(0, self.wall_ns - self.cpu_ns - self.run_delay_ns)
        lost_ns = min(idle_ns, _LONGEST_WAIT * ended_ns)
        return Interval(self.wall_ns, self.cpu_ns, self.run_delay_ns + lost_ns)

    @property
    def parallel_ns(self) -> int:
        """The same of a process that is bound to no core: less than the CPU time of its threads."""
        if self.run_delay_ns is None:
            return self.cpu_ns
        return max(self.wall_ns - self.run_delay_ns, 1)


def sum_intervals(intervals: Sequence[Interval]) -> Interval:
    """Add up intervals. The run delay is None if one of them has none."""
    delays = [each.run_delay_ns for each in intervals]
    known = [delay for delay in delays if delay is not None]
    return Interval(
        sum(each.wall_ns for each in intervals),
        sum(each.cpu_ns for each in intervals),
        sum(known) if len(known) == len(delays) else None,
    )


def add_late_work(interval: Interval, cpu_ns: int) -> Interval:
    """Return the interval with work that was done after it, as if nothing else had run."""
    late = Interval(cpu_ns, cpu_ns, None if interval.run_delay_ns is None else 0)
    return sum_intervals([interval, late])


@dataclass(frozen=True, slots=True)
class ClockReading:
    """One reading of a process: monotonic time, its CPU time and its run delay, all in ns.

    ``ended_ns`` is the CPU time of its threads and children that have ended. Their run delay is
    lost, so an interval in which they did much of the work of a single-threaded workload counts CPU
    time alone. ``threads`` has the CPU time and the run delay of each thread that lives. ``sleeps``
    is what ``count_sleeps`` counted before, if it was asked.
    """

    at_ns: int
    cpu_ns: int
    run_delay_ns: int | None
    ended_ns: int = 0
    threads: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    sleeps: int | None = None

    @property
    def lost_ns(self) -> int:
        """The CPU time of ended threads and children, if it is enough to tell it from none."""
        return self.ended_ns if self.ended_ns > _TICK_NS else 0

    def interval_to(self, later: ClockReading, idle_ns: int = 0, threads: int = 1) -> Interval:
        """Return the interval up to a later reading.

        ``idle_ns`` of it is the observer's own. If several ``threads`` share the work, their delays
        overlap and are capped: the work takes at least the CPU time of its busiest thread, and at
        least all CPU time spread over the cores that the threads may use.
        """
        # What threads did before this reading and have taken with them since is not the interval's.
        gone = [times for each, times in self.threads.items() if each not in later.threads]
        ended_ns = later.ended_ns - self.ended_ns - sum(cpu_ns for cpu_ns, _ in gone)
        # A child that nobody waits for takes its CPU time with it, from before this reading too.
        wall_ns = later.at_ns - self.at_ns
        lost_ns = max(0, -ended_ns) if gone else 0
        cpu_ns = max(0, later.cpu_ns - self.cpu_ns + lost_ns)
        delay = None
        if self.run_delay_ns is not None and later.run_delay_ns is not None:
            gone_ns = sum(delay_ns for _, delay_ns in gone)
            delay = max(0, later.run_delay_ns - self.run_delay_ns + gone_ns)
        if delay is not None and threads > 1:
            busiest_ns = max((own_ns for own_ns, _ in self._used(later)), default=0)
            most_ns = max(
                0, wall_ns - max(busiest_ns, cpu_ns // process_system.count_cores(threads))
            )
            return Interval(wall_ns, cpu_ns, min(delay + idle_ns, most_ns))
        if delay is not None:
            delay = min(delay, self._plausible_delay_ns(later, wall_ns, cpu_ns))
            delay = max(delay, min(delay + idle_ns, wall_ns - cpu_ns))
        if delay is not None and _is_lost(ended_ns, cpu_ns):
            delay = max(delay, wall_ns - cpu_ns)
        return Interval(wall_ns, cpu_ns, delay)

    def _used(self, later: ClockReading) -> list[tuple[int, int]]:
        """Return CPU time and run delay, up to a later reading, of each thread that lives then."""
        return [
            (max(0, cpu - before[0]), max(0, delay - before[1]))
            for each, (cpu, delay) in later.threads.items()
            for before in [self.threads.get(each, (0, 0))]
        ]

    def _plausible_delay_ns(self, later: ClockReading, wall_ns: int, cpu_ns: int) -> int:
        """Return the longest time that threads of one core can have waited for it in turn.

        One that waits all the time and hardly runs, at the lowest priority, must not pass for the
        wait of the others. So all wait as long for their CPU time as those do that use half of it.
        """
        used = sorted(
            (each for each in self._used(later) if each[0]), key=lambda each: each[1] / each[0]
        )
        if len(later.threads) < 2 or not used:
            return sys.maxsize
        sums = list(accumulate(cpu for cpu, _ in used))
        own_ns, delay_ns = used[bisect_left(sums, sums[-1] / 2)]
        return min(round(delay_ns * cpu_ns / own_ns), max(0, wall_ns - max(used)[0]))

    def interval_to_if_awake(self, later: ClockReading, all_sleeps: int) -> Interval | None:
        """Return the interval of a process that never slept in it; None if it may have.

        ``all_sleeps`` is how often all its threads slept until it ended: a second thread that
        replaces the program takes the place of the first one, but not its count.

        The kernel adds up the run delay when a thread runs again, so the wait in which a reading is
        taken is missing from ``interval_to``. What never slept has waited whenever it did not run.
        """
        # The end of the process is a sleep, too.
        if self.sleeps is None or self.sleeps != later.sleeps or all_sleeps > later.sleeps + 1:
            return None
        wall_ns, cpu_ns = later.at_ns - self.at_ns, later.cpu_ns - self.cpu_ns
        return Interval(wall_ns, cpu_ns, max(0, wall_ns - cpu_ns))


@dataclass(frozen=True, slots=True)
class ProcessCounters:
    """Counters of a process; None for each that the platform does not report."""

    peak_rss_bytes: int | None = None
    read_bytes: int | None = None
    threads: int | None = None
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None


def read_clocks(pid: int) -> ClockReading:
    """Read the clocks of ``pid`` (all threads); ``ProcessLookupError`` if it has ended."""
    at_ns, cpu_ns = time.monotonic_ns(), _cpu_ns(pid)
    threads = _thread_times_ns(pid)
    if not threads:
        return ClockReading(at_ns, cpu_ns, None)
    live_ns, delay_ns = (sum(times) for times in zip(*threads.values(), strict=True))
    return ClockReading(at_ns, cpu_ns, delay_ns, cpu_ns - live_ns, threads)


def count_sleeps(pid: int) -> tuple[int | None, bool]:
    """Return how often the only thread of ``pid`` has slept, and whether the process has ended.

    The first is None if it sleeps or is not alone.
    """
    found = _STATUS.search(process_system.read_proc(pid, "status"))
    if found is None:
        return None, False
    # The end of a process counts as a sleep, too.
    has_ended = found[1] == b"Z"
    return int(found[2]) - has_ended, has_ended


def read_clocks_with_children(pid: int) -> ClockReading:
    """Like ``read_clocks``, with the CPU time of the children that ``pid`` has waited for.

    The kernel reports that of others in clock ticks. It counts as that of ended threads.
    """
    own, waited_ns = read_clocks(pid), _waited_cpu_ns(pid)
    return replace(own, cpu_ns=own.cpu_ns + waited_ns, ended_ns=own.ended_ns + waited_ns)


def read_tree_clocks(leader: int, marker: str) -> ClockReading:
    """Read the clocks of ``leader`` and of all processes that it started.

    The CPU time of processes that have ended is included once their parent has waited for them.
    Raises ``ProcessLookupError`` if the leader has ended.
    """
    for _ in range(_TREE_TRIES):
        waited_ns = _waited_cpu_ns(leader)
        own = read_clocks_with_children(leader)
        below: list[ClockReading | None] = []
        # Parents first, as a rule: what they wait for after they were read is missing then.
        for pid in sorted(process_system.find_tree(leader, marker) - {leader}):
            try:
                below.append(read_clocks_with_children(pid))
            except ProcessLookupError:
                below.append(None)
        # If one ended meanwhile, whoever waited for it has its time now.
        if None not in below and _waited_cpu_ns(leader) == waited_ns:
            break
    found = [own, *(each for each in below if each is not None)]
    delays = [each.run_delay_ns or 0 for each in found]
    return ClockReading(
        own.at_ns,
        sum(each.cpu_ns for each in found),
        None if own.run_delay_ns is None else sum(delays),
        sum(each.ended_ns for each in found),
        {thread: times for each in found for thread, times in each.threads.items()},
    )


def read_own_delay_ns() -> int:
    """Return how long this thread has waited for a CPU; 0 if the kernel does not report it."""
    fields = process_system.read_proc("thread-self", "schedstat").split()
    return int(fields[1]) if len(fields) > 1 else 0


def read_counters(pid: int) -> ProcessCounters:
    """Read what a process used so far; all None if it has ended or cannot be inspected."""
    text = process_system.read_proc(pid, "status") + process_system.read_proc(pid, "io")
    found = {name: int(number) for name, number in _NUMBERS.findall(text)}
    try:
        clocks = read_clocks(pid)
    except ProcessLookupError:
        return ProcessCounters()
    return ProcessCounters(
        peak_rss_bytes=found[b"VmHWM"] * 1024 if b"VmHWM" in found else None,
        read_bytes=found.get(b"rchar"),
        # Threads that have ended count as one.
        threads=found.get(b"Threads", 1) + _is_lost(clocks.ended_ns, clocks.cpu_ns),
        voluntary_switches=found.get(b"voluntary_ctxt_switches"),
        involuntary_switches=found.get(b"nonvoluntary_ctxt_switches"),
    )


def read_tree_counters(leader: int, marker: str) -> ProcessCounters:
    """Add up what ``leader`` and all processes that it started used so far.

    Memory that several of them share counts for each. Threads of a process that hardly computes, as
    a shell that waits, are left out. Those of a leader that has ended are what is left of it.
    """
    own = read_counters(leader)
    try:
        found, spent_ns = [own], [_cpu_ns(leader)]
    except ProcessLookupError:
        return own
    for pid in process_system.find_tree(leader, marker) - {leader}:
        with suppress(ProcessLookupError):
            spent_ns.append(_cpu_ns(pid))
            found.append(read_counters(pid))
    for number, used_ns in enumerate(spent_ns):
        if used_ns < _IDLE * max(spent_ns):
            found[number] = replace(found[number], threads=None)
    columns = zip(*map(astuple, found), strict=True)
    known = ([each for each in column if each is not None] for column in columns)
    return ProcessCounters(*(sum(column) if column else None for column in known))


def utc_now() -> str:
    """Return the time of day in RFC 3339, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_start_ticks(pid: int) -> int | None:
    """Return the start time of ``pid`` in clock ticks since boot; None if it cannot be read.

    None also for 0, which some sandboxes report for every process.
    """
    fields = process_system.read_stat(pid)
    return int(fields[19]) or None if fields else None


def read_cpu_pressure_pct() -> float | None:
    """Return the share of the last 10 s in which some task waited for a CPU, in percent."""
    try:
        line = Path("/proc/pressure/cpu").read_text().splitlines()[0]
        return float(line.split()[1].removeprefix("avg10="))
    except (OSError, ValueError, IndexError):
        return None


def _cpu_ns(pid: int) -> int:
    # The clock id of another process's CPU time, as clock_getcpuclockid(3) makes it.
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        raise ProcessLookupError(pid) from None


def _waited_cpu_ns(pid: int) -> int:
    """Return the CPU time of the children of ``pid`` that have ended, to the clock tick."""
    fields = process_system.read_stat(pid)
    return sum(map(int, fields[13:15])) * _TICK_NS if fields else 0


def _thread_times_ns(pid: int) -> dict[int, tuple[int, int]]:
    """Return CPU time and run delay of each thread that lives; empty if they are not reported."""
    found = {}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError):  # a thread may end meanwhile
                cpu, delay, _ = map(int, (task / "schedstat").read_text().split())
                found[int(task.name)] = cpu, delay
    return found


def _is_lost(ended_ns: int, cpu_ns: int) -> bool:
    """Whether ended threads and children did so much of the work that its run delay is lost.

    A thread that runs is counted up to its last clock tick, so a few ms are missing from it.
    """
    return ended_ns > max(_LOST * cpu_ns, _TICK_NS)
