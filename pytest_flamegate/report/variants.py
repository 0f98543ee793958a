"""The variants of one template next to each other: speed, kinds of work, costs of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.metrics import value_of
from pytest_flamegate.report import text
from pytest_flamegate.report.evidence import rate_cells
from pytest_flamegate.report.hotspots import category_shares, find_hottest
from pytest_flamegate.report.sections import (
    NONE,
    Code,
    Items,
    Paragraph,
    Section,
    make_section,
    make_table,
)
from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flamegate.profile.model import Hotspot
    from pytest_flamegate.receipt.types import Evidence
    from pytest_flamegate.report.run_report import RunReport
    from pytest_flamegate.report.sections import Cell, Table


_MOST_FUNCTIONS = 10
_WORK = ("prompt", "max_tokens")
_PROFILE_FIELDS = {
    "profiler": "profiler",
    "event": "event",
    "rate_hz": "rate",
    "call_graph": "call graph",
    "python": "Python",
    "covers": "phase",
}
"""Two profiles must share these before their shares mean the same."""


def variant_sections(runs: Sequence[RunReport]) -> list[Section]:
    """Return a section for each family of which at least two variants were gated."""
    families: dict[str, list[RunReport]] = {}
    for run in runs:
        if run.family is not None:
            families.setdefault(run.family, []).append(run)
    return [_family(name, variants) for name, variants in families.items() if len(variants) > 1]


def _family(name: str, variants: Sequence[RunReport]) -> Section:
    found = [variant.evidence for variant in variants if variant.evidence is not None]
    return make_section(
        f"Variants of {visible(name, 80)}",
        [
            Paragraph("Shown next to each other and never gated.", muted=True),
            _speed_table(variants),
            _category_table(variants),
            _function_table(variants),
            Items(tuple(_find_differences(found))),
        ],
    )


def _speed_table(variants: Sequence[RunReport]) -> Table:
    costs_s = [
        value_of(each.evidence.metrics, "quiet_s_per_token") if each.evidence else None
        for each in variants
    ]
    fastest_s = min((cost for cost in costs_s if cost), default=None)
    rows = [
        (
            Code(_name(variant)),
            *rate_cells(variant.receipt.tokens_per_second if variant.receipt else None, cost_s),
            text.share(fastest_s / cost_s) if cost_s and fastest_s else NONE,
            _describe_hottest(find_hottest(variant.evidence)) or NONE,
        )
        for variant, cost_s in zip(variants, costs_s, strict=True)
    ]
    head = ("variant", "quiet clock", "wall tokens/s", "of fastest", "hottest")
    return make_table(head, rows, right=(1, 2, 3))


def _category_table(variants: Sequence[RunReport]) -> Table:
    columns = [category_shares(_hotspots(variant)) for variant in variants]
    highest: dict[str, float] = {}
    for column in columns:
        for category, share in column.items():
            highest[category] = max(share, highest.get(category, 0.0))
    rows = [
        (
            category,
            *(text.share(column.get(category, 0.0)) if column else NONE for column in columns),
        )
        for category in sorted(highest, key=lambda each: (-highest[each], each))
    ]
    return _table_by_variant("share of CPU", variants, rows)


def _function_table(variants: Sequence[RunReport]) -> Table:
    """Return CPU seconds per token; a dash without a profile, 0 without a sample."""
    columns = [{each.name: each for each in _hotspots(variant)} for variant in variants]
    costs: dict[str, tuple[float | None, ...]] = {}
    for name in dict.fromkeys(name for column in columns for name in column):
        found = tuple(_cost(column, name) for column in columns)
        if any(found):
            costs[name] = found
    ranked = sorted(costs, key=lambda name: (-max(cost or 0.0 for cost in costs[name]), name))
    rows: list[tuple[Cell, ...]] = [
        (Code(name), *(NONE if cost is None else text.micros(cost) for cost in costs[name]))
        for name in ranked[:_MOST_FUNCTIONS]
    ]
    return _table_by_variant("µs/token", variants, rows)


def _table_by_variant(
    first: str, variants: Sequence[RunReport], rows: Sequence[Sequence[Cell]]
) -> Table:
    names = [visible(_name(variant), 40) for variant in variants]
    return make_table((first, *names), rows, right=range(1, len(names) + 1))


def _name(variant: RunReport) -> str:
    return variant.variant or variant.name


def _hotspots(variant: RunReport) -> tuple[Hotspot, ...]:
    profile = variant.evidence.profile if variant.evidence is not None else None
    return profile.hotspots if profile is not None else ()


def _cost(column: Mapping[str, Hotspot], name: str) -> float | None:
    if all(each.cpu_s_per_token is None for each in column.values()):
        return None
    return (column[name].cpu_s_per_token if name in column else None) or 0.0


def _describe_hottest(hottest: Sequence[Hotspot]) -> str:
    return ", ".join(f"{visible(each.name)} {text.share(each.self_share)}" for each in hottest)


def _find_differences(found: Sequence[Evidence]) -> Iterator[str]:
    """Describe the differences between the variants, and their effect on a comparison."""
    names = dict.fromkeys(name for each in found for name in each.workload if name != "name")
    different = [name for name in names if _differ(each.workload.get(name) for each in found)]
    if different:
        yield f"Declared differently: {', '.join(different)}."
    if work := [name for name in different if name in _WORK]:
        yield f"Different work ({', '.join(work)}): their tokens are not comparable."
    elif _differ(each.token_digest for each in found):
        yield "The same prompt was answered with different tokens."
    if _differ(each.clock_scope for each in found):
        yield "Some clocks cover a whole program and others its sequences alone."
    if _differ(dict(each.machine) for each in found):
        yield "They ran on different machines: no figure compares."
    profiles = [each.profile for each in found if each.profile is not None]
    fields = [
        words
        for field, words in _PROFILE_FIELDS.items()
        if _differ(getattr(profile, field) for profile in profiles)
    ]
    if fields:
        yield (
            f"Their profiles were taken differently ({', '.join(fields)}): shares and costs of "
            "functions compare roughly at best."
        )


def _differ(values: Iterator[object]) -> bool:
    first, *others = list(values) or [None]
    return any(value != first for value in others)
