"""The boxes of a picture and the words on them, grouped by class to be short.

The words stand apart from the boxes and let the pointer through, so that each box needs
nothing but itself and its ``<title>``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flamegate.report.sheet import MONO, TEXT
from pytest_flamegate.report.svg import attributes, number, room, xml_text
from pytest_flamegate.report.text import cells, clip, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.report.theme import Shade

ROW = 20.0
_TALL = number(ROW - 1)
_AS_WIDE_AS_LETTERS = str.maketrans("", "", "…·µ→−–±")


@dataclass(slots=True)
class Boxes:
    """Boxes and words by their class, as they are added."""

    shapes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    marks: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    words: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self, kind: str, x: float, y: float, width: float, told: Sequence[str], words: Words
    ) -> None:
        """Add a box of the class ``kind``; ``told`` are the lines of its title."""
        # A hair between neighbours, except where the hair would be all that is left.
        wide = width - 0.75 if width > 2 else width
        title = "\n".join(map(xml_text, told))
        self.shapes[kind].append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(wide)}" height="{_TALL}">'
            f"<title>{title}</title></rect>"
        )
        label = words.within(wide - 7)
        if label:
            self.words[kind].append(_placed(label, x, y, wide))
        elif words.short and room(wide - 1, TEXT) >= cells(words.short):
            middle = attributes(x=x + wide / 2, y=y + 14, text_anchor="middle")
            self.words[kind].append(f"<text{middle}>{xml_text(words.short)}</text>")

    def mark(self, kind: str, x: float, y: float, width: float) -> None:
        """Mark a part of a box with the class ``kind``; the box's title still shows there."""
        inset = 0.5
        place = attributes(
            x=x + inset,
            y=y + inset,
            width=max(width - 0.75 - 2 * inset, 0.5),
            height=ROW - 1 - 2 * inset,
        )
        self.marks[kind].append(f"<rect{place}/>")

    def drawn(self, shades: Mapping[str, Shade]) -> str:
        """Return all of them; a class stands in the style sheet as it does in ``shades``."""
        groups = [
            f"<g{_coloured(kind, shades[kind])}{more}>{''.join(shapes)}</g>"
            for drawn, more in ((self.shapes, ""), (self.marks, ' pointer-events="none"'))
            for kind, shapes in drawn.items()
        ]
        font = attributes(font_family=MONO, font_size=TEXT, pointer_events="none")
        words = [
            f"<g{attributes(class_=f'on-{kind}', fill=shades[kind].light_ink)}>{''.join(texts)}</g>"
            for kind, texts in self.words.items()
        ]
        return "\n".join([*groups, f"<g{font}>", *words, "</g>"])


@dataclass(frozen=True, slots=True)
class Words:
    """What stands on a box: a name, and after it whatever there is room for, in this order.

    ``short`` stands there alone where there is no room for the name.
    """

    name: str
    more: Sequence[str] = ()
    short: str = ""

    def within(self, width: float) -> list[str]:
        """Return the words that fit into ``width``, none where not even three letters do."""
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


def _coloured(kind: str, shade: Shade) -> str:
    stroke = {"stroke": shade.edge[0]} if shade.edge else {}
    return attributes(class_=kind, fill=shade.light, **stroke)


def _placed(label: Sequence[str], x: float, y: float, wide: float) -> str:
    name, *more = map(xml_text, label)
    text = name + "".join(f'<tspan dx="10">{each}</tspan>' for each in more)
    if "".join(label).translate(_AS_WIDE_AS_LETTERS).isascii():
        return f'<text x="{number(x + 5)}" y="{number(y + 14)}">{text}</text>'
    # Of letters whose width no rule tells: a nested svg clips what it holds, so that no
    # face can push a name over its neighbour.
    place = attributes(x=x, y=y, width=wide, height=ROW - 1)
    return f'<svg{place}><text x="5" y="14">{text}</text></svg>'


def _shown_name(name: str, fits: int) -> str:
    """Return ``name``, without its class or namespace where only that makes it fit."""
    shown = visible(name)
    if cells(shown) <= fits:
        return shown
    bare = shown.replace("::", ".").rpartition(".")[2]
    return bare if bare.isidentifier() else shown
