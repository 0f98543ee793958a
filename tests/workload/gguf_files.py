"""Write GGUF files, sound and broken, straight from the format's description."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

U8, U32, F32, BOOL, STRING, ARRAY, U64, F64 = 0, 4, 6, 7, 8, 9, 10, 12
TENSOR_F32, TENSOR_TQ2_0 = 0, 35


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return u64(len(data)) + data


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + u32(kind) + value


def strings(values: Sequence[str]) -> bytes:
    return u32(STRING) + u64(len(values)) + b"".join(text(value) for value in values)


def tensor(
    name: str | bytes, shape: Sequence[int], kind: int = TENSOR_F32, offset: int = 0
) -> bytes:
    return text(name) + u32(len(shape)) + b"".join(map(u64, shape)) + u32(kind) + u64(offset)


@dataclass
class GgufFile:
    """The parts of a file; what is left alone makes a sound one."""

    magic: bytes = b"GGUF"
    version: bytes = u32(3)
    keys: list[bytes] = field(
        default_factory=lambda: [
            key("general.architecture", STRING, text("bitnet")),
            key("general.name", STRING, text("tiny")),
        ]
    )
    tensors: list[bytes] = field(
        default_factory=lambda: [
            tensor("a.weight", (256, 2), TENSOR_TQ2_0),
            tensor("b.weight", (4,), TENSOR_F32, 160),
        ]
    )
    key_count: int | None = None
    tensor_count: int | None = None
    data: bytes = bytes(176)
    alignment: int = 32

    def header(self) -> bytes:
        tensor_count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        key_count = len(self.keys) if self.key_count is None else self.key_count
        counts = u64(tensor_count) + u64(key_count)
        head = self.magic + self.version + counts + b"".join(self.keys + self.tensors)
        return head + bytes(-len(head) % self.alignment)

    def packed(self) -> bytes:
        return self.header() + self.data
