"""Variants side by side as lines of a terminal and as sections of Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.core import text
from pytest_flamegate.receipt.metrics import value_of
from pytest_flamegate.report import html
from pytest_flamegate.report import text as report_text
from pytest_flamegate.report.markup import code, escape, table
from pytest_flamegate.report.sections import NONE, call_cells, family_tables
from pytest_flamegate.report.text import cells, clip, columns, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.receipt.types import Evidence, Receipt
    from pytest_flamegate.report.sections import Family, FunctionCosts, Gated, Variant


NEVER_GATED = "side by side, shown and never gated"
_SPEED = ("tokens/s", "quiet clock", "of fastest")
_LEAST_ROOM = 24
_WIDEST_NAME = 40


def speed_cells(receipt: Receipt | None, evidence: Evidence | None) -> tuple[str, str]:
    """Return tokens per second and the quiet clock, dashes where they were not measured.

    Without a receipt the rate is that of the quiet clock. Of a benchmark it is its calls.
    """
    if (calls := call_cells(evidence)) is not None:
        return calls
    spent = value_of(evidence.metrics, "quiet_s_per_token") if evidence is not None else None
    return _cells(receipt.tokens_per_second if receipt is not None else None, spent)


def family_lines(outcomes: Sequence[Gated], width: int) -> list[str]:
    """Return three tables for each family: speed, categories in shares, functions in µs/token."""
    lines: list[str] = []
    for family in family_tables(outcomes):
        lines += ["", f"variants of {visible(family.name)}, {NEVER_GATED}"]
        head = ("variant", *_SPEED)
        rows = [head, *([visible(v.name), *_speed(v)] for v in family.variants)]
        room = max(width - 3 - max(map(cells, columns(rows))), _LEAST_ROOM)
        hottest = ["hottest", *(clip(_hottest(v), room) for v in family.variants)]
        rows = [[*row, last] for row, last in zip(rows, hottest, strict=True)]
        lines += columns(rows, right=(1, 2, 3))
        names = [visible(variant.name) for variant in family.variants]
        right = range(1, len(names) + 1)
        if family.categories:
            rows = [["share of CPU", *names]]
            rows += [[name, *_shares(family, name)] for name in family.categories]
            lines += columns(rows, right=right)
        if family.functions:
            rows = [["µs/token", *names]]
            rows += [[clip(visible(f.name), _WIDEST_NAME), *_costs(f)] for f in family.functions]
            lines += columns(rows, right=right)
        lines += [visible(note, 1000) for note in family.notes]
    return lines


def family_sections(outcomes: Sequence[Gated]) -> list[str]:
    """Return the same as Markdown: headings, tables and lists, to be joined by empty lines."""
    parts: list[str] = []
    for family in family_tables(outcomes):
        parts += [f"### Variants of {code(family.name)}", f"{NEVER_GATED.capitalize()}."]
        head = ["variant", *_SPEED, *map(escape, family.categories), "hottest"]
        rows = [
            [code(name), *figures_, escape(hottest)]
            for name, *figures_, hottest in _by_variant(family)
        ]
        parts.append(table(head, rows, right=range(1, len(head) - 1)))
        if family.functions:
            names = [f"{code(variant.name)} µs/token" for variant in family.variants]
            costs = [
                [code(each.name), escape(each.category), *_costs(each)] for each in family.functions
            ]
            parts.append(
                table(["function", "category", *names], costs, right=range(2, len(names) + 2))
            )
        if family.notes:
            parts.append("\n".join(f"- {escape(note)}" for note in family.notes))
    return parts


def family_pages(outcomes: Sequence[Gated]) -> list[str]:
    """Return the same as pieces of HTML: of each family a heading, two tables and its notes."""
    return [
        html.element(
            "section",
            html.lines("h2", [f"Variants of {visible(family.name)}"]),
            html.lines("p", [f"{NEVER_GATED.capitalize()}."], class_="muted"),
            _page_table(["variant", *_SPEED, *family.categories, "hottest"], _by_variant(family)),
            _page_table(
                ["function, µs/token", "category", *(each.name for each in family.variants)],
                [[each.name, each.category, *_costs(each)] for each in family.functions],
            ),
            html.lines("p", family.notes),
            class_="family",
        )
        for family in family_tables(outcomes)
    ]


def _by_variant(family: Family) -> list[list[str]]:
    by_category = [_shares(family, each) for each in family.categories]
    return [
        [
            variant.name,
            *_speed(variant),
            *(shares[index] for shares in by_category),
            _hottest(variant) or NONE,
        ]
        for index, variant in enumerate(family.variants)
    ]


def _page_table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    cells_of = [[html.text(cell) for cell in row] for row in rows]
    return html.table([visible(each) for each in head], cells_of, right=range(1, len(head) - 1))


def _cells(rate: float | None, spent: float | None) -> tuple[str, str]:
    if rate is None and spent:
        rate = 1.0 / spent
    return (
        NONE if rate is None else text.significant(rate),
        NONE if spent is None else f"{report_text.seconds(spent)}/tok",
    )


def _speed(variant: Variant) -> list[str]:
    ratio = variant.of_fastest
    return [
        *_cells(variant.tokens_per_second, variant.quiet_s_per_token),
        NONE if ratio is None else report_text.share(ratio),
    ]


def _shares(family: Family, category: str) -> list[str]:
    """Return the share of a category in each variant, a dash where it has no profile."""
    return [
        report_text.share(variant.categories.get(category, 0.0)) if variant.categories else NONE
        for variant in family.variants
    ]


def _hottest(variant: Variant) -> str:
    told = []
    for each in variant.hottest:
        cost = each.cpu_s_per_token
        more = "" if cost is None else f" ({report_text.micros(cost)} µs)"
        told.append(f"{visible(each.name)} {report_text.share(each.self_share)}{more}")
    return ", ".join(told)


def _costs(function: FunctionCosts) -> list[str]:
    return [NONE if cost is None else report_text.micros(cost) for cost in function.cpu_s_per_token]
