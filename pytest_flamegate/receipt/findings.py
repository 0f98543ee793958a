"""What a verification found, and how foreign text is shown in it."""

from __future__ import annotations

import json
from dataclasses import dataclass

_SHOWN_CHARACTERS = 80
_ESCAPED_CHARACTERS = 250
_LINE_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Finding:
    """A stable code, one sentence of what was found and one of what to do about it."""

    code: str
    message: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Refusal(Finding):
    """A reason to refuse."""


@dataclass(frozen=True, slots=True)
class Notice(Finding):
    """Something to know that is no reason to refuse; its code starts with ``W_``."""


def one_line(message: str) -> str:
    """Return ``message`` as one line of printable ASCII of bounded length.

    Names of fields are foreign text too, and a sentence may quote them.
    """
    if not (message.isascii() and message.isprintable()):
        message = message.encode("unicode_escape").decode("ascii")
    if len(message) > _LINE_CHARACTERS:
        message = f"{message[:_LINE_CHARACTERS]}..."
    return message


def shown(value: object) -> str:
    """Return ``value`` as one short line of printable ASCII, safe for terminals and logs.

    What stands in a receipt is foreign text: it may hold terminal escapes, line breaks
    or a megabyte.
    """
    if isinstance(value, str):
        text = _quoted(value, _SHOWN_CHARACTERS)
        # An emoji is one character, and twelve as two escapes.
        return text if len(text) <= _ESCAPED_CHARACTERS else _quoted(value, _SHOWN_CHARACTERS // 4)
    if value is None or isinstance(value, (bool, int, float)):
        text = json.dumps(value)
        return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)} fields"
    return f"a {type(value).__name__}"


def _quoted(text: str, most: int) -> str:
    cut = text if len(text) <= most else text[:most] + "..."
    return json.dumps(cut).replace("\x7f", "\\u007f")
