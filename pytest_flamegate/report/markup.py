"""SVG and HTML in small pieces: text, boxes with labels, whole sheets; elements and tables.

Foreign text is always escaped.
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from xml.sax.saxutils import escape  # noqa: TID251 - escapes, parses nothing

from pytest_flamegate.report.text import MAX_SHOWN, cells, clip, read_asset, visible, wrap

MONO_CELL = 0.62
"""Widest advance of a common monospace face, in em: a text measured with it fits."""


def number(value: float) -> str:
    """Return a coordinate with at most two decimals: ``12.5``, ``0``."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def xml_text(text: str, limit: int = MAX_SHOWN) -> str:
    """Return ``text`` harmless inside an element or a quoted attribute, on one line."""
    return escape(visible(text, limit), {'"': "&quot;", "'": "&#39;"})


def attributes(**values: str | float) -> str:
    """Return attributes in the order given: ``font_size=12`` as ``font-size="12"``, ``class_``."""
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="'
        f'{xml_text(value, 2000) if isinstance(value, str) else number(value)}"'
        for name, value in values.items()
    )


def element(tag: str, *children: str, **values: str) -> str:
    """Return one element of HTML; children are markup, attributes are text."""
    return f"<{tag}{attributes(**values)}>{''.join(children)}</{tag}>"


def rect(x: float, y: float, width: float, height: float, fill: str, **more: str | float) -> str:
    """Return one rectangle."""
    return f"<rect{attributes(x=x, y=y, width=width, height=height, fill=fill, **more)}/>"


def line(x: float, y: float, text: str, **more: str | float) -> str:
    """Return one line of text whose baseline starts at ``x``, ``y``."""
    return f"<text{attributes(x=x, y=y, **more)}>{xml_text(text)}</text>"


def room(width: float, size: float, em: float = MONO_CELL) -> int:
    """Return how many columns of text of font size ``size`` fit into ``width``."""
    return max(int(width / (size * em)), 0)


@dataclass(frozen=True, slots=True)
class Shade:
    """A class of boxes: its fill on light and on dark paper, and the ink that reads on each.

    ``edge`` are the colours of an outline on both, if there is one; ``meaning`` is for a legend.
    """

    name: str
    light: str
    dark: str
    light_ink: str
    dark_ink: str
    edge: Sequence[str] = ()
    meaning: str = ""


def read_shades(group: str) -> dict[str, Shade]:
    """Return the shades of a group in ``assets/palette.toml`` by their names."""
    shades = {}
    for name, row in tomllib.loads(read_asset("palette.toml"))[group].items():
        ink = row.get("light_ink", "#14171A")
        dark_ink = "#FFFFFF" if "dark" in row else ink
        usual = {"dark": row["light"], "light_ink": ink, "dark_ink": dark_ink}
        shades[name] = Shade(name, **{**usual, **row})
    return shades


INK: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "paper": ("#FFFFFF", "#0D1117"),
        "edge": ("#D0D7DE", "#3D444D"),
        "ink": ("#14171A", "#E6EDF3"),
        "muted": ("#57606A", "#9AA4AF"),
    }
)
"""Colours on light and on dark paper of everything but boxes, by class."""

UNKNOWN, FLOOR = read_shades("others").values()
"""The colours of a category that this version does not know, and of the box of everything."""


def style(shades: Mapping[str, Shade]) -> str:
    """Return the ``<style>`` element of a picture whose boxes are of these classes.

    A group of boxes is of the class itself, a group of the words on them ``on-`` it.
    """
    light, dark = ("".join(_rules(shades, paper)) for paper in (0, 1))
    return f"<style>{light}@media(prefers-color-scheme:dark){{{dark}}}</style>"


def _rules(shades: Mapping[str, Shade], paper: int) -> Iterator[str]:
    """Yield the rules for light paper (0), or those for dark paper (1) that differ."""
    for name in ("paper", "ink", "muted"):
        yield f".{name}{{fill:{INK[name][paper]}}}"
    yield f".paper,.swatch{{stroke:{INK['edge'][paper]}}}"
    for name, shade in shades.items():
        edge = f";stroke:{shade.edge[paper]}" if shade.edge else ""
        light, dark = (shade.light, shade.light_ink), (shade.dark, shade.dark_ink)
        fill, ink = dark if paper else light
        if not paper or dark != light:
            yield f".{name}{{fill:{fill}{edge}}}.on-{name}{{fill:{ink}}}"


WIDTH = 1000.0
MARGIN = 16.0
INNER = WIDTH - 2 * MARGIN
TEXT = 12.0
SMALL = 11.5
SANS_EM = 0.58

_SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(slots=True)
class Sheet:
    """The parts drawn so far; the next one goes to ``y``."""

    parts: list[str] = field(default_factory=list)
    y: float = MARGIN

    def heading(self, title: str, subtitle: str) -> None:
        """Write the title, and the notes of ``subtitle`` under it, a middle dot between two."""
        self.y += 14
        fits = room(INNER, 17, SANS_EM)
        self.line(clip(visible(title), fits), font_size=17, font_weight="600")
        if subtitle:
            self.notes(visible(subtitle, 600).split(" · "), TEXT, 18)
        self.y += 13

    def notes(self, texts: Sequence[str], size: float = SMALL, leading: float = 16) -> None:
        """Write short notes, as many on a line as there is room for."""
        for text in wrap(texts, room(INNER, size, SANS_EM)):
            self.y += leading
            self.line(text, "muted", font_size=size)

    def line(self, text: str, kind: str = "ink", **more: str | float) -> None:
        """Write one line at the left margin."""
        self.parts.append(line(MARGIN, self.y, text, class_=kind, **more))

    def document(self, title: str, description: str, shades: Mapping[str, Shade]) -> str:
        """Return the whole SVG; ``title`` and ``description`` are for screen readers."""
        height = self.y + MARGIN
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(WIDTH)} '
            f'{number(height)}" width="100%" style="height:auto" role="img"'
            f"{attributes(font_family=_SANS)}>"
        )
        paper, edge = INK["paper"][0], INK["edge"][0]
        return "\n".join(
            [
                head,
                f"<title>{xml_text(title)}</title>",
                f"<desc>{xml_text(description, 2000)}</desc>",
                style(shades),
                rect(0.5, 0.5, WIDTH - 1, height - 1, paper, stroke=edge, rx=8, class_="paper"),
                *self.parts,
                "</svg>",
                "",
            ]
        )


ROW = 20.0
_TALL = number(ROW - 1)
_AS_WIDE_AS_LETTERS = str.maketrans("", "", "…·µ→−–±")


@dataclass(slots=True)
class Boxes:
    """Boxes and words by their class, as they are added.

    The words lie above all boxes and let the pointer through, so that each box needs only itself
    and its ``<title>``.
    """

    shapes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    marks: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    words: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self, kind: str, x: float, y: float, width: float, title: Sequence[str], words: Words,
        *, ink: str = "",
    ) -> None:  # fmt: skip
        """Add a box of the class ``kind``; ``ink`` is the class of its words if it differs."""
        # A gap between neighbours, unless nothing else would be left.
        wide = width - 0.75 if width > 2 else width
        lines = "\n".join(map(xml_text, title))
        self.shapes[kind].append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(wide)}" height="{_TALL}">'
            f"<title>{lines}</title></rect>"
        )
        label = words.within(wide - 7)
        if label:
            self.words[ink or kind].append(_placed(label, x, y, wide))
        elif words.short and room(wide - 1, TEXT) >= cells(words.short):
            middle = attributes(x=x + wide / 2, y=y + 14, text_anchor="middle")
            self.words[ink or kind].append(f"<text{middle}>{xml_text(words.short)}</text>")

    def mark(self, kind: str, x: float, y: float, width: float) -> None:
        """Mark a part of a box with the class ``kind``; the box's title still shows there."""
        place = attributes(x=x + 0.5, y=y + 0.5, width=max(width - 0.75 - 1, 0.5), height=ROW - 2)
        self.marks[kind].append(f"<rect{place}/>")

    def drawn(self, shades: Mapping[str, Shade]) -> str:
        """Return all of them in the colours of ``shades``."""
        groups = []
        for drawn, more in ((self.shapes, ""), (self.marks, ' pointer-events="none"')):
            for kind, shapes in drawn.items():
                edge = shades[kind].edge
                stroke = {"stroke": edge[0]} if edge else {}
                colours = attributes(class_=kind, fill=shades[kind].light, **stroke)
                groups.append(f"<g{colours}{more}>{''.join(shapes)}</g>")
        font = attributes(font_family=MONO, font_size=TEXT, pointer_events="none")
        words = [
            f"<g{attributes(class_=f'on-{kind}', fill=shades[kind].light_ink)}>{''.join(texts)}</g>"
            for kind, texts in self.words.items()
        ]
        return "\n".join([*groups, f"<g{font}>", *words, "</g>"])


@dataclass(frozen=True, slots=True)
class Words:
    """The label of a box: a name, then as many of ``more`` as fit, in this order.

    ``short`` takes their place if there is no room for the name.
    """

    name: str
    more: Sequence[str] = ()
    short: str = ""

    def within(self, width: float) -> list[str]:
        """Return the words that fit into ``width``; none if three letters do not."""
        fits = room(width, TEXT)
        if fits < 3:
            return []
        shown = [clip(_shown_name(self.name, fits), fits)]
        left = fits - cells(shown[0])
        for text in map(visible, self.more):
            left -= cells(text) + 2
            if left < 0 or not text:
                break
            shown.append(text)
        return shown


def _placed(label: Sequence[str], x: float, y: float, wide: float) -> str:
    name, *more = map(xml_text, label)
    text = name + "".join(f'<tspan dx="10">{each}</tspan>' for each in more)
    if "".join(label).translate(_AS_WIDE_AS_LETTERS).isascii():
        return f'<text x="{number(x + 5)}" y="{number(y + 14)}">{text}</text>'
    # The width of these letters is not known: a nested svg clips them, so that no font can
    # push a name over its neighbour.
    place = attributes(x=x, y=y, width=wide, height=ROW - 1)
    return f'<svg{place}><text x="5" y="14">{text}</text></svg>'


def _shown_name(name: str, fits: int) -> str:
    """Return ``name``, without its class or namespace if only that makes it fit."""
    shown = visible(name)
    if cells(shown) <= fits:
        return shown
    bare = shown.replace("::", ".").rpartition(".")[2]
    return bare if bare.isidentifier() else shown


_PLOT_WIDTH, _PLOT_HEIGHT, _PLOT_EDGE = 720.0, 84.0, 24.0


def draw_pairs(
    changes_pct: Sequence[float], interval_pct: tuple[float, float], limit_pct: float | None
) -> str:
    """Return a plot as SVG for a page, whose style sheet colours it.

    Each change is a dot; the interval is a bar below them and the limit a line.
    """
    low, high = (f([*changes_pct, *interval_pct, 0.0, limit_pct or 0.0]) for f in (min, max))
    scale = (_PLOT_WIDTH - 2 * _PLOT_EDGE) / ((high - low) or 1.0)

    def at(value: float) -> str:
        return number(_PLOT_EDGE + (value - low) * scale)

    def mark(value: float, kind: str, label: str) -> str:
        x = at(value)
        return (
            f'<line x1="{x}" x2="{x}" y1="6" y2="64" class="{kind}"/>'
            f'<text x="{x}" y="78" text-anchor="middle">{xml_text(label)}</text>'
        )

    dots = [
        f'<circle cx="{at(change)}" cy="{26 + 7 * (index % 3 - 1)}" r="4">'
        f"<title>pair {index + 1}: {change:+.1f} %</title></circle>"
        for index, change in enumerate(changes_pct)
    ]
    first, last = interval_pct
    bar = (
        f'<rect x="{at(first)}" y="48" width="{number(max((last - first) * scale, 1.0))}" '
        'height="8" rx="2" class="interval"/>'
    )
    limit = "" if limit_pct is None else mark(limit_pct, "limit", f"{limit_pct:+g} %")
    label = f"{len(changes_pct)} pairs from {min(changes_pct):+.1f} to {max(changes_pct):+.1f} %"
    return (
        f'<svg class="pairs" viewBox="0 0 {number(_PLOT_WIDTH)} {number(_PLOT_HEIGHT)}" role="img" '
        f'aria-label="{xml_text(label)}">{mark(0.0, "zero", "0")}{limit}{bar}{"".join(dots)}</svg>'
    )


# HTML


def lines(tag: str, texts: Iterable[str], **values: str) -> str:
    """Return one element for each text; nothing for an empty one."""
    return "".join(element(tag, xml_text(each, 2000), **values) for each in texts if each)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    caption: str = "",
    **values: str,
) -> str:
    """Return a table that scrolls if it is too wide; cells are markup already.

    The columns numbered in ``right`` hold figures. The first cell of a row is its heading.
    """

    def row(cells: Iterable[str], scope: str) -> str:
        made = []
        for index, cell in enumerate(cells):
            kind = {"class_": "figure"} if index in right else {}
            is_heading = scope == "col" or index == 0
            heading = {"scope": scope} if is_heading else {}
            made.append(element("th" if is_heading else "td", cell, **heading, **kind))
        return element("tr", *made)

    parts = [
        element("caption", xml_text(caption)) if caption else "",
        element("thead", row(map(xml_text, head), "col")),
        element("tbody", *(row(each, "row") for each in rows)),
    ]
    # Focusable, so that a wide table scrolls by keys too.
    return element("div", element("table", *parts, **values), class_="scroll", tabindex="0")


def data(name: str, value: Mapping[str, object]) -> str:
    """Return ``value`` as data with the id ``name``; nothing in it can end the element."""
    written = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for char in "<>&":
        written = written.replace(char, f"\\u{ord(char):04x}")
    return f'<script type="application/json" id="{name}">{written}</script>'
