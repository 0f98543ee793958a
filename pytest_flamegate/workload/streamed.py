"""Observe a program that loads, streams its answer to standard output, and ends."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from itertools import dropwhile, pairwise
from typing import TYPE_CHECKING

import psutil

from pytest_flamegate.workload import clocks, determinism, engine_count, process
from pytest_flamegate.workload.cutting import TAIL_BYTES, Cutter
from pytest_flamegate.workload.observation import Block, Interval
from pytest_flamegate.workload.output import OUTPUT_LIMIT_BYTES
from pytest_flamegate.workload.readable import readable
from pytest_flamegate.workload.refusals import (
    check_count,
    check_output,
    died,
    flooded,
    timed_out,
)
from pytest_flamegate.workload.sources import agreement, receipt
from pytest_flamegate.workload.sources.base import Heard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from resource import struct_rusage

    from pytest_flamegate.workload.engines.base import Streamed
    from pytest_flamegate.workload.reported import Report
    from pytest_flamegate.workload.sources.base import Told
    from pytest_flamegate.workload.spec import Workload

    Clean = Callable[[bytes], bytes]
    Seen = tuple[str, clocks.Reading]

_READ_BYTES = 65536
_LOOKS_TO_TELL_APART = 3
_SHORTEST_DECODE_NS = 2_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """One run of a program: its tokens, when each was seen, and what the process spent.

    ``window_ns`` is the monotonic time of the first token and of the last; it is None, as
    ``decode`` is, where the output came in too few pieces to tell decode from the rest.
    ``wall_ns`` is from its start to its end. ``reported`` is what the program said of itself,
    ``own_lines`` that some of it stood in its standard output, and was taken out of the answer.
    """

    pid: int
    started_ticks: int | None
    tokens: tuple[str, ...]
    gaps_ns: tuple[int, ...]
    interval: Interval
    decode: Interval | None
    window_ns: tuple[int, int] | None
    counters: clocks.Counters
    effective_environment: Mapping[str, str]
    stderr: bytes
    wall_ns: int
    reported: tuple[Report, ...] = ()
    own_lines: bool = False

    @property
    def block(self) -> Block:
        """What was clocked. A first look that was late saw several tokens: none is decode's."""
        return Block(
            self.interval,
            (self.gaps_ns,),
            decode=self.decode,
            decode_tokens=None if self.decode is None else _after_first(self.gaps_ns),
        )


def answer(
    plan: Streamed,
    workload: Workload,
    env: Mapping[str, str],
    *,
    wrapped: bool = False,
    clean: Clean | None = None,
    cpu: int | None = None,
    began: Callable[[int], None] | None = None,
) -> Answer:
    """Run ``plan`` once and clock it.

    ``wrapped`` says that its command line is a profiler with the program below it: the clocks are
    then the program's, except for ``interval``. With ``clean`` the output is split into
    tokens only when it is whole, after ``clean`` has taken out what is not the
    program's own; then there is no decode to tell apart. ``cpu`` binds it to one core.
    ``began(pid)`` is called as soon as it runs. ``ToolError`` for what ``refusals`` names, and
    for what the program says of itself where that is missing, wrong or contradicted.
    """
    paper = None if plan.hearing.receipt is None else workload.directory / plan.hearing.receipt
    before = None if paper is None else receipt.stamp(paper)
    read_fd, write_fd = os.pipe()
    began_ns = time.monotonic_ns()
    try:
        child = process.start(
            plan.argv, env=env, cwd=workload.directory, stdout_fd=write_fd, cpu=cpu
        )
    except BaseException:
        os.close(read_fd)
        raise
    finally:
        os.close(write_fd)
    try:
        if began is not None:
            began(child.pid)
        stream = _Stream(child, workload, Cutter(plan), clean, wrapped=wrapped)
        effective = determinism.effective(child.pid, determinism.requested(workload))
        stream.read_all(read_fd, began_ns)
        effective = stream.effective or effective
        left_s = workload.timeout_s - (time.monotonic_ns() - began_ns) / 1e9
        status = child.wait(max(0.1, left_s), OUTPUT_LIMIT_BYTES)
        ended_ns = time.monotonic_ns()
        check_output(workload, child)
        if status is None:
            raise timed_out(workload)
        if status != 0:
            raise died(workload, status, child.stderr_text())
        if not stream.seen or not stream.uncounted:
            check_count(workload, len(stream.seen))
        usage, stderr = child.usage, child.stderr_bytes()
    finally:
        os.close(read_fd)
        child.end()
    looks = [at for _, at in stream.seen]
    decode = None if stream.lost_sight else _decode(looks)
    found = Answer(
        pid=stream.pid,
        started_ticks=stream.started_ticks,
        tokens=tuple(text for text, _ in stream.seen),
        gaps_ns=_gaps(began_ns, looks),
        interval=_accounted(ended_ns - began_ns, usage)
        if wrapped or looks[-1].cpu_ns == 0
        else clocks.Reading(began_ns, 0, 0).until(looks[-1]),
        decode=decode,
        window_ns=(looks[0].at_ns, looks[-1].at_ns) if decode is not None else None,
        counters=stream.counters if wrapped else _with_usage(stream.counters, usage),
        effective_environment=effective,
        stderr=stderr,
        wall_ns=ended_ns - began_ns,
        own_lines=bool(stream.cutter.own_lines),
    )
    said = plan.hearing.hear(
        Heard(
            lines=tuple(_text(stream.cutter.own_lines + b"\n" + stderr).splitlines()),
            stdout=_text(stream.cutter.tail),
            stderr=_text(stderr[-TAIL_BYTES:]),
            written=None if paper is None else receipt.written(paper, before),
        )
    )
    _agrees(said, found, plan)
    found = replace(found, reported=tuple(each.report for each in said))
    return engine_count.by_engine(found, workload) if stream.uncounted else found


class _Stream:
    """What a program writes, as it comes."""

    def __init__(
        self,
        child: process.Child,
        workload: Workload,
        cutter: Cutter[clocks.Reading],
        clean: Clean | None,
        *,
        wrapped: bool,
    ) -> None:
        self.seen: list[Seen] = []
        # What is seen are bytes then, and how many tokens they are is told at the end.
        self.uncounted = cutter.unit == engine_count.UNIT
        self.counters = clocks.Counters()
        # A script may have set variables anew before it turned into the program.
        self.effective: Mapping[str, str] = {}
        self.pid = child.pid
        self.started_ticks = clocks.started_ticks(child.pid)
        self.lost_sight = False
        self._child = child
        self._workload = workload
        self.cutter = cutter
        self._clean = clean
        self._held = b""
        self._begun = False
        self._inside = wrapped

    def read_all(self, fd: int, began_ns: int) -> None:
        """Read to the end of the output."""
        latest = clocks.Reading(began_ns, 0, None)
        while True:
            left_s = self._workload.timeout_s - (time.monotonic_ns() - began_ns) / 1e9
            if left_s <= 0:
                raise timed_out(self._workload)
            if not readable(fd, min(left_s, 1.0)):
                check_output(self._workload, self._child)
                continue
            # The first look opens the decode and is taken before the read: what the read does
            # not bring came after it. Any later one closes it: what the read brings came before.
            opening = None if self.cutter.begun else self._look(latest)
            data = os.read(fd, _READ_BYTES)
            if not data:
                self._finish(latest)
                return
            latest = opening or self._look(latest)
            self._take(data, latest)

    def _look(self, latest: clocks.Reading) -> clocks.Reading:
        if self._inside:
            self._step_inside()
        try:
            return clocks.read(self.pid)
        except ProcessLookupError:
            # It wrote and was gone: what it had spent by then is in the last look.
            return replace(latest, at_ns=time.monotonic_ns())

    def _step_inside(self) -> None:
        """Turn from the profiler to the program it has started."""
        try:
            below = psutil.Process(self._child.pid).children()
        except psutil.Error:
            return
        if len(below) == 1:
            self.pid = below[0].pid
            self.started_ticks = clocks.started_ticks(self.pid)
            self._inside = False

    def _take(self, data: bytes, at: clocks.Reading) -> None:
        check_output(self._workload, self._child)
        if self._clean is not None:
            self._held += data
            if len(self._held) > OUTPUT_LIMIT_BYTES:
                raise flooded(self._workload)
            return
        self._add(self.cutter.feed(data, at))

    def _finish(self, latest: clocks.Reading) -> None:
        if self._clean is not None:
            self._add(self.cutter.feed(self._clean(self._held), latest))
        self._add(self.cutter.finish())

    def _add(self, new: Sequence[Seen]) -> None:
        if self.cutter.begun and not self._begun:
            self._begun = True
            self.counters = clocks.counters(self.pid)
            asked = determinism.requested(self._workload)
            self.effective = determinism.effective(self.pid, asked)
            self.lost_sight = self._inside  # the clocks so far were the profiler's
        self.seen += new
        if len(self.seen) > self._workload.max_tokens and not self.uncounted:
            check_count(self._workload, len(self.seen))
        if self.cutter.overflows:
            raise flooded(self._workload)


def _agrees(said: Sequence[Told], found: Answer, plan: Streamed) -> None:
    """Hold what the program says of itself against what was clocked."""
    agreement.check(
        said,
        agreement.Observed(
            found.wall_ns,
            tokens=None if plan.tokenizer is None else len(found.tokens),
            decode_ns=None if found.decode is None else found.decode.wall_ns,
            decode_tokens=found.block.judged_tokens,
        ),
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _gaps(began_ns: int, looks: Sequence[clocks.Reading]) -> tuple[int, ...]:
    times = [began_ns, *(look.at_ns for look in looks)]
    return tuple(later - earlier for earlier, later in pairwise(times))


def _after_first(gaps_ns: Sequence[int]) -> int:
    """Return how many tokens came after the look that saw the first one."""
    return sum(1 for _ in dropwhile(lambda gap: gap == 0, gaps_ns[1:]))


def _accounted(wall_ns: int, usage: struct_rusage | None) -> Interval:
    """Return what the kernel accounted at the end.

    For a program that was gone before anybody looked, and for a profiler with one below it.
    """
    cpu_ns = int((usage.ru_utime + usage.ru_stime) * 1e9) if usage else 0
    return Interval(wall_ns, cpu_ns, None)


def _decode(looks: Sequence[clocks.Reading]) -> Interval | None:
    """Return what passed from the first token to the last, where that is the decode.

    A program that holds its output back and lets go of it at once decodes before its
    first token is seen.
    """
    if len({look.at_ns for look in looks}) < min(_LOOKS_TO_TELL_APART, max(2, len(looks))):
        return None
    interval = looks[0].until(looks[-1])
    return interval if interval.wall_ns >= _SHORTEST_DECODE_NS and interval.cpu_ns > 0 else None


def _with_usage(seen: clocks.Counters, usage: struct_rusage | None) -> clocks.Counters:
    """Take what the kernel accounted at the end, and what only a living process shows.

    Not its peak memory: there Linux counts what this process held when it forked.
    """
    if usage is None:
        return seen
    return replace(
        seen,
        voluntary_switches=usage.ru_nvcsw,
        involuntary_switches=usage.ru_nivcsw,
    )
