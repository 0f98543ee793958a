"""callgrind: every instruction of a program counted exactly, 12 to 50 times slower.

valgrind runs the program on a simulated CPU, so the count depends neither on load nor on address
randomisation: the same command in the same environment repeats to 0.01 %. The count says nothing
about time, because cache and memory are invisible to it. The length of a path or of the
environment moves everything behind it in memory, and ``malloc`` and tables hashed by address then
work differently: with NumPy that alone is up to 0.3 %.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, ToolError, system_errors
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.observe.scratch import scratch_prefix
from pytest_flamegate.profile.model import Stack
from pytest_flamegate.profile.profilers.base import Probe
from pytest_flamegate.profile.profilers.callgrind_file import CALLERS, EVENT, NAME, parse_callgrind
from pytest_flamegate.profile.profilers.tools import (
    ProfilerError,
    failure_error,
    find_program,
    known_messages,
    make_failed_probe,
    output_error,
    quote_output,
    tool_version,
)

DIED = "E_ENGINE_DIED"
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
    # Otherwise a wrapper would be counted in place of the engine that it starts.
    "--trace-children=yes",
    "--cache-sim=no",
    "--branch-sim=no",
    "--separate-threads=no",
    f"--separate-callers={CALLERS}",
)
_COMMAND = re.compile(rb"^==\d+== Command: .*$", re.MULTILINE)
_INSTRUCTION = re.compile(rb"unhandled instruction bytes: ([0-9A-Fa-fx ]+)")


@dataclass(frozen=True, slots=True)
class CountedRun:
    """The instructions of one run of a program, with all the processes it started.

    ``by_stack`` holds those that the last function of each stack executed itself, without its
    callees. ``stdout`` is the output of the program.
    """

    instructions: int
    by_stack: Mapping[Stack, int]
    pids: tuple[int, ...]
    valgrind_version: str
    notes: tuple[str, ...]
    stdout: bytes


def count_program(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, timeout_s: float
) -> CountedRun:
    """Run ``argv`` once to its end and count its instructions.

    Raises:
        ToolError: ``E_PROFILER_ABSENT``, ``E_CANNOT_START``, ``E_TIMEOUT``, ``E_ENGINE_DIED``,
            ``E_VALGRIND_INSTRUCTION`` (the program uses one that valgrind lacks),
            ``E_PROFILER_FAILED``, ``E_PROFILER_DENIED``, ``E_PROFILER_VERSION``,
            ``E_OUTPUT_FLOOD``, ``E_PROFILER_OUTPUT``.
    """
    valgrind = find_program("valgrind")
    version = tool_version(valgrind)
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as name:
        directory = Path(name)
        # %p is the number of the process.
        files = (
            f"--callgrind-out-file={directory}/count.%p",
            f"--log-file={directory}/log.%p",
        )
        result = process.run(
            [valgrind, *_OPTIONS, *files, *argv], timeout_s=timeout_s, env=env, cwd=cwd
        )
        _require_success(result, argv[0], directory, timeout_s)
        counts = _read_counts(directory)
    by_stack: dict[Stack, int] = {}
    for count in counts.values():
        for stack, cost in count.items():
            by_stack[stack] = by_stack.get(stack, 0) + cost
    return CountedRun(
        instructions=sum(by_stack.values()),
        by_stack=MappingProxyType(by_stack),
        pids=tuple(sorted(counts)),
        valgrind_version=version,
        notes=_notes(len(counts)),
        stdout=result.stdout,
    )


def probe_callgrind() -> Probe:
    """Count a program that does nothing; never raises."""
    version = ""
    nothing = shutil.which("true")
    argv = [nothing] if nothing else [sys.executable, "-I", "-S", "-c", "pass"]
    try:
        with system_errors():
            version = tool_version(find_program("valgrind"))
            counted = count_program(argv, env=os.environ, cwd=None, timeout_s=PROBE_TIMEOUT_S)
    except FlamegateError as error:
        return make_failed_probe(NAME, version, error)
    return Probe(
        profiler=NAME,
        version=version,
        usable=True,
        sees_native=True,
        event=EVENT,
        notes=counted.notes,
    )


def _require_success(
    result: CompletedCommand, program: str, directory: Path, timeout_s: float
) -> None:
    if result.timed_out:
        raise ToolError(
            "E_TIMEOUT",
            f"{program!r} did not finish within {timeout_s:g} s under valgrind.",
            "Raise timeout (seconds) of the workload: counting is 12 to 50 times slower.",
        )
    if result.returncode == 0:
        return
    log = b"".join(path.read_bytes() for path in sorted(directory.glob("log.*")))
    if not _COMMAND.search(log):
        raise failure_error("valgrind", log + result.stderr, result.returncode)
    # The command line may hold any words.
    raise _death_error(program, result, _COMMAND.sub(b"", log))


def _death_error(program: str, result: CompletedCommand, log: bytes) -> ToolError:
    """Build the error for a program that ended badly under valgrind."""
    for message in known_messages("valgrind"):
        if message.fatal and message.text.encode() in log:
            found = _INSTRUCTION.search(log)
            reason = f"{message.text} {found[1].decode().strip()}" if found else message.text
            problem = f"{program!r} died of an instruction that valgrind lacks: {reason}."
            return ProfilerError(message.code, problem, message.remedy, reason)
    status = result.returncode
    ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    words = quote_output(result.stderr.strip().rpartition(b"\n")[2])
    last = f" Its last words: {words}" if words else ""
    return ToolError(
        DIED,
        f"{program!r} {ended} under valgrind.{last}",
        "Run it by itself: if it works there, valgrind cannot run it.",
    )


def _read_counts(directory: Path) -> dict[int, Mapping[Stack, int]]:
    """Parse the count of every process, by its number."""
    started = {path.suffix for path in directory.glob("log.*")}
    paths = {path.suffix: path for path in sorted(directory.glob("count.*"))}
    if not paths:
        raise output_error(NAME, "it wrote no file")
    if missing := started - paths.keys():
        raise ProfilerError(
            "E_PROFILER_OUTPUT",
            f"{len(missing)} of {len(started | paths.keys())} processes were killed before their "
            "count was written.",
            "Let the engine end what it starts with SIGTERM, or choose another profiler.",
            "a process was killed",
        )
    counts: dict[int, Mapping[Stack, int]] = {}
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
