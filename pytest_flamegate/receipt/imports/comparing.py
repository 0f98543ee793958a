"""Two sets of figures side by side: what is the same figure is compared, the rest is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.formulas import FormulaDifference, differing_formulas
from pytest_flamegate.receipt.imports.types import ImportedMetric
from pytest_flamegate.receipt.types import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.receipt.imports.types import Statistic

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
