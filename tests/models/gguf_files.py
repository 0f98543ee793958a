"""Write GGUF files, sound and broken, straight from the format's description."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64, F64 = 0, 4, 5, 6, 7, 8, 9, 10, 12
TENSOR_F32, TENSOR_F16, TENSOR_Q4_0, TENSOR_TQ2_0, TENSOR_I2_S = 0, 1, 2, 35, 36


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


def write_large_model(path: Path) -> None:
    """Write the shape of a large real model: 2 GB, of which all but the header is a hole.

    128,256 tokens with scores and types, 280,000 merges, 32 layers in Q4_0, tied embedding.
    """
    words, pairs, layers = 128_256, 280_000, 32
    tokens = b"".join(text(f"\u0120token{i}") for i in range(words))
    merges = b"".join(text(f"\u0120ab{i} cd{i}") for i in range(pairs))
    keys = [
        key("general.architecture", STRING, text("llama")),
        key("tokenizer.ggml.tokens", ARRAY, u32(STRING) + u64(words) + tokens),
        key("tokenizer.ggml.scores", ARRAY, u32(F32) + u64(words) + bytes(4 * words)),
        key("tokenizer.ggml.token_type", ARRAY, u32(I32) + u64(words) + bytes(4 * words)),
        key("tokenizer.ggml.merges", ARRAY, u32(STRING) + u64(pairs) + merges),
        key("llama.block_count", U32, u32(layers)),
    ]
    at, nbytes = 2 * 2560 * words, 2560 * 2560 // 32 * 18
    tensors = [tensor("token_embd.weight", (2560, words), TENSOR_F16)]
    for number in range(8 * layers):
        name = f"blk.{number // 8}.part_{number % 8}.weight"
        tensors.append(tensor(name, (2560, 2560), TENSOR_Q4_0, at + number * nbytes))
    write_sparse(path, GgufFile(keys=keys, tensors=tensors), 2 << 30)


def write_sparse(path: Path, file: GgufFile, nbytes: int) -> None:
    """Write the header, and ``nbytes`` of weights as a hole."""
    with path.open("wb") as out:
        out.write(file.header())
        out.truncate(out.tell() + nbytes)
