"""Compare two results figure by figure. Nothing is converted from one formula into another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pytest_flamegate.receipt.formulas import FormulaDifference, differing_formulas
from pytest_flamegate.receipt.imports.imported import ImportedMetric
from pytest_flamegate.receipt.types import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.receipt.imports.imported import Name, Statistic, Unit


_P95 = "_p95_ms"
_TOTALS = frozenset({"tokens/total", "decode-tokens/decode-time"})


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
    """The comparable figures, those of one name and different formulas, and the rest.

    ``alone`` names the figures that only one side has, with their statistic.
    """

    pairs: tuple[FigurePair, ...]
    differing: tuple[FormulaDifference, ...]
    alone: tuple[str, ...]


def compare_results(
    before: Sequence[ImportedMetric], after: Sequence[ImportedMetric]
) -> ImportComparison:
    """Compare the figures of two results."""
    pairs = tuple(FigurePair(a, b) for b in after for a in before if _identity(a) == _identity(b))
    differing: dict[tuple[str, ...], FormulaDifference] = {}
    for statistic in dict.fromkeys(each.statistic for each in before):
        sides = (_with_statistic(before, statistic), _with_statistic(after, statistic))
        for found in differing_formulas(*sides):
            differing.setdefault((found.quantity, found.field, *found.values), found)
    paired = {id(each) for pair in pairs for each in (pair.before, pair.after)}
    alone = dict.fromkeys(
        f"{each.name} ({each.statistic})" for each in (*before, *after) if id(each) not in paired
    )
    return ImportComparison(pairs, tuple(differing.values()), tuple(alone))


def convert_metrics(metrics: Sequence[Metric]) -> tuple[ImportedMetric, ...]:
    """Return the wall-clock figures of flamegate's own evidence in the form of imported ones.

    They are medians, except for the rate of all tokens over all time.
    """
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
