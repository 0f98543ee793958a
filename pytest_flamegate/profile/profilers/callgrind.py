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
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, ToolError, system_errors
from pytest_flamegate.profile.frames import UNKNOWN, make_native_frame
from pytest_flamegate.profile.profilers import trial
from pytest_flamegate.profile.profilers.base import Probe
from pytest_flamegate.profile.profilers.errors import (
    SECCOMP,
    VERSION,
    KnownMessage,
    ProfilerError,
    failure_error,
    output_error,
    quote_output,
)
from pytest_flamegate.profile.profilers.trial import install_hint, unusable_probe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_flamegate.core.process import CompletedCommand
    from pytest_flamegate.profile.model import Frame, Stack


NAME = "callgrind"
EVENT = "Ir"
CALLERS = 10
"""How many callers a stack goes up. More take memory and time: CPython's calls go round."""
CONTRADICTS = "E_PROFILE_CONTRADICTS"
_MAGIC = "# callgrind format"
_NUMBERED = re.compile(r"\((\d{1,9})\)(?: (.*))?$", re.DOTALL)
_POSITION = re.compile(r"(?:[+-]?(?:0x[0-9a-fA-F]{1,16}|\d{1,20})|\*)$")
_CALL = re.compile(r"calls=\d{1,20} ")
_FIGURE = re.compile(r"\d{1,19}$")
_UNKNOWN = "???"
_CALLED_BY = re.compile(r"(?<![&<(\s])'")
"""An apostrophe between two functions; one after ``&`` or ``<`` begins a lifetime of Rust's."""
_KEPT_LINES = 1 << 16
_CALLED = frozenset({"cfn", "cfi", "cfl", "cob"})
_FILES = frozenset({"fl", "fi", "fe", "jump", "jcnd"})
_MOST_COLUMNS = 128
_COST_STARTS = frozenset("0123456789+-*")


@dataclass(frozen=True, slots=True)
class Instructions:
    """What one process executed: the whole, and what each function did itself, by its callers."""

    total: int
    by_stack: Mapping[Stack, int]


def parse_callgrind(lines: Iterable[str]) -> Instructions:
    """Read one file, of one part or of several.

    A function's name is normalised like that of any native frame. Raises
    ``ProfilerError``: ``E_PROFILER_OUTPUT`` where the file is no such file or was cut off,
    ``E_PROFILE_CONTRADICTS`` where its functions do not add up to its total.
    """
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        try:
            reader.take(line.rstrip("\r\n"))
        except ValueError as error:
            raise output_error(NAME, f"line {number}: {error}") from None
    return reader.finish()


@dataclass(slots=True)
class _Names:
    """Names by the numbers they were given."""

    known: dict[str, str] = field(default_factory=dict)

    def read(self, text: str) -> str:
        found = _NUMBERED.match(text)
        if found is None:
            return text
        number, name = found.groups()
        if name is not None:
            self.known[number] = name
        elif number not in self.known:
            raise ValueError(f"no name was given the number {number}")
        return self.known[number]


@dataclass(slots=True)
class _Reader:
    functions: _Names = field(default_factory=_Names)
    objects: _Names = field(default_factory=_Names)
    costs: dict[tuple[str, str], int] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)
    """What cost lines of this part say: the same few thousand come again and again."""
    function: str | None = None
    object: str = ""
    positions: int = 1
    column: int | None = None
    part: int = 0
    total: int = 0
    begun: bool = False
    totalled: bool = False
    is_call: bool = False

    def take(self, line: str) -> None:
        """Read one line; ``ValueError`` says what is wrong with it."""
        if not self.begun:
            self._begin(line)
        elif not line or line.startswith("#"):
            return
        elif line[0] in _COST_STARTS:
            if self.is_call:
                self.is_call = False
            else:
                self._cost(line)
        elif self.is_call:
            raise ValueError("a call without what it cost")
        elif (at := line.find("=")) > 0 and line[:at].isalpha():
            self._place(line[:at], line[at + 1 :], line)
        else:
            self._head(*line.partition(":")[::2])

    def finish(self) -> Instructions:
        """Return what the parts hold together."""
        if not self.begun or not self.totalled or self.part:
            raise output_error(NAME, "it ends before its totals")
        if not self.costs:
            raise output_error(NAME, "it counted nothing")
        return Instructions(self.total, MappingProxyType(_stacks(self.costs)))

    def _begin(self, line: str) -> None:
        # Older ones begin with the version instead.
        if line.strip() and line != _MAGIC and not line.startswith("version:"):
            raise ValueError("it does not begin like a file of callgrind's")
        self.begun = bool(line.strip())

    def _cost(self, line: str) -> None:
        if self.function is None:
            raise ValueError("a cost that belongs to no event or no function")
        cost = self.figures.get(line)
        if cost is None:
            cost = self._figure(line)
            if len(self.figures) < _KEPT_LINES:
                self.figures[line] = cost
        key = (self.object, self.function)
        self.costs[key] = self.costs.get(key, 0) + cost
        self.part += cost

    def _figure(self, line: str) -> int:
        if self.column is None:
            raise ValueError("a cost that belongs to no event or no function")
        words = _columns(line)
        figures = words[self.positions :]
        if not all(_POSITION.match(word) for word in words[: self.positions]) or not all(
            _FIGURE.match(word) for word in figures
        ):
            raise ValueError("it is no cost line")
        return int(figures[self.column]) if self.column < len(figures) else 0

    def _place(self, kind: str, text: str, line: str) -> None:
        if kind == "fn":
            self.function = self.functions.read(text)
        elif kind == "ob":
            self.object = self.objects.read(text)
        elif kind == "cfn":
            self.functions.read(text)
        elif kind == "cob":
            self.objects.read(text)
        elif kind == "calls":
            if not _CALL.match(line):
                raise ValueError("it is no call")
            self.is_call = True
        elif kind not in _CALLED and kind not in _FILES:
            raise ValueError(f"what {kind}= means is not known")

    def _head(self, key: str, value: str) -> None:
        if key == "events":
            events = _columns(value)
            if EVENT not in events:
                raise ValueError(f"it holds no event {EVENT}")
            self.column = events.index(EVENT)
            self.figures.clear()
        elif key == "positions":
            self.positions = len(_columns(value))
            self.figures.clear()
        elif key == "part":
            self.totalled = False
        elif key == "totals":
            self._total(value)

    def _total(self, value: str) -> None:
        figures = _columns(value)
        if self.column is None or not all(_FIGURE.match(figure) for figure in figures):
            raise ValueError("its totals are no figures")
        stated = int(figures[self.column]) if self.column < len(figures) else 0
        if stated != self.part:
            raise contradiction_error(
                f"its functions add up to {self.part} instructions and its total says {stated}"
            )
        self.total += stated
        self.part, self.totalled, self.function = 0, True, None


def _columns(text: str) -> list[str]:
    """Split a line; ``ValueError`` where it is one that callgrind does not write."""
    words = text.split(None, _MOST_COLUMNS)
    if len(words) > _MOST_COLUMNS:
        raise ValueError("it has more columns than there are events")
    return words


def contradiction_error(why: str) -> ProfilerError:
    """Return the refusal of counts that cannot all be true."""
    remedy = "Measure again; if it stays, report it with the version of valgrind."
    return ProfilerError(CONTRADICTS, f"What {NAME} wrote contradicts itself: {why}.", remedy, why)


def _stacks(costs: Mapping[tuple[str, str], int]) -> dict[Stack, int]:
    """Return what each stack cost, from what each function cost by its callers."""
    split = {context: _named(context) for context in {context for _, context in costs}}
    libraries = _libraries(costs, split)
    frames: dict[tuple[str, str], Frame] = {}

    def frame(name: str, library: str) -> Frame:
        key = (name, library)
        if key not in frames:
            symbol, told = name.replace(_UNKNOWN, ""), library.replace(_UNKNOWN, "")
            frames[key] = make_native_frame(symbol, told) or make_native_frame("", told) or UNKNOWN
        return frames[key]

    stacks: dict[Stack, int] = {}
    for (library, context), cost in costs.items():
        leaf, *callers = split[context]
        called = (frame(name, libraries.get(name, "")) for name in reversed(callers))
        # What has neither name nor library is a jump through the linker's table.
        stack = (*(each for each in called if each != UNKNOWN), frame(leaf, library))
        stacks[stack] = stacks.get(stack, 0) + cost
    return stacks


def _named(context: str) -> tuple[str, ...]:
    """Return the functions of ``leaf'caller'caller``, the leaf first, without depths."""
    most = 2 * (CALLERS + 1)  # each may have a depth; no file that was asked for holds more
    leaf, *callers = _CALLED_BY.split(context, maxsplit=most)[:most]
    return (leaf, *(name for name in callers if name and not name.isdecimal()))


def _libraries(
    costs: Mapping[tuple[str, str], int], split: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """Return the library of each function: callers come without. The costliest is taken."""
    seen: dict[str, dict[str, int]] = {}
    for (library, context), cost in costs.items():
        of = seen.setdefault(split[context][0], {})
        of[library] = of.get(library, 0) + cost
    return {name: max(sorted(of), key=of.__getitem__) for name, of in seen.items()}


ABSENT = "E_NO_VALGRIND"
DIED = "E_ENGINE_DIED"
INSTALL = install_hint("valgrind")
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
    KnownMessage(
        "Unrecognised instruction",
        "E_VALGRIND_INSTRUCTION",
        "Build the engine for a CPU without what valgrind lacks (AVX-512 above all), or choose "
        "another profiler.",
    ),
    KnownMessage(
        "cannot be set up",
        "E_PROFILER_FAILED",
        "Install the C library's debug symbols: apt install libc6-dbg.",
    ),
    KnownMessage("failed to start tool", "E_PROFILER_FAILED", INSTALL),
)
_REFUSED = (
    KnownMessage("Unknown option", VERSION, f"A newer valgrind is needed. {INSTALL}"),
    KnownMessage(
        "Operation not permitted",
        SECCOMP,
        "Start the container with a seccomp profile that allows what valgrind needs (docker: "
        "--security-opt seccomp=unconfined).",
    ),
)
_NOT_STARTED = KnownMessage(
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
    version = trial.tool_version(valgrind)
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


def probe_callgrind() -> Probe:
    """Count a program that does nothing; never raises."""
    version = ""
    nothing = shutil.which("true")
    argv = [nothing] if nothing else [sys.executable, "-I", "-S", "-c", "pass"]
    try:
        with system_errors():
            version = trial.tool_version(_program())
            counted = count_program(argv, env=os.environ, cwd=None, timeout_s=PROBE_TIMEOUT_S)
    except FlamegateError as error:
        return unusable_probe(NAME, version, error)
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
        return trial.find_program("valgrind", INSTALL)
    except ProfilerError as error:
        raise ProfilerError(ABSENT, error.problem, error.remedy, error.reason) from None


def _files(directory: Path) -> tuple[str, str]:
    """Return the options that name a file for each process: ``%p`` is its number."""
    return f"--callgrind-out-file={directory}/count.%p", f"--log-file={directory}/log.%p"


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
    said = b"".join(path.read_bytes() for path in sorted(directory.glob("log.*")))
    if not _COMMAND.search(said):
        words = said + result.stderr
        raise failure_error(NAME, words, result.returncode, (*_KNOWN, *_REFUSED, _NOT_STARTED))
    # The command line may hold any words.
    raise _death(program, result, _COMMAND.sub(b"", said))


def _death(program: str, result: CompletedCommand, said: bytes) -> ToolError:
    """Return why a program that ran under valgrind ended badly."""
    for entry in _KNOWN:
        if entry.words.encode() in said:
            found = _INSTRUCTION.search(said)
            reason = f"{entry.words} {found[1].decode().strip()}" if found else entry.words
            what = f"{program!r} died of an instruction that valgrind lacks: {reason}."
            return ProfilerError(entry.code, what, entry.remedy, reason)
    status = result.returncode
    ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    words = quote_output(result.stderr.strip().rpartition(b"\n")[2])
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
        raise output_error(NAME, "it wrote no file")
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
