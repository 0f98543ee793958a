"""Read the JSON of a foreign result: its documents, and the fields that become figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.core.json import Limits, parse_json
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

MAX_BYTES = 64 << 20
"""A report that lists every request of a long run has some ten million bytes."""
MAX_RESULTS = 1000
MAX_TEXT = 200
"""Characters of a setting or a name that are stored."""
MAX_COUNT = 1 << 53
"""A larger number may not be the one that was written, once it is read."""


def malformed_error(problem: str) -> ReceiptError:
    """Return the error for a file that is not as its tool writes it."""
    return ReceiptError(
        "E_IMPORT_MALFORMED",
        f"The result file is malformed: {problem}.",
        "Give the file as the tool wrote it, or export it again.",
    )


def no_results_error(problem: str, remedy: str) -> Exception:
    """Return the error for a file without any figure."""
    return UndecidedError("E_NO_RESULTS", f"The file has no result: {problem}.", remedy)


def read_documents(data: bytes) -> list[Mapping[str, object]]:
    """Return the objects in ``data``: the entries of a list, one object, or one a line.

    Raises:
        ReceiptError: ``E_TOO_LARGE``, ``E_IMPORT_MALFORMED``, or ``E_JSON_...`` if it is no
            strict JSON.
    """
    if len(data) > MAX_BYTES:
        raise _too_large_error(
            f"The result file has {len(data):,} bytes; at most {MAX_BYTES:,} are allowed.",
            "Export it without the single requests.",
        )
    limits = Limits(len(data))
    try:
        whole = parse_json(data, limits, subject="The result file")
        found = whole if isinstance(whole, list) else [whole]
    except ReceiptError as error:
        lines = [line for line in data.splitlines() if line.strip()]
        if error.code != "E_JSON_SYNTAX" or len(lines) < 2 or not _is_json(lines[0], limits):
            raise
        found = [parse_json(line, limits, subject="A line of the file") for line in lines]
    if len(found) > MAX_RESULTS:
        raise _too_large_error(
            f"The file has more than {MAX_RESULTS:,} results.", "Split it into several files."
        )
    return [require_object(each, "a result") for each in found]


def _too_large_error(problem: str, remedy: str) -> ReceiptError:
    return ReceiptError("E_TOO_LARGE", problem, remedy)


def _is_json(line: bytes, limits: Limits) -> bool:
    try:
        parse_json(line, limits)
    except ReceiptError:
        return False
    return True


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
    """The fields of a format that are figures. ``{}`` in a path stands for a figure's ``field``.

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


@dataclass(slots=True)
class Collector:
    """Collects the figures of one result of ``tool``.

    ``prefix`` is the path of the object that figures are read from, for their ``field``.
    """

    tool: str
    prefix: str = ""
    metrics: list[ImportedMetric] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def add_table(
        self, table: FieldTable, document: Mapping[str, object], requests: int | None = None
    ) -> None:
        """Add all figures of ``table`` that ``document`` states; ``requests`` succeeded."""
        for figure in table.times:
            samples = requests if figure.counted else None
            if table.samples:
                path = table.samples.format(figure.field)
                samples = read_count(find(document, path), path)
            spread = find(document, table.spread.format(figure.field)) if table.spread else None
            for statistic, template in table.statistics.items():
                path = template.format(figure.field)
                stddev = spread if statistic == "mean" else None
                self.add(figure, statistic, find(document, path), path, samples, stddev)
        for figure in table.rates:
            path = table.rate.format(figure.field)
            samples = requests if figure.counted else None
            self.add(figure, "total", find(document, path), path, samples)

    def add(
        self,
        figure: Figure,
        statistic: Statistic,
        value: object,
        path: str,
        samples: int | None,
        stddev: object = None,
    ) -> None:
        """Add one figure; None is a figure that the file does not state.

        Zero is left out with a reason, because neither a time nor a rate of zero was measured.
        ReceiptError ``E_IMPORT_MALFORMED`` for a value that is no finite number from 0 on.
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
        if math.inf in scaled:
            raise malformed_error(f"{quote(field)} is out of range")
        self.metrics.append(
            ImportedMetric(
                figure.name,
                scaled[0] or 0.0,
                *unit_of(figure.name),
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
    """Return a finite number from 0 on; None if it is not stated."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise malformed_error(f"{quote(field)} must be a number, and is {quote(value)}")
    try:
        number = float(value)
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
    return {
        name: value[:MAX_TEXT] if isinstance(value, str) else value
        for name in names
        if isinstance(value := found.get(name), (str, bool, int, float))
    }


def text_or_empty(value: object) -> str:
    """Return ``value`` if it is text, else an empty string."""
    return value if isinstance(value, str) else ""


def unique_names(names: Sequence[str]) -> list[str]:
    """Return ``names``, with ``-2``, ``-3`` ... after those that occurred before."""
    counts: dict[str, int] = {}
    # A name may end in a number itself.
    taken = set(names)
    found = []
    for name in names:
        count = counts.get(name, 0) + 1
        given = name
        while count > 1 and given in taken:
            given = f"{name}-{count}"
            count += given in taken
        counts[name] = count
        taken.add(given)
        found.append(given)
    return found
