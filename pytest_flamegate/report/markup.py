"""Markdown in small pieces: foreign text that stays text, tables, fenced blocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence


# Anywhere in a line; at its start; and what hosts turn into links by themselves.
_INLINE = re.compile(r"[\\`*_{}\[\]<>|~$&!]")
_START = re.compile(r"^([#+=-](?![\w.])|\d+(?=[.)](?:\s|$)))")
_LINK = re.compile(r"(?<=www)\.|:(?=//)")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def escape(text: str) -> str:
    """Return ``text`` as prose on one line: nothing in it is read as markup or HTML."""
    shown = visible(text).strip()
    shown = _INLINE.sub(lambda found: _ENTITIES.get(found[0], "\\" + found[0]), shown)
    shown = _LINK.sub(lambda found: "\\" + found[0], shown)
    return _START.sub(_escape_start, shown)


def _escape_start(found: re.Match[str]) -> str:
    # "1." would open a list; its full stop is what can be escaped, not the digit.
    return found[0] + "\\" if found[0].isdigit() else "\\" + found[0]


def code(text: str) -> str:
    """Return ``text`` as a code span, whatever backticks it holds; safe in a table too."""
    shown = visible(text)
    if not shown.strip():
        return "(empty)"
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    room = " " if shown[0] in "` " or shown[-1] in "` " else ""
    # A bar splits a table's cell even inside code; elsewhere a name with one is rare
    # enough for the backslash to do no harm.
    return f"{fence}{room}{shown.replace('|', chr(92) + '|')}{room}{fence}"


def block(text: str, language: str = "") -> str:
    """Return the lines of ``text`` as a fenced block that they cannot close."""
    lines = [visible(line, 2000) for line in text.split("\n")]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Return a table; the columns numbered in ``right`` hold figures and are right-aligned.

    Cells are markup already: pass them through ``escape`` or ``code``.
    """
    rule = ["---:" if i in right else "---" for i in range(len(head))]
    # A figure and its unit stay on one line.
    kept = [
        [cell.replace(" ", "\u00a0") if i in right else cell for i, cell in enumerate(row)]
        for row in rows
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *kept))


def address(path: str) -> str:
    """Return ``path`` as a link target: relative, and with nothing that could end it early."""
    return quote(path, safe="/", errors="replace")


def link(text: str, path: str) -> str:
    """Return a link to a relative ``path``."""
    return f"[{escape(text)}]({address(path)})"
