"""The pipe between the observer and the observed process.

Records of five bytes: a kind and a signed 32-bit value. The observer commands, the child obeys
and sends each token as soon as it is made. Between commands it does nothing, so that its clocks
can be read exactly.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from operator import index
from typing import Any

from pytest_flamegate.core.errors import ToolError

RECORD = struct.Struct("<ci")

# observer -> child
WARM = b"W"  # generate one sequence of at most `value` tokens
BLOCK = b"B"  # generate `value` whole sequences
PROFILE = b"P"  # as BLOCK, with all tokens sent at the end: sending is not the workload
BRICKS = b"K"  # the same as PROFILE, with the brick clock on
CALLS = b"C"  # count the calls in sequences of at most `value` tokens
REFERENCE = b"R"  # run the reference kernel `value` times
PROMPTS = b"p"  # `value` bytes of JSON follow: the prompts of the next command, in order; no DONE

# child -> observer
FACTS = b"f"  # `value` bytes of JSON follow: facts about the engine, texts by name
READY = b"r"
SEQUENCE = b"s"  # a sequence was requested
TOKEN = b"t"  # a token, its id in `value`
TEXT = b"u"  # a token that is text: `value` bytes of UTF-8 follow
REPORT = b"i"  # `value` bytes of JSON follow: the engine's own report of the sequence
RECORDED = b"k"  # `value` bytes of JSON follow: the record of the brick clock, or of calls
DONE = b"d"  # the command is finished
FAILED = b"x"  # `value` bytes of JSON follow: the error

WITH_PAYLOAD = frozenset({TEXT, FAILED, REPORT, FACTS, RECORDED})
_INT32 = range(-(2**31), 2**31)


class ReaderGoneError(BaseException):
    """Nobody reads the pipe any more. In an engine's process no handler of the engine stops it."""


def send(fd: int, kind: bytes, value: int = 0) -> None:
    """Write one record."""
    _write(fd, RECORD.pack(kind, value))


def send_text(fd: int, kind: bytes, text: str) -> None:
    """Write one record with ``text`` behind it."""
    payload = text.encode("utf-8", "surrogatepass")
    _write(fd, RECORD.pack(kind, len(payload)) + payload)


def send_token(fd: int, token: object) -> None:
    """Write one token: an integer as its id, text as it is. ``E_BAD_TOKEN`` for anything else."""
    plain = plain_token(token)
    if isinstance(plain, int) and plain in _INT32:
        send(fd, TOKEN, plain)
    elif isinstance(plain, bytes):
        send_text(fd, TEXT, plain.decode("utf-8", "backslashreplace"))
    else:
        send_text(fd, TEXT, str(plain))


def tokens_of(returned: Any) -> Iterable[Any]:
    """Return ``returned``, the result of a call of the engine, if its items can be tokens.

    Raises ``ToolError`` ``E_BAD_TOKEN`` for a whole text, whose letters are no tokens, for
    an awaitable, and for an object without items.
    """
    if hasattr(returned, "__iter__") and not isinstance(returned, (str, bytes, bytearray, dict)):
        return returned  # type: ignore[no-any-return]
    raise ToolError("E_BAD_TOKEN", f"The engine returned {_kind(returned)} and no tokens.")


def plain_token(token: Any) -> int | str | bytes:
    """Return the id or the text of ``token``; numbers of numpy and torch become integers.

    Raises ``ToolError`` ``E_BAD_TOKEN`` for any other object: its text could differ between
    processes, as an address does.
    """
    if isinstance(token, (int, str, bytes)) and not isinstance(token, bool):
        return token
    # An array of one id has an item, but no index if it has a dimension.
    item = getattr(token, "item", None)
    try:
        number = item() if callable(item) else token
        return index(None if isinstance(number, bool) else number)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        raise ToolError("E_BAD_TOKEN", f"The engine yielded {_kind(token)} for a token.") from None


def _kind(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__!a}"


def receive(fd: int) -> tuple[bytes, int] | None:
    """Read one record without payload, blocking; None at the end of the stream."""
    data = receive_payload(fd, RECORD.size)
    if data is None:
        return None
    kind, value = RECORD.unpack(data)
    return kind, value


def receive_payload(fd: int, size: int) -> bytes | None:
    """Read ``size`` bytes, blocking; None if the stream ends before."""
    data = b""
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            return None
        data += piece
    return data


class Parser:
    """Cuts a byte stream into records: ``(kind, value, text)``."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def held_bytes(self) -> int:
        """The size of the incomplete record at the end."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[tuple[bytes, int, str]]:
        """Return the records that ``data`` completes."""
        self._buffer += data
        records = []
        at = 0
        while len(self._buffer) - at >= RECORD.size:
            kind, value = RECORD.unpack_from(self._buffer, at)
            end = at + RECORD.size
            text = ""
            if kind in WITH_PAYLOAD:
                end += max(value, 0)
                if len(self._buffer) < end:
                    break
                payload = bytes(self._buffer[at + RECORD.size : end])
                text = payload.decode("utf-8", "backslashreplace")
            records.append((kind, value, text))
            at = end
        del self._buffer[:at]
        return records


def _write(fd: int, data: bytes) -> None:
    try:
        written = os.write(fd, data)
        while written < len(data):
            data = data[written:]
            written = os.write(fd, data)
    except BrokenPipeError:
        raise ReaderGoneError from None
