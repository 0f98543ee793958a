"""The meaning of formulas, and figures of one name whose formulas differ.

One name has different formulas: one tool's ITL is the mean gap of a request, another's is each gap
by itself. Two figures are comparable by name only if formula, unit, clock and direction are equal.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pytest_flamegate.receipt.types import Metric

Field = Literal["direction", "formula", "unit", "clock"]

MEANINGS: Mapping[str, str] = MappingProxyType(
    tomllib.loads(Path(__file__).with_name("formulas.toml").read_text("utf-8"))
)
"""Each formula id in words."""

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
    found = []
    for metric in b:
        quantity = quantity_of(metric.name)
        rivals = [each for each in a if quantity_of(each.name) == quantity]
        if rivals and all(_fields(each, metric) for each in rivals):
            found += [
                FormulaDifference(quantity, field, rivals[0], metric)
                for field in _fields(rivals[0], metric)
            ]
    return found


def _fields(one: Metric, other: Metric) -> list[Field]:
    names: tuple[Field, ...] = ("direction", "formula", "unit", "clock")
    return [name for name in names if getattr(one, name) != getattr(other, name)]
