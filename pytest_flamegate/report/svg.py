"""SVG in small pieces: numbers, escaped text, lines of text and rectangles."""

from __future__ import annotations

from xml.sax.saxutils import escape

from pytest_flamegate.report.text import MAX_SHOWN, visible

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
