"""The colours of a picture in light and in dark, as one style sheet inside the SVG.

It follows the reader's theme inside ``<img>`` too. What must not be lost where a style
sheet is dropped (the paper, the fill of a box) also stands on the shape itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
