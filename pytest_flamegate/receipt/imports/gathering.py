"""Figures as they come out of a foreign file: checked one by one, and refused by name."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NoReturn

from pytest_flamegate.errors import ReceiptError, UndecidedError
from pytest_flamegate.receipt.findings import shown
from pytest_flamegate.receipt.imports.types import NAMES, Imported, ImportedMetric, LeftOut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_flamegate.receipt.imports.types import Setting, Statistic

MAX_TEXT = 200
"""Characters of a setting or a name that are kept."""
MOST = 1 << 53
"""Of whatever is counted: from here on a number as it is read may not be the one written."""
_NUMBER = re.compile(
    r"[+-]?(?:\d{1,20}|\d{1,3}(?:,\d{3}){1,6})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?"
)
_NOT_TOLD = frozenset({"", "N/A", "n/a", "-"})
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


class Gatherer:
    """Collects the figures of one result of ``tool``, whose field names start with ``prefix``."""

    def __init__(self, tool: str, prefix: str = "") -> None:
        self.tool = tool
        self.prefix = prefix
        self.metrics: list[ImportedMetric] = []
        self.left_out: list[LeftOut] = []

    def add(
        self,
        name: str,
        value: object,
        formula: str,
        statistic: Statistic,
        field: str,
        *,
        scale: float = 1.0,
        samples: int | None = None,
        stddev: object = None,
    ) -> None:
        """Take one figure, times ``scale``; None is one that the tool does not tell.

        A nought is left out with its reason: no time is none, and no rate was measured. Raises
        ReceiptError ``E_NOT_FINITE``, ``E_NEGATIVE`` or ``E_IMPORT_FIELD`` for what is no figure.
        """
        place = self.prefix + field
        found = number(value, self.tool, place)
        if found is None:
            return
        if found == 0:
            self.left_out.append(LeftOut(place, "it is 0, so nothing was measured"))
            return
        spread_of = f"the spread of {place}"
        spread = number(stddev, self.tool, spread_of)
        scaled = found * scale
        if not math.isfinite(scaled):
            _refuse_not_finite(self.tool, place, value)
        if spread is not None and not math.isfinite(spread * scale):
            _refuse_not_finite(self.tool, spread_of, stddev)
        unit, direction = NAMES[name]
        self.metrics.append(
            ImportedMetric(
                name=name,
                value=scaled,
                unit=unit,
                direction=direction,
                formula=formula,
                statistic=statistic,
                field=place,
                samples=samples,
                stddev=None if spread is None else spread * scale,
            )
        )

    def imported(
        self, result: str, *, version: str, model: str, settings: Mapping[str, Setting]
    ) -> Imported:
        """Return the result; UndecidedError ``E_NO_FIGURES`` where it holds no figure at all."""
        if not self.metrics:
            raise UndecidedError(
                "E_NO_FIGURES",
                f"The result {shown(result)} of {self.tool} holds no figure that can be compared.",
                "Run the benchmark again, with requests that succeed and streaming switched on.",
            )
        return Imported(
            result=result,
            tool=self.tool,
            tool_version=version[:MAX_TEXT],
            model=model[:MAX_TEXT],
            settings=settings,
            metrics=tuple(self.metrics),
            left_out=tuple(self.left_out),
        )


def number(value: object, tool: str, field: str) -> float | None:
    """Return the finite figure of 0 or more that ``value`` is, None where none is told.

    Text is read as a decimal number, thousands separated by commas or not at all.
    """
    if isinstance(value, str):
        text = value.strip()
        if text in _NOT_TOLD:
            return None
        if _NOT_FINITE.fullmatch(text):
            _refuse_not_finite(tool, field, value)
        if not _NUMBER.fullmatch(text):
            raise malformed(tool, f"{field} must be a number, and is {shown(value)}.")
        found = float(text.replace(",", ""))
    elif value is None:
        return None
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise malformed(tool, f"{field} must be a number, and is {shown(value)}.")
    else:
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
    if not math.isfinite(found):
        _refuse_not_finite(tool, field, value)
    if found < 0:
        raise ReceiptError(
            "E_NEGATIVE",
            f"{tool}'s {shown(field)} is {shown(value)}, and no time, rate or count is negative.",
            "Run the benchmark again, with the clock of one machine.",
        )
    return found


def whole(value: object, tool: str, field: str) -> int | None:
    """Return the whole number below ``MOST`` that ``value`` is, None where none is told."""
    found = number(value, tool, field)
    if found is None:
        return None
    if found >= MOST or found != int(found):
        raise malformed(
            tool, f"{field} must be a whole number below {MOST:,}, and is {shown(value)}."
        )
    return int(found)


def requests(value: object, tool: str, field: str) -> int | None:
    """Return how many requests succeeded; UndecidedError ``E_NO_REQUESTS`` where none did."""
    found = whole(value, tool, field)
    if found == 0:
        raise UndecidedError(
            "E_NO_REQUESTS",
            f"{tool} says that no request succeeded ({field} is 0).",
            "See what the server answered, and run the benchmark again.",
        )
    return found


def settings_of(found: Mapping[str, object], names: Iterable[str]) -> dict[str, Setting]:
    """Return those of ``names`` that ``found`` tells as text, a number or yes and no."""
    kept: dict[str, Setting] = {}
    for name in names:
        value = found.get(name)
        if isinstance(value, str):
            kept[name] = value[:MAX_TEXT]
        elif isinstance(value, (bool, int, float)):
            kept[name] = value
    return kept


def text(value: object) -> str:
    """Return ``value`` where it is text, else nothing."""
    return value if isinstance(value, str) else ""


def object_in(value: object, tool: str, field: str) -> Mapping[str, object]:
    """Return the object that ``value`` is; ReceiptError ``E_IMPORT_FIELD`` for another thing."""
    if not isinstance(value, dict):
        raise malformed(tool, f"{field} must be an object, and is {shown(value)}.")
    return value


def malformed(tool: str, complaint: str) -> ReceiptError:
    """Return the refusal of a file that is not as ``tool`` writes it."""
    return ReceiptError(
        "E_IMPORT_FIELD",
        f"The file is not as {tool} writes it: {complaint}",
        "Give the file as the tool wrote it, or export it again.",
    )


def _refuse_not_finite(tool: str, field: str, value: object) -> NoReturn:
    told = shown(value) if isinstance(value, str) else "out of range"
    raise ReceiptError(
        "E_NOT_FINITE",
        f"{tool}'s {shown(field)} is {told}, and no figure.",
        "Run the benchmark again, with requests of more than one token.",
    )
