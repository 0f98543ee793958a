"""The difference of two profiles as a static SVG: where the cost of a token went.

Both sides are merged and drawn once, on one scale of cost. Grey is what did not change;
what got dearer is orange, the part that came solid; what got cheaper is blue, the part that
went an empty outline. A caller is grey where only what it calls changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.report import figures
from pytest_flamegate.report.boxes import ROW, Boxes, Words
from pytest_flamegate.report.difference_layout import (
    DifferenceLayout,
    difference_layout,
    own_change,
)
from pytest_flamegate.report.difference_palette import SHADES, alone, kind
from pytest_flamegate.report.difference_parts import banner, legend, side_bars, summary_table
from pytest_flamegate.report.difference_words import (
    SHARES_ONLY,
    Scale,
    answer,
    state_words,
    unit_of,
    whole,
)
from pytest_flamegate.report.provenance import profile_notes
from pytest_flamegate.report.sheet import INNER, MARGIN, SANS_EM, TEXT, Sheet
from pytest_flamegate.report.svg import room
from pytest_flamegate.report.text import visible, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flamegate.profile.difference import Difference, PathChange
    from pytest_flamegate.report.placing import Placed

ANSWER = 15.0
_NARROWEST, _NARROWEST_CALM = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class _Picture:
    """What every part of the picture draws from; ``unit`` is the width of one in the measure."""

    difference: Difference
    laid: DifferenceLayout
    scale: Scale
    unit: float
    parts: Mapping[str, float]
    ranks: Mapping[str, int]


def difference_svg(difference: Difference, *, title: str, subtitle: str) -> str:
    """Draw ``difference`` as one self-contained SVG document, in the reader's light or dark.

    The sides are named by ``Side.name``. Equal arguments give equal bytes.
    """
    laid = difference_layout(
        difference, least_part=_NARROWEST / INNER, calm_part=_NARROWEST_CALM / INNER
    )
    largest = max(difference.total.base, difference.total.head)
    picture = _Picture(
        difference=difference,
        laid=laid,
        scale=Scale.of(difference),
        unit=INNER / laid.width,
        parts={each.frame.name: abs(each.own.change) / largest for each in difference.changed},
        ranks={each.frame.name: rank for rank, each in enumerate(difference.changed, 1)},
    )
    sheet = Sheet()
    sheet.heading(title, subtitle)
    banner(sheet, difference)
    sheet.y += 14
    _answer(sheet, difference)
    side_bars(sheet, difference, picture.unit)
    _flames(sheet, picture)
    sheet.y += 22
    legend(sheet, difference)
    summary_table(sheet, difference)
    sheet.y += 4
    sheet.notes(list(_reading(picture)))
    for side in (difference.base, difference.head):
        sheet.notes([visible(side.name), *profile_notes(side.profile)])
    return sheet.document(title, _description(difference), SHADES)


def _answer(sheet: Sheet, difference: Difference) -> None:
    fits = room(INNER, ANSWER, SANS_EM) - 1
    *begun, last = wrap(visible(answer(difference), 600).split("; "), fits, "; ")
    for text in [*(f"{each};" for each in begun), last]:
        sheet.line(text, font_size=ANSWER, font_weight="600")
        sheet.y += 21
    if difference.measure == "share":
        sheet.y -= 2
        sheet.line(f"Shares only: {SHARES_ONLY}.", "muted", font_size=TEXT)
        sheet.y += 20
    sheet.y += 3


def _flames(sheet: Sheet, picture: _Picture) -> None:
    laid, top = picture.laid, sheet.y
    boxes = Boxes()
    for box in laid.boxes:
        y = top + (laid.depth - box.depth - 1) * ROW
        _box(boxes, picture, box, y)
    everything = f"all: {whole(picture.difference)}"
    floor = top + laid.depth * ROW
    boxes.add("floor", MARGIN, floor, INNER, [everything], Words(everything))
    sheet.parts.append(boxes.drawn(SHADES))
    sheet.y = floor + ROW


def _box(boxes: Boxes, picture: _Picture, box: Placed[PathChange], y: float) -> None:
    path = box.item
    own = own_change(picture.difference, path)
    x, width = MARGIN + box.start * picture.unit, box.weight * picture.unit
    boxes.add(_kind(path, picture), x, y, width, list(_told(path, picture)), _words(path, picture))
    moved = abs(own.change) * picture.unit if _costs(path, picture) else 0.0
    if _NARROWEST <= moved < 0.999 * width:
        # What a path spends itself is what nothing stands on, at its right end.
        boxes.mark("more" if own.change > 0 else "less", x + width - moved, y, moved)


def _costs(path: PathChange, picture: _Picture) -> bool:
    """Whether a path changed because its function did, and not only where that is called."""
    return path.state != "unchanged" and path.frame.name in picture.ranks


def _kind(path: PathChange, picture: _Picture) -> str:
    if _costs(path, picture) and not (path.children and path.state in ("new", "vanished")):
        return kind(path.state, picture.parts[path.frame.name])
    # An outline says that a path is on one side alone; what it calls has boxes of its own.
    return alone(picture.difference.one_sided(path))


def _words(path: PathChange, picture: _Picture) -> Words:
    name, scale = path.frame.name, picture.scale
    side = picture.difference.one_sided(path)
    said = f"{state_words(picture.difference, side)}: " if side else ""
    if not _costs(path, picture):
        change = picture.difference.change(path.base_samples, path.head_samples)
        return Words(said + name, (scale.bare((change.base + change.head) / 2),))
    own = own_change(picture.difference, path)
    # The number leads to the row of the table, from boxes that are too small for a name.
    rank = f"{picture.ranks[name]}"
    return Words(f"{rank} {said}{name}", (scale.signed(own.change), scale.told(own)), rank)


def _told(path: PathChange, picture: _Picture) -> Iterator[str]:
    yield path.frame.name
    state = state_words(picture.difference, path.state)
    yield f"{path.frame.module or 'module unknown'} · itself {state}"
    own, unit = own_change(picture.difference, path), unit_of(picture.difference)
    all_of_it = picture.difference.change(path.base_samples, path.head_samples)
    for words, change in (("itself", own), ("with all it calls", all_of_it)):
        yield (
            f"{words}: {picture.scale.told(change)} · {figures.share(change.base_share)} → "
            f"{figures.share(change.head_share)} · {figures.count(change.base_samples)} → "
            f"{figures.plural(change.head_samples, unit)}"
        )


def _reading(picture: _Picture) -> Iterator[str]:
    difference, laid = picture.difference, picture.laid
    of_all = f"share of {unit_of(difference)}s"
    what = {"cost": "cost per token", "share": of_all, "count": "instructions"}
    yield (
        f"width: {what[difference.measure]}, both sides on one scale: of what changed the larger "
        "side, of what did not the mean"
    )
    yield "colour: the change of a function's own cost, not of what it calls"
    yield "outline without a number: called so on one side alone, at no change of its own cost"
    yield (
        f"changed: |z| of {difference.certain_z:.1f} or more, so that two profiles of one program "
        "show a change in one of a hundred"
    )
    yield "± is two standard errors"
    if laid.left_out:
        yield f"{figures.plural(laid.left_out, 'branch', 'branches')} too small to draw or too deep"


def _description(difference: Difference) -> str:
    base, head = (visible(side.name, 80) for side in (difference.base, difference.head))
    warned = "".join(f" Not comparable: {each}." for each in difference.mismatches)
    return (
        f"Difference of two profiles, {base} before and {head} after: {answer(difference)}.{warned}"
    )
