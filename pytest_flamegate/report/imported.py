"""Figures of other tools in a terminal: what was read, and two results side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report import figures
from pytest_flamegate.report.text import clip, columns, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.receipt.imports.comparing import Compared
    from pytest_flamegate.receipt.imports.types import Imported, ImportedMetric

_WIDTH = 44
_WORDS = {True: "better", False: "worse", None: "same"}


def imported_text(results: Sequence[Imported]) -> str:
    """Return a table of the figures of every result, with their formulas."""
    rows = [("result", "figure", "", "statistic", "of", "formula")]
    for result in results:
        rows += [
            (
                visible(result.result),
                each.name,
                _value(each),
                each.statistic,
                "" if each.samples is None else figures.count(each.samples),
                each.formula,
            )
            for each in result.metrics
        ]
    first = results[0]
    told = " ".join(part for part in (first.tool, first.tool_version) if part)
    lines = [
        f"{figures.plural(len(results), 'result')} of {clip(visible(told), 60)}, SELF_REPORTED: "
        "nobody here saw it measured",
        *columns(rows, right=(2, 4)),
    ]
    left_out = [each for result in results for each in result.left_out]
    lines += [f"left out: {visible(each.field)}, {each.reason}" for each in left_out[:5]]
    if len(left_out) > 5:
        lines.append(f"left out: {figures.count(len(left_out) - 5)} more")
    return "\n".join(lines)


def compared_text(compared: Compared) -> str:
    """Return the figures that could be compared, then those that could not, by name."""
    rows = [("figure", "statistic", "before", "after", "change", "", "formula")]
    rows += [
        (
            pair.after.name,
            pair.after.statistic,
            _value(pair.before),
            _value(pair.after),
            f"{pair.change_pct:+,.1f} %",
            _WORDS[pair.better],
            pair.after.formula,
        )
        for pair in compared.pairs
    ]
    lines = columns(rows, right=(2, 3, 4)) if compared.pairs else ["nothing could be compared"]
    lines += [f"{each.code}: {each.message}" for each in compared.differing]
    if compared.alone:
        lines.append(f"not on both sides: {clip(', '.join(compared.alone), 300)}")
    return "\n".join(lines)


def compared_document(compared: Compared) -> dict[str, object]:
    """Return the same as plain data."""
    return {
        "compared": [
            {
                "name": pair.after.name,
                "statistic": pair.after.statistic,
                "formula": pair.after.formula,
                "unit": pair.after.unit,
                "direction": pair.after.direction,
                "before": pair.before.value,
                "after": pair.after.value,
                "change_pct": pair.change_pct,
                "better": pair.better,
            }
            for pair in compared.pairs
        ],
        "refused": [{"code": each.code, "message": each.message} for each in compared.differing],
        "alone": list(compared.alone),
    }


def _value(metric: ImportedMetric) -> str:
    spread = "" if metric.stddev is None else f" ± {figures.significant(metric.stddev)}"
    return clip(f"{figures.significant(metric.value, 4)}{spread} {metric.unit}", _WIDTH)
