"""Figures and kernels that an engine reports about itself, by its own clocks and counts.

They are stored next to the observed figures, with the name of their source. Wherever the two can
be compared they have to agree: ``check_agreement``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import Annotated, Any

from pytest_flamegate.core import limit
from pytest_flamegate.core.errors import ReceiptError, ToolError

_NAME: Any = {"max_length": 256, "pattern": r"\S"}
_MAX_ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one source about one run, or about one sequence of it.

    Attributes:
        source: Who reported it and how it was read, such as ``llama.cpp:perf``.
        figures: By name (see ``FIGURES``), which ends in the unit. ``decode_tokens`` are those
            that came in ``decode_ms``, without the first token if prefill made it.
        kernels: How often each kernel ran.
    """

    source: Annotated[str, limit(min_length=1)]
    figures: Mapping[str, Annotated[float, limit(ge=0)]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    kernels: Mapping[str, Annotated[int, limit(ge=0)]] = field(
        default_factory=lambda: MappingProxyType({})
    )


def read_report(document: object) -> Report:
    """Return the report that plain data describes; ``ToolError`` as for ``make_report``."""
    known = {"source", "figures", "kernels"}
    if not isinstance(document, Mapping) or not document.keys() <= known:
        raise ToolError(
            "E_BAD_REPORT",
            "The engine's report has other fields than source, figures and kernels.",
        )
    return make_report(document.get("source"), document.get("figures"), document.get("kernels"))


def make_report(source: object, figures: object = None, kernels: object = None) -> Report:
    """Return a report after checking every value of it: an engine's output is foreign.

    ``ToolError`` ``E_BAD_REPORT`` for an empty source, a figure that is no finite number from
    0 up, a count that is no whole number, and for too many or too long names.
    """
    stated = {"source": source, "figures": figures or {}, "kernels": kernels or {}}
    found = _decode(stated, _StatedReport, "The engine's report")
    return Report(found.source, MappingProxyType(found.figures), MappingProxyType(found.kernels))


@dataclass(frozen=True, slots=True)
class _StatedReport:
    source: Annotated[str, limit(**_NAME)]
    figures: Annotated[
        dict[Annotated[str, limit(**_NAME)], Annotated[float, limit(ge=0, le=2**63)]],
        limit(max_length=_MAX_ENTRIES),
    ]
    kernels: Annotated[
        dict[Annotated[str, limit(**_NAME)], Annotated[int, limit(ge=0, le=2**63 - 1)]],
        limit(max_length=_MAX_ENTRIES),
    ]


def read_facts(document: object) -> Mapping[str, str]:
    """Return an engine's description of itself: texts by name. ``ToolError`` ``E_BAD_REPORT``."""
    # Not at the top: an engine imports this module, and its interpreter may lack msgspec.
    text = Annotated[str, limit(max_length=4096)]
    facts = Annotated[dict[Annotated[str, limit(**_NAME)], text], limit(max_length=64)]
    return MappingProxyType(_decode(document, facts, "The engine's description"))


def _decode(document: object, kind: Any, subject: str) -> Any:
    from pytest_flamegate.core.json import decode_plain

    try:
        return decode_plain(document, kind, subject=subject)
    except ReceiptError as error:
        raise ToolError("E_BAD_REPORT", error.problem) from None


MAX_RATE_DIFFERENCE = 0.05
"""The largest difference of two rates that a program reports of one run, as a share."""
MAX_CLOCK_DIFFERENCE = 0.25
"""How far a rate may be above the observed one: its clock may leave out sampling or printing."""
_TIME_SLACK = 1.01
_TIME_SLACK_MS = 1.0
_MIN_TOKENS = 8
_MIN_DECODE_NS = 50_000_000
_OBSERVER = "the observer"


@dataclass(frozen=True, slots=True)
class ObservedFigures:
    """The observer's own figures of the run.

    ``tokens`` is None if it counts in another unit than the engine. ``decode_ns`` is the
    time in which ``decode_tokens`` came, None if the decode is not known separately.
    """

    wall_ns: int
    tokens: int | None = None
    decode_ns: int | None = None
    decode_tokens: int = 0


def check_agreement(reports: Sequence[SourceReport], observed: ObservedFigures) -> None:
    """Raise ``ToolError`` ``E_SOURCES_DISAGREE`` if two sources cannot both be right."""
    for one, other in combinations(reports, 2):
        _compare_sources(one, other)
    for each in reports:
        _compare_observed(each, observed)


def _compare_sources(one: SourceReport, other: SourceReport) -> None:
    for name in ("tokens", *RATES):
        here, there = (each.report.figures.get(name) for each in (one, other))
        if here is None or there is None:
            continue
        extra_tokens = max(one.extra_tokens, other.extra_tokens)
        allowed = MAX_RATE_DIFFERENCE * max(here, there) if name in RATES else extra_tokens
        if abs(here - there) > allowed:
            words = name.replace("_", " ")
            raise _disagreement(
                one.report.source, f"{here:g} {words}", other.report.source, f"{there:g} {words}"
            )


def _compare_observed(reported: SourceReport, observed: ObservedFigures) -> None:
    source, wall_ms = reported.report.source, observed.wall_ns / 1e6
    if reported.spent_ms > wall_ms * _TIME_SLACK + _TIME_SLACK_MS:
        run = f"{wall_ms:.1f} ms for the whole run"
        raise _disagreement(source, f"{reported.spent_ms:.1f} ms", _OBSERVER, run)
    tokens = reported.report.figures.get("tokens", observed.tokens)
    # One may count the end of the answer, or leave out its last line end.
    if observed.tokens is not None and tokens is not None and abs(tokens - observed.tokens) > 1:
        raise _disagreement(source, f"{tokens:g} tokens", _OBSERVER, f"{observed.tokens} tokens")
    rate = reported.report.figures.get("tokens_per_second")
    if rate is not None:
        _compare_observed_rate(source, rate, tokens, observed)


def _compare_observed_rate(
    source: str, rate: float, tokens: float | None, observed: ObservedFigures
) -> None:
    """Raise an error for a rate below that of the whole run or above that of the decode alone."""
    wall_s = observed.wall_ns / 1e9
    here = f"{rate:g} tokens per second"
    if tokens is not None and tokens > 1 and rate * wall_s * _TIME_SLACK + 1 < tokens - 1:
        run = f"{tokens:g} tokens in {wall_s:.3f} s with start and load"
        raise _disagreement(source, here, _OBSERVER, run)
    if (
        observed.tokens is None
        or observed.decode_ns is None
        or observed.decode_ns < _MIN_DECODE_NS
        or observed.decode_tokens < _MIN_TOKENS
    ):
        return
    fastest = observed.decode_tokens * 1e9 / observed.decode_ns
    if rate > fastest * (1.0 + MAX_CLOCK_DIFFERENCE):
        decode = f"{fastest:.4g} tokens per second of decode"
        raise _disagreement(source, here, _OBSERVER, decode)


def _disagreement(one: str, here: str, other: str, there: str) -> ToolError:
    return ToolError(
        "E_SOURCES_DISAGREE",
        f"{one} reports {here}, and {other} {there}.",
        "Both are of one run: find out which is wrong. Choose one source with figures = "
        '"timing", "llama.cpp", "receipt" or "pattern", or write "none".',
    )


PHASES = ("embed_us", "forward_us", "logits_us", "sample_us")
COUNTS = ("tokens", "prompt_tokens", "decode_tokens")
RATES = ("tokens_per_second", "prefill_tokens_per_second")
FIGURES = (*COUNTS, "load_ms", "prefill_ms", "decode_ms", "total_ms", *PHASES, *RATES)
"""The names a figure can have; each says its unit."""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """The output of one run of a program that reports are read from.

    Attributes:
        lines: Lines that are no part of the answer: the messages, and the lines of standard
            output that begin with a source's marker.
        stdout: The end of standard output.
        stderr: The end of standard error.
        receipt: The content of the receipt file that was written in this run, else None.
    """

    lines: tuple[str, ...] = ()
    stdout: str = ""
    stderr: str = ""
    receipt: bytes | None = None


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The report of one source, with values to compare it with others.

    ``spent_ms`` is the sum of all times in it. ``extra_tokens`` is the number of tokens that it
    may count and the answer does not show: the one that ends it.
    """

    report: Report
    spent_ms: float = 0.0
    extra_tokens: int = 0


class Source:
    """One form in which programs report. Implementations hold no state of a run."""

    name: str
    """The name that selects it in ``figures``."""
    markers: tuple[bytes, ...] = ()
    """The beginnings of its lines on standard output, which are no part of the answer."""

    def read(self, output: ProgramOutput) -> SourceReport | None:
        """Return the report, None if there is none. ``ToolError`` for one that is impossible."""
        raise NotImplementedError


def make_source_report(
    source: str,
    figures: Mapping[str, float],
    kernels: Mapping[str, int] | None = None,
    extra_tokens: int = 0,
) -> SourceReport:
    """Return ``figures`` with the time that they add up to."""
    spent_ms = max(
        figures.get("load_ms", 0.0),
        figures.get("total_ms", 0.0),
        figures.get("prefill_ms", 0.0) + figures.get("decode_ms", 0.0),
        sum(figures.get(phase, 0.0) for phase in PHASES) / 1e3,
    )
    return SourceReport(make_report(source, figures, kernels), spent_ms, extra_tokens)


def parse_figure(source: str, name: str, text: str | float) -> float:
    """Return the value of the figure ``name``.

    ``ToolError`` ``E_BAD_REPORT`` if it is no number, not finite or negative, if a rate or the
    number of generated tokens is zero, and if a count is no whole number.
    """
    try:
        value = float(text)
    except (ValueError, OverflowError):
        value = math.nan
    is_too_small = value < 0.0 or (value == 0.0 and (name in RATES or name == "tokens"))
    if not math.isfinite(value) or is_too_small or (name in COUNTS and value != int(value)):
        raise report_error(source, f"has {str(text)[:40]!r} for {name}")
    return value


def report_error(source: str, problem: str, remedy: str = "") -> ToolError:
    """Return ``E_BAD_REPORT``; ``problem`` continues its sentence: ``has -3 for tokens``."""
    return ToolError("E_BAD_REPORT", f"The program's own report ({source}) {problem}.", remedy)
