"""Figures computed from what the observer saw, each with the formula that made it.

The same name hides different formulas in different tools, so every figure names
its own:

- ``tokens/total``: tokens ÷ (last token − request), over all sequences.
- ``decode-tokens/decode-time``: tokens seen after the first look ÷ (last token − first look),
  over all sequences; on an idle machine a look sees one piece of output, of one token mostly.
- ``1/tpot``: 1 ÷ the median time per output token.
- ``quiet-time/tokens``, ``cpu-time/tokens``: over the tokens and the time of the
  sequences, or of their decode where it was told apart.
- ``process-cpu-time/tokens``: the same of a whole program, start and load included.
- ``first-token-request``: first token seen − request sent (for a program: − its start,
  so it holds start, load and prefill).
- ``(latency-ttft)/(n-1)``: time per output token, of one sequence; where decode was told
  apart, over the tokens that it covers.
- ``token-gap``: time between two tokens.
- ``SOURCE:FIGURE/median``: what an engine says of itself, see ``reported.py``; of the rates that
  follow from it ``SOURCE:n/decode-time/median`` and ``SOURCE:(n-1)/decode-time/median``, by
  whether the engine counts its first token into its decode, and
  ``SOURCE:prompt-tokens/prefill-time/median``.

What each means in words stands in ``formulas.py``.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.text import find_hidden_character
from pytest_flamegate.profile.difference import SPREAD
from pytest_flamegate.receipt.types import KernelSighting, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_flamegate.engines.figures import Report
    from pytest_flamegate.observe.observation import Block, ClockScope, Observation, Role, Run
    from pytest_flamegate.profile.model import Covers
    from pytest_flamegate.receipt.policies import Policy
    from pytest_flamegate.receipt.types import Direction, ProcessProfile


_RATES = (
    ("kernel_calls_per_second", "calls*rounds/total", None, "calls/s", 1.0),
    ("kernel_elements_per_second", "elements*calls*rounds/total", "elements", "elements/s", 1.0),
    ("kernel_bytes_per_second", "bytes*calls*rounds/total", "bytes", "B/s", 1.0),
    ("kernel_gflops", "flops*calls*rounds/total", "flops", "GFLOP/s", 1e-9),
)
"""Name, formula, the recipe's key of what one call works on, unit, and what one is in it."""
NAMES = tuple(name for name, *_ in _RATES)
_MOST = 1 << 62


def kernel_rates(recipe: Mapping[str, object], found: Sequence[Metric]) -> tuple[Metric, ...]:
    """Return the rates of a benchmark, none for any other recipe.

    ``found`` are the figures of its runs, of which the rate of rounds is used.
    """
    rate = next((metric for metric in found if metric.name == "tokens_per_second"), None)
    calls = _count(recipe, "calls")
    if rate is None or calls is None or recipe.get("engine") != "benchmark":
        return ()
    return tuple(
        Metric(
            name=name,
            value=rate.value * calls * work * factor,
            formula=formula,
            unit=unit,
            direction="higher_is_better",
            clock="wall",
            samples=rate.samples,
            provenance="derived",
        )
        for name, formula, key, unit, factor in _RATES
        if (work := 1 if key is None else _count(recipe, key)) is not None
    )


def _count(recipe: Mapping[str, object], key: str) -> int | None:
    """Return a count that the recipe tells; it may be foreign, and tell anything."""
    value = recipe.get(key)
    known = isinstance(value, int) and not isinstance(value, bool)
    return value if known and 1 <= value <= _MOST else None  # type: ignore[operator,return-value]


PREFIX = "engine_"
AT_LEAST = 3
"""A median of fewer says nothing."""
MAX_KERNELS = 64
_NAME_BYTES = 128


class Figure(NamedTuple):
    """The unit of a reported figure, and which way is better."""

    unit: str
    direction: Direction


_MORE: Direction = "higher_is_better"
_LESS: Direction = "lower_is_better"
FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        # Every metric has a direction; that of a count means nothing, for nothing gates on it.
        "tokens": Figure("tokens", _MORE),
        "prompt_tokens": Figure("tokens", _MORE),
        "load_ms": Figure("ms", _LESS),
        "prefill_ms": Figure("ms", _LESS),
        "decode_ms": Figure("ms", _LESS),
        "total_ms": Figure("ms", _LESS),
        "embed_us": Figure("us", _LESS),
        "forward_us": Figure("us", _LESS),
        "logits_us": Figure("us", _LESS),
        "sample_us": Figure("us", _LESS),
        "tokens_per_second": Figure("tokens/s", _MORE),
        "prefill_tokens_per_second": Figure("tokens/s", _MORE),
        "decode_tokens_per_second": Figure("tokens/s", _MORE),
    }
)
"""The figures that become metrics. Others stay in the report, where whoever reads it finds them."""

_OBSERVED_AS = {
    "engine_load_ms": "load_ms",
    "engine_prefill_ms": "time_to_first_token_ms",
    "engine_tokens_per_second": "tokens_per_second",
    "engine_prefill_tokens_per_second": "prefill_tokens_per_second",
    "engine_decode_tokens_per_second": "decode_tokens_per_second",
}
_RATES_REPORTED = frozenset(name for name, figure in FIGURES.items() if figure.unit == "tokens/s")
_COUNTED: Mapping[float, str] = {0: "n", -1: "(n-1)", 1: "(n+1)"}


class Told(NamedTuple):
    """One value of a figure: by whom, by what formula, and whether we computed it."""

    name: str
    source: str
    formula: str
    value: float
    provenance: Literal["ingested", "derived"]


def engine_metrics(timed: Iterable[Run]) -> tuple[Metric, ...]:
    """Return the median of every figure that one source reported three times at least.

    Each value is of a report of a timed run. They stand in the order of ``FIGURES``, and of their
    sources; a figure that two sources tell stands twice, under its name and two formulas.
    """
    values: dict[tuple[str, str], list[Told]] = {}
    for run in timed:
        for report in run.reported:
            for told in _told(report, run.tokens_per_sequence):
                values.setdefault((told.name, told.source), []).append(told)
    known = list(FIGURES)
    ordered = sorted(values.items(), key=lambda entry: (known.index(entry[0][0]), entry[0][1]))
    found = (_metric(told) for _, told in ordered if len(told) >= AT_LEAST)
    return tuple(metric for metric in found if math.isfinite(metric.value))


def _told(report: Report, observed: int) -> Iterator[Told]:
    figures, source = report.figures, report.source
    for name in FIGURES.keys() & figures.keys():
        # Engines print a rate of 0 where there was none.
        if figures[name] > 0 or name not in _RATES_REPORTED:
            yield Told(name, source, name, figures[name], "ingested")
    for name, tokens, time_ms, formula in (
        ("decode_tokens_per_second", "tokens", "decode_ms", None),
        ("prefill_tokens_per_second", "prompt_tokens", "prefill_ms", "prompt-tokens/prefill-time"),
    ):
        if formula is None:  # the first token may have come of the prompt, before that time
            tokens = "decode_tokens" if "decode_tokens" in figures else tokens
        count, spent_ms = figures.get(tokens, 0.0), figures.get(time_ms, 0.0)
        if name in figures or count <= 0 or spent_ms <= 0:
            continue
        rate = 1e3 * count / spent_ms
        if math.isfinite(rate):
            counted = _COUNTED.get(count - observed, "predicted-tokens")
            yield Told(name, source, formula or f"{counted}/decode-time", rate, "derived")


def _metric(told: Sequence[Told]) -> Metric:
    first = told[0]
    figure = FIGURES[first.name]
    formulas = {each.formula for each in told}
    # Sequences of different lengths: then nothing but the engine's count holds of all of them.
    formula = first.formula if len(formulas) == 1 else "predicted-tokens/decode-time"
    return Metric(
        name=PREFIX + first.name,
        value=statistics.median(each.value for each in told),
        formula=f"{first.source}:{formula}/median",
        unit=figure.unit,
        direction=figure.direction,
        clock="wall",
        samples=len(told),
        provenance=first.provenance,
    )


def of_engine(metric: Metric) -> bool:
    """Whether a metric is said to be the engine's own word, or to follow from it."""
    return metric.provenance == "ingested" or metric.name.startswith(PREFIX)


def source_of(metric: Metric) -> str:
    """Return who told a figure of the engine's own."""
    return metric.formula.removesuffix("/median").rpartition(":")[0]


def observed_as(metric: Metric, found: Iterable[Metric]) -> Metric | None:
    """Return the observer's figure to hold an engine's against; None where it has none of it."""
    wanted = _OBSERVED_AS.get(metric.name)
    return next((each for each in found if each.name == wanted), None)


def engine_kernels(runs: Iterable[Run], seen: Collection[str]) -> tuple[KernelSighting, ...]:
    """Return the kernels that engines report over all ``runs``, less those that were ``seen``.

    A name that the profile shows stays the profile's. What is no name (too long, or with a hidden
    character) and what never ran stays in the report. The most frequent first.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for run in runs:
        for report in run.reported:
            for name, count in report.kernels.items():
                counts[name, report.source] += count
    told = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(
        KernelSighting(name, "engine", count, source)
        for (name, source), count in told
        if count and name not in seen and _is_name(name)
    )[:MAX_KERNELS]


def _is_name(name: str) -> bool:
    return (
        find_hidden_character(name) is None and len(name.encode("utf-8", "replace")) <= _NAME_BYTES
    )


def claimed_kernels(
    sightings: Sequence[KernelSighting],
    *,
    named_by_profile: bool,
    backend: Literal["cpu", "cuda"],
    policy: Policy,
) -> tuple[str, ...]:
    """Return the names that a receipt claims: the profile's, then what else must be said.

    An engine's word is claimed where the profile names no function that is known to compute, or
    none that the engine's kernel policy asks for, and where it names the GPU kernels that a
    profiler of the CPU cannot see; such a receipt stays below OBSERVED
    (``W_KERNELS_FROM_ENGINE``). A mock is claimed whatever else was seen, so that it is refused.
    Elsewhere the engine's word stays in the evidence, and takes nothing from what was observed; so
    does a GPU kernel where no device was seen to compute.
    """
    shown = [each.name for each in sightings if each.source == "profile"]
    enough = named_by_profile and any(map(policy.shows_cpu_compute, shown))
    for each in sightings:
        if each.source == "profile" or each.name in shown:
            continue
        if backend == "cuda":
            wanted = not enough or policy.shows_gpu_compute(each.name)
        else:
            wanted = not enough and not policy.names_gpu(each.name)
        if wanted or "mock" in each.name.casefold():
            shown.append(each.name)
    return tuple(shown)


TOTAL = "tokens/total"
DECODE = "decode-tokens/decode-time"
_S = 1e9
_MS = 1e6

_CostClock = Literal["quiet", "cpu", "process-cpu"]
_SPENT: dict[_CostClock, Callable[[Block], int]] = {
    "quiet": lambda block: block.judged.quiet_ns,
    "cpu": lambda block: block.judged.cpu_ns,
    "process-cpu": lambda block: block.interval.cpu_ns,
}


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens per second, the formula behind them, and over how many tokens."""

    tokens_per_second: float
    formula: str
    tokens: int


def rate_of(runs: Iterable[Run]) -> Rate | None:
    """Return the rate of the timed ``runs``; None where their token times give none.

    Where decode was told apart (a program, whose first token waits for start and load):
    the tokens after the first look ÷ (last - first). Else tokens ÷ time from request, or from
    the start of the program, to the last token.
    """
    blocks = [block for run in runs if run.role == "timed" for block in run.blocks]
    decode = bool(blocks) and all(block.decode is not None for block in blocks)
    sequences = [gaps for block in blocks for gaps in block.sequences_ns if gaps]
    skipped = 1 if decode else 0
    tokens = sum(block.judged_tokens if decode else block.tokens for block in blocks)
    elapsed_ns = sum(sum(gaps[skipped:]) for gaps in sequences)
    if tokens <= 0 or elapsed_ns <= 0:
        return None
    return Rate(tokens / elapsed_ns * _S, DECODE if decode else TOTAL, tokens)


def tokens_per_second(observation: Observation) -> Metric:
    """Return the rate a receipt claims, from the token times of all timed runs.

    A served engine's rate covers prefill and decode; a program's covers decode alone
    where that was told apart, else the whole run. ToolError ``E_NO_RATE`` without one.
    """
    return _throughput(observation.runs)


def _throughput(runs: Iterable[Run]) -> Metric:
    rate = rate_of(runs)
    if rate is None:
        raise ToolError(
            "E_NO_RATE",
            "All tokens came at one instant, so there is no rate to report.",
            "Make the program write each token as it is generated.",
        )
    return Metric(
        name="tokens_per_second",
        value=rate.tokens_per_second,
        formula=rate.formula,
        unit="tokens/s",
        direction="higher_is_better",
        clock="wall",
        samples=rate.tokens,
        provenance="measured",
    )


def metrics(observation: Observation, prompt_tokens: int | None) -> tuple[Metric, ...]:
    """Return every figure of the timed runs; ``prompt_tokens`` where the engine knows them."""
    return figures(observation.timed, observation.clock_scope, prompt_tokens)


def figures(
    timed: Sequence[Run],
    clock_scope: ClockScope,
    prompt_tokens: int | None,
    *,
    unseen: bool = False,
) -> tuple[Metric, ...]:
    """Return every figure of the ``timed`` runs, each of which has generated tokens.

    The observer's come first, then those that the engine told.

    A time whose median is nought is left out, and its rate with it: most of those tokens were
    seen at the same moment as what came before them, so nobody saw what they took. With
    ``unseen`` it stays, as older evidence has it.
    ToolError ``E_NO_RATE`` where all tokens came at one instant.
    """
    sequences = _sequences(timed)
    first = [gaps[0] for gaps in sequences]
    long = [gaps for gaps in sequences if len(gaps) > 1]
    found = [
        _throughput(timed),
        _cost("quiet_s_per_token", "quiet", timed),
        _cost("cpu_s_per_token", "cpu", timed),
    ]
    if saw_first := unseen or statistics.median(first) > 0:
        found.append(_time("time_to_first_token_ms", "first-token-request", first))
    if loads := [run.load_ns for run in timed if run.load_ns is not None]:
        found.append(_time("load_ms", "ready-start", loads))
    if clock_scope == "process":
        found.append(_cost("process_cpu_s_per_token", "process-cpu", timed))
    if prompt_tokens is not None and saw_first:
        found.append(_rate("prefill_tokens_per_second", "prompt-tokens/ttft", prompt_tokens, first))
    if long:
        gaps = sorted(gap for sequence in long for gap in sequence[1:])
        per_token = [each for run in timed for block in run.blocks for each in _per_token(block)]
        if unseen or statistics.median(per_token) > 0:
            found += [
                _time("time_per_output_token_ms", "(latency-ttft)/(n-1)", per_token),
                _rate("decode_tokens_per_second", "1/tpot", 1, per_token),
            ]
        if unseen or statistics.median(gaps) > 0:
            p95 = _time("inter_token_latency_p95_ms", "token-gap-p95", gaps[_p95(len(gaps)) :][:1])
            found += [
                _time("inter_token_latency_ms", "token-gap", gaps),
                replace(p95, samples=len(gaps)),
            ]
    return (*found, *engine_metrics(timed))


def value_of(found: Sequence[Metric], name: str) -> float | None:
    """Return the value of the metric called ``name``, None if it is not there."""
    return next((metric.value for metric in found if metric.name == name), None)


def cost_of(covers: Covers, found: Sequence[Metric]) -> float | None:
    """Return the CPU seconds per token of the phase that a profile covers."""
    whole = value_of(found, "process_cpu_s_per_token") if covers == "process" else None
    return value_of(found, "cpu_s_per_token") if whole is None else whole


def overhead_pct(runs: Iterable[Run], clock_scope: ClockScope) -> float | None:
    """Return the extra CPU time per token of profiled runs over timed ones, in percent.

    None where nothing tells the program's time from that of the profiler around it, or
    where there is no CPU time to compare.
    """
    by_role: dict[Role, list[float]] = {"timed": [], "profiled": [], "traced": [], "bricks": []}
    for run in runs:
        tokens = sum(block.judged_tokens for block in run.blocks)
        whole = clock_scope == "process" and any(block.decode is None for block in run.blocks)
        if whole or tokens <= 0:
            return None
        by_role[run.role].append(sum(block.judged.cpu_ns for block in run.blocks) / tokens)
    if not by_role["timed"] or not by_role["profiled"]:
        return None
    timed = statistics.median(by_role["timed"])
    return 100.0 * (statistics.median(by_role["profiled"]) / timed - 1.0) if timed > 0 else None


def _p95(count: int) -> int:
    """Return the nearest rank, from 0: the smallest value that 95 % are no greater than."""
    return math.ceil(count * 0.95) - 1


def _sequences(runs: Sequence[Run]) -> list[tuple[int, ...]]:
    return [gaps for run in runs for block in run.blocks for gaps in block.sequences_ns]


def _per_token(block: Block) -> list[float]:
    """Return the mean time of the further tokens of each sequence that has any."""
    if block.decode is not None and block.decode_tokens:
        return [sum(sum(gaps[1:]) for gaps in block.sequences_ns) / block.decode_tokens]
    return [sum(gaps[1:]) / (len(gaps) - 1) for gaps in block.sequences_ns if len(gaps) > 1]


def _cost(name: str, clock: _CostClock, runs: Sequence[Run]) -> Metric:
    per_run = []
    for run in runs:
        spent = sum(_SPENT[clock](block) for block in run.blocks)
        whole = clock == "process-cpu"
        tokens = sum(block.tokens if whole else block.judged_tokens for block in run.blocks)
        per_run.append(spent / tokens / _S)
    return Metric(
        name=name,
        value=statistics.median(per_run),
        formula=f"{clock}-time/tokens",
        unit="s",
        direction="lower_is_better",
        clock="quiet" if clock == "quiet" else "cpu",
        samples=len(per_run),
        provenance="measured",
    )


def _time(name: str, formula: str, values_ns: Sequence[float]) -> Metric:
    return Metric(
        name=name,
        value=statistics.median(values_ns) / _MS,
        formula=formula,
        unit="ms",
        direction="lower_is_better",
        clock="wall",
        samples=len(values_ns),
        provenance="measured",
    )


def _rate(name: str, formula: str, count: int, times_ns: Sequence[float]) -> Metric:
    return Metric(
        name=name,
        value=count / max(statistics.median(times_ns), 1.0) * _S,
        formula=formula,
        unit="tokens/s",
        direction="higher_is_better",
        clock="wall",
        samples=len(times_ns),
        provenance="measured",
    )


_EXPECTED = 5.0
"""Samples of a function in a process below which its share tells nothing of the spread."""


def spread_of(processes: Sequence[ProcessProfile]) -> float:
    """Return the standard deviation of a share between processes, in binomial ones.

    Never below what profiles of one program differ by on a quiet machine. A busy one
    stops a process anywhere, and a profiler by the wall clock then counts that place.
    """
    total = sum(process.samples for process in processes)
    if total <= 0:  # read from a file, it may name samples in functions all the same
        return SPREAD
    pooled: Counter[str] = Counter()
    for process in processes:
        pooled.update(process.self_samples)
    squares, freedom = 0.0, 0
    for name, count in pooled.items():
        share = count / total
        if min(share, 1.0 - share) * min(process.samples for process in processes) < _EXPECTED:
            continue
        squares += sum(
            (process.self_samples.get(name, 0) - process.samples * share) ** 2
            / (process.samples * share * (1.0 - share))
            for process in processes
        )
        freedom += len(processes) - 1
    return max(SPREAD, math.sqrt(squares / freedom)) if freedom else SPREAD
