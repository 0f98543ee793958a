"""Read a ``perf.data`` file with perf's own commands, and the jitdump that names its Python code.

CPython's ``-X perf_jit`` writes the jitdump to /tmp, and ``perf inject --jit`` more files there.
"""

import contextlib
import math
import mmap
import os
import re
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from pytest_flamegate.core import process
from pytest_flamegate.core.process_system import wait_readable
from pytest_flamegate.core.text import decode_name, escape_name
from pytest_flamegate.profile.frames import make_native_frame, make_source_line, make_stack
from pytest_flamegate.profile.model import Frame, LineStack, SampledStacks, SourceLine, Stack
from pytest_flamegate.profile.profilers import tools
from pytest_flamegate.profile.source_lines import has_lines, locate

NAME = "perf"
FIELDS = "pid,tid,time,event,ip,sym,dso"
"""No ``comm``: a process names itself, and may put a line break in its name."""
CHUNK_BYTES = 1 << 16

_SAMPLE = re.compile(
    rb"\s*(-?\d{1,10})/-?\d+\s+(\d{1,12})\.(\d{6,9}):\s+[\w:.\-/]+:\s*(?:[0-9a-f]+ (.*))?"
)
"""Process, seconds, fraction, and the only frame of a sample without a call chain."""
_FRAME = re.compile(rb"\t *([0-9a-f]{1,16}) (.*)", re.DOTALL)
_LOST = re.compile(rb"PERF_RECORD_LOST(_SAMPLES)? lost (?:samples )?(\d{1,18})")


class _Entry(NamedTuple):
    """A frame as perf prints it: ``symbol (library)``, and the offset of its code in the library.

    The offset is 0 if no line can be known of the library: others would only make equal frames
    different.
    """

    described: bytes
    offset: int = 0


def parse_script(
    chunks: Iterable[bytes],
    roots: Sequence[str] = (),
    window_ns: tuple[int, int] | None = None,
    *,
    returns: bool = False,
) -> SampledStacks:
    r"""Parse what ``perf script -F FIELDS --show-lost-events`` printed, in chunks of any length.

    One sample is a header, one line for each frame from leaf to root, and an empty line::

        16592/16592  3955.045222: cpu-clock:
        \t    7f2233445566 sgemv (/usr/lib/libblas.so)

    Samples outside of ``window_ns`` (monotonic times of the first and last wanted one) are
    skipped. ``returns`` says that a caller's address is that of the instruction behind the call:
    perf corrects it if it unwinds by ``dwarf``, not by ``fp``. Raises ``ProfilerError``
    ``E_PROFILER_OUTPUT``.
    """
    # Stacks repeat: each is parsed once, at the end.
    counts: Counter[tuple[_Entry, ...]] = Counter()
    lost: Counter[bool] = Counter()
    pids: set[int] = set()
    first_ns, last_ns = math.inf, 0
    for header, entries in _iter_samples(_split_lines(chunks), lost, int(returns)):
        time_ns = int(header[2] + header[3].ljust(9, b"0"))
        if window_ns is None or window_ns[0] <= time_ns <= window_ns[1]:
            counts[entries] += 1
            pids.add(int(header[1]))
            first_ns, last_ns = min(first_ns, time_ns), max(last_ns, time_ns)
    resolved = _resolve(set().union(*counts), roots)
    stacks: Counter[Stack] = Counter()
    lines: Counter[LineStack] = Counter()
    for entries, samples in counts.items():
        found = [resolved[entry] for entry in reversed(entries)]
        stacks[make_stack(frame for frames, _ in found for frame in frames)] += samples
        lines[tuple(line for _, places in found for line in places)] += samples
    lines.pop((), None)
    span_ns = max(last_ns - int(first_ns), 0) if pids else 0
    # A kernel that counts lost samples reports the lost chunks as well.
    most_lost = max(lost.values(), default=0)
    return SampledStacks(stacks, lines, tuple(sorted(pids)), span_ns, most_lost)


def _iter_samples(
    lines: Iterable[bytes], lost: Counter[bool], behind: int
) -> Iterator[tuple[re.Match[bytes], tuple[_Entry, ...]]]:
    """Yield the header of each sample and its frames, and add to ``lost`` what is no sample.

    The addresses of callers are ``behind`` their calls by so many bytes.
    """
    header: re.Match[bytes] | None = None
    entries: list[_Entry] = []
    known: dict[_Entry, _Entry] = {}  # one object for equal ones: deep stacks hold millions
    for line in lines:
        if header is not None and (frame := _FRAME.fullmatch(line)):
            offset = 0
            if has_lines(_split_frame(frame[2])[1]):
                offset = int(frame[1], 16) - (behind if entries else 0)
            entry = _Entry(frame[2], offset)
            entries.append(known.setdefault(entry, entry))
        elif not line or line.isspace():
            if header is not None:
                yield header, tuple(entries)
            header, entries = None, []
        elif header is None and (header := _SAMPLE.fullmatch(line)):
            if header[4] is not None:
                yield header, (_Entry(header[4]),)
                header = None
        elif header is None and (loss := _LOST.search(line)):
            lost[loss[1] is not None] += int(loss[2])
        else:
            message = f"unexpected line {escape_name(decode_name(line.strip()))!r}"
            raise tools.output_error(NAME, message)
    if header is not None:
        raise tools.output_error(NAME, "the last sample is cut off")


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    begun: list[bytes] = []  # pieces of a line that no chunk has ended yet
    for chunk in chunks:
        first, *lines = chunk.split(b"\n")
        begun.append(first)
        if lines:
            yield b"".join(begun)
            begun = [lines.pop()]
            yield from lines
    if rest := b"".join(begun):
        yield rest


def _resolve(
    entries: Collection[_Entry], roots: Sequence[str]
) -> Mapping[_Entry, tuple[tuple[Frame | None, ...], tuple[SourceLine, ...]]]:
    """Return the frames of each entry, inlined functions last, and their lines in the project."""
    offsets: defaultdict[str, set[int]] = defaultdict(set)
    for entry in entries:
        if entry.offset:
            offsets[_split_frame(entry.described)[1]].add(entry.offset)
    located = {library: locate(library, found) for library, found in offsets.items()}
    resolved = {}
    for entry in entries:
        symbol, library = _split_frame(entry.described)
        places = located.get(library, {}).get(entry.offset, ())[::-1]
        names = (symbol, *(place.function for place in places[1:]))
        lines = (make_source_line(place.file, place.line, roots) for place in places)
        resolved[entry] = (
            tuple(make_native_frame(name, library, roots) for name in names),
            tuple(line for line in lines if line is not None),
        )
    return resolved


@lru_cache(maxsize=65536)
def _split_frame(described: bytes) -> tuple[str, str]:
    """Return symbol and library of ``symbol (library)``."""
    text = decode_name(described)
    # Symbols and paths may hold " (" themselves; a path starts with "/" or "[".
    at = max(text.rfind(" (/"), text.rfind(" (["))
    if at < 0:
        at = text.rfind(" (")
    if at < 0 or not text.endswith(")"):
        return text, ""
    return text[:at], text[at + 2 : -1]


DIRECTORY = Path("/tmp")  # noqa: S108 - CPython has this path built in
_JITDUMP_MAGIC = 0x4A695444
_CODE_LOAD = 0
_HEADER = struct.Struct("=3I")
_RECORD = struct.Struct("=2IQ")
_CODE_LOAD_FIXED = 16 + 40
_SAFE = bytes(0x3F if byte < 0x20 or byte == 0x7F else byte for byte in range(256))
READ_TIMEOUT_S = 300.0
_NOT_CLOSED = b"data size field is 0"
_EVENT = re.compile(r"^(\S+): .*?\bsample_freq \}: (\d{1,9}), sample_type: ([A-Z_|]+)")
_STACK_BYTES = re.compile(r"sample_stack_user: (\d{1,9})")
_THROTTLE = re.compile(rb"(?<!UN)THROTTLE events:\s+(\d{1,18})")


def perf_environment() -> dict[str, str]:
    """Return an environment in which perf reads no user's settings and asks no server."""
    return {**os.environ, "PERF_CONFIG": "/dev/null", "DEBUGINFOD_URLS": "", "LC_ALL": "C"}


def parse_evlist(listed: bytes) -> tuple[str, int, str]:
    """Parse the output of ``perf evlist -v``: event really sampled, rate in Hz, call graph mode."""
    for line in listed.decode("utf-8", "replace").splitlines():
        found = _EVENT.match(line)
        if found is None or found[1].startswith("dummy"):
            continue
        copied = _STACK_BYTES.search(line)
        graph = f"dwarf,{copied[1]}" if copied else "fp" if "CALLCHAIN" in found[3] else "none"
        return found[1], int(found[2]), graph
    raise tools.output_error(NAME, "perf evlist names no sampled event")


def parse_stats(stats: bytes) -> int:
    """Return how often the kernel throttled the sampling, by ``perf report --stats``."""
    found = _THROTTLE.search(stats)
    return int(found[1]) if found else 0


def run_perf(*argv: str | Path) -> bytes:
    """Return the output of one of perf's commands. Raises ``ProfilerError``."""
    result = process.run([*map(str, argv)], timeout_s=READ_TIMEOUT_S, env=perf_environment())
    if result.timed_out:
        raise tools.timeout_error(NAME, READ_TIMEOUT_S, f"running perf {argv[1]}")
    if result.returncode != 0:
        raise tools.failure_error(NAME, result.stderr or result.stdout, result.returncode)
    if _NOT_CLOSED in result.stderr:
        raise tools.output_error(NAME, "perf record did not finish writing it")
    return result.stdout


def read_script(
    program: str,
    raw: Path,
    roots: Sequence[str],
    window_ns: tuple[int, int] | None = None,
    *,
    returns: bool = False,
) -> SampledStacks:
    """Return all samples of ``raw``, or those within ``window_ns``. Raises ``ProfilerError``.

    The output of ``perf script`` is parsed as it comes: for deep stacks it is gigabytes.
    """
    argv = [program, "script", "-f", "--no-inline", "--show-lost-events", "--max-stack", "1024"]
    argv += ["-F", FIELDS, "-i", str(raw)]
    deadline = time.monotonic() + READ_TIMEOUT_S
    ours, theirs = (FileIO(fd, mode) for fd, mode in zip(os.pipe(), "rw", strict=True))
    with ours, theirs:
        child = process.start(argv, env=perf_environment(), stdout_fd=theirs.fileno())
        try:
            theirs.close()
            error = None
            try:
                parsed = parse_script(
                    _read_chunks(ours, deadline), roots, window_ns, returns=returns
                )
            except tools.ProfilerError as caught:
                error = caught
            status = child.wait(tools.LAST_WORDS_S if error else deadline - time.monotonic())
            stderr = child.stderr_bytes()
        finally:
            child.end()
    if error is None and status is None:
        raise _script_timeout()
    if status:  # perf failed: its message explains why the output could not be parsed
        raise tools.failure_error(NAME, stderr, status)
    if error is not None:
        raise error
    return parsed


@contextlib.contextmanager
def named_recording(program: str, raw: Path, pid: int) -> Iterator[Path]:
    """Yield the recording, with names of Python's functions if ``pid`` wrote a jitdump."""
    jitdump, injected = jitdump_path(pid), raw.with_name(raw.name + ".jit")
    if not jitdump.exists():
        yield raw
        return
    try:
        scrub_names(jitdump)
        run_perf(program, "inject", "-f", "--jit", "-i", raw, "-o", injected)
        yield injected
    except OSError as error:
        raise tools.output_error(NAME, f"the jitdump of process {pid}: {error}") from None
    finally:
        injected.unlink(missing_ok=True)


def _read_chunks(ours: FileIO, deadline: float) -> Iterator[bytes]:
    while wait_readable(ours.fileno(), deadline - time.monotonic()):
        if not (chunk := ours.read(CHUNK_BYTES)):
            return
        yield chunk
    raise _script_timeout()


def _script_timeout() -> tools.ProfilerError:
    return tools.timeout_error(NAME, READ_TIMEOUT_S, "running perf script")


def jitdump_path(pid: int) -> Path:
    """Return where CPython writes the jitdump of ``pid``."""
    return DIRECTORY / f"jit-{pid}.dump"


def scrub_names(path: Path) -> None:
    """Overwrite control characters in the function names of a jitdump with ``?``.

    perf prints names as they are: with a line break in it, the name of a Python
    function could pass for any frame of any library.
    """
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
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
