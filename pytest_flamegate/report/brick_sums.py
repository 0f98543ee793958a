"""The sums of bricks alone, as a command prints them: the table, dispatches, medians."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report import figures
from pytest_flamegate.report.bricks import BricksShown, bricks_lines
from pytest_flamegate.report.text import clip, columns, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.bricks.table import Table


def sums_text(
    name: str,
    table: Table | None,
    *,
    notes: tuple[str, ...] = (),
    kernels: Mapping[str, int],
    medians_us: Mapping[str, float],
    width: int = 100,
) -> str:
    """Return the ``table`` of what is called ``name``, and below it what else was told.

    ``kernels`` is how often each was dispatched, ``medians_us`` the middle of each phase.
    """
    lines: list[str] = []
    if table is not None:
        lines += bricks_lines(name, BricksShown(table, notes=notes), width=width)[1:]
    if medians_us:
        middles = [
            f"{visible(phase.removesuffix('_us'))} {figures.significant(value)} µs"
            for phase, value in medians_us.items()
        ]
        lines += wrap(["in the median of all lines", *middles], width)
    if kernels:
        most_first = sorted(kernels.items(), key=lambda each: (-each[1], each[0]))
        rows = [
            ("Kernel", "Dispatched"),
            *((visible(kernel), figures.count(count)) for kernel, count in most_first),
        ]
        lines += [*([""] if lines else []), *columns(rows, right=(1,), gap=2)]
        lines.append("dispatches as the engine told them, ingested and never gated")
    return "\n".join(clip(line, width) for line in lines)
