"""The difference of two profiles as a static SVG: where the cost of a token went.

Both sides are merged and drawn once, on one scale of cost. Grey is what did not change;
what got dearer is orange, the part that came solid; what got cheaper is blue, the part that
went an empty outline. A caller is grey where only what it calls changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.report import text as figures
from pytest_flamegate.report.difference import (
    SHADES,
    SHARES_ONLY,
    STEPS,
    Scale,
    alone,
    answer,
    kind,
    rows,
    state_words,
    unit_of,
    whole,
)
from pytest_flamegate.report.flame import ROW, Boxes, Placed, Words, place
from pytest_flamegate.report.sections import profile_notes
from pytest_flamegate.report.svg import (
    INNER,
    MARGIN,
    MONO,
    SANS_EM,
    SMALL,
    TEXT,
    Sheet,
    attributes,
    line,
    rect,
    room,
    xml_text,
)
from pytest_flamegate.report.text import clip, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flamegate.profile.difference import Change, PathChange, ProfileDifference
    from pytest_flamegate.report.difference import Row


@dataclass(frozen=True, slots=True)
class DifferenceLayout:
    """Boxes in the unit of the difference's measure; ``width`` is what all of them take.

    A path is as wide as all it calls and its own cost: the larger of the two sides' where
    it changed, their mean where it did not. So neither side is drawn narrower than it is,
    what vanished stays to be seen, and noise does not add up.
    """

    boxes: tuple[Placed[PathChange], ...]
    width: float
    depth: int
    left_out: int


def difference_layout(
    difference: ProfileDifference, *, least_part: float, calm_part: float
) -> DifferenceLayout:
    """Lay the merged tree out; boxes below ``least_part`` of the whole are left out.

    So are those below ``calm_part`` in which nothing changed: rows of slivers tell nothing.
    """
    heavy, moved = _weights(difference)
    stackless = _stackless_width(difference)
    width = sum(heavy[id(root)] for root in difference.roots) + stackless
    boxes, left_out = place(
        difference.roots,
        weight=lambda path: heavy[id(path)],
        children=lambda path, _: path.children,
        least=lambda path: width * (least_part if id(path) in moved else calm_part),
    )
    depth = max((box.depth + 1 for box in boxes), default=0)
    return DifferenceLayout(boxes, width, depth, left_out)


def own_change(difference: ProfileDifference, path: PathChange) -> Change:
    """Return what a path itself costs on both sides."""
    return difference.change(path.base_self, path.head_self)


def _own_width(difference: ProfileDifference, path: PathChange) -> float:
    change = own_change(difference, path)
    if path.state == "unchanged":
        return (change.base + change.head) / 2
    return max(change.base, change.head)


def _stackless_width(difference: ProfileDifference) -> float:
    """Return the width of the samples of which no frame is known."""
    total = difference.total
    old = total.base_samples - sum(root.base_samples for root in difference.roots)
    new = total.head_samples - sum(root.head_samples for root in difference.roots)
    change = difference.change(old, new)
    return (change.base + change.head) / 2


def _weights(difference: ProfileDifference) -> tuple[dict[int, float], set[int]]:
    """Return the width of every path, and the paths that changed or lead to one that did."""
    remedy = list(difference.roots)
    entered: list[PathChange] = []
    while remedy:
        path = remedy.pop()
        entered.append(path)
        remedy.extend(path.children)
    heavy: dict[int, float] = {}
    moved: set[int] = set()
    # Whoever was entered later stands below: so what is called comes before its callers.
    for path in reversed(entered):
        below = [id(each) for each in path.children]
        heavy[id(path)] = _own_width(difference, path) + sum(heavy[each] for each in below)
        if path.state != "unchanged" or not moved.isdisjoint(below):
            moved.add(id(path))
    return heavy, moved


_ROW = 19.0
_COLUMNS = (
    ("", 0.0),
    ("own cost", 24.0),
    ("", 350.0),
    ("before", 510.0),
    ("after", 590.0),
    ("change", 680.0),
    ("share before → after", 850.0),
    ("moved", 920.0),
    ("z", INNER),
)
"""Where each column starts (the first three) or ends, from the left margin."""
_LEFT = 3
_BOLD = (1, 5)


def banner(sheet: Sheet, difference: ProfileDifference) -> None:
    """Say loudly how the sides were not taken alike; nothing where they were."""
    if not difference.mismatches:
        return
    told = [f"{visible(str(each), 200)}" for each in difference.mismatches]
    fits = room(INNER - 20, TEXT, SANS_EM)
    lines = [
        "NOT COMPARABLE: the two profiles were not taken alike, so this shows more than the "
        "program's change",
        *wrap(told, fits),
    ]
    height = 10 + 17 * len(lines)
    sheet.parts.append(_swatch(sheet.y - 4, "loud", MARGIN, INNER, height))
    for text in lines:
        sheet.y += 17
        weight = "700" if text is lines[0] else "400"
        sheet.parts.append(
            line(MARGIN + 10, sheet.y - 3, text, class_="on-loud", font_size=TEXT,
                 font_weight=weight)
        )  # fmt: skip
    sheet.y += 18


def side_bars(sheet: Sheet, difference: ProfileDifference, unit: float) -> None:
    """Draw each side as one bar on the picture's scale: what did not change, then what did."""
    scale = Scale.of(difference)
    whole = max(difference.total.base, difference.total.head)
    for role, side, after in (("before", difference.base, False), ("after", difference.head, True)):
        total = difference.total.head if after else difference.total.base
        name = clip(visible(side.name), room(INNER - 300, TEXT, SANS_EM))
        sheet.parts.append(
            f"<text{attributes(x=MARGIN, y=sheet.y + 2, font_size=TEXT, class_='muted')}>{role} "
            f'<tspan class="ink" font-weight="600">{xml_text(name)}</tspan>'
            f" · {xml_text(scale.bare(total))} {xml_text(scale.unit)}</text>"
        )
        sheet.y += 8
        spent = [_of(each.own, after) for each in difference.changed]
        x = MARGIN
        x = _segment(sheet, x, (total - sum(spent)) * unit, "same")
        for each, value in zip(difference.changed, spent, strict=True):
            same = min(each.own.base, each.own.head)
            tint = "up" if each.own.change > 0 else "down"
            part = abs(each.own.change) / whole
            x = _segment(sheet, x, min(same, value) * unit, kind(tint, part))  # type: ignore[arg-type]
            x = _segment(sheet, x, (value - same) * unit, "more" if after else "less")
        sheet.y += 24
    sheet.y -= 6


def legend(sheet: Sheet, difference: ProfileDifference) -> None:
    """Tell the colours: unchanged, dearer, cheaper, and the parts that came and went."""
    low, high = (f"{100 * step:.0f}" for step in STEPS)
    x = MARGIN
    dearer, cheaper = "dearer", "cheaper"
    if difference.measure == "share":
        dearer, cheaper = "a larger share", "a smaller share"
    steps = f"by < {low}, < {high}, ≥ {high} % of the whole"
    for kinds, told in (
        (("same",), "unchanged"),
        (("up1", "up2", "up3"), f"{dearer} {steps}"),
        (("more",), "what came (new)"),
        (("down1", "down2", "down3"), f"{cheaper} likewise"),
        (("less",), "what went (gone)"),
    ):
        for name in kinds:
            sheet.parts.append(_swatch(sheet.y - 10, name, x, 15, 11))
            x += 17
        sheet.parts.append(line(x + 4, sheet.y, told, class_="muted", font_size=SMALL))
        x += 20 + len(told) * SMALL * 0.52
    sheet.y += 14


def summary_table(sheet: Sheet, difference: ProfileDifference) -> None:
    """Write the largest certain changes, and everything else in one row."""
    unit = Scale.of(difference).unit
    sheet.y += 14
    titles = [title for title, _ in _COLUMNS]
    titles[1] = f"{'own cost' if difference.measure == 'cost' else 'own part'} in {unit}"
    _cells(sheet, titles, "muted", bold=False)
    for row in rows(difference):
        sheet.y += _ROW
        changed = row.state != "unchanged"
        _cells(sheet, _texts(row), "ink" if changed else "muted", bold=changed)
    sheet.y += 6


def _texts(row: Row) -> list[str]:
    name = clip(row.name, room(350 - 24 - 12, TEXT))
    figures = [row.before, row.after, row.change, row.share, row.shift, row.z]
    return [row.rank, name, row.said, *figures]


def _cells(sheet: Sheet, texts: list[str], kind_of: str, *, bold: bool) -> None:
    drawn = []
    for index, (text, (_, x)) in enumerate(zip(texts, _COLUMNS, strict=True)):
        anchor = {"text_anchor": "end"} if index >= _LEFT else {}
        weight = {"font_weight": "600"} if bold and index in _BOLD else {}
        if text:
            drawn.append(line(MARGIN + x, sheet.y, text, **anchor, **weight))
    group = attributes(class_=kind_of, font_family=MONO, font_size=TEXT)
    sheet.parts.append(f"<g{group}>{''.join(drawn)}</g>")


def _of(change: Change, after: bool) -> float:
    return change.head if after else change.base


def _segment(sheet: Sheet, x: float, width: float, name: str) -> float:
    """Draw a part of a bar and return where it ends."""
    if width > 0:
        sheet.parts.append(_swatch(sheet.y, name, x, max(width - 0.5, 0.5), 9))
    return x + max(width, 0.0)


def _swatch(y: float, name: str, x: float, width: float, height: float) -> str:
    shade = SHADES[name]
    stroke = {"stroke": shade.edge[0]} if shade.edge else {}
    return rect(x, y, width, height, shade.light, class_=name, **stroke)


ANSWER = 15.0
_NARROWEST, _NARROWEST_CALM = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class _Picture:
    """What every part of the picture draws from; ``unit`` is the width of one in the measure."""

    difference: ProfileDifference
    laid: DifferenceLayout
    scale: Scale
    unit: float
    parts: Mapping[str, float]
    ranks: Mapping[str, int]


def difference_svg(difference: ProfileDifference, *, title: str, subtitle: str) -> str:
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


def _answer(sheet: Sheet, difference: ProfileDifference) -> None:
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
    return alone(picture.difference.one_sided_call(path))


def _words(path: PathChange, picture: _Picture) -> Words:
    name, scale = path.frame.name, picture.scale
    side = path.one_sided
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


def _description(difference: ProfileDifference) -> str:
    base, head = (visible(side.name, 80) for side in (difference.base, difference.head))
    warned = "".join(f" Not comparable: {each}." for each in difference.mismatches)
    return (
        f"Difference of two profiles, {base} before and {head} after: {answer(difference)}.{warned}"
    )
