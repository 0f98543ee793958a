"""What stands around a differential flame graph: warning, sides, legend and table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report.difference_palette import SHADES, STEPS, kind
from pytest_flamegate.report.difference_words import Scale, rows
from pytest_flamegate.report.sheet import INNER, MARGIN, MONO, SANS_EM, SMALL, TEXT
from pytest_flamegate.report.svg import attributes, line, rect, room, xml_text
from pytest_flamegate.report.text import clip, visible, wrap

if TYPE_CHECKING:
    from pytest_flamegate.profile.difference import Change, Difference
    from pytest_flamegate.report.difference_words import Row
    from pytest_flamegate.report.sheet import Sheet

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


def banner(sheet: Sheet, difference: Difference) -> None:
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


def side_bars(sheet: Sheet, difference: Difference, unit: float) -> None:
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


def legend(sheet: Sheet, difference: Difference) -> None:
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


def summary_table(sheet: Sheet, difference: Difference) -> None:
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
