"""Read TOML files that users write: every way in which one can fail is one coded error."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.text import suggest

MAX_BYTES = 4 << 20
_MAX_SHOWN = 80


def read_toml_bytes(path: Path) -> bytes:
    """Return the content of ``path``, of which no more than ``MAX_BYTES`` are read.

    A pipe is not waited for. Raises ``UsageError`` ``E_BAD_TOML`` if the file cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _unreadable_error(path, "it is no regular file")
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable_error(path, getattr(error, "strerror", None) or str(error)) from None
    if len(data) > MAX_BYTES:
        raise _unreadable_error(path, f"it has more than {MAX_BYTES:,} bytes")
    return data


def _unreadable_error(path: Path, reason: str) -> UsageError:
    return UsageError(
        "E_BAD_TOML",
        f"{path} cannot be read: {reason}.",
        "Give the path of a file that this user may read.",
    )


def parse_toml(path: Path, data: bytes) -> dict[str, Any]:
    """Return the document in ``data``, the content of ``path``.

    Raises ``UsageError`` ``E_BAD_TOML``, with line and column if the parser reports them.
    """
    text = ""
    try:
        text = data.decode("utf-8")
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The parser reports line and column unless the document ends too early.
        last = text.rstrip("\n").splitlines() or [""]
        end = f"at line {len(last)}, column {len(last[-1]) + 1}, the end of the document"
        problem = f"{path} is not valid TOML: {str(error).replace('at end of document', end)}."
    except UnicodeDecodeError as error:
        problem = f"{path} is not UTF-8: byte {error.start} cannot be decoded."
    except RecursionError:
        problem = f"{path} is not usable: its values are nested too deeply."
    except ValueError as error:
        # Python limits the digits of a number.
        problem = f"{path} is not usable: {error}."
    raise UsageError("E_BAD_TOML", problem, "Correct the file at that place.")


def freeze(value: object) -> object:
    """Return ``value`` with lists as tuples and tables as read-only views, all the way down."""
    if isinstance(value, list):
        return tuple(map(freeze, value))
    if isinstance(value, dict):
        return MappingProxyType({key: freeze(each) for key, each in value.items()})
    return value


def format_value(value: object) -> str:
    """Return ``value`` for a message: at most 80 characters, and never an exception."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def require_known_keys(table: Mapping[str, Any], names: Collection[str], place: str) -> None:
    """Raise ``UsageError`` ``E_UNKNOWN_KEY`` for a key of ``table`` that is not in ``names``."""
    for key in table:
        if key not in names:
            raise UsageError(
                "E_UNKNOWN_KEY",
                f"{place} has the unknown key {key!r}.",
                suggest(key, sorted(names)),
            )
