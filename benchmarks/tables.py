"""Tables as aligned text, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """A title, the names of the columns, and the cells of each row; the first column is words."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def as_text(table: Table) -> str:
    """Return the table with its columns aligned."""
    lines = [table.head, *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join([table.title, "", *(_aligned(line, widths) for line in lines)])


def as_markdown(table: Table) -> str:
    """Return the table in Markdown, numbers to the right."""
    rule = ["---", *["---:"] * (len(table.head) - 1)]
    lines = [f"| {' | '.join(line)} |" for line in (table.head, rule, *table.rows)]
    return "\n".join([f"### {table.title}", "", *lines])


def bullets(lines: Sequence[str]) -> str:
    """Return lines as a list that reads well both ways."""
    return "\n".join(f"- {line}" for line in lines)


def percent(rate: float) -> str:
    """Return a share (0 to 1) in percent: ``0``, ``0.3``, ``12.5``, ``100``."""
    return f"{100.0 * rate:.1f}".removesuffix(".0")


def span(values: Sequence[str]) -> str:
    """Return ``low…high`` of formatted numbers, or the one that all of them are."""
    ordered = sorted(values, key=float)
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]}…{ordered[-1]}"


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.rjust(width) if number else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join([first, *rest]).rstrip()
