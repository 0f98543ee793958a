"""The flame graph as a static SVG: everything in it reads without JavaScript.

Scripts in an SVG do not run on code-hosting pages or inside ``<img>``, so whatever a
reader needs is drawn: names, shares, the legend, how the profile was taken. Hovering
over a frame tells the rest through its ``<title>``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.profile.category import category
from pytest_flamegate.report import figures
from pytest_flamegate.report.layout import layout, self_shares
from pytest_flamegate.report.palette import tone
from pytest_flamegate.report.provenance import profile_notes
from pytest_flamegate.report.svg import attributes, line, number, rect, room, xml_text
from pytest_flamegate.report.text import cells, clip, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_flamegate.profile.model import Frame, Profile
    from pytest_flamegate.report.layout import Box, Layout

WIDTH = 1000.0
MARGIN = 16.0
INNER = WIDTH - 2 * MARGIN
ROW = 20.0
LABEL = 12.0
SMALL = 11.5
SANS_EM = 0.58
LEGEND_COLUMNS = 8
LEGEND_ROW = 38.0

_SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_INK, _MUTED, _PAPER, _EDGE, _BASE = "#14171A", "#57606A", "#FFFFFF", "#D0D7DE", "#EEF1F4"


@dataclass(frozen=True, slots=True)
class _Picture:
    """What every part of the picture draws from."""

    laid: Layout
    categories: Mapping[Frame, str]
    shares: Mapping[str, float]
    cpu_s_per_token: float | None

    def cost(self, samples: int) -> str:
        """Return `` · 1.38 ms/token`` for ``samples``, nothing where no cost is known."""
        if self.cpu_s_per_token is None:
            return ""
        return f" · {figures.per_token(self.cpu_s_per_token * samples / self.laid.samples)}"


def flamegraph(
    profile: Profile,
    *,
    title: str,
    subtitle: str,
    cpu_s_per_token: float | None,
    categorise: Callable[[Frame], str] = category,
) -> str:
    """Draw ``profile`` as one self-contained SVG document, roots at the bottom.

    The width of a frame is its share of all samples. ``cpu_s_per_token`` is the CPU
    time of one token in seconds; with it each frame also tells what it costs. Equal
    arguments give equal bytes. Raises ``UndecidedError`` where the profile holds no
    samples and ``ReceiptError`` where a figure makes no sense.
    """
    if cpu_s_per_token is not None and not (math.isfinite(cpu_s_per_token) and cpu_s_per_token > 0):
        raise ReceiptError(
            "E_BAD_FIGURE",
            f"The CPU time for each token is {cpu_s_per_token!r} s.",
            "Measure again; a run that used no CPU time generated nothing.",
        )
    laid = layout(profile.stacks, width=INNER, min_width=0.4)
    frames = {box.frame for box in laid.boxes} | self_shares(profile.stacks).keys()
    categories = {frame: categorise(frame) for frame in sorted(frames)}
    picture = _Picture(laid, categories, category_shares(profile, categories), cpu_s_per_token)

    parts: list[str] = []
    y = _header(parts, title, subtitle)
    y = _category_bar(parts, picture, y)
    y = _flames(parts, picture, y)
    height = _footer(parts, profile, picture, y)
    return _document(parts, height, title, _description(profile, picture))


def category_shares(profile: Profile, categories: Mapping[Frame, str]) -> dict[str, float]:
    """Return the self share of each category present, 0 to 1, largest first."""
    shares: dict[str, float] = {}
    for frame, value in self_shares(profile.stacks).items():
        name = categories[frame]
        shares[name] = shares.get(name, 0.0) + value
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def _header(parts: list[str], title: str, subtitle: str) -> float:
    y = MARGIN + 14
    fits = room(INNER, 17, SANS_EM)
    parts.append(
        line(MARGIN, y, clip(visible(title), fits), font_size=17, font_weight="600", fill=_INK)
    )
    lines = wrap(visible(subtitle, 600).split(" · "), room(INNER, LABEL, SANS_EM))
    for text in lines if subtitle else []:
        y += 18
        parts.append(line(MARGIN, y, text, font_size=LABEL, fill=_MUTED))
    return y + 13


def _category_bar(parts: list[str], picture: _Picture, y: float) -> float:
    """Draw where the samples end, by category: one bar, and its legend in columns."""
    x = MARGIN
    for name, value in picture.shares.items():
        parts.append(rect(x, y, max(value * INNER - 1, 0.5), 9, tone(name).fill))
        x += value * INNER
    y += 26
    for index, (name, value) in enumerate(picture.shares.items()):
        row, column = divmod(index, LEGEND_COLUMNS)
        x = MARGIN + column * INNER / LEGEND_COLUMNS
        parts.append(_legend_entry(name, value, picture, x, y + row * LEGEND_ROW))
    rows = -(-len(picture.shares) // LEGEND_COLUMNS)
    return y + rows * LEGEND_ROW - 8


def _legend_entry(name: str, value: float, picture: _Picture, x: float, y: float) -> str:
    kind = tone(name)
    fits = room(INNER / LEGEND_COLUMNS - 16, LABEL, SANS_EM)
    swatch = rect(x, y - 10, 11, 11, kind.fill, stroke=_EDGE, stroke_width=0.75, rx=2)
    label = line(x + 16, y, clip(visible(name), fits), font_size=LABEL, fill=_INK)
    figure = f'<tspan font-weight="600" fill="{_INK}">{figures.share(value)}</tspan>'
    if picture.cpu_s_per_token is not None:
        figure += f'<tspan dx="6">{figures.seconds(picture.cpu_s_per_token * value)}</tspan>'
    place = attributes(x=x + 16, y=y + 16, font_size=LABEL, fill=_MUTED)
    told = xml_text(f"{name}: {kind.meaning}")
    return f"<g><title>{told}</title>{swatch}{label}<text{place}>{figure}</text></g>"


def _flames(parts: list[str], picture: _Picture, y: float) -> float:
    laid = picture.laid
    floor = y + laid.depth * ROW
    parts.append(f"<g{attributes(font_family=_MONO, font_size=LABEL)}>")
    parts.extend(_box(box, picture, floor - (box.depth + 1) * ROW) for box in laid.boxes)
    everything = f"all {figures.plural(laid.samples, 'sample')}{picture.cost(laid.samples)}"
    parts.append(rect(MARGIN, floor, INNER, ROW - 1, _BASE, rx=2))
    parts.append(line(MARGIN + 6, floor + 14, everything, fill=_MUTED))
    parts.append("</g>")
    return floor + ROW


def _box(box: Box, picture: _Picture, y: float) -> str:
    kind = tone(picture.categories[box.frame])
    title = f"<title>{_tooltip(box, picture)}</title>"
    label = _label(box, picture, kind.ink)
    # A hair between neighbours, except where the hair would be all that is left.
    wide = box.width - 0.75 if box.width > 2 else box.width
    if not label:
        return f"<g>{title}{rect(MARGIN + box.x, y, wide, ROW - 1, kind.fill)}</g>"
    # A nested svg clips what it holds, so no face can push a name over its neighbour.
    place = attributes(x=MARGIN + box.x, y=y, width=wide, height=ROW - 1)
    return (
        f'<svg{place}>{title}<rect width="100%" height="100%" rx="2" fill="{kind.fill}"/>'
        f"{label}</svg>"
    )


def _tooltip(box: Box, picture: _Picture) -> str:
    total = picture.laid.samples
    lines = [
        box.frame.name,
        f"{box.frame.module or 'module unknown'} · {picture.categories[box.frame]}",
        f"{figures.plural(box.samples, 'sample')} · "
        f"{figures.share(box.samples / total)}{picture.cost(box.samples)}",
    ]
    if box.self_samples == box.samples:
        lines.append("all of it itself")
    elif box.self_samples:
        lines.append(
            f"itself {figures.plural(box.self_samples, 'sample')} · "
            f"{figures.share(box.self_samples / total)}{picture.cost(box.self_samples)}"
        )
    return "\n".join(xml_text(text) for text in lines)


def _label(box: Box, picture: _Picture, ink: str) -> str:
    """Return the frame's name, and its share and module where there is room for them."""
    fits = room(box.width - 8, LABEL)
    if fits < 3:
        return ""
    name = clip(_shown_name(box.frame.name, fits), fits)
    more = ""
    left = fits - cells(name)
    module = visible(box.frame.module.rpartition("/")[2])
    for text in (figures.share(box.samples / picture.laid.samples), module):
        left -= cells(text) + 2
        if left < 0 or not text:
            break
        more += f'<tspan dx="10">{xml_text(text)}</tspan>'
    return f'<text x="5" y="14" fill="{ink}">{xml_text(name)}{more}</text>'


def _shown_name(name: str, fits: int) -> str:
    """Return ``name``, without its class or namespace where only that makes it fit."""
    shown = visible(name)
    if cells(shown) <= fits:
        return shown
    bare = shown.replace("::", ".").rpartition(".")[2]
    return bare if bare.isidentifier() else shown


def _footer(parts: list[str], profile: Profile, picture: _Picture, y: float) -> float:
    y += 4
    fits = room(INNER, SMALL, SANS_EM)
    notes = wrap(profile_notes(profile), fits)
    reading = [
        "legend: self share"
        + ("" if picture.cpu_s_per_token is None else " and CPU time of a token"),
        "width: share of samples",
        "height: call depth, outermost at the bottom",
        "order: by name, not by time",
    ]
    laid = picture.laid
    if laid.stackless:
        reading.append(f"{figures.plural(laid.stackless, 'sample')} without a stack")
    if laid.folded_boxes:
        reading.append(
            f"{figures.plural(laid.folded_samples, 'sample')} in "
            f"{figures.plural(laid.folded_boxes, 'frame')} too small to draw or too deep"
            ", left in the width of their callers"
        )
    for text in notes + wrap(reading, fits):
        y += 16
        parts.append(line(MARGIN, y, text, font_size=SMALL, fill=_MUTED))
    return y + MARGIN


def _description(profile: Profile, picture: _Picture) -> str:
    hottest = sorted(self_shares(profile.stacks).items(), key=lambda item: (-item[1], item[0]))
    frames = ", ".join(f"{visible(f.name, 80)} {figures.share(value)}" for f, value in hottest[:5])
    kinds = ", ".join(f"{name} {figures.share(value)}" for name, value in picture.shares.items())
    return (
        f"Flame graph of {figures.plural(picture.laid.samples, 'sample')}. "
        f"Hottest frames by self share: {frames}. By category: {kinds}."
    )


def _document(parts: list[str], height: float, title: str, description: str) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(WIDTH)} {number(height)}"'
        f' width="100%" style="height:auto" role="img"'
        f"{attributes(font_family=_SANS)}>"
    )
    paper = rect(0.5, 0.5, WIDTH - 1, height - 1, _PAPER, stroke=_EDGE, stroke_width=1, rx=8)
    return "\n".join(
        [
            head,
            f"<title>{xml_text(title)}</title>",
            f"<desc>{xml_text(description, 2000)}</desc>",
            paper,
            *parts,
            "</svg>",
            "",
        ]
    )
