"""Observe a program that loads, streams its answer to standard output, and ends."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, replace
from itertools import dropwhile, pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

import psutil

from pytest_flamegate.core import clocks, process
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.process import OUTPUT_LIMIT_BYTES
from pytest_flamegate.core.process_output import wait_readable
from pytest_flamegate.engines import base, figures, program_receipts
from pytest_flamegate.engines.figures import ProgramOutput
from pytest_flamegate.engines.tokens import Tokenized
from pytest_flamegate.observe import environment
from pytest_flamegate.observe.engine_process import (
    check_output_size,
    check_token_count,
    engine_died_error,
    output_flood_error,
    timeout_error,
)
from pytest_flamegate.observe.observation import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from resource import struct_rusage

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Streamed
    from pytest_flamegate.engines.figures import Report, SourceReport


def apply_engine_count(found: ProgramRun, workload: Workload) -> ProgramRun:
    """Return the answer in tokens by the engine's own count; ``found`` holds its bytes.

    ``ToolError``: ``E_NO_COUNT`` where no report counts any, and what ``check_count`` refuses.
    """
    tokens = _counted(found.reported, workload.name)
    check_token_count(workload, tokens)
    return replace(
        found,
        tokens=_texts(found.tokens, tokens),
        gaps_ns=_gaps_engine_count(found.gaps_ns, tokens),
        decode=found.decode if tokens > 1 else None,
        window_ns=found.window_ns if tokens > 1 else None,
    )


def _counted(reports: Sequence[Report], name: str) -> int:
    for report in reports:
        if (tokens := report.figures.get("tokens")) is not None:
            return int(tokens)
    raise ToolError(
        "E_NO_COUNT",
        f"The tokens of {name!r} are to be counted by the engine, and it did not say how many.",
        "Have it print llama.cpp's performance lines or write a receipt (receipt = PATH), say "
        "how to find the count (pattern), or count by another token_unit.",
    )


def _texts(pieces: Sequence[str], tokens: int) -> tuple[str, ...]:
    """Return the bytes of ``pieces`` as text at the first of so many tokens.

    Where one token ends and the next begins was not seen; the whole text still has to be the
    same in every run.
    """
    text = bytes(map(int, pieces)).decode("utf-8", "backslashreplace")
    return (text, *[""] * (tokens - 1))


def _gaps_engine_count(gaps_ns: Sequence[int], tokens: int) -> tuple[int, ...]:
    """Return the time to the first token, then the time of all others at the second.

    ``gaps_ns`` is of bytes. Nobody saw the times between: noughts stand there.
    """
    first, rest = gaps_ns[0], sum(gaps_ns[1:])
    return (first + rest,) if tokens == 1 else (first, rest, *[0] * (tokens - 2))


MAX_OWN_LINES_BYTES = 16 << 20
"""What is more is no report of one run."""

OwnLinesAt = TypeVar("OwnLinesAt")


class OwnLineFilter(Generic[OwnLinesAt]):
    """Lets everything pass, each piece with its time, but lines that begin with a marker.

    A piece is held back only for as long as the line it begins may still become such a line,
    so that the answer keeps the times at which it was seen.
    """

    def __init__(self, markers: Sequence[bytes]) -> None:
        self._markers = tuple(markers)
        self._longest = max(map(len, self._markers), default=0)
        self._held: list[tuple[bytes, OwnLinesAt]] = []
        self._passes = not self._markers
        self._takes = False
        self._taken = bytearray()

    @property
    def taken(self) -> bytes:
        """The lines that were taken out, each with its end."""
        return bytes(self._taken)

    @property
    def overflows(self) -> bool:
        """Whether more was taken out than any report is long."""
        return len(self._taken) > MAX_OWN_LINES_BYTES

    def feed(self, data: bytes, at: OwnLinesAt) -> list[tuple[bytes, OwnLinesAt]]:
        """Return what of ``data``, seen ``at``, and of what was held back is the answer's."""
        if not self._markers:
            return [(data, at)]
        passed: list[tuple[bytes, OwnLinesAt]] = []
        for line in _lines(data):
            passed += self._part(line, at)
            if line.endswith(b"\n"):
                self._passes = self._takes = False
        return passed

    def finish(self) -> list[tuple[bytes, OwnLinesAt]]:
        """Return what was held back when the output ended."""
        held, self._held = self._held, []
        return held

    def _part(self, part: bytes, at: OwnLinesAt) -> list[tuple[bytes, OwnLinesAt]]:
        """Take a line or a part of one."""
        if self._takes:
            self._taken += part
            return []
        if self._passes:
            return [(part, at)]
        self._held.append((part, at))
        begun = b"".join(piece for piece, _ in self._held)[: self._longest]
        if begun.startswith(self._markers):
            self._takes = True
            self._taken += b"".join(piece for piece, _ in self.finish())
        elif not any(marker.startswith(begun) for marker in self._markers):
            self._passes = True
            return self.finish()
        return []


def _lines(data: bytes) -> list[bytes]:
    """Cut behind each line feed alone: a carriage return ends no line here."""
    *whole, rest = data.split(b"\n")
    return [*(line + b"\n" for line in whole), *([rest] if rest else [])]


MAX_TOKEN_BYTES = 64 * 1024
"""What is longer is no word and no line of an answer."""

# Each matches one byte, the last of a token, so that a search never goes back.
_ENDS = {"word": re.compile(rb"\S(?=\s)"), "line": re.compile(rb"\n")}

SplitAt = TypeVar("SplitAt")


class TokenSplitter(Generic[SplitAt]):
    """Tokens by the declared unit: ``byte``, ``word`` (with the space before it) or ``line``.

    A word is complete only when the next one begins, so a token carries the time of
    its first byte, never that of what completed it.
    """

    def __init__(self, unit: str) -> None:
        self._ends = _ENDS.get(unit)
        self._rest = b""
        self._began: SplitAt | None = None
        self.begun = False
        """Whether a token has begun."""

    @property
    def overflows(self) -> bool:
        """Whether a single token has grown past all bounds."""
        return len(self._rest) > MAX_TOKEN_BYTES

    def feed(self, data: bytes, at: SplitAt) -> list[tuple[str, SplitAt]]:
        """Return the tokens that ``data``, seen ``at``, completes; a byte's text is its value."""
        if self._ends is None:
            self.begun = self.begun or bool(data)
            return [(str(byte), at) for byte in data]
        whole = self._rest + data
        tokens: list[tuple[str, SplitAt]] = []
        began, start = self._began, 0
        for match in self._ends.finditer(whole, max(0, len(self._rest) - 1)):
            tokens.append((_text_split(whole[start : match.end()]), at if began is None else began))
            began, start = None, match.end()
        self._rest = whole[start:]
        # White space alone is no beginning: the word after it may take long to come.
        if began is None and self._rest.strip():
            began = at
        self._began = began
        self.begun = self.begun or bool(tokens) or began is not None
        return tokens

    def finish(self) -> list[tuple[str, SplitAt]]:
        """Return the last token, if the output ended inside one."""
        rest, self._rest = self._rest, b""
        return [] if self._began is None else [(_text_split(rest), self._began)]


def _text_split(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


At = TypeVar("At")

TAIL_BYTES = 32 << 10
"""How much of what was written is kept to be searched."""


class AnswerReader(Generic[At]):
    """Tokens of an answer, without the lines in which the program speaks of itself."""

    def __init__(self, plan: Streamed) -> None:
        self._own: OwnLineFilter[At] = OwnLineFilter(plan.sources.markers)
        self._tokens: TokenSplitter[At] | Tokenized[At] = (
            TokenSplitter(plan.token_unit) if plan.tokenizer is None else Tokenized(plan.tokenizer)
        )
        self.unit = plan.token_unit
        self._tail = b""

    @property
    def begun(self) -> bool:
        """Whether a token has begun."""
        return self._tokens.begun

    @property
    def overflows(self) -> bool:
        """Whether a single token, or what the program says of itself, has grown past bounds."""
        return self._tokens.overflows or self._own.overflows

    @property
    def own_lines(self) -> bytes:
        """The lines in which the program spoke of itself; no part of its answer."""
        return self._own.taken

    @property
    def tail(self) -> bytes:
        """The last of all that was written, 32 KiB at most."""
        return self._tail

    def feed(self, data: bytes, at: At) -> list[tuple[str, At]]:
        """Return the tokens that ``data``, seen ``at``, completes, each with its time."""
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        return self._cut(self._own.feed(data, at))

    def finish(self) -> list[tuple[str, At]]:
        """Return what is complete now that the output has ended."""
        return [*self._cut(self._own.finish()), *self._tokens.finish()]

    def _cut(self, pieces: list[tuple[bytes, At]]) -> list[tuple[str, At]]:
        return [token for piece, at in pieces for token in self._tokens.feed(piece, at)]


if TYPE_CHECKING:
    Clean = Callable[[bytes], bytes]
    Seen = tuple[str, clocks.ClockReading]

_READ_BYTES = 65536
_LOOKS_TO_TELL_APART = 3
_SHORTEST_DECODE_NS = 2_000_000


@dataclass(frozen=True, slots=True)
class ProgramRun:
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
    counters: clocks.ProcessCounters
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


def run_program(
    plan: Streamed,
    workload: Workload,
    env: Mapping[str, str],
    *,
    wrapped: bool = False,
    clean: Clean | None = None,
    cpu: int | None = None,
    began: Callable[[int], None] | None = None,
) -> ProgramRun:
    """Run ``plan`` once and clock it.

    ``wrapped`` says that its command line is a profiler with the program below it: the clocks are
    then the program's, except for ``interval``. With ``clean`` the output is split into
    tokens only when it is whole, after ``clean`` has taken out what is not the
    program's own; then there is no decode to tell apart. ``cpu`` binds it to one core.
    ``began(pid)`` is called as soon as it runs. ``ToolError`` for what ``refusals`` names, and
    for what the program says of itself where that is missing, wrong or contradicted.
    """
    paper = None if plan.sources.receipt is None else workload.directory / plan.sources.receipt
    before = None if paper is None else program_receipts.read_file_state(paper)
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
        stream = _Stream(child, workload, AnswerReader(plan), clean, wrapped=wrapped)
        effective = environment.read_variables(child.pid, environment.requested_variables(workload))
        stream.read_all(read_fd, began_ns)
        effective = stream.effective or effective
        left_s = workload.timeout_s - (time.monotonic_ns() - began_ns) / 1e9
        status = child.wait(max(0.1, left_s), OUTPUT_LIMIT_BYTES)
        ended_ns = time.monotonic_ns()
        check_output_size(workload, child)
        if status is None:
            raise timeout_error(workload)
        if status != 0:
            raise engine_died_error(workload, status, child.stderr_text())
        if not stream.seen or not stream.uncounted:
            check_token_count(workload, len(stream.seen))
        usage, stderr = child.usage, child.stderr_bytes()
    finally:
        os.close(read_fd)
        child.end()
    looks = [at for _, at in stream.seen]
    decode = None if stream.lost_sight else _decode(looks)
    found = ProgramRun(
        pid=stream.pid,
        started_ticks=stream.started_ticks,
        tokens=tuple(text for text, _ in stream.seen),
        gaps_ns=_gaps(began_ns, looks),
        interval=_accounted(ended_ns - began_ns, usage)
        if wrapped or looks[-1].cpu_ns == 0
        else clocks.ClockReading(began_ns, 0, 0).until(looks[-1]),
        decode=decode,
        window_ns=(looks[0].at_ns, looks[-1].at_ns) if decode is not None else None,
        counters=stream.counters if wrapped else _with_usage(stream.counters, usage),
        effective_environment=effective,
        stderr=stderr,
        wall_ns=ended_ns - began_ns,
        own_lines=bool(stream.cutter.own_lines),
    )
    said = plan.sources.read_all(
        ProgramOutput(
            lines=tuple(_text(stream.cutter.own_lines + b"\n" + stderr).splitlines()),
            stdout=_text(stream.cutter.tail),
            stderr=_text(stderr[-TAIL_BYTES:]),
            receipt=None if paper is None else program_receipts.read_new_file(paper, before),
        )
    )
    _agrees(said, found, plan)
    found = replace(found, reported=tuple(each.report for each in said))
    return apply_engine_count(found, workload) if stream.uncounted else found


class _Stream:
    """What a program writes, as it comes."""

    def __init__(
        self,
        child: process.Child,
        workload: Workload,
        cutter: AnswerReader[clocks.ClockReading],
        clean: Clean | None,
        *,
        wrapped: bool,
    ) -> None:
        self.seen: list[Seen] = []
        # What is seen are bytes then, and how many tokens they are is told at the end.
        self.uncounted = cutter.unit == base.UNIT
        self.counters = clocks.ProcessCounters()
        # A script may have set variables anew before it turned into the program.
        self.effective: Mapping[str, str] = {}
        self.pid = child.pid
        self.started_ticks = clocks.read_start_ticks(child.pid)
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
        latest = clocks.ClockReading(began_ns, 0, None)
        while True:
            left_s = self._workload.timeout_s - (time.monotonic_ns() - began_ns) / 1e9
            if left_s <= 0:
                raise timeout_error(self._workload)
            if not wait_readable(fd, min(left_s, 1.0)):
                check_output_size(self._workload, self._child)
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

    def _look(self, latest: clocks.ClockReading) -> clocks.ClockReading:
        if self._inside:
            self._step_inside()
        try:
            return clocks.read_clocks(self.pid)
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
            self.started_ticks = clocks.read_start_ticks(self.pid)
            self._inside = False

    def _take(self, data: bytes, at: clocks.ClockReading) -> None:
        check_output_size(self._workload, self._child)
        if self._clean is not None:
            self._held += data
            if len(self._held) > OUTPUT_LIMIT_BYTES:
                raise output_flood_error(self._workload)
            return
        self._add(self.cutter.feed(data, at))

    def _finish(self, latest: clocks.ClockReading) -> None:
        if self._clean is not None:
            self._add(self.cutter.feed(self._clean(self._held), latest))
        self._add(self.cutter.finish())

    def _add(self, new: Sequence[Seen]) -> None:
        if self.cutter.begun and not self._begun:
            self._begun = True
            self.counters = clocks.read_counters(self.pid)
            asked = environment.requested_variables(self._workload)
            self.effective = environment.read_variables(self.pid, asked)
            self.lost_sight = self._inside  # the clocks so far were the profiler's
        self.seen += new
        if len(self.seen) > self._workload.max_tokens and not self.uncounted:
            check_token_count(self._workload, len(self.seen))
        if self.cutter.overflows:
            raise output_flood_error(self._workload)


def _agrees(said: Sequence[SourceReport], found: ProgramRun, plan: Streamed) -> None:
    """Hold what the program says of itself against what was clocked."""
    figures.check_agreement(
        said,
        figures.Observed(
            found.wall_ns,
            tokens=None if plan.tokenizer is None else len(found.tokens),
            decode_ns=None if found.decode is None else found.decode.wall_ns,
            decode_tokens=found.block.judged_tokens,
        ),
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _gaps(began_ns: int, looks: Sequence[clocks.ClockReading]) -> tuple[int, ...]:
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


def _decode(looks: Sequence[clocks.ClockReading]) -> Interval | None:
    """Return what passed from the first token to the last, where that is the decode.

    A program that holds its output back and lets go of it at once decodes before its
    first token is seen.
    """
    if len({look.at_ns for look in looks}) < min(_LOOKS_TO_TELL_APART, max(2, len(looks))):
        return None
    interval = looks[0].until(looks[-1])
    return interval if interval.wall_ns >= _SHORTEST_DECODE_NS and interval.cpu_ns > 0 else None


def _with_usage(
    seen: clocks.ProcessCounters, usage: struct_rusage | None
) -> clocks.ProcessCounters:
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
