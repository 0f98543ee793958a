"""The difference of two profiles as a static SVG: the change of the cost of a token.

Both sides are merged and drawn once, on one scale of cost: orange costs more and its added part is
solid, blue costs less and its removed part is an empty outline. A caller is grey if only its
callees changed.
"""

from collections.abc import Iterator

from pytest_flamegate.profile.difference import Change, PathChange, ProfileDifference
from pytest_flamegate.report import svg
from pytest_flamegate.report import text as figures
from pytest_flamegate.report.difference import (
    CALL_SHADES,
    SHADES,
    SHARES_ONLY,
    STEPS,
    Scale,
    change_rows,
    change_shade,
    describe_difference,
    describe_total,
    difference_layout,
    state_word,
    unit_of,
)
from pytest_flamegate.report.flame import Layout, Placed
from pytest_flamegate.report.flame_svg import profile_notes
from pytest_flamegate.report.text import clip, visible, wrap

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
    ("z", svg.INNER),
)
"""The start of each column (the first three) or its end, from the left margin."""
_LEFT = 3
_BOLD = (1, 5)


def _banner(sheet: svg.Sheet, difference: ProfileDifference) -> None:
    """Warn loudly if the sides were taken differently."""
    if not difference.mismatches:
        return
    details = [visible(str(each), 200) for each in difference.mismatches]
    fits = svg.room(svg.INNER - 20, svg.TEXT, svg.SANS_EM)
    lines = [
        "NOT COMPARABLE: the profiles were taken differently, so this shows more than the "
        "program's change",
        *wrap(details, fits),
    ]
    height = 10 + 17 * len(lines)
    sheet.parts.append(_swatch(sheet.y - 4, "loud", svg.MARGIN, svg.INNER, height))
    for text in lines:
        sheet.y += 17
        weight = "700" if text is lines[0] else "400"
        sheet.parts.append(
            svg.line(svg.MARGIN + 10, sheet.y - 3, text, class_="on-loud", font_size=svg.TEXT,
                 font_weight=weight)
        )  # fmt: skip
    sheet.y += 18


def _side_bars(sheet: svg.Sheet, difference: ProfileDifference, unit: float) -> None:
    """Draw each side as one bar on the picture's scale: the unchanged part, then the changed."""
    scale = Scale.of(difference)
    largest = max(difference.total.base, difference.total.head)
    for role, side, after in (("before", difference.base, False), ("after", difference.head, True)):
        total = difference.total.head if after else difference.total.base
        name = clip(visible(side.name), svg.room(svg.INNER - 300, svg.TEXT, svg.SANS_EM))
        place = svg.attributes(x=svg.MARGIN, y=sheet.y + 2, font_size=svg.TEXT, class_="muted")
        sheet.parts.append(
            f"<text{place}>{role} "
            f'<tspan class="ink" font-weight="600">{svg.xml_text(name)}</tspan>'
            f" · {svg.xml_text(scale.bare(total))} {svg.xml_text(scale.unit)}</text>"
        )
        sheet.y += 8
        spent = [each.own.head if after else each.own.base for each in difference.changed]
        x = svg.MARGIN
        x = _segment(sheet, x, (total - sum(spent)) * unit, "same")
        for each, value in zip(difference.changed, spent, strict=True):
            same = min(each.own.base, each.own.head)
            tint = "up" if each.own.change > 0 else "down"
            part = abs(each.own.change) / largest
            shade = change_shade(tint, part)  # type: ignore[arg-type]
            x = _segment(sheet, x, min(same, value) * unit, shade)
            x = _segment(sheet, x, (value - same) * unit, "more" if after else "less")
        sheet.y += 24
    sheet.y -= 6


def _legend(sheet: svg.Sheet, difference: ProfileDifference) -> None:
    """Explain the colours: unchanged, more, less, and the added and removed parts."""
    low, high = (f"{100 * step:.0f}" for step in STEPS)
    x = svg.MARGIN
    more, less = "costs more", "costs less"
    if difference.measure == "share":
        more, less = "a larger share", "a smaller share"
    steps = f"by < {low}, < {high}, ≥ {high} % of the whole"
    for shades, words in (
        (("same",), "unchanged"),
        (("up1", "up2", "up3"), f"{more} {steps}"),
        (("more",), "added cost"),
        (("down1", "down2", "down3"), f"{less} likewise"),
        (("less",), "removed cost"),
    ):
        for name in shades:
            sheet.parts.append(_swatch(sheet.y - 10, name, x, 15, 11))
            x += 17
        sheet.parts.append(svg.line(x + 4, sheet.y, words, class_="muted", font_size=svg.SMALL))
        x += 20 + len(words) * svg.SMALL * 0.52
    sheet.y += 14


def _summary_table(sheet: svg.Sheet, difference: ProfileDifference) -> None:
    """Write the largest certain changes, and everything else in one row."""
    unit = Scale.of(difference).unit
    sheet.y += 14
    titles = [title for title, _ in _COLUMNS]
    titles[1] = f"{'own cost' if difference.measure == 'cost' else 'own part'} in {unit}"
    _cells(sheet, titles, "muted", bold=False)
    for rank, name, *others in change_rows(difference):
        sheet.y += _ROW
        row = [rank, clip(name, svg.room(350 - 24 - 12, svg.TEXT)), *others]
        _cells(sheet, row, "ink" if rank else "muted", bold=bool(rank))
    sheet.y += 6


def _cells(sheet: svg.Sheet, texts: list[str], kind_of: str, *, bold: bool) -> None:
    drawn = []
    for index, (text, (_, x)) in enumerate(zip(texts, _COLUMNS, strict=True)):
        anchor = {"text_anchor": "end"} if index >= _LEFT else {}
        weight = {"font_weight": "600"} if bold and index in _BOLD else {}
        if text:
            drawn.append(svg.line(svg.MARGIN + x, sheet.y, text, **anchor, **weight))
    group = svg.attributes(class_=kind_of, font_family=svg.MONO, font_size=svg.TEXT)
    sheet.parts.append(f"<g{group}>{''.join(drawn)}</g>")


def _segment(sheet: svg.Sheet, x: float, width: float, name: str) -> float:
    """Draw a part of a bar and return where it ends."""
    if width > 0:
        sheet.parts.append(_swatch(sheet.y, name, x, max(width - 0.5, 0.5), 9))
    return x + max(width, 0.0)


def _swatch(y: float, name: str, x: float, width: float, height: float) -> str:
    shade = SHADES[name]
    stroke = {"stroke": shade.edge[0]} if shade.edge else {}
    return svg.rect(x, y, width, height, shade.light, class_=name, **stroke)


ANSWER = 15.0
_NARROWEST, _NARROWEST_CALM = 0.5, 2.0


def difference_svg(difference: ProfileDifference, *, title: str, subtitle: str) -> str:
    """Draw ``difference`` as one self-contained SVG document, the same bytes each time."""
    laid, width = difference_layout(
        difference, least_part=_NARROWEST / svg.INNER, calm_part=_NARROWEST_CALM / svg.INNER
    )
    # Noise can make a side wider than the boxes, which are as wide as the mean.
    unit = svg.INNER / max(width, difference.total.base, difference.total.head)
    sheet = svg.Sheet()
    sheet.heading(title, subtitle)
    _banner(sheet, difference)
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


def _answer(sheet: svg.Sheet, difference: ProfileDifference) -> None:
    fits = svg.room(svg.INNER, ANSWER, svg.SANS_EM) - 1
    *begun, last = wrap(visible(describe_difference(difference), 600).split("; "), fits, "; ")
    for text in [*(f"{each};" for each in begun), last]:
        sheet.line(text, font_size=ANSWER, font_weight="600")
        sheet.y += 21
    if difference.measure == "share":
        sheet.y -= 2
        sheet.line(f"Shares only: {SHARES_ONLY}.", "muted", font_size=svg.TEXT)
        sheet.y += 20
    sheet.y += 3


def _flames(
    sheet: svg.Sheet,
    difference: ProfileDifference,
    laid: Layout[PathChange],
    width: float,
    unit: float,
) -> None:
    """Draw the boxes; ``unit`` is the width of one in the measure, ``width`` that of the whole."""
    top, boxes = sheet.y, svg.Boxes()
    ranks = {each.frame.name: rank for rank, each in enumerate(difference.changed, 1)}
    for box in laid.boxes:
        y = top + (laid.depth - box.depth - 1) * svg.ROW
        _box(boxes, difference, box, ranks.get(box.frame.name), y, unit)
    everything = f"all: {describe_total(difference)}"
    floor = top + laid.depth * svg.ROW
    boxes.add("floor", svg.MARGIN, floor, width * unit, [everything], svg.Words(everything))
    sheet.parts.append(boxes.drawn(SHADES))
    sheet.y = floor + svg.ROW


def _box(
    boxes: svg.Boxes,
    difference: ProfileDifference,
    box: Placed[PathChange],
    rank: int | None,
    y: float,
    unit: float,
) -> None:
    """Draw one box; ``rank`` is the row of its function in the table, if that changed."""
    path, scale = box.path, Scale.of(difference)
    name, side = box.frame.name, path.one_sided
    own = difference.change(path.base_self, path.head_self)
    whole = difference.change(path.base_samples, path.head_samples)
    word = f"{state_word(difference, side)}: " if side else ""
    # An outline marks a path on one side alone; its callees have boxes of their own.
    shade = CALL_SHADES[difference.one_sided_call(path)]
    words = svg.Words(word + name, (scale.bare((whole.base + whole.head) / 2),))
    moved = 0.0
    if path.state != "unchanged" and rank is not None:
        # The number leads to the row of the table, from boxes that are too small for a name.
        label = f"{rank} {word}{name}"
        words = svg.Words(label, (scale.signed(own.change), scale.describe(own)), f"{rank}")
        moved = abs(own.change) * unit
        if not (path.children and path.state in ("new", "vanished")):
            largest = max(difference.total.base, difference.total.head)
            part = abs(difference.changed[rank - 1].own.change) / largest
            shade = change_shade(path.state, part)
    x, width = svg.MARGIN + box.start * unit, box.weight * unit
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
    yield "colour: the change of a function's own cost, without its callees"
    yield "number in a box: the row of the table"
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
