"""Observe a program that loads, streams its answer to standard output, and ends."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, pairwise

import psutil

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import clocks, process
from pytest_flamegate.core.clocks import ClockReading, Interval, add_late_work
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.process import OUTPUT_LIMIT_BYTES
from pytest_flamegate.core.process_system import read_children, wait_readable
from pytest_flamegate.engines import base, figure_sources, figures
from pytest_flamegate.engines.base import Streamed
from pytest_flamegate.engines.figures import ProgramOutput, Report
from pytest_flamegate.observe import engine_process
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.observe.program_output import TAIL_BYTES, AnswerReader

CleanOutput = Callable[[bytes], bytes]
TimedToken = tuple[str, ClockReading]

_READ_BYTES = 65536
_MIN_DECODE_PIECES = 3
_MIN_DECODE_NS = 2_000_000
_FIRST_READINGS = 40
_MAX_LAST_OUTPUT_NS = 10_000_000
"""How long the output of a program that has ended may take to be read. Later, a child that it left
behind writes it, and that the program does not sleep says nothing."""


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One run of a program: its tokens, the times they were read, and the cost of the process.

    Attributes:
        interval: From the start to the last token, and all work until the end of the process: its
            own, that of the children it waited for, and of those that it left behind.
        decode: From the first token to the last. None if the output came in too few pieces to
            separate it.
        window_ns: The monotonic times of the first and the last token; None if ``decode`` is.
        wall_ns: From start to end of the process.
        reported: The program's own figures.
        has_own_lines: Whether lines with such figures were removed from its standard output.
    """

    pid: int
    started_ticks: int | None
    tokens: tuple[str, ...]
    gaps_ns: tuple[int, ...]
    interval: Interval
    decode: Interval | None
    window_ns: tuple[int, int] | None
    counters: clocks.ProcessCounters
    effective_environment: Mapping[str, str]
    stderr: bytes
    wall_ns: int
    reported: tuple[Report, ...] = ()
    has_own_lines: bool = False

    @property
    def block(self) -> Block:
        """The run as a block; tokens read together with the first one are not part of decode."""
        after_first = sum(1 for _ in dropwhile(lambda gap: gap == 0, self.gaps_ns[1:]))
        return Block(
            self.interval,
            (self.gaps_ns,),
            decode=self.decode,
            decode_tokens=None if self.decode is None else after_first,
        )


def run_program(
    plan: Streamed,
    workload: Workload,
    *,
    prompt: str | None = None,
    wrapped: bool = False,
    clean: CleanOutput | None = None,
    cpu: int | None = None,
    began: Callable[[int], None] | None = None,
) -> ProgramRun:
    """Run ``plan`` once with ``prompt``, by default the workload's, and clock it.

    A program that has children when its output begins or when it sleeps later, as a script that
    starts the engine, is clocked with all below it. ``wrapped``: the command line is a profiler
    with the program below it. All clocks but ``interval`` are then the program's. ``clean`` removes
    the profiler's output when the whole output is there; decode is then not separated. ``cpu`` is
    the core to bind it to. ``began(pid)`` is called as soon as it runs. Raises ``ToolError`` if the
    program fails, or if its own figures are missing, malformed or contradicted by the clocks.
    """
    receipt = None if plan.sources.receipt is None else workload.directory / plan.sources.receipt
    receipt_before = None if receipt is None else figure_sources.read_file_state(receipt)
    read_fd, write_fd = os.pipe()
    began_ns = time.monotonic_ns()
    try:
        child = process.start(
            plan.command_line(workload.prompt if prompt is None else prompt, workload.max_tokens),
            env=engine_process.make_environment(workload),
            cwd=workload.directory,
            stdout_fd=write_fd,
            cpu=cpu,
            executable=plan.executable,
        )
    except BaseException:
        os.close(read_fd)
        raise
    finally:
        os.close(write_fd)
    try:
        if began is not None:
            began(child.pid)
        stream = _OutputStream(child, workload, AnswerReader(plan), clean, wrapped=wrapped)
        stream.read_all(read_fd, began_ns)
        left_s = workload.timeout_s - (time.monotonic_ns() - began_ns) / 1e9
        status = child.wait(max(0.1, left_s), OUTPUT_LIMIT_BYTES)
        ended_ns = time.monotonic_ns()
        engine_process.check_output_size(workload, child)
        if status is None:
            raise engine_process.timeout_error(workload)
        if status != 0:
            raise engine_process.EngineDiedError(workload, status, child.stderr_text())
        if not stream.tokens or not stream.counts_bytes:
            engine_process.check_token_count(workload, len(stream.tokens))
        usage, stderr = child.usage, child.stderr_bytes()
    finally:
        os.close(read_fd)
        child.end()
    readings = [at for _, at in stream.tokens]
    all_sleeps = usage.ru_nvcsw if usage is not None and not wrapped else None
    decode = None
    if not stream.started_outside:
        decode = _separate_decode(readings, workload.threads, all_sleeps)
    counters, total_cpu_ns = stream.counters, 0
    if usage is not None:
        total_cpu_ns = int((usage.ru_utime + usage.ru_stime) * 1e9)
        if not wrapped:
            # The final switches, and not the peak memory: there Linux counts the memory of this
            # process when it forked.
            counters = replace(
                counters, voluntary_switches=usage.ru_nvcsw, involuntary_switches=usage.ru_nivcsw
            )
    # What processes that it left behind used, as far as no reading has it.
    unseen_ns = total_cpu_ns + child.left_cpu_ns - readings[-1].cpu_ns
    left_ns = max(0, min(child.left_cpu_ns, unseen_ns))
    # Accounted at the end for a wrapped program, and one that ended before it could be read.
    if wrapped or readings[-1].cpu_ns == 0:
        interval = Interval(ended_ns - began_ns, total_cpu_ns, None)
    else:
        interval = _whole_interval(
            began_ns, readings[-1], ended_ns, total_cpu_ns, workload, has_decode=decode is not None
        )
    interval = add_late_work(interval, left_ns)
    run = ProgramRun(
        pid=stream.pid,
        started_ticks=stream.started_ticks,
        tokens=tuple(text for text, _ in stream.tokens),
        gaps_ns=tuple(b - a for a, b in pairwise([began_ns, *(each.at_ns for each in readings)])),
        interval=interval,
        decode=decode,
        window_ns=(readings[0].at_ns, readings[-1].at_ns) if decode is not None else None,
        counters=counters,
        effective_environment=stream.effective,
        stderr=stderr,
        wall_ns=ended_ns - began_ns,
        has_own_lines=bool(stream.reader.own_lines),
    )
    source_reports = plan.sources.read_all(
        ProgramOutput(
            lines=tuple(_text(stream.reader.own_lines + b"\n" + stderr).splitlines()),
            stdout=_text(stream.reader.tail),
            stderr=_text(stderr[-TAIL_BYTES:]),
            receipt=None
            if receipt is None
            else figure_sources.read_new_file(receipt, receipt_before),
        )
    )
    figures.check_agreement(
        source_reports,
        figures.ObservedFigures(
            run.wall_ns,
            tokens=None if plan.tokenizer is None else len(run.tokens),
            decode_ns=None if run.decode is None else run.decode.wall_ns,
            decode_tokens=run.block.judged_tokens,
        ),
    )
    run = replace(run, reported=tuple(each.report for each in source_reports))
    return apply_engine_count(run, workload) if stream.counts_bytes else run


def apply_engine_count(run: ProgramRun, workload: Workload) -> ProgramRun:
    """Turn a run whose tokens are bytes into one with as many tokens as the engine reports.

    Raises ``ToolError`` ``E_SOURCE_MISSING`` if it reports none, and as ``check_token_count``.
    """
    counts = [each.figures["tokens"] for each in run.reported if "tokens" in each.figures]
    if not counts:
        raise ToolError(
            "E_SOURCE_MISSING",
            f"The engine of {workload.name!r} is to count its tokens itself, and reported no "
            "count.",
            "Have it print llama.cpp's performance lines or write a receipt (receipt = PATH), give "
            "a pattern that finds the count, or use another token_unit.",
        )
    count = int(counts[0])
    engine_process.check_token_count(workload, count)
    # The output shows no boundaries between tokens: the first one carries the whole text, the
    # second one the whole time after the first.
    text = bytes(map(int, run.tokens)).decode("utf-8", "backslashreplace")
    first_ns, rest_ns = run.gaps_ns[0], sum(run.gaps_ns[1:])
    return replace(
        run,
        tokens=(text, *[""] * (count - 1)),
        gaps_ns=(first_ns + rest_ns,) if count == 1 else (first_ns, rest_ns, *[0] * (count - 2)),
        decode=run.decode if count > 1 else None,
        window_ns=run.window_ns if count > 1 else None,
    )


class _OutputStream:
    """Reads the output of a program and the clocks of its process at each piece."""

    def __init__(
        self,
        child: process.Child,
        workload: Workload,
        reader: AnswerReader,
        clean: CleanOutput | None,
        *,
        wrapped: bool,
    ) -> None:
        self.tokens: list[TimedToken] = []
        # The engine reports its count only at the end; until then tokens are bytes.
        self.counts_bytes = reader.unit == base.UNIT
        self.counters = clocks.ProcessCounters()
        # A script may set variables before it turns into the program, so they are read again.
        self.effective = engine_process.read_variables(child.pid, workload)
        self.pid = child.pid
        self.started_ticks = clocks.read_start_ticks(child.pid)
        self.started_outside = False
        """Whether the first clocks were the profiler's: the program was not found in time."""
        self.reader = reader
        self._child = child
        self._workload = workload
        self._clean = clean
        self._held = b""
        self._begun = False
        self._is_outside = wrapped
        self._children: set[int] = set()
        self._gone_ns = 0
        """When the program was first seen to have ended, with output left to read."""

    def read_all(self, fd: int, began_ns: int) -> None:
        """Read to the end of the output."""
        latest = ClockReading(began_ns, 0, None)
        # For an instant of its start a process has no variables.
        for _ in range(_FIRST_READINGS):
            if self.effective or wait_readable(fd, 0.0005):
                break
            self.effective = engine_process.read_variables(self.pid, self._workload)
        while True:
            left_s = self._workload.timeout_s - (time.monotonic_ns() - began_ns) / 1e9
            if left_s <= 0:
                raise engine_process.timeout_error(self._workload)
            if not wait_readable(fd, min(left_s, 1.0)):
                engine_process.check_output_size(self._workload, self._child)
                continue
            # The first reading opens the decode and is taken before the read: all that is not
            # in this read came after it. Any later one closes it: all of the read came before.
            opening = None if self.reader.begun else self._read_or_repeat(latest)
            data = os.read(fd, _READ_BYTES)
            if not data:
                if self._clean is not None:
                    self._add(self.reader.feed(self._clean(self._held), latest))
                self._add(self.reader.finish())
                return
            latest = opening or self._read_or_repeat(latest)
            engine_process.check_output_size(self._workload, self._child)
            if self._clean is None:
                self._add(self.reader.feed(data, latest))
                continue
            self._held += data
            if len(self._held) > OUTPUT_LIMIT_BYTES:
                raise engine_process.output_flood_error(self._workload)

    def _read_or_repeat(self, latest: ClockReading) -> ClockReading:
        if self._is_outside:
            self._step_inside()
        # Before the clocks: a sleep that begins after it is one more at the next reading.
        sleeps, has_ended = clocks.count_sleeps(self.pid)
        if not self._children:  # a tree takes twice as long to read
            self._children = read_children(self.pid)
        if has_ended:
            now_ns = time.monotonic_ns()
            self._gone_ns = self._gone_ns or now_ns
            if now_ns - self._gone_ns > _MAX_LAST_OUTPUT_NS:
                sleeps = None
        try:
            if self._children:
                return clocks.read_tree_clocks(self.pid, self._marker)
            return replace(clocks.read_clocks_with_children(self.pid), sleeps=sleeps)
        except ProcessLookupError:
            # It has ended since it wrote; its cost until then is in the latest reading.
            return replace(latest, at_ns=time.monotonic_ns())

    @property
    def _marker(self) -> str:
        # A profiler above the program has it, too, and is none of its tree.
        return self._child.marker if self.pid == self._child.pid else ""

    def _step_inside(self) -> None:
        """Turn from the profiler to the program that it has started."""
        try:
            below = psutil.Process(self._child.pid).children()
        except psutil.Error:
            return
        if len(below) == 1:
            self.pid = below[0].pid
            self.started_ticks = clocks.read_start_ticks(self.pid)
            self._children = set()
            self._is_outside = False

    def _add(self, new: Sequence[TimedToken]) -> None:
        if self.reader.begun and not self._begun:
            self._begun = True
            self.counters = clocks.read_tree_counters(self.pid, self._marker)
            found: dict[str, str] = {}
            for pid in (self.pid, *sorted(self._children)):
                found |= engine_process.read_variables(pid, self._workload)
            self.effective = found or self.effective
            self.started_outside = self._is_outside
        self.tokens += new
        if len(self.tokens) > self._workload.max_tokens and not self.counts_bytes:
            engine_process.check_token_count(self._workload, len(self.tokens))
        if self.reader.overflows:
            raise engine_process.output_flood_error(self._workload)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _whole_interval(
    began_ns: int,
    last: ClockReading,
    ended_ns: int,
    total_cpu_ns: int,
    workload: Workload,
    *,
    has_decode: bool,
) -> Interval:
    """Return the interval up to the last token, with the work that followed it.

    CPU time that the last reading lacks was used after it, as far as there was time for that; the
    rest is of children that had ended, and whoever waited for them had not been told. Their run
    delay is lost: if the decode alone is judged, the program counts as awake for as long as they
    may have waited.
    """
    unseen_ns = max(0, total_cpu_ns - last.cpu_ns)
    late_ns = min(unseen_ns, max(0, ended_ns - last.at_ns))
    early_ns = unseen_ns - late_ns
    last = replace(last, cpu_ns=last.cpu_ns + early_ns, ended_ns=last.ended_ns + early_ns)
    found = ClockReading(began_ns, 0, 0).interval_to(last, threads=workload.threads)
    if has_decode and last.lost_ns:
        found = found.with_lost_delay(last.lost_ns)
    return add_late_work(found, late_ns)


def _separate_decode(
    readings: Sequence[ClockReading], threads: int, all_sleeps: int | None
) -> Interval | None:
    """Return the interval from the first token to the last if that is the decode.

    A program that buffers its output has decoded before its first token is read.
    """
    if len({each.at_ns for each in readings}) < min(_MIN_DECODE_PIECES, max(2, len(readings))):
        return None
    interval = None
    if all_sleeps is not None:
        interval = readings[0].interval_to_if_awake(readings[-1], all_sleeps)
    interval = interval or readings[0].interval_to(readings[-1], threads=threads)
    return interval if interval.wall_ns >= _MIN_DECODE_NS and interval.cpu_ns > 0 else None
