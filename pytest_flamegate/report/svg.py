"""SVG in small pieces: numbers, escaped text, lines of text and rectangles."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from pytest_flamegate.report.text import MAX_SHOWN, clip, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MONO_CELL = 0.62
"""Widest advance of a common monospace face, in em: what is measured with it fits."""


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
        f'{xml_text(value) if isinstance(value, str) else number(value)}"'
        for name, value in values.items()
    )


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
    """A fill on light and on dark paper, and the ink that reads on each of them.

    ``edge`` are the colours of an outline on both, where there is one.
    """

    light: str
    dark: str
    light_ink: str = "#14171A"
    dark_ink: str = "#F0F3F6"
    edge: tuple[str, str] | None = None


INK: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "paper": ("#FFFFFF", "#0D1117"),
        "edge": ("#D0D7DE", "#3D444D"),
        "ink": ("#14171A", "#E6EDF3"),
        "muted": ("#57606A", "#9AA4AF"),
    }
)
"""What is not a box, by class: its colour on light and on dark paper."""

FLOOR = Shade("#EEF1F4", "#21262D", "#57606A", "#9AA4AF")
"""The box of everything."""


def style(shades: Mapping[str, Shade]) -> str:
    """Return the ``<style>`` element of a picture whose boxes are of these classes.

    A group of boxes is of the class itself, a group of the words on them ``on-`` it.
    """
    light = _rules({name: colours[0] for name, colours in INK.items()}) + "".join(
        f".{name}{{fill:{each.light}{_outline(each, 0)}}}.on-{name}{{fill:{each.light_ink}}}"
        for name, each in shades.items()
    )
    dark = _rules({name: colours[1] for name, colours in INK.items()}) + "".join(
        f".{name}{{fill:{each.dark}{_outline(each, 1)}}}.on-{name}{{fill:{each.dark_ink}}}"
        for name, each in shades.items()
        if (each.light, each.light_ink) != (each.dark, each.dark_ink)
    )
    return f"<style>{light}@media(prefers-color-scheme:dark){{{dark}}}</style>"


def _rules(colours: Mapping[str, str]) -> str:
    fills = "".join(f".{name}{{fill:{colours[name]}}}" for name in ("paper", "ink", "muted"))
    return f"{fills}.paper,.swatch{{stroke:{colours['edge']}}}"


def _outline(shade: Shade, paper: int) -> str:
    return f";stroke:{shade.edge[paper]}" if shade.edge else ""


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
    """What is drawn so far. ``y`` is where the next thing goes."""

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

    def notes(self, told: Sequence[str], size: float = SMALL, leading: float = 16) -> None:
        """Write short notes, as many on a line as there is room for."""
        for text in wrap(told, room(INNER, size, SANS_EM)):
            self.y += leading
            self.line(text, "muted", font_size=size)

    def line(self, text: str, kind: str = "ink", **more: str | float) -> None:
        """Write one line at the left margin."""
        self.parts.append(line(MARGIN, self.y, text, class_=kind, **more))

    def document(self, title: str, description: str, shades: Mapping[str, Shade]) -> str:
        """Return the whole SVG; ``title`` and ``description`` are what a screen reader says."""
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
