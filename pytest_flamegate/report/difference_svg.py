"""The difference of two profiles as a static SVG: the change of the cost of a token.

Both sides are merged and drawn once, on one scale of cost: orange costs more and its added part is
solid, blue costs less and its removed part is an empty outline. A caller is grey if only its
callees changed.
"""

from collections.abc import Iterator

from pytest_flamegate.profile.difference import Change, PathChange, ProfileDifference, State
from pytest_flamegate.report import text as figures
from pytest_flamegate.report.difference import (
    BOX_FIGURE,
    CALL_SHADES,
    MOST_ROWS,
    SHADES,
    SHARES_ONLY,
    Scale,
    change_legend,
    change_lines,
    change_shade,
    describe_difference,
    describe_total,
    difference_layout,
    state_word,
    unit_of,
)
from pytest_flamegate.report.flame import Layout, Placed
from pytest_flamegate.report.flame_svg import profile_notes
from pytest_flamegate.report.markup import (
    INNER,
    MARGIN,
    MONO,
    ROW,
    SANS_EM,
    SMALL,
    TEXT,
    Boxes,
    Sheet,
    Words,
    attributes,
    line,
    rect,
    room,
    xml_text,
)
from pytest_flamegate.report.text import clip, visible, wrap

_TABLE_ROW, _LONGEST_NAME = 19.0, 44


def _side_bars(sheet: Sheet, difference: ProfileDifference, unit: float) -> None:
    """Draw each side as one bar on the picture's scale: the unchanged part, then the changed."""
    scale, total = Scale.of(difference), difference.total
    for role, side, whole in (
        ("before", difference.base, total.base),
        ("after", difference.head, total.head),
    ):
        name = clip(visible(side.name), room(INNER - 300, TEXT, SANS_EM))
        place = attributes(x=MARGIN, y=sheet.y, font_size=TEXT, class_="muted")
        sheet.parts.append(
            f"<text{place}>{role} "
            f'<tspan class="ink" font-weight="600">{xml_text(name)}</tspan>'
            f" · {scale.bare(whole)} {scale.unit}</text>"
        )
        parts = []
        for own in (each.own for each in difference.changed):
            value, same = own.head if side is difference.head else own.base, min(own.base, own.head)
            tint: State = "up" if own.change > 0 else "down"
            parts.append((change_shade(tint, abs(own.change) / difference.larger_total), same))
            parts.append(("more" if own.change > 0 else "less", value - same))
        parts.insert(0, ("same", whole - sum(value for _, value in parts)))
        x = MARGIN
        for shade, value in parts:
            width = max(value, 0.0) * unit
            if width:
                sheet.parts.append(_swatch(x, sheet.y + 6, shade, max(width - 0.5, 0.5), 9))
            x += width
        sheet.y += 32
    sheet.y -= 8


def _legend(sheet: Sheet, difference: ProfileDifference) -> None:
    """Explain the colours: unchanged, more, less, and the added and removed parts."""
    x = MARGIN
    for shades, words in change_legend(difference):
        for name in shades:
            sheet.parts.append(_swatch(x, sheet.y - 10, name))
            x += 17
        sheet.parts.append(line(x + 4, sheet.y, words, class_="muted", font_size=SMALL))
        x += 20 + len(words) * SMALL * 0.52
    sheet.y += 14


def _summary_table(sheet: Sheet, difference: ProfileDifference) -> None:
    """Write the largest certain changes, and everything else in one row."""
    for index, text in enumerate(change_lines(difference, longest_name=_LONGEST_NAME)):
        sheet.y += _TABLE_ROW
        kind = "ink" if index else "muted"
        sheet.line(text, kind, font_family=MONO, font_size=TEXT, **{"xml:space": "preserve"})
    sheet.y += 6


def _swatch(x: float, y: float, name: str, width: float = 15, height: float = 11) -> str:
    shade = SHADES[name]
    stroke = {"stroke": shade.edge[0]} if shade.edge else {}
    return rect(x, y, width, height, shade.light, class_=name, **stroke)


ANSWER = 15.0
_NARROWEST, _NARROWEST_CALM = 0.5, 2.0


def difference_svg(difference: ProfileDifference, *, title: str, subtitle: str) -> str:
    """Draw ``difference`` as one self-contained SVG document, the same bytes each time."""
    laid, width = difference_layout(
        difference, least_part=_NARROWEST / INNER, calm_part=_NARROWEST_CALM / INNER
    )
    # Noise can make a side wider than the boxes, which are as wide as the mean.
    unit = INNER / max(width, difference.larger_total)
    sheet = Sheet()
    sheet.heading(title, subtitle)
    sheet.y += 14
    _answer(sheet, difference)
    _side_bars(sheet, difference, unit)
    _flames(sheet, difference, laid, width, unit)
    sheet.y += 22
    _legend(sheet, difference)
    _summary_table(sheet, difference)
    sheet.y += 4
    sheet.notes(list(_reading(difference, laid.left_out)))
    for side in (difference.base, difference.head):
        sheet.notes([visible(side.name), *profile_notes(side.profile)])
    return sheet.document(title, _description(difference), SHADES)


def _answer(sheet: Sheet, difference: ProfileDifference) -> None:
    fits = room(INNER, ANSWER, SANS_EM) - 1
    if difference.mismatches:
        details = [visible(str(each), 200) for each in difference.mismatches]
        lines = [
            "NOT COMPARABLE: the profiles were taken differently, so this shows more than the "
            "program's change",
            *wrap(details, fits),
        ]
        sheet.parts.append(_swatch(MARGIN, sheet.y - 17, "loud", INNER, 8 + 19 * len(lines)))
        for text in lines:
            sheet.line(text, "on-loud", font_size=TEXT, font_weight="600")
            sheet.y += 19
        sheet.y += 12
    *begun, last = wrap(visible(describe_difference(difference), 600).split("; "), fits, "; ")
    for text in [*(f"{each};" for each in begun), last]:
        sheet.line(text, font_size=ANSWER, font_weight="600")
        sheet.y += 21
    if difference.measure == "share":
        sheet.y -= 2
        sheet.line(f"Shares only: {SHARES_ONLY}.", "muted", font_size=TEXT)
        sheet.y += 20
    sheet.y += 3


def _flames(
    sheet: Sheet,
    difference: ProfileDifference,
    laid: Layout[PathChange],
    width: float,
    unit: float,
) -> None:
    """Draw the boxes; ``unit`` is the width of one in the measure, ``width`` that of the whole."""
    top, boxes = sheet.y, Boxes()
    ranks = {each.frame.name: rank for rank, each in enumerate(difference.changed[:MOST_ROWS], 1)}
    for box in laid.boxes:
        y = top + (laid.depth - box.depth - 1) * ROW
        _box(boxes, difference, box, ranks.get(box.frame.name), y, unit)
    everything = f"all: {describe_total(difference)}"
    floor = top + laid.depth * ROW
    boxes.add("floor", MARGIN, floor, width * unit, [everything], Words(everything))
    sheet.parts.append(boxes.drawn(SHADES))
    sheet.y = floor + ROW


def _box(
    boxes: Boxes,
    difference: ProfileDifference,
    box: Placed[PathChange],
    rank: int | None,
    y: float,
    unit: float,
) -> None:
    """Draw one box; ``rank`` is the row of its function in the table, None if it has none."""
    path, scale = box.path, Scale.of(difference)
    name, side = box.frame.name, path.one_sided
    own = difference.change(path.base_self, path.head_self)
    whole = difference.change(path.base_samples, path.head_samples)
    word = f"{state_word(difference, side)}: " if side else ""
    # An outline marks a path on one side alone; its callees have boxes of their own.
    shade = CALL_SHADES[difference.one_sided_call(path)]
    words = Words(word + name, (scale.bare((whole.base + whole.head) / 2),))
    moved = 0.0
    if path.state != "unchanged":
        # The number leads to the row of the table, from boxes that are too small for a name.
        number = "" if rank is None else f"{rank}"
        label = f"{number} {word}{name}".lstrip()
        words = Words(label, (scale.signed(own.change), scale.describe(own)), number)
        moved = abs(own.change) * unit
        if not (path.children and path.state in ("new", "vanished")):
            shade = change_shade(path.state, abs(own.change) / difference.larger_total)
    x, width = MARGIN + box.start * unit, box.weight * unit
    mark = "more" if own.change > 0 else "less"
    is_marked = _NARROWEST <= moved < 0.999 * width
    title = list(_title(difference, box, own, whole))
    # A label may lie on the mark, so it takes the ink that is legible on both.
    boxes.add(shade, x, y, width, title, words, ink=mark if is_marked else "")
    if is_marked:
        # Nothing stands above a path's own cost, which is at its right end.
        boxes.mark(mark, x + width - moved, y, moved)


def _title(
    difference: ProfileDifference, box: Placed[PathChange], own: Change, whole: Change
) -> Iterator[str]:
    scale, unit = Scale.of(difference), unit_of(difference)
    yield box.frame.name
    state = state_word(difference, box.path.state)
    yield f"{box.frame.module or 'module unknown'} · itself {state}"
    for words, change in (("itself", own), ("with all it calls", whole)):
        yield (
            f"{words}: {scale.describe(change)} · {figures.share(change.base_share)} → "
            f"{figures.share(change.head_share)} · {figures.count(change.base_samples)} → "
            f"{figures.plural(change.head_samples, unit)}"
        )


def _reading(difference: ProfileDifference, left_out: int) -> Iterator[str]:
    of_all = f"share of {unit_of(difference)}s"
    measures = {"cost": "cost per token", "share": of_all, "count": "instructions"}
    yield (
        f"width: {measures[difference.measure]}, both sides on one scale: the larger side of a "
        "function that changed, else the mean"
    )
    yield f"colour of a box, and figure with a sign in it: {BOX_FIGURE}"
    yield "first number in a box: the row of the table"
    yield "outline without a number: this call path is on one side alone, its own cost is unchanged"
    yield (
        f"changed: |z| of {difference.certain_z:.1f} or more, so that two profiles of one program "
        "show a change in one of a hundred"
    )
    yield "±: a change is certain if this interval excludes 0"
    if left_out:
        yield f"{figures.plural(left_out, 'branch', 'branches')} too small to draw or too deep"


def _description(difference: ProfileDifference) -> str:
    base, head = (visible(side.name, 80) for side in (difference.base, difference.head))
    warnings = "".join(f" Not comparable: {each}." for each in difference.mismatches)
    answer = describe_difference(difference)
    return f"Difference of two profiles, {base} before and {head} after: {answer}.{warnings}"
