"""The pipe between the observer and the observed process.

Records of five bytes: a kind and a signed 32-bit value. The observer commands, the child obeys
and sends each token as soon as it is made. Between commands it does nothing, so that its clocks
can be read exactly.
"""

from __future__ import annotations

import os
import struct

from pytest_flamegate.engines.tokens import plain_token

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
    written = os.write(fd, data)
    while written < len(data):
        data = data[written:]
        written = os.write(fd, data)
