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
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pytest_flamegate.config.options import COUNTER
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, ToolError, system_errors
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.observe.machine import find_instruction_set
from pytest_flamegate.observe.scratch import scratch_prefix
from pytest_flamegate.profile.frames import UNKNOWN, make_native_frame
from pytest_flamegate.profile.model import Frame, Stack
from pytest_flamegate.profile.profilers import tools
from pytest_flamegate.profile.profilers.base import Probe

NAME = COUNTER
EVENT = "Ir"
CALLERS = 10
"""Callers of a stack. More take memory and time: the calls of CPython's C functions form cycles."""
_MAGIC = "# callgrind format"
_NUMBERED = re.compile(r"\((\d{1,9})\)(?: (.*))?$", re.DOTALL)
_COST = re.compile(r"(?:(?:[+-]?(?:0x[0-9a-fA-F]{1,16}|\d{1,20})|\*)(?: +|$)){1,128}$")
_CALL = re.compile(r"calls=(\d{1,20}) ")
_FIGURE = re.compile(r"\d{1,19}$")
_COST_STARTS = frozenset("0123456789+-*")
_IGNORED = frozenset({"fl", "fi", "fe", "cfi", "cfl", "jump", "jcnd"})
_UNNAMED = "???"
_CALLED_BY = re.compile(r"(?<![&<(\s])'")
"""An apostrophe between two functions; one after ``&`` or ``<`` begins a lifetime of Rust's."""


@dataclass(frozen=True, slots=True)
class ParsedCounts:
    """The own instructions of each stack, and the calls of each function by its name."""

    stacks: Mapping[Stack, int]
    calls: Mapping[str, int]


def parse_callgrind(lines: Iterable[str]) -> ParsedCounts:
    """Return the counts in one file, which may have several parts.

    Names of functions are normalised like those of any native frame. Raises ``ProfilerError``
    ``E_PROFILER_OUTPUT`` if the file is malformed or cut off, and if its functions do not add up
    to its total.
    """
    parser = _CallgrindParser()
    for number, line in enumerate(lines, 1):
        try:
            parser.take(line.rstrip("\r\n"))
        except ValueError as error:
            raise tools.output_error(NAME, f"line {number}: {error}") from None
    if not parser.totalled or parser.part:
        raise tools.output_error(NAME, "it ends before its totals")
    if not parser.costs:
        raise tools.output_error(NAME, "it counted nothing")
    return _name_functions(parser.costs, parser.calls)


@dataclass(slots=True)
class _CallgrindParser:
    """Adds up costs by library and function; a function is named together with its callers.

    Names are written out once and then given by number, positions by their difference to the
    last one. A cost line after ``calls=`` holds the cost of the callee, which is counted there.
    ``part`` is the sum since the last totals, ``column`` the place of the event among the figures
    behind the ``positions`` of a cost line.
    """

    costs: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    names: dict[str, dict[str, str]] = field(default_factory=lambda: {"fn": {}, "ob": {}})
    function: str | None = None
    callee: str | None = None
    library: str = ""
    positions: int = 1
    column: int | None = None
    part: int = 0
    begun: bool = False
    totalled: bool = False
    follows_call: bool = False

    def take(self, line: str) -> None:
        """Parse one line; raises ``ValueError``, whose text names the fault."""
        if not self.begun:
            # Older versions begin with the version instead.
            if line.strip() and line != _MAGIC and not line.startswith("version:"):
                raise ValueError("it does not begin like a file of callgrind's")
            self.begun = bool(line.strip())
        elif not line or line.startswith("#"):
            return
        elif line[0] in _COST_STARTS:
            if not self.follows_call:
                self._add_cost(line)
            self.follows_call = False
        elif self.follows_call:
            raise ValueError("a call without its cost")
        elif (at := line.find("=")) > 0 and line[:at].isalpha():
            self._position(line[:at], line[at + 1 :], line)
        else:
            self._header(*line.partition(":")[::2])

    def _add_cost(self, line: str) -> None:
        if self.function is None or self.column is None:
            raise ValueError("a cost that belongs to no event or no function")
        if not _COST.match(line):
            raise ValueError("it is no cost line")
        cost = self._figure(line.split()[self.positions :])
        self.costs[self.library, self.function] += cost
        self.part += cost

    def _figure(self, figures: Sequence[str]) -> int:
        """Return the figure of the event; zeros at the end of a line are left out."""
        if self.column is None or not all(map(_FIGURE.match, figures)):
            raise ValueError("it holds no figures of events")
        return int(figures[self.column]) if self.column < len(figures) else 0

    def _position(self, key: str, text: str, line: str) -> None:
        if key == "calls":
            if not (found := _CALL.match(line)):
                raise ValueError("it is no call")
            if self.callee is not None:
                self.calls[self.callee] += int(found[1])
            self.follows_call = True
        elif key in ("fn", "ob", "cfn", "cob"):
            name = self._name(key[-2:], text)
            if key == "fn":
                self.function = name
            elif key == "cfn":
                self.callee = name
            elif key == "ob":
                self.library = name
        elif key not in _IGNORED:
            raise ValueError(f"{key}= is unknown")

    def _name(self, kind: str, text: str) -> str:
        """Return a name, which is written out once and then given by its number."""
        found = _NUMBERED.match(text)
        if found is None:
            return text
        number, name = found.groups()
        if name is not None:
            self.names[kind][number] = name
        elif number not in self.names[kind]:
            raise ValueError(f"no name was given the number {number}")
        return self.names[kind][number]

    def _header(self, key: str, value: str) -> None:
        if key == "events":
            events = value.split(None, 128)
            if EVENT not in events:
                raise ValueError(f"it holds no event {EVENT}")
            self.column = events.index(EVENT)
        elif key == "positions":
            self.positions = len(value.split(None, 128))
        elif key == "part":
            self.totalled = False
        elif key == "totals":
            total = self._figure(value.split(None, 128))
            if total != self.part:
                raise ValueError(
                    f"its functions add up to {self.part} instructions and its total says {total}"
                )
            self.part, self.totalled, self.function = 0, True, None


def _name_functions(costs: Mapping[tuple[str, str], int], calls: Mapping[str, int]) -> ParsedCounts:
    """Return the cost of each stack and the calls, from those of each function by its callers."""
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
    called_by_name: Counter[str] = Counter()
    for context, number in calls.items():
        leaf = _split_context(context)[0]
        called_by_name[frame(leaf, libraries.get(leaf, "")).name] += number
    return ParsedCounts(stacks, called_by_name)


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
)
_COMMAND = re.compile(rb"^==\d+== Command: .*$", re.MULTILINE)
_INSTRUCTION = re.compile(rb"unhandled instruction bytes: ([0-9A-Fa-fx ]+)")


@dataclass(frozen=True, slots=True)
class CountedRun:
    """The instructions of one run of a program, with all the processes it started.

    ``by_stack`` holds those that the last function of each stack executed itself, without its
    callees; ``calls`` are those of each function by its name. ``stdout`` is the output of the
    program.
    """

    instructions: int
    by_stack: Mapping[Stack, int]
    calls: Mapping[str, int]
    pids: tuple[int, ...]
    valgrind_version: str
    notes: tuple[str, ...]
    stdout: bytes


def count_program(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, timeout_s: float
) -> CountedRun:
    """Run ``argv`` once to its end and count its instructions.

    Raises ``ToolError``: ``E_ENGINE_DIED``, ``E_TIMEOUT``, ``E_PROFILER_BLIND`` (the program uses
    an instruction that valgrind lacks), and the errors of ``process.run`` and of a profiler.
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
    calls: Counter[str] = Counter()
    for count in counts.values():
        by_stack.update(count.stacks)
        calls.update(count.calls)
    notes = [NO_AVX512] if find_instruction_set() == "AVX-512" else []
    if len(counts) > 1:
        together = f"{len(counts)} processes counted together"
        notes.insert(0, f"{together}; a forked one with what came before its fork")
    return CountedRun(
        instructions=sum(by_stack.values()),
        by_stack=by_stack,
        calls=calls,
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
            raise tools.ProfilerError(message.code, problem, reason, message.remedy)
    status = result.returncode
    ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    words = tools.quote_output(result.stderr.strip().rpartition(b"\n")[2])
    last = f" Its last words: {words}" if words else ""
    raise ToolError(
        DIED,
        f"{program!r} {ended} under valgrind.{last}",
        "Run it by itself: if it works there, valgrind cannot run it.",
    )


def _read_counts(directory: Path) -> dict[int, ParsedCounts]:
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
            "a process was killed",
            "Let the engine end what it starts with SIGTERM, or choose another profiler.",
        )
    counts: dict[int, ParsedCounts] = {}
    for suffix, path in paths.items():
        with path.open(encoding="utf-8", errors="surrogateescape") as stream:
            counts[int(suffix[1:])] = parse_callgrind(stream)
    return counts
