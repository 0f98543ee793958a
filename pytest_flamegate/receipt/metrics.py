"""Figures computed from what the observer saw, each with the formula that made it.

The same name hides different formulas in different tools, so every figure names
its own:

- ``tokens/total``: tokens ÷ (last token − request), over all sequences.
- ``decode-tokens/decode-time``: (n − 1) ÷ (last token − first token).
- ``first-token-request``: first token seen − request sent (for a program that loads
  for each run: − its start, so it holds start and load).
- ``(latency-ttft)/(n-1)``: time per output token, of one sequence.
- ``token-gap``: time between two tokens.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.receipt.types import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.workload.observation import Observation, Run

TOTAL = "tokens/total"
DECODE = "decode-tokens/decode-time"
_S = 1e9
_MS = 1e6


def tokens_per_second(observation: Observation) -> Metric:
    """Return the rate a receipt claims, from the token times of all timed runs.

    A served engine's rate covers prefill and decode; a program's covers decode alone,
    since its first token waits for start and load (with a single token there is no
    decode, and the rate covers the whole run).
    """
    sequences = _sequences(observation.timed)
    decode_only = observation.clock_scope == "process" and any(len(s) > 1 for s in sequences)
    if decode_only:
        tokens = sum(len(gaps) - 1 for gaps in sequences)
        elapsed_ns = sum(sum(gaps[1:]) for gaps in sequences)
    else:
        tokens = sum(len(gaps) for gaps in sequences)
        elapsed_ns = sum(sum(gaps) for gaps in sequences)
    if elapsed_ns <= 0:
        raise ToolError(
            "E_NO_RATE",
            "All tokens came at one instant, so there is no rate to report.",
            "The program buffers its output: make it write each token as it is generated.",
        )
    return Metric(
        name="tokens_per_second",
        value=tokens / elapsed_ns * _S,
        formula=DECODE if decode_only else TOTAL,
        unit="tokens/s",
        direction="higher_is_better",
        clock="wall",
        samples=tokens,
        provenance="measured",
    )


def metrics(observation: Observation, prompt_tokens: int | None) -> tuple[Metric, ...]:
    """Return every figure of the timed runs; ``prompt_tokens`` where the engine knows them."""
    sequences = _sequences(observation.timed)
    first = [gaps[0] for gaps in sequences]
    long = [gaps for gaps in sequences if len(gaps) > 1]
    found = [
        tokens_per_second(observation),
        _cost("quiet_s_per_token", "quiet", observation.timed),
        _cost("cpu_s_per_token", "cpu", observation.timed),
        _time("time_to_first_token_ms", "first-token-request", first),
        _time("load_ms", "ready-start", [run.load_ns for run in observation.timed]),
    ]
    if prompt_tokens is not None:
        found.append(_rate("prefill_tokens_per_second", "prompt-tokens/ttft", prompt_tokens, first))
    if long:
        gaps = sorted(gap for sequence in long for gap in sequence[1:])
        per_token = [sum(sequence[1:]) / (len(sequence) - 1) for sequence in long]
        found += [
            _time("time_per_output_token_ms", "(latency-ttft)/(n-1)", per_token),
            _time("inter_token_latency_ms", "token-gap", gaps),
            replace(
                _time("inter_token_latency_p95_ms", "token-gap-p95", gaps[_p95(len(gaps)) :][:1]),
                samples=len(gaps),
            ),
            _rate("decode_tokens_per_second", DECODE, 1, per_token),
        ]
    return tuple(found)


def value_of(found: Sequence[Metric], name: str) -> float | None:
    """Return the value of the metric called ``name``, None if it is not there."""
    return next((metric.value for metric in found if metric.name == name), None)


def _p95(count: int) -> int:
    return min(int(count * 0.95), count - 1)


def _sequences(runs: Sequence[Run]) -> list[tuple[int, ...]]:
    return [gaps for run in runs for block in run.blocks for gaps in block.sequences_ns]


def _cost(name: str, clock: str, runs: Sequence[Run]) -> Metric:
    per_run = []
    for run in runs:
        intervals = [block.interval for block in run.blocks]
        spent = sum(i.quiet_ns if clock == "quiet" else i.cpu_ns for i in intervals)
        per_run.append(spent / run.tokens / _S)
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
