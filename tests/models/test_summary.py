"""What a decoded token reads of a model's weights, by hand and by the header."""

import math
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.gguf import SHIPPED_MODEL
from pytest_flamegate.models.discover import read_model
from pytest_flamegate.models.gguf import read_header
from tests.models.gguf_files import (
    BOOL,
    STRING,
    TENSOR_F16,
    TENSOR_F32,
    TENSOR_I2_S,
    TENSOR_Q4_0,
    U32,
    GgufFile,
    key,
    tensor,
    text,
    u32,
    write_sparse,
)

Tensors = dict[str, tuple[tuple[int, ...], int]]

SIZES = {TENSOR_F32: (4, 1), TENSOR_F16: (2, 1), TENSOR_Q4_0: (18, 32), 8: (34, 32)}
EMBEDDING: Tensors = {"token_embd.weight": ((64, 10), TENSOR_F16)}
HEAD: Tensors = {"output.weight": ((64, 10), TENSOR_Q4_0)}
LAYERS: Tensors = {
    "blk.0.attn_q.weight": ((64, 64), TENSOR_Q4_0),
    "blk.0.attn_norm.weight": ((64,), TENSOR_F32),
    "blk.1.attn_q.weight": ((64, 64), TENSOR_Q4_0),
    "blk.1.attn_norm.weight": ((64,), TENSOR_F32),
    "output_norm.weight": ((64,), TENSOR_F32),
}
LAYER_BYTES = 2 * (64 * 64 // 32 * 18 + 4 * 64) + 4 * 64
EMBEDDING_BYTES, HEAD_BYTES = 2 * 64 * 10, 64 * 10 // 32 * 18
DENSE: Tensors = {**EMBEDDING, **HEAD, **LAYERS}
DENSE_BYTES = 2 * 64 + HEAD_BYTES + LAYER_BYTES
EXPERTS: Tensors = {
    "blk.0.ffn_gate_inp.weight": ((64, 8), TENSOR_F32),
    "blk.0.ffn_up_exps.weight": ((64, 32, 8), TENSOR_Q4_0),
    "blk.1.ffn_down_exps.bias": ((64, 8), TENSOR_F32),
    "blk.1.ffn_up_shexp.weight": ((64, 32), TENSOR_Q4_0),
}
EXPERT_BYTES = 4 * 64 * 8 + 3 * (64 * 32 // 32 * 18) + 3 * 4 * 64 + 64 * 32 // 32 * 18


def metadata(**changes: bytes | None) -> list[bytes]:
    known: dict[str, bytes | None] = {
        "general.architecture": u32(STRING) + text("llama"),
        "llama.block_count": count(2),
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    return [text(name) + value for name, value in known.items() if value is not None]


def count(value: int) -> bytes:
    return u32(U32) + u32(value)


def mixture(used: int | None = 3, experts: int | None = 8) -> list[bytes]:
    return metadata(
        llama__expert_count=None if experts is None else count(experts),
        llama__expert_used_count=None if used is None else count(used),
    )


def write(path: Path, tensors: Tensors, keys: list[bytes], room: int = 0) -> Path:
    """Write a model of which all weights are a hole; ``room`` bytes more behind each."""
    entries, at = [], 0
    for name, (shape, kind) in tensors.items():
        entries.append(tensor(name, shape, kind, at))
        nbytes, block = SIZES.get(kind, (1, 4))
        at += -(-(math.prod(shape) * nbytes // block + room) // 32) * 32
    write_sparse(path, GgufFile(keys=keys, tensors=entries), at)
    return path


def per_token(
    tmp_path: Path, tensors: Tensors, keys: list[bytes] | None = None, room: int = 0
) -> int | None:
    path = write(tmp_path / "model.gguf", tensors, keys or metadata(), room)
    return read_model(path).bytes_per_token


READ: dict[str, tuple[Tensors, list[bytes], int]] = {
    "a row is looked up": (DENSE, metadata(), DENSE_BYTES),
    "tied: once": ({**EMBEDDING, **LAYERS}, metadata(), EMBEDDING_BYTES + LAYER_BYTES),
    "a row of the positions": (
        {**DENSE, "position_embd.weight": ((64, 512), TENSOR_F16)},
        metadata(),
        DENSE_BYTES + 2 * 64,
    ),
    "experts": ({**DENSE, **EXPERTS}, mixture(), DENSE_BYTES + EXPERT_BYTES),
    "experts one by one": (
        {**DENSE, **{f"blk.0.ffn_up.{i}.weight": ((64, 32), TENSOR_Q4_0) for i in range(8)}},
        mixture(2),
        DENSE_BYTES + 8 * (64 * 32 // 32 * 18 * 2 // 8),
    ),
    "no experts, said so": (DENSE, mixture(0, 0), DENSE_BYTES),
    "split into none, said so": (DENSE, metadata(split__count=count(0)), DENSE_BYTES),
}


@pytest.mark.parametrize(("tensors", "keys", "nbytes"), READ.values(), ids=READ)
def test_bytes_that_a_token_reads(
    tmp_path: Path, tensors: Tensors, keys: list[bytes], nbytes: int
) -> None:
    assert per_token(tmp_path, tensors, keys) == nbytes


def more(name: str, shape: tuple[int, ...] = (4,), kind: int = TENSOR_F32) -> Tensors:
    return {**DENSE, name: (shape, kind)}


def without(*names: str) -> Tensors:
    return {name: told for name, told in DENSE.items() if name not in names}


UNKNOWN: dict[str, tuple[Tensors, list[bytes]]] = {
    "an unknown tensor": (more("v.blk.0.x"), metadata()),
    "an encoder": (more("enc.blk.0.x"), metadata()),
    "a layer misspelt": (more("blk.01.x"), metadata()),
    "one too few": (without("blk.1.attn_q.weight", "blk.1.attn_norm.weight"), metadata()),
    "no embedding": (without("token_embd.weight"), metadata()),
    "layers not counted": (DENSE, metadata(llama__block_count=None)),
    "layers true": (DENSE, metadata(llama__block_count=u32(BOOL) + b"\x01")),
    "endless layers": (DENSE, metadata(llama__block_count=count(2**31))),
    "an adapter": (DENSE, metadata(general__type=u32(STRING) + text("adapter"))),
    "not causal": (DENSE, metadata(llama__attention__causal=u32(BOOL) + b"\0")),
    "pools": (DENSE, metadata(llama__pooling_type=count(1))),
    "one part of two": (DENSE, metadata(split__count=count(2))),
    "speculates": (DENSE, metadata(llama__nextn_predict_layers=count(1))),
    "a speculative part": (more("blk.0.nextn.x"), metadata()),
    "images": (more("blk.0.cross_attn_k.weight"), metadata()),
    "one projection twice": (
        {**more("blk.0.attn_kv_b.weight"), "blk.0.attn_k_b.weight": ((4,), 0)},
        metadata(),
    ),
    "experts not counted": ({**DENSE, **EXPERTS}, metadata()),
    "used ones not counted": ({**DENSE, **EXPERTS}, mixture(None)),
    "none used": ({**DENSE, **EXPERTS}, mixture(0)),
    "more used than there are": ({**DENSE, **EXPERTS}, mixture(9)),
    "another number of experts": ({**DENSE, **EXPERTS}, mixture(3, 16)),
    "experts counted, and none there": (DENSE, mixture()),
    "a table of no rows": (more("position_embd.weight", (64,)), metadata()),
    "a foreign type": (more("blk.0.x", (64, 64), 38), metadata()),
}


@pytest.mark.parametrize(("tensors", "keys"), UNKNOWN.values(), ids=UNKNOWN)
def test_no_figure_rather_than_a_wrong_one(
    tmp_path: Path, tensors: Tensors, keys: list[bytes]
) -> None:
    assert per_token(tmp_path, tensors, keys) is None


def test_two_bits_a_weight_of_bitnet_cpp(tmp_path: Path) -> None:
    ternary: Tensors = {**DENSE, "blk.0.x.weight": ((256, 64), TENSOR_I2_S), "blk.1.z": ((4,), 0)}
    assert per_token(tmp_path, ternary, room=32) == DENSE_BYTES + 256 * 64 // 4 + 32 + 16
    assert per_token(tmp_path, ternary, room=0) is None  # no room for the scale
    last: Tensors = {**DENSE, "blk.0.x.weight": ((64, 4), TENSOR_I2_S)}
    assert per_token(tmp_path, last, room=4096) is None  # another layout, or something behind it


def test_shares_add_up_and_the_largest_comes_first(tmp_path: Path) -> None:
    told = read_model(write(tmp_path / "model.gguf", DENSE, metadata()))
    assert told.quantisation_text == "Q4_0 91.4 %, F16 6.6 %, F32 2.0 %"
    assert (told.architecture, told.name) == ("llama", "model")


def test_all_parts_of_a_split_model_count(tmp_path: Path) -> None:
    keys = metadata(split__count=count(2))
    first = write(tmp_path / "m-00001-of-00002.gguf", {**EMBEDDING, **HEAD}, keys)
    rest = [key("split.count", U32, u32(2)), key("split.no", U32, u32(1))]
    second = write(tmp_path / "m-00002-of-00002.gguf", LAYERS, rest)
    told = read_model(first)
    assert told.bytes_per_token == DENSE_BYTES
    assert told.parameters == sum(math.prod(shape) for shape, _ in DENSE.values())
    assert told.architecture == "llama"
    second.unlink()
    with pytest.raises(ToolError, match=r"E_MODEL_PARTS.*m-00002-of-00002"):
        read_model(first)


def test_the_shipped_model_is_read_but_for_its_header() -> None:
    told = read_model(SHIPPED_MODEL)
    assert told.bytes_per_token == sum(each.nbytes for each in read_header(SHIPPED_MODEL).tensors)
    assert told.quantisation_text.startswith("TQ2_0 98.5 %")
