"""Rules over figures: metrics follow from the runs, and engines' reports fit the observation.

Gates and reports read the metrics, so an edited metric is an edited verdict.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import product

from pytest_flamegate.core.text import quote
from pytest_flamegate.engines.figures import PHASES, Report
from pytest_flamegate.receipt.metrics import overhead_pct
from pytest_flamegate.receipt.reported import MIN_REPORTS, engine_metrics, of_engine
from pytest_flamegate.receipt.rules.rule import (
    Rulebook,
    Submission,
    has_tokens,
    identify_metric,
)
from pytest_flamegate.receipt.types import Grade, Metric

FIGURE_AGREEMENT = 1e-4
"""All digits are written; this is room for a copy that kept four of them."""
TIME_SLACK = 0.05
TIME_SLACK_MS = 20.0
"""The engine's clock and the observer's start and stop at different moments."""
RATE_AGREEMENT = 0.01
OFF_BY_ONE = 1
"""Engines count the first token into their prefill, or the end of the text into their decode."""
ENGINES_TOKENS = "yielded:"
"""The token source whose unit is the engine's own token; others count bytes or words."""

CHECKS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)
SHORTFALLS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)

_COMPARED = ("formula", "unit", "direction", "clock", "samples", "provenance")
_DEPENDS_ON = {
    "prefill_tokens_per_second": "time_to_first_token_ms",
    "decode_tokens_per_second": "time_per_output_token_ms",
    "inter_token_latency_p95_ms": "inter_token_latency_ms",
}


@CHECKS.rule("E_METRIC_MISMATCH", "Each metric follows from the runs and is listed once.")
def _check_metrics(case: Submission) -> Iterator[str]:
    # All fields are compared: a flipped direction would turn a loss into a gain.
    if case.has_exact_metrics:
        return
    metrics = case.evidence.metrics
    keys = [identify_metric(metric) for metric in metrics]
    for (name, _), times in Counter(keys).items():
        if times > 1:
            yield f"The metric {quote(name)} is listed {times} times."
    yield from _unreported(case)
    expected = {identify_metric(metric): metric for metric in case.recomputed}
    if not expected and case.rate is not None:
        empty = next(run.pid for run in case.timed if not has_tokens(run))
        yield f"The timed run of process {empty} has no tokens to compute a metric from."
    for key, metric in zip(keys, metrics, strict=True):
        known = expected.get(key, metric)
        if metric != known:
            yield from _differences(metric, known)


def _unreported(case: Submission) -> Iterator[str]:
    # Without runs the figures come from another tool, and no rule vouches for them.
    of_engines = [metric for metric in case.evidence.metrics if case.timed and of_engine(metric)]
    reported = set(map(identify_metric, engine_metrics(case.timed))) if of_engines else set()
    for metric in of_engines:
        if identify_metric(metric) not in reported:
            yield (
                f"{quote(metric.name)} is attributed to the engine ({quote(metric.formula)}), but "
                f"fewer than {MIN_REPORTS} reports of the timed runs contain it."
            )


def _differences(metric: Metric, known: Metric) -> Iterator[str]:
    if abs(metric.value - known.value) > FIGURE_AGREEMENT * abs(known.value):
        stated = f"{quote(metric.name)} is {metric.value:.6g} {quote(metric.unit)}"
        yield f"{stated}; the runs give {known.value:.6g}."
    for field in _COMPARED:
        stated, expected = getattr(metric, field), getattr(known, field)
        if stated != expected:
            yield f"The {field} of {quote(metric.name)} is {quote(stated)}, not {quote(expected)}."


@CHECKS.rule("E_METRIC_MISMATCH", "The stated cost of profiling follows from the runs.")
def _check_overhead(case: Submission) -> Iterator[str]:
    # Readers trust a profile more if it cost little.
    profile = case.evidence.profile
    if profile is None or profile.overhead_pct is None:
        return
    known = overhead_pct(case.evidence.runs, case.evidence.clock_scope)
    if known is None:
        return
    if abs(profile.overhead_pct - known) > FIGURE_AGREEMENT * (100.0 + abs(known)):
        yield f"overhead_pct is {profile.overhead_pct:.4g}; the runs give {known:.4g}."


@SHORTFALLS.rule(
    "W_EVIDENCE_INCOMPLETE", "Every metric that follows from the timed runs is listed."
)
def _check_missing_metrics(case: Submission) -> Iterator[str]:
    # A figure that is left out cannot get worse.
    if case.has_exact_metrics:
        return
    expected = {identify_metric(metric): metric for metric in case.recomputed}
    listed = set(map(identify_metric, case.evidence.metrics))
    for key, metric in expected.items():
        if key in listed:
            continue
        # A time that was not observed is left out, and with it the figures that depend on it.
        basis = expected.get((_DEPENDS_ON.get(metric.name, ""), ""), metric)
        if basis.value > 0 or of_engine(metric):
            yield f"The runs give {quote(metric.name)}, but it is not among the metrics."


@CHECKS.rule(
    "E_REPORT_CONTRADICTION",
    "The engine counts as many tokens as were observed, plus or minus one per sequence.",
)
def _check_reported_tokens(case: Submission) -> Iterator[str]:
    # More tokens in the same time are a higher rate, and fewer are less work.
    if not case.evidence.token_source.startswith(ENGINES_TOKENS):
        return
    for run in case.evidence.runs:
        counts = [
            (report.source, report.figures["tokens"])
            for report in run.reported
            if "tokens" in report.figures
        ]
        if not counts:
            continue
        lengths = [[*map(len, block.sequences_ns)] for block in run.blocks]
        every = [length for block in lengths for length in block]
        if not every:
            continue
        # A report covers a sequence, a block, or all that the run generated.
        spans = {(length, 1) for length in every} | {(sum(s), len(s)) for s in (*lengths, every)}
        least, most = min(every), max(every)
        lengths_text = str(least) if least == most else f"{least} to {most}"
        near = _join((total - OFF_BY_ONE * n, total + OFF_BY_ONE * n) for total, n in spans)
        lows = [low for low, _ in near]
        for source, count in counts:
            at = bisect_right(lows, count)
            if not at or count > near[at - 1][1]:
                yield f"The engine ({quote(source)}) counts {count:g} tokens, not {lengths_text}."


@CHECKS.rule("E_REPORT_CONTRADICTION", "No time that the engine reports is longer than its run.")
def _check_reported_times(case: Submission) -> Iterator[str]:
    for run in case.evidence.runs:
        if not run.reported:
            continue
        ran_ms = run.wall_ns / 1e6
        whole_ms = ran_ms + (run.load_ns or 0) / 1e6
        loaded = run.load_ns is not None or case.evidence.clock_scope == "process"
        sequences = sum(len(block.sequences_ns) for block in run.blocks)
        by_source: dict[str, list[Report]] = {}
        for report in run.reported:
            by_source.setdefault(report.source, []).append(report)
        for source, reports in by_source.items():
            spent = [_spent_ms(report) for report in reports]
            # With at most one report per sequence, the reported times follow one another.
            spent_ms = sum(spent) if len(spent) <= sequences else max(spent)
            total_ms, load_ms = (
                max(report.figures.get(name, 0.0) for report in reports)
                for name in ("total_ms", "load_ms")
            )
            for reported_ms, most_ms, phase in (
                (spent_ms, ran_ms, "prefill and decode"),
                (total_ms, whole_ms, "total time"),
                (load_ms if loaded else 0.0, whole_ms, "loading"),
            ):
                if reported_ms > most_ms * (1 + TIME_SLACK) + TIME_SLACK_MS:
                    yield (
                        f"The engine ({quote(source)}) reports {reported_ms:,.1f} ms of {phase}; "
                        f"the run of process {run.pid} took {most_ms:,.1f} ms."
                    )


@CHECKS.rule(
    "E_REPORT_CONTRADICTION",
    "A rate that the engine reports follows from tokens and time of the same report.",
)
def _check_reported_rates(case: Submission) -> Iterator[str]:
    # Engines differ in which of their times they use, and whether the first token counts.
    reports = ((run.pid, report) for run in case.evidence.runs for report in run.reported)
    for pid, report in reports:
        prefill_ms = report.figures.get("prefill_ms", 0.0)
        prefills_ms = [(prefill_ms, _resolution(prefill_ms))] if prefill_ms > 0 else []
        for name, count, times in (
            ("tokens_per_second", "tokens", _times_ms(report)),
            ("decode_tokens_per_second", "tokens", _times_ms(report)),
            ("prefill_tokens_per_second", "prompt_tokens", prefills_ms),
        ):
            rate, tokens = report.figures.get(name), report.figures.get(count)
            # Engines print a rate of 0 if there was none.
            if not rate or tokens is None or not times:
                continue
            counts = [tokens - OFF_BY_ONE, tokens, tokens + OFF_BY_ONE]
            if not any(_follows(rate, each, time) for each, time in product(counts, times)):
                yield (
                    f"The engine ({quote(report.source)}) reports {rate:.6g} tok/s in process "
                    f"{pid}, but {tokens:g} tokens in {max(t for t, _ in times):.6g} ms."
                )


def _join(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ``ranges`` in order with overlapping ones joined; evidence may have very many."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def _spent_ms(report: Report) -> float:
    """Return the reported time of computing: the phases, or the steps if their sum is longer."""
    phases = sum(report.figures.get(name, 0.0) for name in ("prefill_ms", "decode_ms"))
    return max(phases, sum(report.figures.get(name, 0.0) for name in PHASES) / 1e3)


def _times_ms(report: Report) -> list[tuple[float, float]]:
    """Return each time that a rate of generated tokens may be over, with its resolution."""
    figure = report.figures.get
    load, prefill, decode, total = (
        figure(name, 0.0) for name in ("load_ms", "prefill_ms", "decode_ms", "total_ms")
    )
    step = max(_resolution(value) for value in (load, prefill, decode, total))
    steps = sum(figure(name, 0.0) for name in PHASES) / 1e3
    times = {decode, total, prefill + decode, load + prefill + decode, total - load,
             total - prefill, steps, steps - figure("embed_us", 0.0) / 1e3}  # fmt: skip
    return [(time, step) for time in sorted(times) if time > 0] if decode or total or steps else []


def _follows(rate: float, tokens: float, time: tuple[float, float]) -> bool:
    """Whether ``rate`` is ``tokens`` over ``time`` (milliseconds, resolution), with rounding."""
    spent_ms, step_ms = time
    least = 1e3 * tokens / (spent_ms + step_ms)
    most = 1e3 * tokens / max(spent_ms - step_ms, 1e-9)
    slack = RATE_AGREEMENT * rate + _resolution(rate)
    return least - slack <= rate <= most + slack


def _resolution(value: float) -> float:
    """Return the unit of the last digit of ``value`` as printed: 0.1 for 81.2, 1 for 81."""
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return 10.0 ** min(0, int(exponent))
