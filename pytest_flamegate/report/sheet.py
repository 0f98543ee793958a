"""The sheet of paper that a picture is drawn on: title, notes, boxes, from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flamegate.report.svg import attributes, line, number, rect, room, xml_text
from pytest_flamegate.report.text import clip, visible, wrap
from pytest_flamegate.report.theme import INK, style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.report.theme import Shade

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
