"""What stands beside a flame graph that is compared: warnings, the colours, what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report import page
from pytest_flamegate.report.difference_palette import STEPS, kind
from pytest_flamegate.report.difference_words import (
    SHARES_ONLY,
    Scale,
    answer,
    state_words,
    told_z,
    z_words,
)
from pytest_flamegate.report.flame_tables import TABLE_ROWS, exact, functions, named, swatch

if TYPE_CHECKING:
    from pytest_flamegate.profile.difference import Difference, FunctionChange, State

_COLOURS: tuple[tuple[str, State], ...] = (
    ("down3", "down"),
    ("same", "unchanged"),
    ("up3", "up"),
    ("more", "new"),
    ("less", "vanished"),
)


def warnings(difference: Difference) -> str:
    """Return, loudly, how the two sides were not taken alike."""
    told = [
        f"Not comparable: the two profiles were not taken alike ({each}), so this shows more "
        "than the program's change."
        for each in map(str, difference.mismatches)
    ]
    return page.lines("p", told, class_="warning", role="alert")


def change_legend(difference: Difference) -> str:
    """Return the colours of a difference."""
    items = [
        page.element("li", swatch(f"change-{name}"), page.text(state_words(difference, state)))
        for name, state in _COLOURS
    ]
    steps = " and ".join(f"{100 * step:g} %" for step in STEPS)
    said = page.element("li", page.text(f"stronger from {steps} of the whole on"), class_="muted")
    return page.element("ul", *items, said, class_="scale of-difference", aria_label="Colours")


def changes(difference: Difference) -> str:
    """Return what changed in one sentence, and the table of functions by their change."""
    scale = Scale.of(difference)
    rows = [_row(each, difference, scale) for each in difference.functions[:TABLE_ROWS]]
    said = (
        f"Own {difference.measure} in {scale.unit}: {difference.base.name}, then "
        f"{difference.head.name}. From |z| = {difference.certain_z:.1f} on a change is no noise."
    )
    head = ["function", "before", "after", "change", "z"]
    parts = [
        page.lines("p", [answer(difference)], class_="answer"),
        page.lines("p", [SHARES_ONLY] if difference.measure == "share" else [], class_="muted"),
        functions(head, rows, said, len(difference.functions)),
    ]
    return page.element("div", *parts, class_="of-difference")


def _row(each: FunctionChange, difference: Difference, scale: Scale) -> list[str]:
    own, total = each.own, difference.total
    part = abs(own.change) / max(total.base, total.head)
    state = "" if each.state == "unchanged" else state_words(difference, each.state)
    return [
        named(each.frame.name, f"change-{kind(each.state, part)}")
        + page.lines("strong", [state], class_="state"),
        exact(scale.bare(own.base), own.base),
        exact(scale.bare(own.head), own.head),
        exact(scale.signed(own.change), own.change),
        exact(z_words(own.z), told_z(own.z)),
    ]
