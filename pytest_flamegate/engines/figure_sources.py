"""The performance lines of llama.cpp's programs, of all the versions that print them.

``llama_print_timings:``, ``llama_perf_context_print:`` and ``common_perf_print:`` say the same
in the same words.
"""

from __future__ import annotations

import json
import os
import re
import stat
import statistics
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.engines import figure_pattern_search
from pytest_flamegate.engines.figures import FIGURES as BASE_FIGURES
from pytest_flamegate.engines.figures import PHASES, bad_figure, bad_source, figure, told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.figures import Heard, Source, Told


_LINE = re.compile(
    r"\b(?:llama_print_timings|llama_perf_context_print|common_perf_print):\s*"
    r"(load|prompt eval|eval|total) time\s*=\s*(\S+)\s*ms(.*)"
)
_COUNTED = re.compile(r"/\s*(\S+)\s*(?:tokens|runs)")
_RATE = re.compile(r",\s*(\S+)\s*tokens per second")


class LlamaCpp:
    """Load, prompt evaluation, evaluation and total.

    The first token comes of the prompt's evaluation, so an answer has one token more than
    ``eval time`` has runs; where the model ended its answer itself, the last of them is the
    one that ends it, which is not printed.
    """

    name = "llama.cpp"
    markers = (
        b"llama_print_timings:",
        b"llama_perf_context_print:",
        b"llama_perf_sampler_print:",
        b"common_perf_print:",
    )
    source = "llama.cpp:perf"

    def read(self, heard: Heard) -> Told | None:
        """Return what the last performance lines say."""
        figures: dict[str, float] = {}
        for line in heard.lines:
            if (found := _LINE.search(line)) is not None:
                figures |= self._figures(found[1], found[2], found[3])
        return told(self.source, figures, extra_tokens=1) if figures else None

    def _figures(self, phase: str, took_ms: str, rest: str) -> dict[str, float]:
        if phase in ("load", "total"):
            return {f"{phase}_ms": figure(self.source, f"{phase}_ms", took_ms)}
        prefill = phase == "prompt eval"
        names = (
            ("prefill_ms", "prompt_tokens", "prefill_tokens_per_second")
            if prefill
            else ("decode_ms", "tokens", "tokens_per_second")
        )
        figures = {names[0]: figure(self.source, names[0], took_ms)}
        if (counted := _COUNTED.search(rest)) is not None:
            runs = figure(self.source, names[1], counted[1])
            figures |= {names[1]: runs} if prefill else {"tokens": runs + 1, "decode_tokens": runs}
        if (rate := _RATE.search(rest)) is not None:
            figures[names[2]] = figure(self.source, names[2], rate[1])
            self._adds_up(figures, names, 0 if prefill else 1)
        return figures

    def _adds_up(self, figures: dict[str, float], names: tuple[str, str, str], less: int) -> None:
        """Refuse a line whose rate is not its count by its time."""
        took_ms, counted = figures[names[0]], figures.get(names[1], 0.0) - less
        if took_ms < 10.0 or counted <= 0:
            return
        rate = counted * 1e3 / took_ms
        if abs(figures[names[2]] - rate) > 0.01 * rate + 0.01:
            raise bad_figure(
                self.source,
                f"{figures[names[2]]:g} for {names[2]}, where {counted:g} in {took_ms:g} ms "
                f"are {rate:.2f}",
            )


LONGEST = 1000
SEARCH_S = 10.0
"""What a search may take; an expression that backtracks without end takes years."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The last match in the messages, then in the output; each group is the figure it is named."""

    pattern: str
    name: str = "pattern"
    markers: tuple[bytes, ...] = ()

    def read(self, heard: Heard) -> Told | None:
        """Return the figures of the last match; none for a group that took no part in it."""
        for text in (heard.stderr, heard.stdout):
            groups = self._last(text) if text else None
            if groups:
                return told(
                    self.name,
                    {name: figure(self.name, name, value) for name, value in groups.items()},
                )
        return None

    def _last(self, text: str) -> dict[str, str]:
        """Search in a process of its own: nothing else can end a search that backtracks."""
        # A child in an environment of its own imports the engines, and has no psutil.
        from pytest_flamegate.core import process

        found = process.run(
            [
                sys.executable,
                "-I",
                "-S",
                figure_pattern_search.__file__,
                self.pattern,
                _printable(text),
            ],
            timeout_s=SEARCH_S,
        )
        if found.timed_out or found.returncode != 0:
            raise bad_source(
                self.name,
                f"cannot be searched with {self.pattern[:80]!r} in {SEARCH_S:g} s",
                "Write a pattern without a repetition inside a repetition.",
            )
        groups: dict[str, str] = json.loads(found.stdout)
        return groups


def check(pattern: str, where: str) -> None:
    """Raise ``UsageError`` ``E_BAD_PATTERN`` for an expression that can yield no figure."""
    why = _fault(pattern)
    if why is not None:
        raise UsageError(
            "E_BAD_PATTERN",
            f"{where} has a pattern that {why}.",
            "Write a regular expression with a named group for each figure, such as "
            r"pattern = '(?P<tokens_per_second>[\d.]+) tok/s'; "
            f"the names: {', '.join(BASE_FIGURES)}.",
        )


def _fault(pattern: str) -> str | None:
    if len(pattern) > LONGEST:
        return f"is longer than {LONGEST} characters"
    if "\0" in pattern:
        return "holds a NUL character"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            groups = set(re.compile(pattern, re.MULTILINE).groupindex)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression: {error}"
    if not groups:
        return "has no named group"
    if unknown := sorted(groups - set(BASE_FIGURES)):
        return f"has a group {unknown[0][:40]!r}, which is no figure"
    return None


def _printable(text: str) -> str:
    """Return ``text`` as an argument can hold it."""
    return text.replace("\0", "�")


MOST_KERNELS = 1000
_LINE_QUANT_DISPATCH = re.compile(r"\bquant_dispatch\b[:\s]*(.*)")
_KERNEL = re.compile(r"\bkernel\s*=\s*\"?([\w.:+<>-]{1,128})")
_BARE = re.compile(r"([\w.:+<>-]{1,128})\s*(?:[x×*]\s*\d|$|\s\w+=)")
_COUNT = re.compile(r"(?:\bcount\s*=\s*|(?<!\S)[x×*]\s*)([^\s,;]+)")
_MOST_COUNTED = 10**12


class QuantDispatch:
    """One line a dispatch; ``count=N`` says that a line stands for so many.

    The name is what ``kernel=`` gives, else the first word.
    """

    name = "quant_dispatch"
    markers = (b"quant_dispatch",)

    def read(self, heard: Heard) -> Told | None:
        """Return how often each kernel was dispatched."""
        kernels: dict[str, int] = {}
        for line in heard.lines:
            if (found := _LINE_QUANT_DISPATCH.search(line)) is None:
                continue
            named = _KERNEL.search(found[1]) or _BARE.match(found[1])
            if named is None:
                continue
            kernels[named[1]] = kernels.get(named[1], 0) + self._count(found[1])
            if len(kernels) > MOST_KERNELS:
                raise bad_source(
                    self.name,
                    f"names more than {MOST_KERNELS} kernels",
                    "Print the name of the kernel after kernel=, and the tensor's elsewhere.",
                )
        return told(self.name, {}, kernels) if kernels else None

    def _count(self, line: str) -> int:
        counted = _COUNT.search(line)
        if counted is None:
            return 1
        if not re.fullmatch(r"[0-9]{1,13}", counted[1]) or int(counted[1]) > _MOST_COUNTED:
            raise bad_figure(self.name, f"{counted[1][:40]!r} for a kernel's count")
        return int(counted[1])


MOST_BYTES = 1 << 20
VERSION = "1.0.0"
_MOST_KERNELS = 10_000
_LONGEST_NAME = 128
_TODO = "Have the program write a receipt of schema 1.0.0, or leave the option receipt out."

Stamp = tuple[int, int, int]


class Receipt:
    """Tokens, tokens per second and the names of kernels; its other claims are not read."""

    name = "receipt"
    markers: tuple[bytes, ...] = ()

    def read(self, heard: Heard) -> Told | None:
        """Return what the file says that was written in this run."""
        if heard.written is None:
            return None
        document = self._document(heard.written)
        figures = {
            ours: figure(self.name, ours, self._number(document, theirs))
            for ours, theirs in (
                ("tokens", "tokens_generated"),
                ("tokens_per_second", "tokens_per_second"),
            )
            if document.get(theirs) is not None
        }
        return told(self.name, figures, self._kernels(document.get("kernels", [])))

    def _document(self, data: bytes) -> dict[str, Any]:
        if len(data) > MOST_BYTES:
            raise bad_source(self.name, f"is a file of more than {MOST_BYTES >> 20} MiB", _TODO)
        try:
            # NaN and infinity are let through here, to be refused by the name of their figure.
            document = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise bad_source(self.name, f"is not JSON: {str(error)[:100]}", _TODO) from None
        if not isinstance(document, dict):
            raise bad_source(self.name, "is no JSON object", _TODO)
        version, path = document.get("schema_version"), document.get("compute_path")
        if version != VERSION:
            raise bad_source(self.name, f"has the schema version {str(version)[:40]!r}", _TODO)
        if path != "real":
            raise bad_source(self.name, f"has the compute path {str(path)[:40]!r}", _TODO)
        return document

    def _number(self, document: dict[str, Any], key: str) -> float:
        value = document[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_source(self.name, f"has no number for {key}", _TODO)
        return value

    def _kernels(self, named: object) -> dict[str, int]:
        if not isinstance(named, list) or len(named) > _MOST_KERNELS:
            raise bad_source(self.name, "has no list of kernels, or one without end", _TODO)
        kernels: dict[str, int] = {}
        for name in named:
            if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
                raise bad_source(self.name, f"names a kernel {str(name)[:40]!r}", _TODO)
            kernels[name] = kernels.get(name, 0) + 1
        return kernels


def stamp(path: Path) -> Stamp | None:
    """Return what changes when the file is written anew; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def written(path: Path, before: Stamp | None) -> bytes | None:
    """Return the start of the file if it is not the one of ``before``; None if it is.

    ``ToolError`` ``E_BAD_SOURCE`` where it is no file or may not be read.
    """
    now = stamp(path)
    # A copy of an older file has a later inode and an earlier time: it is no writing.
    if now is None or now == before or (before is not None and now[1] < before[1]):
        return None
    try:
        # A pipe in its place would keep an opening reader waiting.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise bad_source("receipt", f"is no file: {str(path)!r}", _TODO)
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise bad_source("receipt", f"cannot be read: {error.strerror}", _TODO) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


_LINE_TIMING = re.compile(r"\btiming:\s*(.*)")
_FIGURE = re.compile(r"\b([a-z]+_us)\s*=\s*([^\s,;]+)")


def phases_us(lines: Iterable[str]) -> dict[str, list[float]]:
    """Return all that ``lines`` say of each phase, in microseconds, in the order of ``PHASES``."""
    said: dict[str, list[float]] = {}
    for line in lines:
        if (found := _LINE_TIMING.search(line)) is None:
            continue
        for name, value in _FIGURE.findall(found[1]):
            if name in PHASES:
                said.setdefault(name, []).append(figure(Timing.name, name, value))
    return {name: said[name] for name in PHASES if name in said}


class Timing:
    """Any of the four phases, together on one line or one a line, once for each token.

    The figure of a run is the median of what its lines say.
    """

    name = "timing"
    markers = (b"timing:",)

    def read(self, heard: Heard) -> Told | None:
        """Return the median of each phase, in microseconds."""
        said = phases_us(heard.lines)
        if not said:
            return None
        medians = {name: statistics.median(values) for name, values in said.items()}
        spent_ms = sum(map(sum, said.values())) / 1e3
        return replace(told(self.name, medians), spent_ms=spent_ms)


SOURCES: dict[str, tuple[Source, ...]] = {
    "timing": (Timing(), QuantDispatch()),
    "llama.cpp": (LlamaCpp(),),
    "receipt": (Receipt(),),
}
"""What can be asked for by name in ``figures``, and the sources that are read then."""
WITHOUT_ASKING = ("timing", "llama.cpp")
"""Read wherever they are; the others take an option that says where or how."""

_NO_RATE = re.compile(
    r"(?<![\w.])([-+]?(?:inf(?:inity)?|nan))\s*(?:tokens?|tok|t)\s*(?:per second|/\s*s)", re.I
)


@dataclass(frozen=True, slots=True)
class Hearing:
    """Which sources a run is read with.

    ``named`` are those that were asked for, by an option or by name: one of them that says
    nothing is a refusal. ``receipt`` is the file that the program writes, relative to the
    directory it runs in.
    """

    sources: tuple[Source, ...] = ()
    named: frozenset[str] = frozenset()
    receipt: str | None = None

    @property
    def markers(self) -> tuple[bytes, ...]:
        """How lines on standard output begin that are no part of the answer."""
        return tuple(marker for source in self.sources for marker in source.markers)

    def hear(self, heard: Heard) -> tuple[Told, ...]:
        """Return what each source says.

        ``ToolError``: ``E_SOURCE_MISSING`` where one was asked for and says nothing,
        ``E_BAD_FIGURE`` for a figure that cannot be, ``E_BAD_SOURCE`` for what cannot be read.
        """
        said = {source.name: source.read(heard) for source in self.sources}
        for name in sorted(self.named):
            if said[name] is None:
                raise ToolError(
                    "E_SOURCE_MISSING",
                    f"The program was to report on itself ({name}), and did not in this run.",
                    "Run it by itself to see what it prints or writes; timing lines may have "
                    "to be turned on (BITNET_TRACE_TIMING=1).",
                )
        if self.sources and (endless := _NO_RATE.search(f"{heard.stderr}\n{heard.stdout}")):
            raise bad_figure("its output", f"{endless[0]!r}")
        return tuple(each for each in said.values() if each is not None)


SILENT = Hearing()

FIGURES = ("auto", "none", *SOURCES, "pattern")
LLAMA_BENCH = "llama-bench"


def hearing(workload: Workload) -> Hearing:
    """Return what is read of what the program says of itself."""
    figures = str(workload.options.get("figures", "auto"))
    if figures == "none":
        return Hearing()
    receipt, pattern = (workload.options.get(name) for name in ("receipt", "pattern"))
    chosen = list(WITHOUT_ASKING) if figures == "auto" else [figures]
    if figures == "auto" and receipt is not None:
        chosen.append("receipt")
    sources = [source for name in chosen for source in SOURCES.get(name, ())]
    if pattern is not None and figures in ("auto", "pattern"):
        sources.append(Pattern(str(pattern)))
    asked = {"receipt": receipt is not None, "pattern": pattern is not None}
    named = {source.name for source in sources if asked.get(source.name, source.name == figures)}
    file = str(receipt) if receipt is not None and "receipt" in chosen else None
    return Hearing(tuple(sources), frozenset(named), file)


def check_figures(workload: Workload) -> None:
    """Refuse an unknown source, one without its option, and an option that nobody reads."""
    where = f"Workload {workload.name!r}"
    figures = workload.options.get("figures", "auto")
    if figures == LLAMA_BENCH or Path(workload.command[0]).stem == LLAMA_BENCH:
        raise UsageError(
            "E_NO_ANSWER",
            f"{where} runs llama-bench, which prints figures and no answer: nothing shows that "
            "two runs generated the same.",
            "Gate llama-completion on the same model, and take llama-bench's JSON in with "
            "flamegate import.",
        )
    if figures not in FIGURES:
        raise UsageError(
            "E_UNKNOWN_SOURCE",
            f"{where} asks for figures from {figures!r}.",
            f"Use one of: {', '.join(FIGURES)}.",
        )
    for name in ("receipt", "pattern"):
        given = workload.options.get(name)
        if (given is None and figures == name) or (
            given is not None and figures not in ("auto", name)
        ):
            raise UsageError(
                "E_BAD_VALUE",
                f"{where} says figures = {figures!r} and {'no ' if given is None else ''}{name}.",
                f"Say both {name} and figures = {name!r}, or leave figures out.",
            )
    if (receipt := workload.options.get("receipt")) is not None and (
        not receipt or "\0" in str(receipt)
    ):
        raise UsageError(
            "E_BAD_VALUE",
            f"{where} has a receipt file without a usable name.",
            'Say receipt = "ci/inference.json", as of the directory the command runs in.',
        )
    if (pattern := workload.options.get("pattern")) is not None:
        check(str(pattern), where)
