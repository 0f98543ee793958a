"""Which field of a foreign file is which figure: tables, and the code that applies them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt.imports.imported import (
    Imported,
    ImportedMetric,
    LeftOut,
    Name,
    Setting,
    Statistic,
    unit_of,
)
from pytest_flamegate.receipt.imports.reading import malformed_error, no_results_error

MAX_TEXT = 200
"""Characters of a setting or a name that are stored."""
MAX_COUNT = 1 << 53
"""A larger number may not be the one that was written, once it is read."""
_NUMBER = re.compile(
    r"[+-]?(?:\d{1,20}|\d{1,3}(?:,\d{3}){1,6})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?"
)
_NOT_STATED = frozenset({"", "N/A", "n/a", "-"})


class Figure(NamedTuple):
    """One figure of a foreign file.

    ``field`` is its name there, and ``formula`` the tool's computation of it. ``scale``
    converts it into flamegate's unit. ``counted`` says that it is a figure of all requests, so
    that their number is the number of its samples.
    """

    field: str
    name: Name
    formula: str
    scale: float = 1.0
    counted: bool = False


class FieldTable(NamedTuple):
    """Where a format keeps its figures. ``{}`` in a path stands for the figure's ``field``.

    Attributes:
        times: figures with a distribution over requests or tokens.
        rates: figures that are one ratio over the whole run.
        statistics: the path of each statistic of a time.
        rate: the path of a rate.
        spread: the path of the standard deviation of a time; empty if there is none.
        samples: the path of the number of samples of a time; empty if there is none.
    """

    times: tuple[Figure, ...]
    rates: tuple[Figure, ...]
    statistics: Mapping[Statistic, str]
    rate: str = "{}"
    spread: str = ""
    samples: str = ""


def make_rates(output: str, total: str, requests: str, *, counted: bool) -> tuple[Figure, ...]:
    """Return the three rates that serving benchmarks have, by the names of their fields."""
    return (
        Figure(output, "output_tokens_per_second", "output-tokens/duration", 1.0, counted),
        Figure(
            total, "total_tokens_per_second", "(input-tokens+output-tokens)/duration", 1.0, counted
        ),
        Figure(requests, "requests_per_second", "requests/duration", 1.0, counted),
    )


class Collector:
    """Collects the figures of one result.

    Args:
        tool: the name of the tool.
        prefix: the path of the object that figures are read from, for their ``field``.
    """

    def __init__(self, tool: str, prefix: str = "") -> None:
        self.tool = tool
        self.prefix = prefix
        self.metrics: list[ImportedMetric] = []
        self.left_out: list[LeftOut] = []

    def add_table(
        self, table: FieldTable, document: Mapping[str, object], requests: int | None = None
    ) -> None:
        """Add all figures of ``table`` that ``document`` states; ``requests`` succeeded."""
        for figure in table.times:
            samples = requests if figure.counted else None
            if table.samples:
                path = table.samples.format(figure.field)
                samples = read_count(find(document, path), path)
            for statistic, template in table.statistics.items():
                mean = statistic == "mean" and table.spread
                self.add(
                    figure,
                    statistic,
                    find(document, template.format(figure.field)),
                    template.format(figure.field),
                    samples=samples,
                    stddev=find(document, table.spread.format(figure.field)) if mean else None,
                )
        for figure in table.rates:
            path = table.rate.format(figure.field)
            samples = requests if figure.counted else None
            self.add(figure, "total", find(document, path), path, samples=samples)

    def add(
        self,
        figure: Figure,
        statistic: Statistic,
        value: object,
        path: str,
        *,
        samples: int | None = None,
        stddev: object = None,
    ) -> None:
        """Add one figure; None is a figure that the file does not state.

        Zero is left out with a reason, because neither a time nor a rate of zero was measured.

        Raises:
            ReceiptError: ``E_IMPORT_MALFORMED`` if the value is not a finite number from 0 on.
        """
        field = self.prefix + path
        found = read_number(value, field)
        if found is None:
            return
        if found == 0:
            self.left_out.append(LeftOut(field, "it is 0, so nothing was measured"))
            return
        spread = read_number(stddev, f"the spread of {field}")
        scaled = [None if each is None else each * figure.scale for each in (found, spread)]
        if not all(each is None or math.isfinite(each) for each in scaled):
            raise malformed_error(f"{quote(field)} is out of range")
        unit, direction = unit_of(figure.name)
        self.metrics.append(
            ImportedMetric(
                name=figure.name,
                value=scaled[0] or 0.0,
                unit=unit,
                direction=direction,
                formula=figure.formula,
                statistic=statistic,
                field=field,
                samples=samples,
                stddev=scaled[1],
            )
        )

    def finish(
        self,
        result: str,
        *,
        version: str = "",
        model: str = "",
        settings: Mapping[str, Setting] | None = None,
    ) -> Imported:
        """Return the result; UndecidedError ``E_NO_RESULTS`` if it has no figure."""
        if not self.metrics:
            raise no_results_error(
                f"{quote(result)} of {self.tool} has no figure that can be compared",
                "Run the benchmark again, with streaming on, so that requests succeed.",
            )
        return Imported(
            result=result,
            tool=self.tool,
            tool_version=version[:MAX_TEXT],
            model=model[:MAX_TEXT],
            settings=settings or {},
            metrics=tuple(self.metrics),
            left_out=tuple(self.left_out),
        )


def find(document: object, path: str) -> object:
    """Return the value at ``path``, names with dots between them; None if it is not stated."""
    at = ""
    for name in path.split("."):
        if document is None:
            return None
        document = require_object(document, at or "the result").get(name)
        at = f"{at}.{name}".removeprefix(".")
    return document


def find_object(document: object, path: str) -> Mapping[str, object]:
    """Return the object at ``path``; empty if it is not stated, or if it is something else."""
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def require_object(value: object, field: str) -> Mapping[str, object]:
    """Return ``value`` if it is an object; ReceiptError ``E_IMPORT_MALFORMED`` if not."""
    if not isinstance(value, dict):
        raise malformed_error(f"{field} must be an object, and is {quote(value)}")
    return value


def read_number(value: object, field: str) -> float | None:
    """Return a finite number from 0 on; None if it is not stated.

    Text is read as a decimal number, with or without commas between thousands.
    """
    found: object = value
    if isinstance(value, str):
        text = value.strip()
        if text in _NOT_STATED:
            return None
        found = float(text.replace(",", "")) if _NUMBER.fullmatch(text) else None
    elif value is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise malformed_error(f"{quote(field)} must be a number, and is {quote(value)}")
    try:
        number = float(found)
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise malformed_error(f"{quote(field)} must be finite and not negative: {quote(value)}")
    return number


def read_count(value: object, field: str) -> int | None:
    """Return a whole number below 2^53; None if it is not stated."""
    found = read_number(value, field)
    if found is not None and (found >= MAX_COUNT or found != int(found)):
        raise malformed_error(f"{quote(field)} must be a whole number, and is {quote(value)}")
    return None if found is None else int(found)


def read_requests(value: object, field: str) -> int | None:
    """Return the number of successful requests; UndecidedError ``E_NO_RESULTS`` if it is 0."""
    found = read_count(value, field)
    if found == 0:
        raise no_results_error(
            f"no request succeeded ({field} is 0)",
            "Read the server's answers, and run the benchmark again.",
        )
    return found


def read_settings(found: Mapping[str, object], names: Iterable[str]) -> dict[str, Setting]:
    """Return those of ``names`` that are text, numbers or booleans in ``found``."""
    settings: dict[str, Setting] = {}
    for name in names:
        value = found.get(name)
        if isinstance(value, str):
            settings[name] = value[:MAX_TEXT]
        elif isinstance(value, (bool, int, float)):
            settings[name] = value
    return settings


def text_or_empty(value: object) -> str:
    """Return ``value`` if it is text, else an empty string."""
    return value if isinstance(value, str) else ""
