"""Observe a program that loads, streams its answer to standard output, and ends."""

from __future__ import annotations

import os
import re
import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.workload import clocks, determinism, process
from pytest_flamegate.workload.observation import Interval
from pytest_flamegate.workload.served import check_count, check_output, died, timed_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from resource import struct_rusage

    from pytest_flamegate.workload.spec import Workload

_READ_BYTES = 65536
_WORD = re.compile(rb"\s*\S+(?=\s)")
_LINE = re.compile(rb"[^\n]*\n")


@dataclass(frozen=True, slots=True)
class Answer:
    """One run of a program: its tokens, when each was seen, and what the process spent."""

    pid: int
    started_ticks: int | None
    tokens: tuple[str, ...]
    gaps_ns: tuple[int, ...]
    interval: Interval
    counters: clocks.Counters
    effective_environment: Mapping[str, str]


class Splitter:
    """Cuts output into tokens by the declared unit: ``byte``, ``word`` or ``line``."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the tokens that ``data`` completes; a byte's text is its value."""
        if self._unit == "byte":
            return [str(byte) for byte in data]
        pattern = _WORD if self._unit == "word" else _LINE
        whole = self._rest + data
        tokens, end = [], 0
        for match in pattern.finditer(whole):
            tokens.append(match[0].decode("utf-8", "backslashreplace"))
            end = match.end()
        self._rest = whole[end:]
        return tokens

    def finish(self) -> list[str]:
        """Return the last token, if the output ended inside one."""
        rest, self._rest = self._rest, b""
        return [rest.decode("utf-8", "backslashreplace")] if rest.strip() else []


def answer(
    argv: tuple[str, ...],
    workload: Workload,
    token_unit: str,
    env: Mapping[str, str],
    names: Mapping[str, str],
    clean: Callable[[bytes], bytes] | None = None,
) -> Answer:
    """Run ``argv`` once and clock it; ``names`` are the variables whose effect is recorded.

    With ``clean`` the output is split into tokens only when it is whole, after ``clean``
    has taken out what is not the program's own; token times then mean nothing.
    """
    read_fd, write_fd = os.pipe()
    began_ns = time.monotonic_ns()
    try:
        child = process.start(argv, env=env, cwd=workload.directory, stdout_fd=write_fd)
    except BaseException:
        os.close(read_fd)
        raise
    finally:
        os.close(write_fd)
    try:
        ticks = clocks.started_ticks(child.pid)
        effective = determinism.effective(child.pid, names)
        output = _Output(Splitter(token_unit), clean)
        tokens, gaps, seen = _stream(read_fd, child, workload, output, began_ns)
        status = child.wait(max(0.1, workload.timeout_s - (time.monotonic_ns() - began_ns) / 1e9))
        wall_ns = time.monotonic_ns() - began_ns
        if status is None:
            raise timed_out(workload)
        if status != 0:
            raise died(workload, status, child.stderr_text())
        check_count(workload, len(tokens))
        usage = child.usage
    finally:
        os.close(read_fd)
        child.end()
    cpu_ns = int((usage.ru_utime + usage.ru_stime) * 1e9) if usage else 0
    return Answer(
        child.pid,
        ticks,
        tuple(tokens),
        tuple(gaps),
        Interval(wall_ns, cpu_ns, None),
        _counters(seen, usage),
        effective,
    )


class _Output:
    """What a program writes, as tokens: as it comes, or cleaned when it is whole."""

    def __init__(self, splitter: Splitter, clean: Callable[[bytes], bytes] | None) -> None:
        self._splitter = splitter
        self._clean = clean
        self._held = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the tokens that ``data`` completes; empty data is the end of the output."""
        if self._clean is None:
            return self._splitter.feed(data) if data else self._splitter.finish()
        self._held += data
        if data:
            return []
        return self._splitter.feed(self._clean(self._held)) + self._splitter.finish()


def _stream(
    fd: int, child: process.Child, workload: Workload, output: _Output, began_ns: int
) -> tuple[list[str], list[int], clocks.Counters]:
    tokens: list[str] = []
    gaps: list[int] = []
    seen = clocks.Counters()
    last_ns = began_ns
    while True:
        left_s = workload.timeout_s - (time.monotonic_ns() - began_ns) / 1e9
        if left_s <= 0:
            raise timed_out(workload)
        ready, _, _ = select.select([fd], [], [], min(left_s, 1.0))
        if not ready:
            check_output(workload, child)
            continue
        data = os.read(fd, _READ_BYTES)
        now_ns = time.monotonic_ns()
        new = output.feed(data)
        if new and not tokens:
            seen = clocks.counters(child.pid)
        for token in new:
            tokens.append(token)
            gaps.append(now_ns - last_ns)
            last_ns = now_ns
        if len(tokens) > workload.max_tokens:
            check_count(workload, len(tokens))
        if not data:
            return tokens, gaps, seen


def _counters(seen: clocks.Counters, usage: struct_rusage | None) -> clocks.Counters:
    """Take what the kernel accounted at the end, and what only a living process shows."""
    if usage is None:
        return seen
    return clocks.Counters(
        peak_rss_bytes=usage.ru_maxrss * 1024,
        read_bytes=seen.read_bytes,
        threads=seen.threads,
        voluntary_switches=usage.ru_nvcsw,
        involuntary_switches=usage.ru_nivcsw,
    )
