"""callgrind: every instruction of a program counted exactly, 12 to 50 times slower.

valgrind runs the program on a simulated CPU, so the count depends neither on load nor on address
randomisation: the same command in the same environment repeats to 0.01 %. The count says nothing
about time, because cache and memory are invisible to it. The length of a path or of the
environment moves everything behind it in memory, and ``malloc`` and tables hashed by address then
work differently: with NumPy that alone is up to 0.3 %.
"""

import os
import re
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import dropwhile
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, ToolError, system_errors
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.observe.machine import find_instruction_set
from pytest_flamegate.observe.scratch import scratch_prefix
from pytest_flamegate.profile.frames import UNKNOWN, make_native_frame
from pytest_flamegate.profile.model import Frame, Stack
from pytest_flamegate.profile.profilers import tools
from pytest_flamegate.profile.profilers.base import Probe

NAME = "callgrind"
EVENT = "Ir"
CALLERS = 10
"""Callers of a stack. More take memory and time: the calls of CPython's C functions form cycles."""
_EVENTS = f"events: {EVENT}"
_LINE = re.compile(
    r"\d{1,10} ?(?P<cost>\d{0,19})"  # the number of a line, and its instructions
    r"|(?P<key>fn|ob|cfn|cob)=(?:\((?P<number>\d{1,9})\) ?)?(?P<name>.*)"
    r"|(?P<call>calls=)\d{1,20} .*|totals: (?P<total>\d{1,19})"
    r"|(?:fl|fi|fe|cfi|cfl|jump|jcnd)=.*|events: Ir|(?:part|summary|desc): .*|#.*|"
)
_UNNAMED = "???"
_CALLED_BY = re.compile(r"(?<![&<(\s])'")
"""An apostrophe between two functions; one after ``&`` or ``<`` begins a lifetime of Rust's."""


def parse_callgrind(lines: Iterable[str]) -> dict[Stack, int]:
    """Return the own instructions of each stack in one file, as ``_OPTIONS`` shape it.

    Names of functions are normalised like those of any native frame. Raises ``ProfilerError``
    ``E_PROFILER_OUTPUT`` if the file is malformed or cut off, and if its functions do not add up
    to its total.
    """
    costs: Counter[tuple[str, str]] = Counter()
    place = {"ob": "", "fn": ""}
    names: dict[tuple[str, str | None], str] = {}
    total, follows_call = 0, False
    texts = (line.rstrip("\r\n") for line in lines)
    # The header holds the command, which may hold anything.
    for number, text in dropwhile(lambda each: each[1] != _EVENTS, enumerate(texts, 1)):
        found = _LINE.fullmatch(text)
        if found is None:
            raise tools.output_error(NAME, f"line {number} is none of callgrind's")
        if found["cost"] is not None:
            # The line after a call holds the cost of the callee, which is counted there.
            if not follows_call:
                costs[place["ob"], place["fn"]] += int(found["cost"] or 0)
            follows_call = False
        elif key := found["key"]:
            name = _find_name(found, names)
            if key in place:
                place[key] = name
        elif found["total"]:
            total += int(found["total"])
        elif found["call"]:
            follows_call = True
    counted = sum(costs.values())
    if total != counted or not total:
        raise tools.output_error(
            NAME, f"its functions add up to {counted} instructions and its total says {total}"
        )
    return _build_stacks(costs)


def _find_name(found: re.Match[str], names: dict[tuple[str, str | None], str]) -> str:
    """Return the name in a line: it is written once, and then given by its number."""
    known = found["key"][-2:], found["number"]
    if found["name"]:
        names[known] = found["name"]
    elif known not in names:
        raise tools.output_error(NAME, f"no name was given the number {found['number']}")
    return names[known]


def _build_stacks(costs: Mapping[tuple[str, str], int]) -> dict[Stack, int]:
    """Return the cost of each stack, from that of each function by its callers."""
    split = {context: _split_context(context) for _, context in costs}
    # Callers are written without a library: it is the one in which the function costs most.
    by_name: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (library, context), cost in costs.items():
        by_name[split[context][0]][library] += cost
    libraries = {name: max(sorted(own), key=own.__getitem__) for name, own in by_name.items()}

    @cache
    def frame(name: str, library: str) -> Frame:
        symbol, path = name.replace(_UNNAMED, ""), library.replace(_UNNAMED, "")
        return make_native_frame(symbol, path) or make_native_frame("", path) or UNKNOWN

    stacks: dict[Stack, int] = {}
    for (library, context), cost in costs.items():
        leaf, *callers = split[context]
        called = (frame(name, libraries.get(name, "")) for name in reversed(callers))
        # A caller with neither name nor library is a jump through the linker's table.
        stack = (*(each for each in called if each != UNKNOWN), frame(leaf, library))
        stacks[stack] = stacks.get(stack, 0) + cost
    return stacks


def _split_context(context: str) -> tuple[str, ...]:
    """Return the functions of ``leaf'caller'caller``, the leaf first, without depths."""
    most = 2 * (CALLERS + 1)  # each may have a depth; no file that was asked for holds more
    leaf, *callers = _CALLED_BY.split(context, maxsplit=most)[:most]
    return (leaf, *(name for name in callers if name and not name.isdecimal()))


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
    "--compress-pos=no",
    "--dump-line=no",
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

    Raises ``ToolError``: ``E_ENGINE_DIED``, ``E_TIMEOUT``, ``E_VALGRIND_INSTRUCTION`` (the program
    uses one that valgrind lacks), and the errors of ``process.run`` and of a profiler.
    """
    valgrind = tools.find_program("valgrind")
    version = tools.tool_version(valgrind)
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
    by_stack: Counter[Stack] = Counter()
    for count in counts.values():
        by_stack.update(count)
    notes = [NO_AVX512] if find_instruction_set() == "AVX-512" else []
    if len(counts) > 1:
        together = f"{len(counts)} processes counted together"
        notes.insert(0, f"{together}; a forked one with what came before its fork")
    return CountedRun(
        instructions=sum(by_stack.values()),
        by_stack=MappingProxyType(by_stack),
        pids=tuple(sorted(counts)),
        valgrind_version=version,
        notes=tuple(notes),
        stdout=result.stdout,
    )


def probe_callgrind() -> Probe:
    """Count a program that does nothing; never raises."""
    version = ""
    nothing = shutil.which("true")
    argv = [nothing] if nothing else [sys.executable, "-I", "-S", "-c", "pass"]
    try:
        with system_errors():
            version = tools.tool_version(tools.find_program("valgrind"))
            counted = count_program(argv, env=os.environ, cwd=None, timeout_s=PROBE_TIMEOUT_S)
    except FlamegateError as error:
        return tools.make_failed_probe(NAME, version, error)
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
        raise tools.failure_error("valgrind", log + result.stderr, result.returncode)
    log = _COMMAND.sub(b"", log)  # the command line may hold any words
    for message in tools.known_messages("valgrind"):
        if message.fatal and message.text.encode() in log:
            found = _INSTRUCTION.search(log)
            reason = f"{message.text} {found[1].decode().strip()}" if found else message.text
            problem = f"{program!r} died of an instruction that valgrind lacks: {reason}."
            raise tools.ProfilerError(message.code, problem, message.remedy, reason)
    status = result.returncode
    ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    words = tools.quote_output(result.stderr.strip().rpartition(b"\n")[2])
    last = f" Its last words: {words}" if words else ""
    raise ToolError(
        DIED,
        f"{program!r} {ended} under valgrind.{last}",
        "Run it by itself: if it works there, valgrind cannot run it.",
    )


def _read_counts(directory: Path) -> dict[int, Mapping[Stack, int]]:
    """Parse the count of every process, by its number."""
    started = {path.suffix for path in directory.glob("log.*")}
    paths = {path.suffix: path for path in sorted(directory.glob("count.*"))}
    if not paths:
        raise tools.output_error(NAME, "it wrote no file")
    if missing := started - paths.keys():
        raise tools.ProfilerError(
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
