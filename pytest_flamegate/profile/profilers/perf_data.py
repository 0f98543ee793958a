"""Read a ``perf.data`` file with perf's own commands."""

from __future__ import annotations

import contextlib
import os
import re
import time
from io import FileIO
from typing import TYPE_CHECKING

from pytest_flamegate.core import process
from pytest_flamegate.core.process_output import wait_readable
from pytest_flamegate.profile.profilers.errors import (
    CANNOT_START,
    DENIED,
    DISK_FULL,
    GONE,
    OPTION,
    OUTPUT,
    VERSION,
    KnownMessage,
    ProfilerError,
    failure_error,
    output_error,
    timeout_error,
)
from pytest_flamegate.profile.profilers.perf_script import (
    CHUNK_BYTES,
    FIELDS,
    NAME,
    ParsedScript,
    parse_script,
)
from pytest_flamegate.profile.profilers.tools import install_hint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_flamegate.core.process import CompletedCommand


INSTALL = install_hint("perf")
READ_TIMEOUT_S = 300.0
_LAST_WORDS_S = 1.0
_NOT_CLOSED = b"data size field is 0"
_EVENT = re.compile(r"^(\S+): .*?\bsample_freq \}: (\d{1,9}), sample_type: ([A-Z_|]+)")
_STACK_BYTES = re.compile(r"sample_stack_user: (\d{1,9})")
_THROTTLE = re.compile(rb"(?<!UN)THROTTLE events:\s+(\d{1,18})")
_CONTAINER = (
    "Start the container with --cap-add=PERFMON and a seccomp profile that allows "
    "perf_event_open (docker: --security-opt seccomp=unconfined)."
)
_UPGRADE = f"perf 5.10 or newer is needed. {INSTALL}"
KNOWN = (
    KnownMessage("No permission to enable", DENIED, _CONTAINER),
    KnownMessage("Function not implemented", DENIED, _CONTAINER),
    KnownMessage(
        "Access to performance monitoring",
        DENIED,
        "Type: sudo sysctl kernel.perf_event_paranoid=1 (in a container: --cap-add=PERFMON); "
        "py-spy needs no such setting.",
    ),
    KnownMessage(
        "Permission denied",
        DENIED,
        "Sample a process of your own user, and write to a directory of your own.",
    ),
    KnownMessage("not found for kernel", VERSION, INSTALL),
    KnownMessage("nknown option", VERSION, _UPGRADE),
    KnownMessage("unknown switch", VERSION, _UPGRADE),
    KnownMessage(
        "Maximum frequency rate",
        OPTION,
        "Ask for fewer samples a second, or raise kernel.perf_event_max_sample_rate.",
    ),
    KnownMessage("No such process", GONE, "The process ended before it could be sampled."),
    KnownMessage(
        "No such file or directory",
        CANNOT_START,
        "Check that the program exists and may be executed.",
    ),
    DISK_FULL,
    KnownMessage(
        "incompatible file format",
        OUTPUT,
        "Measure again; the recording is damaged or of another perf.",
    ),
)


def perf_environment() -> dict[str, str]:
    """Return an environment in which perf reads no user's settings and asks no server."""
    return {**os.environ, "PERF_CONFIG": "/dev/null", "DEBUGINFOD_URLS": "", "LC_ALL": "C"}


def read_event(program: str, raw: Path) -> tuple[str, int, str]:
    """Return the event that was really sampled, its rate in Hz, and the call graph mode."""
    return parse_evlist(_run([program, "evlist", "-f", "-v", "-i", str(raw)]).stdout)


def parse_evlist(listed: bytes) -> tuple[str, int, str]:
    """Parse the output of ``perf evlist -v``: event, rate in Hz, call graph mode.

    Raises ``ProfilerError`` ``E_PROFILER_OUTPUT`` if it lists no sampled event.
    """
    for line in listed.decode("utf-8", "replace").splitlines():
        found = _EVENT.match(line)
        if found is None or found[1].startswith("dummy"):
            continue
        copied = _STACK_BYTES.search(line)
        graph = f"dwarf,{copied[1]}" if copied else "fp" if "CALLCHAIN" in found[3] else "none"
        return found[1], int(found[2]), graph
    raise output_error(NAME, "perf evlist names no sampled event")


def count_throttles(program: str, raw: Path) -> int:
    """Return how often the kernel throttled the sampling."""
    return parse_stats(_run([program, "report", "-f", "--stats", "-i", str(raw)]).stdout)


def parse_stats(stats: bytes) -> int:
    """Return the throttle events in the output of ``perf report --stats``."""
    found = _THROTTLE.search(stats)
    return int(found[1]) if found else 0


def inject_jit(program: str, raw: Path) -> Path:
    """Return a copy of ``raw`` in which Python's functions have names."""
    injected = raw.with_name(raw.name + ".jit")
    _run([program, "inject", "-f", "--jit", "-i", str(raw), "-o", str(injected)])
    return injected


def _run(argv: Sequence[str]) -> CompletedCommand:
    result = process.run(argv, timeout_s=READ_TIMEOUT_S, env=perf_environment())
    if result.timed_out:
        raise timeout_error(NAME, READ_TIMEOUT_S, f"running perf {argv[1]}")
    if result.returncode != 0:
        raise failure_error(NAME, result.stderr or result.stdout, result.returncode, KNOWN)
    if _NOT_CLOSED in result.stderr:
        raise output_error(NAME, "perf record did not finish writing it")
    return result


def read_script(
    program: str, raw: Path, roots: Sequence[str], window_ns: tuple[int, int] | None = None
) -> ParsedScript:
    """Return all samples of ``raw``, or those within ``window_ns``. Raises ``ProfilerError``.

    The output of ``perf script`` is parsed as it comes: for deep stacks it is gigabytes.
    """
    argv = [program, "script", "-f", "--no-inline", "--show-lost-events", "--max-stack", "1024"]
    argv += ["-F", FIELDS, "-i", str(raw)]
    deadline = time.monotonic() + READ_TIMEOUT_S
    with _pipe() as (ours, theirs):
        child = process.start(argv, env=perf_environment(), stdout_fd=theirs.fileno())
        try:
            theirs.close()
            error = None
            try:
                parsed = parse_script(_read_chunks(ours, deadline), roots, window_ns)
            except ProfilerError as caught:
                error = caught
            status = child.wait(_LAST_WORDS_S if error else deadline - time.monotonic())
            stderr = child.stderr_bytes()
        finally:
            child.end()
    if error is None and status is None:
        raise _script_timeout()
    if status:  # perf failed: its message explains why the output could not be parsed
        raise failure_error(NAME, stderr, status, KNOWN)
    if error is not None:
        raise error
    return parsed


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[FileIO, FileIO]]:
    ours, theirs = (FileIO(fd, mode) for fd, mode in zip(os.pipe(), "rw", strict=True))
    with ours, theirs:
        yield ours, theirs


def _read_chunks(ours: FileIO, deadline: float) -> Iterator[bytes]:
    while wait_readable(ours.fileno(), deadline - time.monotonic()):
        if not (chunk := ours.read(CHUNK_BYTES)):
            return
        yield chunk
    raise _script_timeout()


def _script_timeout() -> ProfilerError:
    return timeout_error(NAME, READ_TIMEOUT_S, "running perf script")
