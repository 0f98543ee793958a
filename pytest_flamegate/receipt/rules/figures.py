"""Cross-checks over the metrics: what is written down recomputes from what was seen.

Gates and reports read the metrics, so an edit of one is an edit of the verdict.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING

from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.metrics import (
    AT_LEAST,
    engine_kernels,
    engine_metrics,
    of_engine,
    overhead_pct,
    rate_of,
)
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_flamegate.engines.figures import Report
    from pytest_flamegate.observe.observation import Run
    from pytest_flamegate.receipt.rules.subject import Case
    from pytest_flamegate.receipt.types import Metric


FIGURE_AGREEMENT = 1e-4
"""The tool writes every digit; this leaves room for a copy that kept four of them."""

CROSSCHECK_FIGURES_CHECKS: Rulebook[Case] = Rulebook()
SHORTFALLS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; receipt and evidence are written together and changed by nobody."
_PREFILL = "prefill_tokens_per_second"
_READING = ("formula", "unit", "direction", "clock", "samples", "provenance")


@CROSSCHECK_FIGURES_CHECKS.rule(
    "E_METRIC_MISMATCH",
    "Every metric that the timed runs can reproduce recomputes from them.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _metric_mismatch(case: Case) -> Iterator[str]:
    # Not its value alone: a flipped direction turns a loss into a gain.
    for (name, _), times in Counter(map(_known_by, case.evidence.metrics)).items():
        if times > 1:
            yield f"The metric {quote(name)} stands {times} times."
    yield from _told_by_nobody(case)
    silent = [run.pid for run in case.timed if not _generates(run)]
    if silent and rate_of(case.evidence.runs) is not None:
        yield f"The timed run of process {silent[0]} holds no tokens that a metric could be of."
    expected = _expected(case)
    for metric in case.evidence.metrics:
        if (known := expected.get(_known_by(metric))) is not None:
            yield from _departures(metric, known)


def _told_by_nobody(case: Case) -> Iterator[str]:
    # Where nothing ran, figures are ingested from elsewhere, and nothing here vouches for them.
    told = {_known_by(metric) for metric in engine_metrics(case.timed)}
    for metric in case.evidence.metrics:
        if case.timed and of_engine(metric) and _known_by(metric) not in told:
            yield (
                f"{quote(metric.name)} is said to be the engine's own ({quote(metric.formula)}), "
                f"and not {AT_LEAST} reports of the timed runs give it."
            )


def _known_by(metric: Metric) -> tuple[str, str]:
    """Return what a metric is known by: its name, and of the engine's own also who told it."""
    return metric.name, metric.formula if of_engine(metric) else ""


_GOES_BY = {
    "prefill_tokens_per_second": "time_to_first_token_ms",
    "decode_tokens_per_second": "time_per_output_token_ms",
    "inter_token_latency_p95_ms": "inter_token_latency_ms",
}


@SHORTFALLS.rule(
    "W_METRIC_MISSING",
    "Every metric that the timed runs give is there.",
    remedy="Measure again; an older version may not have written it.",
    protects=Grade.OBSERVED,
)
def _metric_missing(case: Case) -> Iterator[str]:
    # A figure that is not there cannot have got worse.
    told = set(map(_known_by, case.evidence.metrics))
    expected = _expected(case)
    for metric in expected.values():
        # A time that nobody saw is left out, and what goes by it too.
        behind = expected.get((_GOES_BY.get(metric.name, ""), ""), metric)
        if _known_by(metric) not in told and (behind.value > 0 or of_engine(metric)):
            yield f"The runs give {quote(metric.name)}, and no metric is called so."


def _expected(case: Case) -> dict[tuple[str, str], Metric]:
    """Return the metrics that the timed runs give, none where they hold no rate."""
    if rate_of(case.evidence.runs) is None or not all(map(_generates, case.timed)):
        return {}
    return {_known_by(metric): metric for metric in case.recomputed}


def _departures(metric: Metric, known: Metric) -> Iterator[str]:
    if abs(metric.value - known.value) > FIGURE_AGREEMENT * abs(known.value):
        yield (
            f"{quote(metric.name)} is {metric.value:.6g} {quote(metric.unit)}, and the runs "
            f"give {known.value:.6g}."
        )
    for field in _READING:
        told, meant = getattr(metric, field), getattr(known, field)
        if told != meant:
            yield f"The {field} of {quote(metric.name)} is {quote(told)}, not {quote(meant)}."


@CROSSCHECK_FIGURES_CHECKS.rule(
    "E_OVERHEAD_MISMATCH",
    "What profiling is said to cost recomputes from the runs.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _overhead_mismatch(case: Case) -> Iterator[str]:
    # A profile that cost little is believed more.
    profile = case.evidence.profile
    if profile is None or profile.overhead_pct is None:
        return
    known = overhead_pct(case.evidence.runs, case.evidence.clock_scope)
    if known is None:
        return
    if abs(profile.overhead_pct - known) > FIGURE_AGREEMENT * (100.0 + abs(known)):
        yield (
            f"Profiling is said to cost {profile.overhead_pct:.4g} %, and the runs give "
            f"{known:.4g} %."
        )


def _generates(run: Run) -> bool:
    sequences = [gaps for block in run.blocks for gaps in block.sequences_ns]
    judged = sum(block.judged_tokens for block in run.blocks)
    return judged > 0 and all(sequences)


TIME_SLACK = 0.05
TIME_SLACK_MS = 20.0
"""The engine's clock and the observer's begin and end at different moments."""
RATE_AGREEMENT = 0.01
OFF_BY_ONE = 1
"""Engines count the first token into their prefill, or the end of the text into their decode."""
ENGINES_TOKENS = "yielded:"
"""The token source whose unit is the engine's own token; elsewhere bytes or words were counted."""

CHECKS: Rulebook[Case] = Rulebook()

_LOOK = "Look at what the engine prints of itself and how it is read; it contradicts what was seen."
_STEPS = ("embed_us", "forward_us", "logits_us", "sample_us")


@CHECKS.rule(
    "E_REPORTED_TOKENS",
    "The engine counts as many tokens as were observed, or one more or less for each sequence.",
    remedy=_LOOK,
    protects=Grade.OBSERVED,
)
def _reported_tokens(case: Case) -> Iterator[str]:
    # More tokens in the same time are a higher rate, and fewer are less work.
    if not case.evidence.token_source.startswith(ENGINES_TOKENS):
        return
    for run in case.evidence.runs:
        lengths = [[len(gaps) for gaps in block.sequences_ns] for block in run.blocks]
        every = [length for block in lengths for length in block]
        # A report is of a sequence, of a block, or of all that the run generated.
        spans = {(length, 1) for length in every} | {(sum(s), len(s)) for s in (*lengths, every)}
        near = _joined((total - OFF_BY_ONE * n, total + OFF_BY_ONE * n) for total, n in spans)
        lows = [low for low, _ in near]
        for report in run.reported:
            told = report.figures.get("tokens")
            if told is None or not every:
                continue
            at = bisect_right(lows, told)
            if not at or told > near[at - 1][1]:
                yield (
                    f"The engine ({quote(report.source)}) counts {told:g} tokens in process "
                    f"{run.pid}, and {_range(every)} a sequence were observed."
                )


@CHECKS.rule(
    "E_REPORTED_TIME",
    "No time that the engine tells is longer than the run that it is of.",
    remedy=_LOOK,
    protects=Grade.OBSERVED,
)
def _reported_time(case: Case) -> Iterator[str]:
    # The engine computes within its run, whatever its own clock says.
    for run in case.evidence.runs:
        ran_ms = sum(block.interval.wall_ns for block in run.blocks) / 1e6
        load_ms = (run.load_ns or 0) / 1e6
        sequences = sum(len(block.sequences_ns) for block in run.blocks)
        for source, reports in _by_source(run).items():
            spent = [_spent_ms(report) for report in reports]
            # One report for each sequence at most: then they follow one another.
            in_all = sum(spent) if len(spent) <= sequences else max(spent)
            totals = [report.figures.get("total_ms", 0.0) for report in reports]
            for told_ms, most_ms, what in (
                (in_all, ran_ms, "prefill and decode"),
                (max(totals), ran_ms + load_ms, "in total"),
            ):
                if told_ms > most_ms * (1 + TIME_SLACK) + TIME_SLACK_MS:
                    yield (
                        f"The engine ({quote(source)}) tells of {told_ms:,.1f} ms of {what} in the "
                        f"run of process {run.pid}, which took {most_ms:,.1f} ms."
                    )
            loads = [report.figures.get("load_ms", 0.0) for report in reports]
            told = run.load_ns is not None or case.evidence.clock_scope == "process"
            if told and max(loads) > (load_ms + ran_ms) * (1 + TIME_SLACK) + TIME_SLACK_MS:
                yield (
                    f"The engine ({quote(source)}) tells of {max(loads):,.1f} ms of loading, and "
                    f"process {run.pid} took {load_ms + ran_ms:,.1f} ms."
                )


@CHECKS.rule(
    "E_REPORTED_RATE",
    "A rate that the engine tells follows from the tokens and the time of the same report.",
    remedy=_LOOK,
    protects=Grade.OBSERVED,
)
def _reported_rate(case: Case) -> Iterator[str]:
    # By which of its times, and with or without the first token, differs between engines.
    for run, report in _reports(case):
        for name, count, times in (
            ("tokens_per_second", "tokens", _times_ms(report)),
            ("decode_tokens_per_second", "tokens", _times_ms(report)),
            ("prefill_tokens_per_second", "prompt_tokens", _prefills_ms(report)),
        ):
            rate, tokens = report.figures.get(name), report.figures.get(count)
            # A rate of 0 was none.
            if not rate or tokens is None or not times:
                continue
            counts = [tokens - OFF_BY_ONE, tokens, tokens + OFF_BY_ONE]
            if not any(_follows(rate, each, time) for each, time in product(counts, times)):
                yield (
                    f"The engine ({quote(report.source)}) tells of {rate:.6g} tok/s in process "
                    f"{run.pid}, and of {tokens:g} tokens in {max(t for t, _ in times):.6g} ms."
                )


@CHECKS.rule(
    "E_MOCK_TOLD",
    "No kernel that was seen and is not claimed is a mock, and none that the engine reports.",
    remedy="Run real inference; a mock beside a real kernel still is one.",
    protects=Grade.OBSERVED,
    needs={"kernels"},
)
def _mock_told(case: Case) -> Iterator[str]:
    # A list of claims is easily shortened. Reports also hold names that are no kernel's.
    named = [each.name for each in case.evidence.kernels if each.count]
    reported = (report.kernels.items() for _, report in _reports(case))
    named += [name for kernels in reported for name, count in kernels if count]
    for name in dict.fromkeys(named):
        if "mock" in name.casefold() and name not in case.claim.kernels:
            yield f"{quote(name)} ran, and the receipt does not name it."


@CHECKS.rule(
    "E_KERNEL_UNTOLD",
    "Every kernel by the engine's word stands in the reports of its runs, as often as they say.",
    remedy="Measure again; kernels and reports are written together and changed by nobody.",
    protects=Grade.OBSERVED,
)
def _kernel_untold(case: Case) -> Iterator[str]:
    # A name that somebody added, or hearsay that was left out because it tells of a fallback.
    kernels = case.evidence.kernels
    seen = {each.name for each in kernels if each.source == "profile"}
    told = {
        (each.name, each.told_by): each.count for each in engine_kernels(case.evidence.runs, seen)
    }
    written = Counter((each.name, each.told_by) for each in kernels if each.source == "engine")
    for each in kernels:
        if each.source == "engine" and told.get((each.name, each.told_by)) != each.count:
            said = told.get((each.name, each.told_by), 0)
            yield (
                f"The kernel {quote(each.name)} is said to have run {each.count:,} times by the "
                f"word of {quote(each.told_by)}, and the reports of the runs say {said:,}."
            )
    for name, source in told:
        if written[name, source] != 1:
            yield (
                f"The reports of {quote(source)} tell of the kernel {quote(name)}, and it stands "
                f"{written[name, source]} times among the kernels."
            )


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ``ranges`` in order, those that overlap as one: evidence may hold very many."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def _reports(case: Case) -> Iterator[tuple[Run, Report]]:
    return ((run, report) for run in case.evidence.runs for report in run.reported)


def _by_source(run: Run) -> dict[str, list[Report]]:
    found: dict[str, list[Report]] = {}
    for report in run.reported:
        found.setdefault(report.source, []).append(report)
    return found


def _spent_ms(report: Report) -> float:
    """Return what the report tells of computing: its phases, or its steps where they are longer."""
    phases = sum(report.figures.get(name, 0.0) for name in ("prefill_ms", "decode_ms"))
    return max(phases, sum(report.figures.get(name, 0.0) for name in _STEPS) / 1e3)


def _range(lengths: Sequence[int]) -> str:
    low, high = min(lengths), max(lengths)
    return str(low) if low == high else f"{low} to {high}"


def _times_ms(report: Report) -> list[tuple[float, float]]:
    """Return every time that a rate of generated tokens may be over, with its last digit."""
    figure = report.figures.get
    load, prefill, decode, total = (
        figure(name, 0.0) for name in ("load_ms", "prefill_ms", "decode_ms", "total_ms")
    )
    step = max(_step(value) for value in (load, prefill, decode, total))
    steps = sum(figure(name, 0.0) for name in _STEPS) / 1e3
    times = {decode, total, prefill + decode, load + prefill + decode, total - load,
             total - prefill, steps, steps - figure("embed_us", 0.0) / 1e3}  # fmt: skip
    return [(time, step) for time in sorted(times) if time > 0] if decode or total or steps else []


def _prefills_ms(report: Report) -> list[tuple[float, float]]:
    prefill = report.figures.get("prefill_ms", 0.0)
    return [(prefill, _step(prefill))] if prefill > 0 else []


def _follows(rate: float, tokens: float, time: tuple[float, float]) -> bool:
    """Whether a rate is ``tokens`` over a time in milliseconds, each as exact as it was written."""
    spent_ms, step_ms = time
    least = 1e3 * tokens / (spent_ms + step_ms)
    most = 1e3 * tokens / max(spent_ms - step_ms, 1e-9)
    slack = RATE_AGREEMENT * rate + _step(rate)
    return least - slack <= rate <= most + slack


def _step(value: float) -> float:
    """Return the unit of the last digit of a value as it was printed: 0.1 of 81.2, 1 of 81."""
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return 10.0 ** min(0, int(exponent))
