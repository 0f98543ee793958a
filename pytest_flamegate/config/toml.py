"""Read a TOML file of somebody else's making: every way it can fail is one coded refusal."""

from __future__ import annotations

import difflib
import os
import stat
import tomllib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path


MAX_BYTES = 4 << 20
_LONGEST_SHOWN = 80


def read_toml_bytes(path: Path) -> bytes:
    """Return the content of ``path``; ``UsageError`` ``E_BAD_TOML`` where it cannot be read.

    A pipe is not waited for, and no more than ``MAX_BYTES`` are taken.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _unreadable(path, "it is no regular file")
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or str(error)) from None
    if len(data) > MAX_BYTES:
        raise _unreadable(path, f"it has more than {MAX_BYTES:,} bytes")
    return data


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        "E_BAD_TOML", f"{path} cannot be read: {why}.", "Make it a file that this user may read."
    )


def freeze(value: object) -> object:
    """Return the value with lists as tuples and tables as read-only views, all the way down."""
    if isinstance(value, list):
        return tuple(map(freeze, value))
    if isinstance(value, dict):
        return MappingProxyType({key: freeze(each) for key, each in value.items()})
    return value


def parse_toml(path: Path, data: bytes) -> dict[str, Any]:
    """Return the document that ``data``, the content of ``path``, holds.

    ``UsageError`` ``E_BAD_TOML``, with line and column where the parser knows them.
    """
    text = ""
    try:
        text = data.decode("utf-8")
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The parser gives line and column except where the document simply ends too early.
        last = text.rstrip("\n").splitlines() or [""]
        end = f"at line {len(last)}, column {len(last[-1]) + 1}, the end of the document"
        what = f"{path} is no valid TOML: {str(error).replace('at end of document', end)}."
    except UnicodeDecodeError as error:
        what = f"{path} is not UTF-8: byte {error.start} cannot be read."
    except RecursionError:
        what = f"{path} is no usable TOML: its values are nested too deeply."
    except ValueError as error:
        # Python's own limit on the digits of a number.
        what = f"{path} is no usable TOML: {error}."
    raise UsageError("E_BAD_TOML", what, "Mend the file at that place.")


def format_value(value: object) -> str:
    """Return ``value`` as a message shows it: short, and never a failure of its own."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def require_known_keys(table: Mapping[str, Any], names: Collection[str], where: str) -> None:
    """Refuse a key that is none of ``names``: ``UsageError`` ``E_UNKNOWN_KEY``."""
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(sorted(names))}."
            raise UsageError("E_UNKNOWN_KEY", f"{where} has the unknown key {key!r}.", hint)
