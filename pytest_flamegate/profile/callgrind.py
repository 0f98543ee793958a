"""callgrind: every instruction of a program counted, exactly, 12 to 50 times slower.

It runs the program on a CPU of its own making, so what it counts depends neither on load
nor on address randomisation: the same command in the same environment repeats to 0.01 %.
It says nothing about time: cache and memory are invisible to it. And the length of a
path or of the environment moves everything behind it in memory: ``malloc`` and tables
hashed by address then work differently. With NumPy that alone is up to 0.3 %.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.errors import FlamegateError, ToolError, system_errors
from pytest_flamegate.profile import programs
from pytest_flamegate.profile.base import Probe
from pytest_flamegate.profile.callgrind_out import CALLERS, EVENT, NAME, parse_callgrind
from pytest_flamegate.profile.packages import install
from pytest_flamegate.profile.trial import unusable
from pytest_flamegate.profile.words import (
    SECCOMP,
    VERSION,
    Known,
    ProfilerError,
    failed,
    quoted,
    unreadable,
)
from pytest_flamegate.workload import process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.profile.callgrind_out import Instructions
    from pytest_flamegate.profile.model import Stack
    from pytest_flamegate.workload.output import Result

ABSENT = "E_NO_VALGRIND"
DIED = "E_ENGINE_DIED"
INSTALL = install("valgrind")
NO_AVX512 = (
    "valgrind shows the program a CPU without AVX-512: a library that chooses its kernels by "
    "the CPU runs others than it does outside"
)
PROBE_TIMEOUT_S = 20.0
_OPTIONS = (
    # Neither ~/.valgrindrc nor VALGRIND_OPTS.
    "--command-line-only=yes",
    "--tool=callgrind",
    "--vgdb=no",
    # A wrapper would else be counted in place of the engine that it starts.
    "--trace-children=yes",
    "--cache-sim=no",
    "--branch-sim=no",
    "--separate-threads=no",
    f"--separate-callers={CALLERS}",
)
_KNOWN = (
    Known(
        "Unrecognised instruction",
        "E_VALGRIND_INSTRUCTION",
        "Build the engine for a CPU without what valgrind lacks (AVX-512 above all), or choose "
        "another profiler.",
    ),
    Known(
        "cannot be set up",
        "E_PROFILER_FAILED",
        "Install the C library's debug symbols: apt install libc6-dbg.",
    ),
    Known("failed to start tool", "E_PROFILER_FAILED", INSTALL),
)
_REFUSED = (
    Known("Unknown option", VERSION, f"A newer valgrind is needed. {INSTALL}"),
    Known(
        "Operation not permitted",
        SECCOMP,
        "Start the container with a seccomp profile that allows what valgrind needs (docker: "
        "--security-opt seccomp=unconfined).",
    ),
)
_NOT_STARTED = Known(
    "valgrind: ",
    "E_CANNOT_START",
    "Check that the program exists, may be executed, and that its directory is right.",
)
_COMMAND = re.compile(rb"^==\d+== Command: .*$", re.MULTILINE)
_INSTRUCTION = re.compile(rb"unhandled instruction bytes: ([0-9A-Fa-fx ]+)")


@dataclass(frozen=True, slots=True)
class Counted:
    """What one run of a program executed, with all the processes it started.

    ``by_stack`` holds what the last function of each stack executed itself, without those
    it calls. ``stdout`` is what the program wrote.
    """

    instructions: int
    by_stack: Mapping[Stack, int]
    pids: tuple[int, ...]
    valgrind_version: str
    notes: tuple[str, ...]
    stdout: bytes


def count_program(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, timeout_s: float
) -> Counted:
    """Run ``argv`` once to its end and count.

    Raises ``ToolError``: ``E_NO_VALGRIND``, ``E_CANNOT_START``, ``E_TIMEOUT``,
    ``E_ENGINE_DIED``, ``E_VALGRIND_INSTRUCTION`` (the program uses one that valgrind
    lacks), ``E_PROFILER_FAILED``, ``E_OUTPUT_FLOOD``, ``E_COUNT_INCOMPLETE`` (a process
    was killed before its count was written), ``E_PROFILER_OUTPUT``,
    ``E_PROFILE_CONTRADICTS``.
    """
    valgrind = _program()
    version = programs.version(valgrind)
    with tempfile.TemporaryDirectory(prefix="flamegate-") as name:
        directory = Path(name)
        result = process.run(
            [valgrind, *_OPTIONS, *_files(directory), *argv],
            timeout_s=timeout_s,
            env=env,
            cwd=cwd,
        )
        _require_success(result, argv[0], directory, timeout_s)
        counts = _read(directory)
    by_stack: dict[Stack, int] = {}
    for count in counts.values():
        for stack, cost in count.by_stack.items():
            by_stack[stack] = by_stack.get(stack, 0) + cost
    return Counted(
        instructions=sum(count.total for count in counts.values()),
        by_stack=MappingProxyType(by_stack),
        pids=tuple(sorted(counts)),
        valgrind_version=version,
        notes=_notes(len(counts)),
        stdout=result.stdout,
    )


def probe() -> Probe:
    """Count a program that does nothing; never raises."""
    version = ""
    nothing = shutil.which("true")
    argv = [nothing] if nothing else [sys.executable, "-I", "-S", "-c", "pass"]
    try:
        with system_errors():
            version = programs.version(_program())
            counted = count_program(argv, env=os.environ, cwd=None, timeout_s=PROBE_TIMEOUT_S)
    except FlamegateError as error:
        return unusable(NAME, version, error)
    return Probe(
        profiler=NAME,
        version=version,
        usable=True,
        sees_python=False,
        sees_native=True,
        event=EVENT,
        notes=counted.notes,
    )


def _program() -> str:
    try:
        return programs.find("valgrind", INSTALL)
    except ProfilerError as error:
        raise ProfilerError(ABSENT, error.what, error.todo, error.reason) from None


def _files(directory: Path) -> tuple[str, str]:
    """Return the options that name a file for each process: ``%p`` is its number."""
    return f"--callgrind-out-file={directory}/count.%p", f"--log-file={directory}/log.%p"


def _require_success(result: Result, program: str, directory: Path, timeout_s: float) -> None:
    if result.timed_out:
        raise ToolError(
            "E_TIMEOUT",
            f"{program!r} did not finish within {timeout_s:g} s under valgrind.",
            "Raise timeout (seconds) of the workload: counting is 12 to 50 times slower.",
        )
    if result.returncode == 0:
        return
    said = b"".join(path.read_bytes() for path in sorted(directory.glob("log.*")))
    if not _COMMAND.search(said):
        words = said + result.stderr
        raise failed(NAME, words, result.returncode, (*_KNOWN, *_REFUSED, _NOT_STARTED))
    # The command line may hold any words.
    raise _death(program, result, _COMMAND.sub(b"", said))


def _death(program: str, result: Result, said: bytes) -> ToolError:
    """Return why a program that ran under valgrind ended badly."""
    for entry in _KNOWN:
        if entry.words.encode() in said:
            found = _INSTRUCTION.search(said)
            reason = f"{entry.words} {found[1].decode().strip()}" if found else entry.words
            what = f"{program!r} died of an instruction that valgrind lacks: {reason}."
            return ProfilerError(entry.code, what, entry.todo, reason)
    status = result.returncode
    ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    words = quoted(result.stderr.strip().rpartition(b"\n")[2])
    last = f" Its last words: {words}" if words else ""
    return ToolError(
        DIED,
        f"{program!r} {ended} under valgrind.{last}",
        "Run it by itself: if it works there, it is valgrind that it does not suit.",
    )


def _read(directory: Path) -> dict[int, Instructions]:
    """Read the count of every process, by its number."""
    begun = {path.suffix for path in directory.glob("log.*")}
    paths = {path.suffix: path for path in sorted(directory.glob("count.*"))}
    if not paths:
        raise unreadable(NAME, "it wrote no file")
    if missing := begun - paths.keys():
        raise ToolError(
            "E_COUNT_INCOMPLETE",
            f"{len(missing)} of {len(begun | paths.keys())} processes were killed before their "
            "count was written.",
            "Let the engine end what it starts with SIGTERM, or choose another profiler.",
        )
    counts = {}
    for suffix, path in paths.items():
        with path.open(encoding="utf-8", errors="surrogateescape") as stream:
            counts[int(suffix[1:])] = parse_callgrind(stream)
    return counts


def _notes(processes: int) -> tuple[str, ...]:
    notes = []
    if processes > 1:
        notes.append(
            f"{processes} processes counted together; a forked one with what came before its fork"
        )
    if _has_avx512():
        notes.append(NO_AVX512)
    return tuple(notes)


def _has_avx512() -> bool:
    try:
        return " avx512f " in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
