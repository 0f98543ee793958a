"""The forms in which programs report their own figures, and the selection of those to read."""

from __future__ import annotations

import json
import re
import statistics
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import limit
from pytest_flamegate.core.errors import FlamegateError, ReceiptError, ToolError, UsageError
from pytest_flamegate.core.files import read_bounded, real_path
from pytest_flamegate.engines.figures import (
    FIGURES,
    PHASES,
    ProgramOutput,
    Source,
    SourceReport,
    make_source_report,
    parse_figure,
    report_error,
)

MAX_RECEIPT_BYTES = 1 << 20
_REWRITE = "Have the program write a receipt of schema 1.0.0, or remove the option receipt."

FileState = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _ReceiptFields:
    """The fields of a program's receipt that are read; its other claims are not."""

    schema_version: Literal["1.0.0"]
    compute_path: Literal["real"]
    tokens_generated: float | None = None
    tokens_per_second: float | None = None
    kernels: Annotated[
        tuple[Annotated[str, limit(min_length=1, max_length=128)], ...], limit(max_length=10_000)
    ] = ()


class ProgramReceipt(Source):
    """Tokens, tokens per second and the names of kernels in the receipt that a program writes."""

    name = "receipt"

    def read(self, output: ProgramOutput) -> SourceReport | None:
        """Return the figures of the file that was written in this run."""
        if output.receipt is None:
            return None
        from pytest_flamegate.core.json import decode_json

        try:
            fields = decode_json(output.receipt, _ReceiptFields, subject="it")
        except ReceiptError as error:
            raise report_error(self.name, f"is not usable: {error.problem}", _REWRITE) from None
        figures = {
            name: parse_figure(self.name, name, value)
            for name, value in (
                ("tokens", fields.tokens_generated),
                ("tokens_per_second", fields.tokens_per_second),
            )
            if value is not None
        }
        return make_source_report(self.name, figures, Counter(fields.kernels))


def read_file_state(path: Path) -> FileState | None:
    """Return values that change when the file is written again; None if there is no file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_new_file(path: Path, before: FileState | None) -> bytes | None:
    """Return the content of the file; None if it was not written since ``before``.

    ``ToolError`` ``E_BAD_REPORT`` if it is no regular file, too large or cannot be read.
    """
    now = read_file_state(path)
    # A copy of an older file has another inode and an earlier time: that is no writing.
    if now is None or now == before or (before is not None and now[1] < before[1]):
        return None
    try:
        return read_bounded(real_path(path), MAX_RECEIPT_BYTES)
    except FlamegateError as error:
        raise report_error("receipt", f"is not usable: {error.problem}", _REWRITE) from None


_LLAMA_PHASES = {
    "load": ("load_ms",),
    "prompt eval": ("prefill_ms", "prompt_tokens", "prefill_tokens_per_second"),
    "eval": ("decode_ms", "decode_tokens", "tokens_per_second"),
    "total": ("total_ms",),
}
"""The figures of a performance line of llama.cpp: a time, and of two phases its count and rate."""


class LlamaCppLines(Source):
    """The performance lines of llama.cpp's programs: load, prompt evaluation, evaluation, total.

    Every version prints the same words after ``llama_print_timings:``,
    ``llama_perf_context_print:`` or ``common_perf_print:``. The first token comes from the
    prompt's evaluation, so an answer has one token more than ``eval time`` has runs. If the model
    ended its answer itself, the last of them is the end token, which is not printed.
    """

    name = "llama.cpp"
    markers = (
        b"llama_print_timings:",
        b"llama_perf_context_print:",
        b"llama_perf_sampler_print:",
        b"common_perf_print:",
    )
    source = "llama.cpp:perf"
    _LINE = re.compile(
        r"\b(?:llama_print_timings|llama_perf_context_print|common_perf_print):\s*"
        r"(load|prompt eval|eval|total) time\s*=\s*(\S+)\s*ms"
        r"(?:\s*/\s*(\S+)\s*(?:tokens|runs))?(?:.*,\s*(\S+)\s*tokens per second)?"
    )

    def read(self, output: ProgramOutput) -> SourceReport | None:
        """Return the figures of the last performance lines."""
        figures: dict[str, float] = {}
        for line in output.lines:
            if (match := self._LINE.search(line)) is not None:
                phase, *texts = match.groups()
                for name, text in zip(_LLAMA_PHASES[phase], texts, strict=False):
                    if text is not None:
                        figures[name] = parse_figure(self.source, name, text)
        if "decode_tokens" in figures:
            figures["tokens"] = figures["decode_tokens"] + 1
        for phase in ("prompt eval", "eval"):
            self._check_rate(*(figures.get(name, 0.0) for name in _LLAMA_PHASES[phase]))
        return make_source_report(self.source, figures, extra_tokens=1) if figures else None

    def _check_rate(self, time_ms: float, count: float, reported: float) -> None:
        """Raise an error if a reported rate contradicts its own count and time."""
        rate = count * 1e3 / time_ms if time_ms >= 10.0 else 0.0
        if reported > 0 and rate > 0 and abs(reported - rate) > 0.01 * rate + 0.01:
            raise report_error(
                self.source,
                f"has {reported:g} tokens per second, and {count:g} tokens in {time_ms:g} ms "
                f"are {rate:.2f}",
            )


SEARCH_S = 10.0
"""Time limit of a search: an expression that backtracks without end takes years."""
_MAX_PATTERN = 1000
_SEARCH = """
import json, re, sys, warnings
warnings.simplefilter("ignore")
groups = {}
for match in re.finditer(sys.argv[1], sys.argv[2], re.MULTILINE):
    named = {name: value for name, value in match.groupdict().items() if value is not None}
    groups = named or groups
sys.stdout.write(json.dumps(groups))
"""


class Pattern(Source):
    """The last match in the messages, else in the output; a group's name is its figure's."""

    name = "pattern"

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def read(self, output: ProgramOutput) -> SourceReport | None:
        """Return the figures of the last match; none for a group that took no part in it."""
        for text in (output.stderr, output.stdout):
            groups = self._find_last(text) if text else None
            if groups:
                return make_source_report(
                    self.name,
                    {name: parse_figure(self.name, name, each) for name, each in groups.items()},
                )
        return None

    def _find_last(self, text: str) -> dict[str, str]:
        """Search in a process of its own: nothing else can end a search that backtracks."""
        # A child in an environment of its own imports the engines, and has no psutil.
        from pytest_flamegate.core import process

        argv = [sys.executable, "-I", "-S", "-c", _SEARCH]
        # No argument can hold a NUL character.
        found = process.run([*argv, self.pattern, text.replace("\0", "�")], timeout_s=SEARCH_S)
        if found.timed_out or found.returncode != 0:
            raise report_error(
                self.name,
                f"cannot be searched with {self.pattern[:80]!r} in {SEARCH_S:g} s",
                "Write a pattern without a repetition inside a repetition.",
            )
        groups: dict[str, str] = json.loads(found.stdout)  # noqa: TID251 - named groups, as text
        return groups


def check_pattern(pattern: str) -> None:
    """Raise ``UsageError`` ``E_BAD_VALUE`` for an expression that can yield no figure."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            groups = set(re.compile(pattern[:_MAX_PATTERN], re.MULTILINE).groupindex)
        problem = "has no named group" if not groups else ""
        if unknown := sorted(groups - set(FIGURES)):
            problem = f"has a group {unknown[0][:40]!r}, which is no figure"
    except (re.error, OverflowError, RecursionError) as error:
        problem = f"is no regular expression: {error}"
    if len(pattern) > _MAX_PATTERN:
        problem = f"is longer than {_MAX_PATTERN} characters"
    if "\0" in pattern:
        problem = "contains a NUL character"
    if problem:
        raise UsageError(
            "E_BAD_VALUE",
            f"pattern {problem}.",
            "Write a regular expression with a named group for each figure, such as "
            r"pattern = '(?P<tokens_per_second>[\d.]+) tok/s'; "
            f"the names: {', '.join(FIGURES)}.",
        )


class QuantDispatch(Source):
    """Kernels by the number of their dispatches: a line is one, ``count=N`` stands for more.

    The name is that of ``kernel=``, else the first word.
    """

    name = "quant_dispatch"
    markers = (b"quant_dispatch",)
    _LINE = re.compile(r"\bquant_dispatch\b[:\s]*(.*)")
    _KERNEL = re.compile(r"\bkernel\s*=\s*\"?([\w.:+<>-]{1,128})")
    _BARE_NAME = re.compile(r"([\w.:+<>-]{1,128})\s*(?:[x×*]\s*\d|$|\s\w+=)")
    _COUNT = re.compile(r"(?:\bcount\s*=\s*|(?<!\S)[x×*]\s*)([^\s,;]+)")

    def read(self, output: ProgramOutput) -> SourceReport | None:
        """Return how often each kernel was dispatched."""
        kernels: dict[str, int] = {}
        for line in output.lines:
            if (match := self._LINE.search(line)) is None:
                continue
            if name := self._KERNEL.search(match[1]) or self._BARE_NAME.match(match[1]):
                count = self._COUNT.search(match[1])
                if count is not None and not re.fullmatch(r"[0-9]{1,12}", count[1]):
                    raise report_error(self.name, f"has {count[1][:40]!r} for a kernel's count")
                ran = 1 if count is None else int(count[1])
                kernels[name[1]] = kernels.get(name[1], 0) + ran
        return make_source_report(self.name, {}, kernels) if kernels else None


class Timing(Source):
    """Any of the four phases, together on one line or one a line, once for each token.

    The figure of a run is the median of its lines.
    """

    name = "timing"
    markers = (b"timing:",)
    _LINE = re.compile(r"\btiming:\s*(.*)")
    _PHASE = re.compile(r"\b([a-z]+_us)\s*=\s*([^\s,;]+)")

    def read(self, output: ProgramOutput) -> SourceReport | None:
        """Return the median of each phase, in microseconds."""
        phases: dict[str, list[float]] = {}
        for line in output.lines:
            if (match := self._LINE.search(line)) is None:
                continue
            for name, value in self._PHASE.findall(match[1]):
                if name in PHASES:
                    figure = parse_figure(self.name, name, value)
                    phases.setdefault(name, []).append(figure)
        if not phases:
            return None
        medians = {name: statistics.median(values) for name, values in phases.items()}
        spent_ms = sum(map(sum, phases.values())) / 1e3
        return replace(make_source_report(self.name, medians), spent_ms=spent_ms)


SOURCES: dict[str, tuple[Source, ...]] = {
    "timing": (Timing(), QuantDispatch()),
    "llama.cpp": (LlamaCppLines(),),
    "receipt": (ProgramReceipt(),),
}
"""The values of ``figures``, and the sources that each of them reads."""
_INFINITE_RATE = re.compile(
    r"(?<![\w.])([-+]?(?:inf(?:inity)?|nan))\s*(?:tokens?|tok|t)\s*(?:per second|/\s*s)", re.I
)


@dataclass(frozen=True, slots=True)
class SourceSelection:
    """The sources that a run is read with.

    ``required`` are those that were selected by an option or by name; it is an error if one of
    them is missing. ``receipt`` is the file that the program writes, relative to the directory it
    runs in.
    """

    sources: tuple[Source, ...] = ()
    required: frozenset[str] = frozenset()
    receipt: str | None = None

    @property
    def markers(self) -> tuple[bytes, ...]:
        """The beginnings of lines on standard output that are no part of the answer."""
        return tuple(marker for source in self.sources for marker in source.markers)

    def read_all(self, output: ProgramOutput) -> tuple[SourceReport, ...]:
        """Return the report of each source.

        Raises:
            ToolError: ``E_SOURCE_MISSING`` if a required one is missing, ``E_BAD_REPORT`` for an
                impossible figure and for a report that cannot be read.
        """
        reports = {source.name: source.read(output) for source in self.sources}
        for name in sorted(self.required):
            if reports[name] is None:
                raise ToolError(
                    "E_SOURCE_MISSING",
                    f"The program was expected to report figures ({name}), and did not in this "
                    "run.",
                )
        text = f"{output.stderr}\n{output.stdout}"
        if self.sources and (rate := _INFINITE_RATE.search(text)):
            raise report_error("its output", f"has {rate[0]!r}")
        return tuple(each for each in reports.values() if each is not None)


NO_SOURCES = SourceSelection()


def select_sources(workload: Workload) -> SourceSelection:
    """Return the sources that the options figures, receipt and pattern select."""
    figures = str(workload.options.get("figures", "auto"))
    if figures == "none":
        return NO_SOURCES
    options = workload.options
    declared = {name: str(options[name]) for name in ("receipt", "pattern") if name in options}
    # The other sources are read from any program.
    chosen = ["timing", "llama.cpp", *declared] if figures == "auto" else [figures]
    sources = [source for name in chosen for source in SOURCES.get(name, ())]
    if "pattern" in chosen:
        sources.append(Pattern(declared["pattern"]))
    required = {each.name for each in sources if each.name in (figures, *declared)}
    receipt = declared.get("receipt") if "receipt" in chosen else None
    return SourceSelection(tuple(sources), frozenset(required), receipt)


def check_sources(workload: Workload) -> None:
    """Raise ``UsageError`` for an option that is missing or that nothing would read."""
    options = workload.options
    if Path(workload.command[0]).stem == "llama-bench":
        raise UsageError(
            "E_BAD_VALUE",
            "the command is llama-bench, which prints figures and no answer: nothing shows that "
            "two runs generated the same.",
            "Gate llama-completion on the same model, and take llama-bench's JSON in with "
            "flamegate import.",
        )
    figures = options.get("figures", "auto")
    for name in ("receipt", "pattern"):
        value = options.get(name)
        if (value is None and figures == name) or (
            value is not None and figures not in ("auto", name)
        ):
            raise UsageError(
                "E_BAD_VALUE",
                f"figures is {figures!r}, and there is {'no' if value is None else 'a'} {name}.",
                f"Declare both {name} and figures = {name!r}, or remove figures.",
            )
    if options.get("receipt") == "":
        raise UsageError(
            "E_BAD_VALUE",
            "receipt is empty.",
            'Write receipt = "ci/inference.json", relative to the directory the command runs in.',
        )
    if (pattern := options.get("pattern")) is not None:
        check_pattern(str(pattern))
