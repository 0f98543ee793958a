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
    """The ``field`` in which two figures of one quantity differ, its values and their names."""

    quantity: str
    field: Field
    names: tuple[str, str]
    values: tuple[str, str]

    @property
    def code(self) -> str:
        """The code of the error for comparing them."""
        return "E_DIRECTION_DIFFERS" if self.field == "direction" else "E_FORMULA_DIFFERS"

    @property
    def message(self) -> str:
        """One sentence that names the quantity and both sides."""
        (name, other_name), (value, other_value) = self.names, self.values
        return (
            f"{self.quantity} is not the same figure on both sides: the {self.field} of "
            f"{name} is {value}, that of {other_name} is {other_value}."
        )


def meaning_of(formula: str) -> str | None:
    """Return a formula id (of an engine: ``SOURCE:FORMULA/median``) in words; None if unknown."""
    reported = formula.rpartition(":")[2].removesuffix("/median")
    return MEANINGS.get(formula) or MEANINGS.get(reported)


def _quantity(name: str) -> str:
    """Return the quantity that a figure called ``name`` measures, without the unit of a time."""
    return _SAME_QUANTITY.get(name, name).removesuffix("_ms")


def differing_formulas(a: Sequence[Metric], b: Sequence[Metric]) -> list[FormulaDifference]:
    """Return each figure of ``b`` that has a namesake in ``a`` but is another figure.

    A figure agrees if one of the same quantity has equal direction, formula, unit and clock. A
    figure without a namesake differs from nothing.
    """
    found = []
    for metric in b:
        quantity = _quantity(metric.name)
        rivals = [each for each in a if _quantity(each.name) == quantity]
        if rivals and all(_differing(each, metric) for each in rivals):
            names = (rivals[0].name, metric.name)
            found += [
                FormulaDifference(quantity, field, names, values)
                for field, values in _differing(rivals[0], metric).items()
            ]
    return found


def _differing(one: Metric, other: Metric) -> dict[Field, tuple[str, str]]:
    names: tuple[Field, ...] = ("direction", "formula", "unit", "clock")
    values = {name: (getattr(one, name), getattr(other, name)) for name in names}
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}
