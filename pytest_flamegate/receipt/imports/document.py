"""``imported.json``: a foreign result as we keep it, with where it came from.

It is no receipt and cannot be taken for one: ``kind`` says what it is, ``grade`` how far it may
be believed, whatever stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_flamegate.core import json_old, schema
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json_old import from_plain, to_plain
from pytest_flamegate.receipt.formulas import FormulaDifference, differing_formulas
from pytest_flamegate.receipt.imports import (
    aiperf,
    guidellm,
    inference_perf,
    llama_bench,
    vllm_bench,
)
from pytest_flamegate.receipt.imports.reading import ImportedMetric
from pytest_flamegate.receipt.types import SCHEMA_VERSION, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final

    from pytest_flamegate.receipt.imports.reading import Imported, Statistic


_P95 = "_p95_ms"
_TOTALS = frozenset({"tokens/total", "decode-tokens/decode-time"})


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure on both sides: the same name, formula, statistic, unit and direction."""

    before: ImportedMetric
    after: ImportedMetric

    @property
    def change_pct(self) -> float:
        """How much more the second one is, in percent of the first."""
        return 100.0 * (self.after.value / self.before.value - 1.0)

    @property
    def better(self) -> bool | None:
        """Whether the change is to the better; None without one."""
        if self.after.value == self.before.value:
            return None
        more = self.after.value > self.before.value
        return more == (self.after.direction == "higher_is_better")


@dataclass(frozen=True, slots=True)
class Compared:
    """What could be compared, what goes by one name and is another figure, and the rest.

    ``alone`` names the figures, with their statistic, that stand on one side only.
    """

    pairs: tuple[Pair, ...]
    differing: tuple[FormulaDifference, ...]
    alone: tuple[str, ...]


def compare(before: Sequence[ImportedMetric], after: Sequence[ImportedMetric]) -> Compared:
    """Compare two results figure by figure; nothing is converted into another formula."""
    pairs = tuple(Pair(a, b) for b in after for a in before if _same(a, b))
    differing: dict[tuple[str, ...], FormulaDifference] = {}
    for statistic in dict.fromkeys(each.statistic for each in before):
        for found in differing_formulas(_plain(before, statistic), _plain(after, statistic)):
            key = (found.quantity, found.field, *found.values)
            differing.setdefault(key, found)
    together = {id(each) for pair in pairs for each in (pair.before, pair.after)}
    alone = dict.fromkeys(
        f"{each.name} ({each.statistic})"
        for side in (before, after)
        for each in side
        if id(each) not in together
    )
    return Compared(pairs, tuple(differing.values()), tuple(alone))


def seen_figures(metrics: Sequence[Metric]) -> tuple[ImportedMetric, ...]:
    """Return figures of our own evidence as foreign ones are: those of the wall clock.

    Ours are medians, but for the rate of all tokens over all time.
    """
    return tuple(_seen(each) for each in metrics if each.clock == "wall" and each.value > 0)


def _seen(metric: Metric) -> ImportedMetric:
    name, formula = metric.name, metric.formula
    statistic: Statistic = "total" if formula in _TOTALS else "median"
    if name.endswith(_P95):
        name = name.removesuffix(_P95) + "_ms"
        formula, statistic = formula.removesuffix("-p95"), "p95"
    return ImportedMetric(
        name=name,
        value=metric.value,
        unit=metric.unit,
        direction=metric.direction,
        formula=formula,
        statistic=statistic,
        field=metric.name,
        samples=metric.samples,
    )


def _same(one: ImportedMetric, other: ImportedMetric) -> bool:
    return _identity(one) == _identity(other)


def _identity(metric: ImportedMetric) -> tuple[str, ...]:
    return metric.name, metric.statistic, metric.formula, metric.unit, metric.direction


def _plain(metrics: Sequence[ImportedMetric], statistic: str) -> list[Metric]:
    """Return those of one ``statistic`` in the form in which formulas are compared."""
    return [
        Metric(
            name=each.name,
            value=each.value,
            formula=each.formula,
            unit=each.unit,
            direction=each.direction,
            clock="wall",
            samples=each.samples or 0,
            provenance="ingested",
        )
        for each in metrics
        if each.statistic == statistic
    ]


KIND: Final = "imported"


@dataclass(frozen=True, slots=True)
class Source:
    """The file that a result was read from: its name, format and digest, and when it was read."""

    file: str
    format: str
    sha256: str
    imported: str


@dataclass(frozen=True, slots=True)
class _Document:
    kind: Literal["imported"]
    schema_version: str
    grade: Literal["SELF_REPORTED"]
    source: Source
    result: Imported


def encode_imported(result: Imported, source: Source) -> bytes:
    """Return the bytes of ``imported.json``."""
    whole = _Document(KIND, SCHEMA_VERSION, "SELF_REPORTED", source, result)
    return json_old.dumps(to_plain(whole))


def decode_imported(data: bytes) -> tuple[Imported, Source]:
    """Return what ``imported.json`` holds; ReceiptError where it is malformed."""
    document = json_old.loads(data)
    for refusal in schema.validate(document, KIND):
        raise ReceiptError(refusal.code, refusal.message, refusal.remedy)
    found = from_plain(_Document, document)
    return found.result, found.source


def is_imported(document: object) -> bool:
    """Whether a document is a foreign result, or says that it is."""
    return isinstance(document, dict) and document.get("kind") == KIND


class Format(NamedTuple):
    """A format: whether bytes are of it, and how its results are read."""

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[bytes], tuple[Imported, ...]]


FORMATS = (
    Format("llama-bench-json", llama_bench.recognises_json, llama_bench.read_json),
    Format("guidellm-json", guidellm.recognises, guidellm.read),
    Format("inference-perf-json", inference_perf.recognises, inference_perf.read),
    Format("aiperf-json", aiperf.recognises_json, aiperf.read_json),
    Format("vllm-serve-json", vllm_bench.recognises_serve, vllm_bench.read_serve),
    Format("vllm-latency-json", vllm_bench.recognises_latency, vllm_bench.read_latency),
    Format("vllm-throughput-json", vllm_bench.recognises_throughput, vllm_bench.read_throughput),
    Format("llama-bench-csv", llama_bench.recognises_csv, llama_bench.read_csv),
    Format("aiperf-csv", aiperf.recognises_csv, aiperf.read_csv),
    Format("llama-bench-markdown", llama_bench.recognises_markdown, llama_bench.read_markdown),
    Format("guidellm-other", guidellm.recognises_other_form, guidellm.refuse_other_form),
)


def format_of(data: bytes) -> Format | None:
    """Return the format of ``data``; None for what is none of them."""
    return next((each for each in FORMATS if each.recognises(data)), None)
