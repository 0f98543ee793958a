"""The meaning of formulas, and figures of one name whose formulas differ.

One name has different formulas: one tool's ITL is the mean gap of a request, another's is each gap
by itself. Two figures are comparable by name only if formula, unit, clock and direction are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pytest_flamegate.receipt.types import Metric

Field = Literal["direction", "formula", "unit", "clock"]

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "tokens/total": "all tokens ÷ (last token − request)",
        "decode-tokens/decode-time": "tokens after the first read ÷ (last token − first read)",
        "1/tpot": "1 ÷ the median time per output token",
        "first-token-request": "first token − request",
        "prompt-tokens/ttft": "prompt tokens ÷ time to first token",
        "(latency-ttft)/(n-1)": "(last token − first token) ÷ (tokens − 1), of a sequence",
        "latency/n": "(last token − request) ÷ tokens, of a sequence",
        "latency/n, by token": "the same, each sequence weighted by its tokens",
        "(latency-ttft)/(n-1), by token": "the same, each sequence weighted by its gaps",
        "(end-request)/n": "(end of the response − request) ÷ tokens, of a sequence",
        "1/((latency-ttft)/(n-1))": "1 ÷ the time per output token, of a sequence",
        "first-chunk-request": "first chunk of the response, possibly empty, − request",
        "last-chunk-request": "last chunk of the response − request",
        "last-token-request": "last token − request",
        "end-request": "end of the response − request",
        "batch-end-start": "end − start of a whole batch of requests",
        "chunk-gap": "the time between two chunks of a response, of any number of tokens",
        "token-or-chunk-gap": "a gap between tokens or chunks: the tool does not state which",
        "output-tokens/duration": "tokens of all requests ÷ time of the whole run",
        "(input-tokens+output-tokens)/duration": "prompts and output ÷ time of the whole run",
        "requests/duration": "requests ÷ time of the whole run",
        "token-gap": "the time between two tokens, each gap by itself",
        "token-gap-p95": "the gap that 95 % of all gaps do not exceed",
        "ready-start": "ready − start of the process",
        "n/decode-time": "all tokens ÷ the engine's decode time",
        "(n-1)/decode-time": "tokens but the first ÷ the engine's decode time",
        "(n+1)/decode-time": "all tokens and the end's ÷ the engine's decode time",
        "predicted-tokens/decode-time": "tokens by the engine's count ÷ its decode time",
        "load_ms": "the engine's own load time",
        "prefill_ms": "the engine's own time for the prompt",
        "decode_ms": "the engine's own time after the prompt",
        "total_ms": "the engine's own total time",
        "embed_us": "the engine's own time to look up embeddings",
        "forward_us": "the engine's own time in its layers",
        "logits_us": "the engine's own time for the logits",
        "sample_us": "the engine's own time to sample tokens",
        "tokens_per_second": "a rate by the engine's own formula",
        "prefill_tokens_per_second": "a rate of prompt tokens by the engine's own formula",
        "decode_tokens_per_second": "a rate of its decode by the engine's own formula",
        "calls*rounds/total": "calls of all rounds ÷ (last round − request)",
        "elements*calls*rounds/total": "elements of all calls, as declared, ÷ the same time",
        "bytes*calls*rounds/total": "bytes of all calls, as declared, ÷ the same time",
        "flops*calls*rounds/total": "operations of all calls, as declared, ÷ the same time",
        "prompt-tokens/prefill-time": "prompt tokens ÷ the engine's prefill time",
    }
)
"""Each formula id in words; n is the number of observed tokens of the sequence."""

_SAME_QUANTITY = {"output_tokens_per_second": "tokens_per_second"}
"""Names under which flamegate and imported results have one quantity."""


@dataclass(frozen=True, slots=True)
class FormulaDifference:
    """Two figures of one name, and the ``field`` in which they differ."""

    quantity: str
    field: Field
    first: Metric
    second: Metric

    @property
    def code(self) -> str:
        """The code of the error for comparing them."""
        return "E_DIRECTION_DIFFERS" if self.field == "direction" else "E_FORMULA_DIFFERS"

    @property
    def values(self) -> tuple[str, str]:
        """The value of the field, of the first and of the second figure."""
        return getattr(self.first, self.field), getattr(self.second, self.field)

    @property
    def message(self) -> str:
        """One sentence that names the quantity and both sides."""
        one, other = self.values
        return (
            f"{self.quantity} is not the same figure on both sides: the {self.field} of "
            f"{self.first.name} is {one}, that of {self.second.name} is {other}."
        )


def meaning_of(formula: str) -> str | None:
    """Return a formula id in words; None for an unknown one.

    The id of a figure that an engine reported is ``SOURCE:FORMULA/median``.
    """
    reported = formula.rpartition(":")[2].removesuffix("/median")
    return MEANINGS.get(formula) or MEANINGS.get(reported)


def quantity_of(name: str) -> str:
    """Return the quantity that a figure called ``name`` measures, without the unit of a time."""
    return _SAME_QUANTITY.get(name, name).removesuffix("_ms")


def differing_formulas(a: Sequence[Metric], b: Sequence[Metric]) -> list[FormulaDifference]:
    """Return each figure of ``b`` that has a namesake in ``a`` but is another figure.

    A figure agrees if one of the same quantity has equal direction, formula, unit and clock. A
    figure without a namesake differs from nothing.
    """
    return [difference for metric in b for difference in _differences(metric, a)]


def _differences(metric: Metric, others: Sequence[Metric]) -> Iterator[FormulaDifference]:
    quantity = quantity_of(metric.name)
    rivals = [each for each in others if quantity_of(each.name) == quantity]
    if not rivals or any(not _fields(each, metric) for each in rivals):
        return
    for field in _fields(rivals[0], metric):
        yield FormulaDifference(quantity, field, rivals[0], metric)


def _fields(one: Metric, other: Metric) -> list[Field]:
    names: tuple[Field, ...] = ("direction", "formula", "unit", "clock")
    return [name for name in names if getattr(one, name) != getattr(other, name)]
