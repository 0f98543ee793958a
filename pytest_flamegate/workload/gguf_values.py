"""Names and values of a GGUF header, each length checked before it is believed."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap

KEPT_ARRAY_LENGTH = 16
KEPT_STRING_BYTES = 1 << 20
MAX_NAME_BYTES = 1024
MAX_STRINGS = 4_000_000
MAX_TEXT_BYTES = 8 << 20

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBERS = {
    code: (name, struct.Struct(f"<{letter}"))
    for code, name, letter in (
        (0, "u8", "B"),
        (1, "i8", "b"),
        (2, "u16", "H"),
        (3, "i16", "h"),
        (4, "u32", "I"),
        (5, "i32", "i"),
        (6, "f32", "f"),
        (_BOOL, "bool", "B"),
        (10, "u64", "Q"),
        (11, "i64", "q"),
        (12, "f64", "d"),
    )
}


class MalformedError(Exception):
    """What is wrong with a file, worded to follow "The model file …"."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A long array or string that was stepped over: its element type and length."""

    kind: str
    length: int


Scalar = str | int | float | bool
Value = Scalar | tuple[Scalar, ...] | Unread


class Cursor:
    """Bounds-checked little-endian reads, one after the other.

    All texts read together stay under 8 MiB, and all strings stepped over under four
    million, ten times what the largest vocabularies hold: a file cannot make the
    reader slow or large. Every method raises ``MalformedError``.
    """

    __slots__ = ("at", "data", "end", "strings_left", "text_bytes_left")

    def __init__(self, data: mmap.mmap, end: int) -> None:
        self.data = data
        self.at = 0
        self.end = end
        self.strings_left = MAX_STRINGS
        self.text_bytes_left = MAX_TEXT_BYTES

    def take(self, nbytes: int) -> int:
        """Step over ``nbytes`` and return where they began."""
        start = self.at
        if nbytes > self.end - start:
            raise MalformedError(f"ends inside its header (at byte {self.end})")
        self.at = start + nbytes
        return start

    def u32(self) -> int:
        """Read an unsigned integer of 4 bytes."""
        return int(_U32.unpack_from(self.data, self.take(4))[0])

    def u64(self) -> int:
        """Read an unsigned integer of 8 bytes."""
        return int(_U64.unpack_from(self.data, self.take(8))[0])

    def text(self, nbytes: int, what: str) -> str:
        """Read ``nbytes`` of UTF-8."""
        start = self.take(nbytes)
        self.text_bytes_left -= nbytes
        if self.text_bytes_left < 0:
            raise MalformedError(f"holds more than {MAX_TEXT_BYTES} bytes of names and texts")
        try:
            return self.data[start : start + nbytes].decode()
        except UnicodeDecodeError:
            raise MalformedError(f"holds a {what} that is not UTF-8") from None

    def name(self, what: str) -> str:
        """Read the name of a key or a tensor."""
        nbytes = self.u64()
        if not 0 < nbytes <= MAX_NAME_BYTES:
            raise MalformedError(f"holds a {what} of {nbytes} bytes")
        return self.text(nbytes, what)

    def value(self, key: str, *, whole: bool) -> Value:
        """Read the value of ``key``; long arrays only if ``whole``, else their length."""
        code = self.u32()
        if code == _ARRAY:
            return self._array(key, whole=whole)
        if code == _STRING:
            return self._string()
        if code not in _NUMBERS:
            raise MalformedError(f"gives the metadata key {key!r} the unknown type {code}")
        return self._number(code)

    def _string(self) -> str | Unread:
        nbytes = self.u64()
        if nbytes > KEPT_STRING_BYTES:
            self.take(nbytes)
            return Unread("byte", nbytes)
        return self.text(nbytes, "string")

    def _number(self, code: int) -> int | float | bool:
        packed = _NUMBERS[code][1]
        value: int | float = packed.unpack_from(self.data, self.take(packed.size))[0]
        if code == _BOOL and value not in (0, 1):
            raise MalformedError(f"holds a boolean of value {value}")
        return bool(value) if code == _BOOL else value

    def _array(self, key: str, *, whole: bool) -> tuple[Scalar, ...] | Unread:
        code, length = self.u32(), self.u64()
        if code != _STRING and code not in _NUMBERS:
            # llama.cpp refuses arrays of arrays as well, so no usable model has them.
            raise MalformedError(f"gives the array {key!r} elements of unsupported type {code}")
        name, smallest = ("string", 8) if code == _STRING else _sized(code)
        if length > (self.end - self.at) // smallest:
            raise MalformedError(f"claims {length} elements in the array {key!r}")
        if length > KEPT_ARRAY_LENGTH and not whole:
            if code == _STRING:
                self._skip_strings(length)
            else:
                self.take(length * smallest)
            return Unread(name, length)
        if code == _STRING:
            self._count_strings(length)
            return tuple(self.text(self.u64(), "string") for _ in range(length))
        return tuple(self._number(code) for _ in range(length))

    def _count_strings(self, count: int) -> None:
        self.strings_left -= count
        if self.strings_left < 0:
            raise MalformedError(f"claims more than {MAX_STRINGS} strings")

    def _skip_strings(self, count: int) -> None:
        self._count_strings(count)
        # The one loop that runs for every word of a vocabulary: no calls but one.
        data, at, length_at = self.data, self.at, _U64.unpack_from
        try:
            for _ in range(count):
                at += length_at(data, at)[0] + 8
        except (struct.error, OverflowError, IndexError):
            at = self.end + 1
        self.take(at - self.at)


def _sized(code: int) -> tuple[str, int]:
    name, packed = _NUMBERS[code]
    return name, packed.size
