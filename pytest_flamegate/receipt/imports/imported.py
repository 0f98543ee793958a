"""``imported.json``: one result of another benchmark tool, and the comparison of two results.

It cannot be taken for a receipt: ``kind`` says what it is, and its grade is SELF_REPORTED whatever
other files it has next to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, cast

from msgspec import Meta

from pytest_flamegate.core.json import Count, NonEmpty, Sha256, Timestamp, decode_json, encode_json
from pytest_flamegate.core.json_parser import RECEIPT_LIMITS
from pytest_flamegate.receipt.metrics import FormulaDifference, differing_formulas
from pytest_flamegate.receipt.types import SCHEMA_VERSION, Direction, Metric

KIND: Final = "imported"
_P95 = "_p95_ms"
_TOTALS = frozenset({"tokens/total", "decode-tokens/decode-time"})

Statistic = Literal["mean", "median", "p90", "p95", "p99", "total"]
"""Of the values of all requests or repetitions; ``total`` is one ratio over the whole run."""
Setting = str | int | float | bool
Name = Literal[
    "time_to_first_token_ms",
    "time_per_output_token_ms",
    "inter_token_latency_ms",
    "inter_chunk_latency_ms",
    "normalized_time_per_output_token_ms",
    "request_latency_ms",
    "batch_latency_ms",
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
    "output_tokens_per_second",
    "output_tokens_per_second_per_user",
    "total_tokens_per_second",
    "requests_per_second",
]
"""The names of imported figures. Their ending gives unit and direction, see ``unit_of``."""
Unit = Literal["ms", "tokens/s", "requests/s"]


def unit_of(name: Name) -> tuple[Unit, Direction]:
    """Return the unit of a figure, and which direction is better."""
    if name.endswith("_ms"):
        return "ms", "lower_is_better"
    return "requests/s" if name.startswith("requests") else "tokens/s", "higher_is_better"


LEAST_VALUE, MOST_VALUE = 1e-18, 1e18
"""So that the ratio of any two is a number."""


@dataclass(frozen=True, slots=True)
class ImportedMetric:
    """One figure in flamegate's unit, with the formula that its tool uses.

    ``field`` is the path of the figure in the tool's file. ``samples`` counts the requests, tokens
    or repetitions behind it, and ``stddev`` is their standard deviation in the same unit; both
    are None if the file does not state them.
    """

    name: Name
    value: Annotated[float, Meta(ge=LEAST_VALUE, le=MOST_VALUE)]
    unit: Unit
    direction: Direction
    formula: NonEmpty
    statistic: Statistic
    field: NonEmpty
    samples: Count | None
    stddev: Annotated[float, Meta(ge=0)] | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A figure of the file that was not imported, and why."""

    field: NonEmpty
    reason: NonEmpty


@dataclass(frozen=True, slots=True)
class Imported:
    """One result of another tool; a file may contain many.

    ``result`` is its name within the file. ``tool_version`` and ``model`` are empty if the file
    does not state them. ``settings`` are those that the tool reports, in its own words.
    """

    result: NonEmpty
    tool: NonEmpty
    tool_version: str
    model: str
    settings: Mapping[str, Setting]
    metrics: Annotated[tuple[ImportedMetric, ...], Meta(min_length=1)]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportSource:
    """The file that a result was read from: name, format, digest, and when it was imported."""

    file: NonEmpty
    format: NonEmpty
    sha256: Sha256
    imported: Timestamp


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The content of ``imported.json``."""

    kind: Literal["imported"]
    schema_version: str
    grade: Literal["SELF_REPORTED"]
    source: ImportSource
    result: Imported


def encode_imported(result: Imported, source: ImportSource) -> bytes:
    """Return the bytes of ``imported.json``."""
    return encode_json(ImportedFile(KIND, SCHEMA_VERSION, "SELF_REPORTED", source, result))


def decode_imported(data: bytes) -> tuple[Imported, ImportSource]:
    """Return the result and the source in ``imported.json``; ReceiptError if it is malformed."""
    found = decode_json(
        data, ImportedFile, RECEIPT_LIMITS, subject="The imported result", code="E_IMPORT_MALFORMED"
    )
    return found.result, found.source


def is_imported(document: object) -> bool:
    """Whether a parsed document is an imported result, or claims to be one."""
    return isinstance(document, dict) and document.get("kind") == KIND


@dataclass(frozen=True, slots=True)
class FigurePair:
    """One figure on both sides: equal name, formula, statistic, unit and direction."""

    before: ImportedMetric
    after: ImportedMetric

    @property
    def change_pct(self) -> float:
        """The change from ``before`` to ``after`` in percent."""
        return 100.0 * (self.after.value / self.before.value - 1.0)

    @property
    def better(self) -> bool | None:
        """Whether the change is an improvement; None if there is no change."""
        if self.after.value == self.before.value:
            return None
        more = self.after.value > self.before.value
        return more == (self.after.direction == "higher_is_better")


@dataclass(frozen=True, slots=True)
class ImportComparison:
    """The comparable figures, those of other formulas, and ``alone`` those of one side."""

    pairs: tuple[FigurePair, ...]
    differing: tuple[FormulaDifference, ...]
    alone: tuple[str, ...]


def compare_results(
    before: Sequence[ImportedMetric], after: Sequence[ImportedMetric]
) -> ImportComparison:
    """Compare two results figure by figure. Nothing is converted into another formula."""
    pairs = tuple(FigurePair(a, b) for b in after for a in before if _identity(a) == _identity(b))
    differing: dict[tuple[str, ...], FormulaDifference] = {}
    for statistic in dict.fromkeys(each.statistic for each in before):
        for found in differing_formulas(*(_with_statistic(e, statistic) for e in (before, after))):
            differing.setdefault((found.quantity, found.field, *found.values), found)
    paired = {id(each) for pair in pairs for each in (pair.before, pair.after)}
    alone = dict.fromkeys(
        f"{each.name} ({each.statistic})" for each in (*before, *after) if id(each) not in paired
    )
    return ImportComparison(pairs, tuple(differing.values()), tuple(alone))


def convert_metrics(metrics: Sequence[Metric]) -> tuple[ImportedMetric, ...]:
    """Return the wall-clock figures of flamegate's own evidence in the form of imported ones."""
    return tuple(_convert(each) for each in metrics if each.clock == "wall" and each.value > 0)


def _convert(metric: Metric) -> ImportedMetric:
    name, formula = metric.name, metric.formula
    statistic: Statistic = "total" if formula in _TOTALS else "median"
    if name.endswith(_P95):
        name = name.removesuffix(_P95) + "_ms"
        formula, statistic = formula.removesuffix("-p95"), "p95"
    return ImportedMetric(
        # Evidence has names and units of its own too; figures are paired by equal ones only.
        name=cast("Name", name),
        value=metric.value,
        unit=cast("Unit", metric.unit),
        direction=metric.direction,
        formula=formula,
        statistic=statistic,
        field=metric.name,
        samples=metric.samples,
    )


def _identity(metric: ImportedMetric) -> tuple[str, ...]:
    return metric.name, metric.statistic, metric.formula, metric.unit, metric.direction


def _with_statistic(metrics: Sequence[ImportedMetric], statistic: Statistic) -> list[Metric]:
    """Return the figures of one ``statistic`` in the form in which formulas are compared."""
    return [
        Metric(e.name, e.value, e.formula, e.unit, e.direction, "wall", e.samples or 0, "ingested")
        for e in metrics
        if e.statistic == statistic
    ]
