"""What formulas mean, what tools call the same quantity, and where two tools mean another thing.

The same name hides different formulas: one tool's ITL is the mean gap of a request, another's
every gap by itself. Figures are comparable by name only where formula, unit, clock and direction
are the same; everywhere else the difference has a name of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flamegate.receipt.types import Metric


Field = Literal["direction", "formula", "unit", "clock"]

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "tokens/total": "all tokens ÷ (last token − request)",
        "decode-tokens/decode-time": "tokens after the first look ÷ (last token − first look)",
        "1/tpot": "1 ÷ the median time per output token",
        "first-token-request": "first token − request",
        "prompt-tokens/ttft": "prompt tokens ÷ time to first token",
        "(latency-ttft)/(n-1)": "(last token − first token) ÷ (tokens − 1), of a sequence",
        "latency/n": "(last token − request) ÷ tokens, of a sequence",
        "latency/n, by token": "the same, each sequence weighing as many times as it has tokens",
        "(latency-ttft)/(n-1), by token": "of a sequence, weighing as many times as it has gaps",
        "(end-request)/n": "(end of the response − request) ÷ tokens, of a sequence",
        "1/((latency-ttft)/(n-1))": "1 ÷ the time per output token, of a sequence",
        "first-chunk-request": "first piece of the response, of no text perhaps, − request",
        "last-chunk-request": "last piece of the response − request",
        "last-token-request": "last token − request",
        "end-request": "end of the response − request",
        "batch-end-start": "end − start of a whole batch of requests",
        "chunk-gap": "the time between two pieces of a response, of any number of tokens",
        "token-or-chunk-gap": "a gap between tokens or between pieces: the tool does not tell",
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
        "load_ms": "what the engine calls its load",
        "prefill_ms": "what the engine took for the prompt",
        "decode_ms": "what the engine took after the prompt",
        "total_ms": "what the engine took in all",
        "embed_us": "what the engine took to look its tokens up",
        "forward_us": "what the engine took in its layers",
        "logits_us": "what the engine took for the logits",
        "sample_us": "what the engine took to choose tokens",
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
"""Formula ids in words; n is the number of tokens that were observed in the sequence."""

ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "time_to_first_token": ("ttft", "first_token_latency", "time_to_first_output_token"),
        "time_per_output_token": ("tpot", "time_per_token", "request_time_per_output_token"),
        "inter_token_latency": ("itl", "intertoken_latency", "inter_token_time"),
        "normalized_time_per_output_token": ("ntpot", "normalized_tpot"),
        "end_to_end_latency": ("e2el", "e2e_latency", "request_latency", "latency"),
        "tokens_per_second": (
            "tps", "tok_s", "tokens_s", "t_s", "throughput", "token_throughput",
            "output_throughput", "output_token_throughput", "output_tokens_per_second",
            "output_tokens_per_sec", "output_token_throughput_per_sec",
        ),
        "decode_tokens_per_second": (
            "decode_throughput", "predicted_per_second", "eval_rate", "generation_tps", "tg",
        ),
        "prefill_tokens_per_second": (
            "prefill_throughput", "prompt_per_second", "prompt_eval_rate", "prompt_tps", "pp",
        ),
    }
)  # fmt: skip
"""Quantity to the further names that tools give it, as ``quantity_of`` sees names."""

_QUANTITIES = {alias: name for name, aliases in ALIASES.items() for alias in aliases}
_UNIT = re.compile(r"_(?:ns|us|ms|s|sec|secs|seconds|milliseconds)$")
_CENTRE = re.compile(r"^(?:mean|median|avg|average|p50)_|_(?:mean|median|avg|average|p50)$")
_OTHER = re.compile(r"^(p\d+|min|max|std|stddev)_|_(p\d+|min|max|std|stddev)$")


@dataclass(frozen=True, slots=True)
class FormulaDifference:
    """Two figures that go by one name, and the ``field`` in which they are not the same."""

    quantity: str
    field: Field
    first: Metric
    second: Metric

    @property
    def code(self) -> str:
        """The code with which a comparison by name is refused."""
        return "E_DIRECTION_DIFFERS" if self.field == "direction" else "E_FORMULA_DIFFERS"

    @property
    def values(self) -> tuple[str, str]:
        """What stands in the field, of the first and of the second."""
        return getattr(self.first, self.field), getattr(self.second, self.field)

    @property
    def message(self) -> str:
        """One sentence that names the quantity and both sides."""
        one, other = self.values
        return (
            f"{self.quantity} is not the same figure on both sides: the {self.field} of "
            f"{self.first.name} is {one}, and of {self.second.name} {other}."
        )


def meaning_of(formula: str) -> str | None:
    """Return a formula id in words, whoever told the figure; None for an unknown one.

    An engine's figure has the id ``SOURCE:FORMULA/median``.
    """
    told = formula.rpartition(":")[2].removesuffix("/median")
    return MEANINGS.get(formula) or MEANINGS.get(told)


def quantity_of(name: str) -> str:
    """Return what a figure called ``name`` is a figure of, the same for every tool's name of it.

    Case, unit and the kind of middle (mean, median) are no part of it: the formula tells them.
    A percentile, an extreme or a spread is: ``p95_itl_ms`` is ``inter_token_latency:p95``.
    """
    # A rate of seconds keeps its unit, which is a part of its name.
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    told = "" if plain in _QUANTITIES or plain in ALIASES else _statistic(plain)
    for pattern in (_OTHER, _CENTRE, _UNIT, _OTHER, _CENTRE):
        if plain not in _QUANTITIES and plain not in ALIASES:
            plain = pattern.sub("", plain)
    return _QUANTITIES.get(plain, plain) + told


def _statistic(plain: str) -> str:
    for name in (plain, _UNIT.sub("", plain)):
        if (found := _OTHER.search(name)) and (kind := found[1] or found[2]) != "p50":
            return f":{kind}"
    return ""


def differing_formulas(a: Sequence[Metric], b: Sequence[Metric]) -> list[FormulaDifference]:
    """Return where figures of ``a`` and ``b`` go by one name and are not the same figure.

    Names are those of ``quantity_of``. A figure agrees where one of the other side has the same
    name, or failing that the same quantity, with equal direction, formula, unit and clock. What
    stands on one side alone differs from nothing.
    """
    return [difference for metric in b for difference in _differences(metric, a)]


def _differences(metric: Metric, others: Sequence[Metric]) -> Iterator[FormulaDifference]:
    quantity = quantity_of(metric.name)
    rivals = [each for each in others if each.name == metric.name]
    rivals = rivals or [each for each in others if quantity_of(each.name) == quantity]
    if not rivals or any(not _fields(each, metric) for each in rivals):
        return
    for field in _fields(rivals[0], metric):
        yield FormulaDifference(quantity, field, rivals[0], metric)


def _fields(one: Metric, other: Metric) -> list[Field]:
    names: tuple[Field, ...] = ("direction", "formula", "unit", "clock")
    return [name for name in names if getattr(one, name) != getattr(other, name)]
