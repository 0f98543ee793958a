"""Read the header of a GGUF model file, without its weights.

The file is mapped, and long arrays (vocabularies, merges) are skipped, so a header costs
milliseconds and little memory whatever the size of the file. Every count, length and offset is
checked against the file's size before it is used.
"""

from __future__ import annotations

import itertools
import math
import mmap
import struct
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.files import path_text
from pytest_flamegate.models.files import read_stamp, unreadable_error

MAX_ARRAY_LENGTH = 16
MAX_STRING_BYTES = 1 << 20
MAX_NAME_BYTES = 1024
MAX_STRINGS = 4_000_000
MAX_TEXT_BYTES = 8 << 20
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 20

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_BOOL, _STRING, _ARRAY = 7, 8, 9
_CODES = (0, 1, 2, 3, 4, 5, 6, _BOOL, 10, 11, 12)
_NUMBERS = {
    code: struct.Struct(f"<{letter}") for code, letter in zip(_CODES, "BbHhIifBQqd", strict=True)
}
"""How numbers of each type are packed."""


class MalformedError(Exception):
    """The problem of a file, worded to follow "The model file …"."""


Scalar = str | int | float | bool
Value = Scalar | tuple[Scalar, ...] | None
"""None for a long array or string, which was skipped."""


class Cursor:
    """Bounds-checked little-endian reads, one after the other.

    All texts together are limited to 8 MiB, and all skipped strings to four million, ten times
    the largest vocabularies: no file can make the reader slow or large. Every method raises
    ``MalformedError``.
    """

    __slots__ = ("at", "data", "end", "strings_left", "text_bytes_left")

    def __init__(self, data: mmap.mmap, end: int) -> None:
        self.data = data
        self.at = 0
        self.end = end
        self.strings_left = MAX_STRINGS
        self.text_bytes_left = MAX_TEXT_BYTES

    def take(self, nbytes: int) -> int:
        """Skip ``nbytes`` and return their position."""
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

    def text(self, nbytes: int, kind: str) -> str:
        """Read ``nbytes`` of UTF-8; an error calls them ``kind``."""
        start = self.take(nbytes)
        self.text_bytes_left -= nbytes
        if self.text_bytes_left < 0:
            raise MalformedError(f"holds more than {MAX_TEXT_BYTES} bytes of names and texts")
        try:
            return self.data[start : start + nbytes].decode()
        except UnicodeDecodeError:
            raise MalformedError(f"holds a {kind} that is not UTF-8") from None

    def name(self, kind: str) -> str:
        """Read the name of a key or a tensor."""
        nbytes = self.u64()
        if not 0 < nbytes <= MAX_NAME_BYTES:
            raise MalformedError(f"holds a {kind} of {nbytes} bytes")
        return self.text(nbytes, kind)

    def value(self, key: str) -> Value:
        """Read the value of ``key``; a long array is skipped."""
        code = self.u32()
        if code == _ARRAY:
            return self._array(key)
        if code == _STRING:
            nbytes = self.u64()
            if nbytes <= MAX_STRING_BYTES:
                return self.text(nbytes, "string")
            self.take(nbytes)
            return None
        if code not in _NUMBERS:
            raise MalformedError(f"gives the metadata key {key!r} the unknown type {code}")
        return self._number(code)

    def _number(self, code: int) -> int | float | bool:
        packed = _NUMBERS[code]
        value: int | float = packed.unpack_from(self.data, self.take(packed.size))[0]
        if code == _BOOL and value not in (0, 1):
            raise MalformedError(f"holds a boolean of value {value}")
        return bool(value) if code == _BOOL else value

    def _array(self, key: str) -> tuple[Scalar, ...] | None:
        code, length = self.u32(), self.u64()
        if code == _STRING:
            smallest = 8
        elif code in _NUMBERS:
            smallest = _NUMBERS[code].size
        else:
            # llama.cpp rejects arrays of arrays as well, so no usable model has them.
            raise MalformedError(f"gives the array {key!r} elements of unsupported type {code}")
        if length > (self.end - self.at) // smallest:
            raise MalformedError(f"claims {length} elements in the array {key!r}")
        if length <= MAX_ARRAY_LENGTH:
            read = self._number if code != _STRING else lambda _: self.text(self.u64(), "string")
            return tuple(read(code) for _ in range(length))
        if code == _STRING:
            self._skip_strings(length)
        else:
            self.take(length * smallest)
        return None

    def _skip_strings(self, count: int) -> None:
        self.strings_left -= count
        if self.strings_left < 0:
            raise MalformedError(f"claims more than {MAX_STRINGS} strings")
        # This loop runs for every word of a vocabulary, so it makes one call only.
        data, at, length_at = self.data, self.at, _U64.unpack_from
        try:
            for _ in range(count):
                at += length_at(data, at)[0] + 8
        except (struct.error, OverflowError, IndexError):
            at = self.end + 1
        self.take(at - self.at)


_TYPES = tomllib.loads(Path(__file__).with_name("ggml_types.toml").read_text("utf-8"))
GGML_TYPES = frozenset(name for name, _, _ in _TYPES["block"].values())
"""The types whose size follows from their shape."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor.

    Attributes:
        shape: The dimensions, innermost first.
        offset: Bytes from the file's start.
        nbytes: Its size; for a type that ggml does not define, the space up to the next tensor.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class ModelHeader:
    """The part of a GGUF file before its weights.

    Attributes:
        architecture: Empty if the file names none, as in later parts of a split model.
        name: The model's own name, else the file's stem.
    """

    path: Path
    architecture: str
    name: str
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]


def read_header(path: Path) -> ModelHeader:
    """Read the header of the GGUF file at ``path`` (versions 2 and 3, little-endian).

    Arrays longer than 16 elements and strings longer than 1 MiB become None. Raises
    ``ToolError``: E_MODEL_MISSING, E_MODEL_BROKEN.
    """
    size = read_stamp(path).size_bytes
    try:
        with path.open("rb") as file:
            if size < 24:
                _broken_start(file.read(24))
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
                return _parse(path, Cursor(data, size))
    except MalformedError as error:
        raise ToolError("E_MODEL_BROKEN", f"The model file {path_text(path)} {error}.") from None
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from None


def _broken_start(start: bytes) -> NoReturn:
    if start.startswith(b"version https://"):
        raise MalformedError("is a Git LFS pointer, not the model (git lfs pull fetches it)")
    if not start:
        raise MalformedError("is empty")
    if not start.startswith(b"GGUF"):
        raise MalformedError("does not start with GGUF")
    raise MalformedError("ends inside its header")


def _parse(path: Path, cursor: Cursor) -> ModelHeader:
    if cursor.data[:4] != b"GGUF":
        _broken_start(cursor.data[:24])
    cursor.take(4)
    version = cursor.u32()
    if version not in (2, 3):
        raise MalformedError(
            f"is of GGUF version {version}; versions 2 and 3 in little-endian order are supported"
        )
    tensor_count, key_count = cursor.u64(), cursor.u64()
    if tensor_count > MAX_TENSORS or key_count > MAX_KEYS:
        raise MalformedError(f"claims {tensor_count} tensors and {key_count} metadata keys")
    metadata: dict[str, Value] = {}
    for _ in range(key_count):
        key = cursor.name("metadata key")
        if key in metadata:
            raise MalformedError(f"holds the metadata key {key!r} twice")
        metadata[key] = cursor.value(key)
    grid = metadata.get("general.alignment", 32)
    if type(grid) is not int or not 0 < grid <= MAX_ALIGNMENT or grid & (grid - 1):
        raise MalformedError(f"asks for an alignment of {grid}")
    return ModelHeader(
        path=path,
        architecture=_text(metadata, "general.architecture", ""),
        name=_text(metadata, "general.name", path.stem),
        metadata=MappingProxyType(metadata),
        tensors=_tensors(cursor, tensor_count, grid),
    )


def _text(metadata: Mapping[str, Value], key: str, default: str) -> str:
    value = metadata.get(key, default)
    if not isinstance(value, str):
        raise MalformedError(f"gives the metadata key {key!r} a value that is no text")
    return value


def _tensors(cursor: Cursor, count: int, alignment: int) -> tuple[TensorInfo, ...]:
    entries: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for _ in range(count):
        name = cursor.name("tensor name")
        if name in entries:
            raise MalformedError(f"holds the tensor {name!r} twice")
        entries[name] = _shape(cursor, name), cursor.u32(), cursor.u64()
    start = -(-cursor.at // alignment) * alignment
    room = max(cursor.end - start, 0)
    offsets = sorted({offset for _, _, offset in entries.values()})
    next_offset = dict(itertools.pairwise([*offsets, room]))
    tensors = []
    for name, (shape, code, offset) in entries.items():
        if offset % alignment:
            raise MalformedError(f"places the tensor {name!r} off its grid of {alignment} bytes")
        kind, nbytes = _extent(name, shape, code, next_offset[offset] - offset)
        if nbytes <= 0 or offset + nbytes > room:
            raise MalformedError(f"ends before the data of the tensor {name!r}")
        tensors.append(TensorInfo(name, shape, kind, start + offset, nbytes))
    return tuple(tensors)


def _shape(cursor: Cursor, name: str) -> tuple[int, ...]:
    dims = cursor.u32()
    if dims > MAX_DIMS:
        raise MalformedError(f"gives the tensor {name!r} {dims} dimensions")
    shape = tuple(cursor.u64() for _ in range(dims))
    if not 0 < math.prod(shape) < 1 << 63:
        raise MalformedError(f"gives the tensor {name!r} the impossible shape {shape}")
    return shape


def _extent(name: str, shape: tuple[int, ...], code: int, room: int) -> tuple[str, int]:
    """Return the type's name and the tensor's size in bytes: ``room`` for foreign types."""
    if str(code) not in _TYPES["block"]:
        if math.prod(shape) > 8 * room:
            raise MalformedError(f"ends before the data of the tensor {name!r}")
        return _TYPES["tensor"].get(str(code), f"type_{code}"), room
    kind, block, block_bytes = _TYPES["block"][str(code)]
    row = shape[0] if shape else 1
    if row % block:
        raise MalformedError(f"gives {kind} rows of {row} values to the tensor {name!r}")
    return kind, math.prod(shape) // block * block_bytes
