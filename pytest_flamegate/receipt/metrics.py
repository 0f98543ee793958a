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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.errors import ToolError
from pytest_flamegate.receipt.reported import engine_metrics
from pytest_flamegate.receipt.types import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_flamegate.profile.model import Covers
    from pytest_flamegate.workload.observation import Block, ClockScope, Observation, Role, Run

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
