"""Running perf's reading commands in an environment of their own."""

from __future__ import annotations

import contextlib
import os
import re
import time
from io import FileIO
from typing import TYPE_CHECKING

from pytest_flamegate.profile.perf_script import BLOCK_BYTES, FIELDS, NAME, Script, parse_script
from pytest_flamegate.profile.perf_words import KNOWN
from pytest_flamegate.profile.words import ProfilerError, failed, hangs, unreadable
from pytest_flamegate.workload import process
from pytest_flamegate.workload.readable import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_flamegate.workload.output import Result

READ_TIMEOUT_S = 300.0
_LAST_WORDS_S = 1.0
_NOT_CLOSED = b"data size field is 0"
_EVENT = re.compile(r"^(\S+): .*?\bsample_freq \}: (\d{1,9}), sample_type: ([A-Z_|]+)")
_STACK_BYTES = re.compile(r"sample_stack_user: (\d{1,9})")
_THROTTLE = re.compile(rb"(?<!UN)THROTTLE events:\s+(\d{1,18})")


def environment() -> dict[str, str]:
    """Return an environment in which perf reads no user's settings and asks no server."""
    return {**os.environ, "PERF_CONFIG": "/dev/null", "DEBUGINFOD_URLS": "", "LC_ALL": "C"}


def read(argv: Sequence[str]) -> Result:
    """Run one of perf's reading commands; raise ``ProfilerError`` where it fails."""
    result = process.run(argv, timeout_s=READ_TIMEOUT_S, env=environment())
    if result.timed_out:
        raise hangs(NAME, READ_TIMEOUT_S, f"running perf {argv[1]}")
    if result.returncode != 0:
        raise failed(NAME, result.stderr or result.stdout, result.returncode, KNOWN)
    if _NOT_CLOSED in result.stderr:
        raise unreadable(NAME, "perf record did not finish writing it")
    return result


def event_of(program: str, raw: Path) -> tuple[str, int, str]:
    """Return the event that was really sampled, its rate in Hz, and the call graph mode."""
    return parse_evlist(read([program, "evlist", "-f", "-v", "-i", str(raw)]).stdout)


def parse_evlist(listed: bytes) -> tuple[str, int, str]:
    """Read what ``perf evlist -v`` prints: the event, its rate in Hz, the call graph mode.

    Raises ``ProfilerError`` ``E_PROFILER_OUTPUT`` where it names no sampled event.
    """
    for line in listed.decode("utf-8", "replace").splitlines():
        found = _EVENT.match(line)
        if found is None or found[1].startswith("dummy"):
            continue
        kept = _STACK_BYTES.search(line)
        graph = f"dwarf,{kept[1]}" if kept else "fp" if "CALLCHAIN" in found[3] else "none"
        return found[1], int(found[2]), graph
    raise unreadable(NAME, "perf evlist names no sampled event")


def throttled(program: str, raw: Path) -> int:
    """Return how often the kernel throttled the sampling."""
    return parse_stats(read([program, "report", "-f", "--stats", "-i", str(raw)]).stdout)


def parse_stats(stats: bytes) -> int:
    """Read what ``perf report --stats`` prints: how often the kernel throttled the sampling."""
    found = _THROTTLE.search(stats)
    return int(found[1]) if found else 0


def script(
    program: str, raw: Path, roots: Sequence[str], window_ns: tuple[int, int] | None = None
) -> Script:
    """Read every sample of ``raw``, or those within ``window_ns``. Raises ``ProfilerError``.

    What perf prints is read as it comes: of deep stacks it is gigabytes.
    """
    argv = [program, "script", "-f", "--no-inline", "--show-lost-events", "--max-stack", "1024"]
    deadline = time.monotonic() + READ_TIMEOUT_S
    with _pipe() as (ours, theirs):
        child = process.start(
            [*argv, "-F", FIELDS, "-i", str(raw)], env=environment(), stdout_fd=theirs.fileno()
        )
        try:
            theirs.close()
            refusal = None
            try:
                found = parse_script(_printed(ours, deadline), roots, window_ns)
            except ProfilerError as error:
                refusal = error
            status = child.wait(_LAST_WORDS_S if refusal else deadline - time.monotonic())
            stderr = child.stderr_bytes()
        finally:
            child.end()
    if refusal is None and status is None:
        raise _script_hangs()
    if status:  # it explains what is missing in what was read
        raise failed(NAME, stderr, status, KNOWN)
    if refusal is not None:
        raise refusal
    return found


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[FileIO, FileIO]]:
    ours, theirs = (FileIO(fd, mode) for fd, mode in zip(os.pipe(), "rw", strict=True))
    with ours, theirs:
        yield ours, theirs


def _printed(ours: FileIO, deadline: float) -> Iterator[bytes]:
    """Yield what perf prints until it closes its end."""
    while readable(ours.fileno(), deadline - time.monotonic()):
        if not (chunk := ours.read(BLOCK_BYTES)):
            return
        yield chunk
    raise _script_hangs()


def _script_hangs() -> ProfilerError:
    return hangs(NAME, READ_TIMEOUT_S, "running perf script")


def inject_jit(program: str, raw: Path) -> Path:
    """Return a copy of ``raw`` in which Python's functions have names."""
    injected = raw.with_name(raw.name + ".jit")
    read([program, "inject", "-f", "--jit", "-i", str(raw), "-o", str(injected)])
    return injected
