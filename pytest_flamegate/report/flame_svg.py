"""The flame graph as a static SVG: everything in it reads without JavaScript.

Scripts in an SVG do not run on code-hosting pages or inside ``<img>``, so whatever a
reader needs is drawn: names, shares, the legend, how the profile was taken. Hovering
over a frame tells the rest through its ``<title>``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.profile.hotspots import categorize_frame
from pytest_flamegate.report import text
from pytest_flamegate.report.flame import ROW, Boxes, Words, layout, self_shares, shades, tone
from pytest_flamegate.report.sections import profile_notes
from pytest_flamegate.report.svg import (
    INNER,
    MARGIN,
    SANS_EM,
    TEXT,
    Sheet,
    attributes,
    line,
    rect,
    room,
    xml_text,
)
from pytest_flamegate.report.text import clip, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_flamegate.profile.model import Frame, Profile, Unit
    from pytest_flamegate.report.flame import Box, Layout
    from pytest_flamegate.report.svg import Shade


LEGEND_COLUMNS = 8
LEGEND_ROW = 38.0

Direction = Literal["flame", "icicle"]
"""Roots at the bottom, or at the top."""


@dataclass(frozen=True, slots=True)
class _Picture:
    """What every part of the picture draws from."""

    laid: Layout
    categories: Mapping[Frame, str]
    own: Mapping[Frame, float]
    shares: Mapping[str, float]
    cpu_s_per_token: float | None
    direction: Direction
    unit: Unit

    def count(self, number: int) -> str:
        """Return ``1,312 samples``, or of whatever the profile's unit says."""
        return text.plural(number, self.unit.removesuffix("s"))

    def cost(self, samples: int) -> str:
        """Return `` · 1.38 ms/token`` for ``samples``, nothing where no cost is known."""
        if self.cpu_s_per_token is None:
            return ""
        return f" · {text.per_token(self.cpu_s_per_token * samples / self.laid.samples)}"


def flamegraph(
    profile: Profile,
    *,
    title: str,
    subtitle: str,
    cpu_s_per_token: float | None,
    categorise: Callable[[Frame], str] = categorize_frame,
    direction: Direction = "flame",
) -> str:
    """Draw ``profile`` as one self-contained SVG document, in the reader's light or dark.

    The width of a frame is its share of all samples, or of whatever the profile's unit
    says. ``cpu_s_per_token`` is the CPU
    time of one token in seconds; with it each frame also tells what it costs. Equal
    arguments give equal bytes. Raises ``UndecidedError`` where the profile holds no
    samples and ``ReceiptError`` where a figure makes no sense.
    """
    text.require_cost(cpu_s_per_token)
    laid = layout(profile.stacks, width=INNER)
    own = self_shares(profile.stacks)
    frames = {box.frame for box in laid.boxes} | own.keys()
    categories = {frame: categorise(frame) for frame in sorted(frames)}
    shares = _by_category(own, categories)
    picture = _Picture(laid, categories, own, shares, cpu_s_per_token, direction, profile.unit)

    sheet = Sheet()
    sheet.heading(title, subtitle)
    _category_bar(sheet, picture)
    _flames(sheet, picture)
    sheet.y += 4
    sheet.notes(profile_notes(profile))
    sheet.notes(list(_reading(picture)))
    return sheet.document(title, _description(picture), _shades(picture))


def _by_category(own: Mapping[Frame, float], categories: Mapping[Frame, str]) -> dict[str, float]:
    """Return the self share of each category present, 0 to 1, largest first."""
    shares: dict[str, float] = {}
    for frame, value in own.items():
        name = categories[frame]
        shares[name] = shares.get(name, 0.0) + value
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def _shades(picture: _Picture) -> dict[str, Shade]:
    """Return the colours of the classes that the picture uses."""
    used = {tone(name).name for name in picture.categories.values()} | {"floor"}
    return {name: each for name, each in shades().items() if name in used}


def _category_bar(sheet: Sheet, picture: _Picture) -> None:
    """Draw where the samples end, by category: one bar, and its legend in columns."""
    x = MARGIN
    for name, value in picture.shares.items():
        kind = tone(name)
        wide = max(value * INNER - 1, 0.5)
        sheet.parts.append(rect(x, sheet.y, wide, 9, kind.fill, class_=kind.name))
        x += value * INNER
    sheet.y += 26
    for index, (name, value) in enumerate(picture.shares.items()):
        row, column = divmod(index, LEGEND_COLUMNS)
        x = MARGIN + column * INNER / LEGEND_COLUMNS
        sheet.parts.append(_legend_entry(name, value, picture, x, sheet.y + row * LEGEND_ROW))
    rows = -(-len(picture.shares) // LEGEND_COLUMNS)
    sheet.y += rows * LEGEND_ROW - 8


def _legend_entry(name: str, value: float, picture: _Picture, x: float, y: float) -> str:
    kind = tone(name)
    fits = room(INNER / LEGEND_COLUMNS - 16, TEXT, SANS_EM)
    swatch = rect(x, y - 10, 11, 11, kind.fill, rx=2, class_=f"{kind.name} swatch")
    label = line(x + 16, y, clip(visible(name), fits), font_size=TEXT, class_="ink")
    figure = f'<tspan font-weight="600" class="ink">{xml_text(text.share(value))}</tspan>'
    if picture.cpu_s_per_token is not None:
        figure += f'<tspan dx="6">{text.seconds(picture.cpu_s_per_token * value)}</tspan>'
    place = attributes(x=x + 16, y=y + 16, font_size=TEXT, class_="muted")
    told = xml_text(f"{name}: {kind.meaning}")
    return f"<g><title>{told}</title>{swatch}{label}<text{place}>{figure}</text></g>"


def _flames(sheet: Sheet, picture: _Picture) -> None:
    laid = picture.laid
    flame = picture.direction == "flame"
    top = sheet.y
    boxes = Boxes()
    everything = f"all {picture.count(laid.samples)}{picture.cost(laid.samples)}"
    root = top + laid.depth * ROW if flame else top
    boxes.add("floor", MARGIN, root, INNER, [everything], Words(everything))
    for box in laid.boxes:
        rows = laid.depth - box.depth - 1 if flame else box.depth + 1
        name = tone(picture.categories[box.frame]).name
        told = list(_told(box, picture))
        boxes.add(name, MARGIN + box.x, top + rows * ROW, box.width, told, _words(box, picture))
    sheet.parts.append(boxes.drawn(_shades(picture)))
    sheet.y = top + (laid.depth + 1) * ROW


def _told(box: Box, picture: _Picture) -> Iterator[str]:
    total = picture.laid.samples
    yield box.frame.name
    yield f"{box.frame.module or 'module unknown'} · {picture.categories[box.frame]}"
    yield (
        f"{picture.count(box.samples)} · "
        f"{text.share(box.samples / total)}{picture.cost(box.samples)}"
    )
    if box.self_samples == box.samples:
        yield "all of it itself"
    elif box.self_samples:
        yield (
            f"itself {picture.count(box.self_samples)} · "
            f"{text.share(box.self_samples / total)}{picture.cost(box.self_samples)}"
        )


def _words(box: Box, picture: _Picture) -> Words:
    """Return the frame's name, and its share and file."""
    share = text.share(box.samples / picture.laid.samples)
    return Words(box.frame.name, (share, box.frame.module.rpartition("/")[2]))


def _reading(picture: _Picture) -> Iterator[str]:
    laid = picture.laid
    cost = "" if picture.cpu_s_per_token is None else " and CPU time of a token"
    yield f"legend: self share{cost}"
    yield f"width: share of {picture.unit}"
    where = "bottom" if picture.direction == "flame" else "top"
    yield f"height: call depth, outermost at the {where}"
    yield "order: by name, not by time"
    if laid.stackless:
        yield f"{picture.count(laid.stackless)} without a stack"
    if laid.folded_branches:
        yield (
            f"{picture.count(laid.folded_samples)} in "
            f"{text.plural(laid.folded_branches, 'branch', 'branches')} too small to draw or "
            "too deep, left in the width of their callers"
        )


def _description(picture: _Picture) -> str:
    hottest = sorted(picture.own.items(), key=lambda item: (-item[1], item[0]))
    frames = ", ".join(f"{visible(f.name, 80)} {text.share(value)}" for f, value in hottest[:5])
    kinds = ", ".join(f"{name} {text.share(value)}" for name, value in picture.shares.items())
    return (
        f"Flame graph of {picture.count(picture.laid.samples)}. "
        f"Hottest frames by self share: {frames}. By category: {kinds}."
    )
