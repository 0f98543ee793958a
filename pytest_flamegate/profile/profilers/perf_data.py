"""Read a ``perf.data`` file with perf's own commands, and the jitdump that names its Python code.

CPython's ``-X perf_jit`` writes the jitdump to /tmp, and ``perf inject --jit`` more files there.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import struct
import time
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path

from pytest_flamegate.core import process
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.core.process_system import wait_readable
from pytest_flamegate.profile.profilers.perf_script import (
    CHUNK_BYTES,
    FIELDS,
    NAME,
    ParsedScript,
    parse_script,
)
from pytest_flamegate.profile.profilers.tools import (
    ProfilerError,
    failure_error,
    output_error,
    timeout_error,
)

DIRECTORY = Path("/tmp")  # noqa: S108 - CPython has this path built in
_JITDUMP_MAGIC = 0x4A695444
_CODE_LOAD = 0
_HEADER = struct.Struct("=3I")
_RECORD = struct.Struct("=2IQ")
_CODE_LOAD_FIXED = 16 + 40
_SAFE = bytes(0x3F if byte < 0x20 or byte == 0x7F else byte for byte in range(256))
READ_TIMEOUT_S = 300.0
_LAST_WORDS_S = 1.0
_NOT_CLOSED = b"data size field is 0"
_EVENT = re.compile(r"^(\S+): .*?\bsample_freq \}: (\d{1,9}), sample_type: ([A-Z_|]+)")
_STACK_BYTES = re.compile(r"sample_stack_user: (\d{1,9})")
_THROTTLE = re.compile(rb"(?<!UN)THROTTLE events:\s+(\d{1,18})")


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


def _run(argv: Sequence[str]) -> CompletedCommand:
    result = process.run(argv, timeout_s=READ_TIMEOUT_S, env=perf_environment())
    if result.timed_out:
        raise timeout_error(NAME, READ_TIMEOUT_S, f"running perf {argv[1]}")
    if result.returncode != 0:
        raise failure_error(NAME, result.stderr or result.stdout, result.returncode)
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
        raise failure_error(NAME, stderr, status)
    if error is not None:
        raise error
    return parsed


def read_named_script(
    program: str,
    raw: Path,
    pid: int,
    roots: Sequence[str],
    window_ns: tuple[int, int] | None = None,
) -> ParsedScript:
    """Like ``read_script``; Python's functions get the names in the jitdump of ``pid``, if any."""
    jitdump, injected = jitdump_path(pid), raw.with_name(raw.name + ".jit")
    if not jitdump.exists():
        return read_script(program, raw, roots, window_ns)
    try:
        scrub_names(jitdump)
        _run([program, "inject", "-f", "--jit", "-i", str(raw), "-o", str(injected)])
        return read_script(program, injected, roots, window_ns)
    except OSError as error:
        raise output_error(NAME, f"the jitdump of process {pid}: {error}") from None
    finally:
        injected.unlink(missing_ok=True)


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


def jitdump_path(pid: int) -> Path:
    """Return where CPython writes the jitdump of ``pid``."""
    return DIRECTORY / f"jit-{pid}.dump"


def scrub_names(path: Path) -> None:
    """Overwrite control characters in the function names of a jitdump with ``?``.

    perf prints names as they are: with a line break in it, the name of a Python
    function could pass for any frame of any library.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags)
    try:
        if os.fstat(fd).st_size < _HEADER.size:
            return
        with mmap.mmap(fd, 0) as data:
            magic, _, offset = _HEADER.unpack_from(data)
            if magic == _JITDUMP_MAGIC:
                _scrub_records(data, offset)
    finally:
        os.close(fd)


def remove_jit_files(pid: int) -> None:
    """Remove everything that was written for ``pid``."""
    for path in (jitdump_path(pid), *DIRECTORY.glob(f"jitted-{pid}-*.so")):
        with contextlib.suppress(OSError):
            path.unlink()


def _scrub_records(data: mmap.mmap, offset: int) -> None:
    while offset + _RECORD.size <= len(data):
        kind, size, _ = _RECORD.unpack_from(data, offset)
        if size < _RECORD.size:
            return
        if kind == _CODE_LOAD:
            start = offset + _CODE_LOAD_FIXED
            end = data.find(b"\0", start, offset + size)
            if end > start:
                data[start:end] = data[start:end].translate(_SAFE)
        offset += size
