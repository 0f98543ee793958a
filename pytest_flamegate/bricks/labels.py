"""What a node of the execution graph is called where it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.bricks.graph_nodes import Brick, Function, Kernel, Layer, name_of
from pytest_flamegate.profile.text import INVISIBLE, escaped_character

if TYPE_CHECKING:
    from pytest_flamegate.bricks.graph_nodes import Node

MOST = 200
"""Characters of a name that are shown."""


class Label(NamedTuple):
    """A node's name on one line with nothing hidden in it, its time, and what else it tells."""

    name: str
    time: str = ""
    more: str = ""


def label(node: Node) -> Label:
    """Return the label of a node; a layer's is its name alone, for it takes no time itself."""
    name = harmless(name_of(node))
    if isinstance(node, Layer):
        return Label(name)
    time = ""
    if node.start_ns is not None and node.end_ns is not None:
        time = microseconds(node.end_ns - node.start_ns)
    if isinstance(node, Brick):
        return Label(name, time, f"({node.elements} elem)" if node.elements else "")
    if isinstance(node, Kernel):
        return Label(name, time)
    if isinstance(node, Function):
        where = f"{node.file}:{node.line}" if node.line else node.file
        return Label(name, time, harmless(where))
    size = getattr(node, "bytes", None)
    return Label(name, time, "" if size is None else f"{size}B")


def microseconds(duration_ns: int) -> str:
    """Return a duration as ``200.0µs``, whatever its size."""
    return f"{duration_ns / 1e3:.1f}µs"


def harmless(text: str) -> str:
    r"""Return ``text`` on one line: what is hidden or steers a terminal as ``\x1b``, long cut."""
    shown = text[:MOST]
    if not (shown.isprintable() and (shown.isascii() or INVISIBLE.isdisjoint(shown))):
        shown = "".join(
            each if each.isprintable() and each not in INVISIBLE else escaped_character(each)
            for each in shown
        )
    return shown if len(text) <= MOST else f"{shown}… ({len(text):,} characters)"
