from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from pytest_flamegate.child.embedded.transformer import load
from pytest_flamegate.child.embedded.weights import read_weights, unpack_tq2_0
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.embedded import SHIPPED_MODEL
from pytest_flamegate.models.gguf import read_header


def pack(weights: list[list[int]], scale: float) -> bytes:
    """Pack rows of -1, 0, +1 as ggml's TQ2_0 does, one value at a time."""
    packed = b""
    for row in weights:
        for start in range(0, len(row), 256):
            codes = bytearray(64)
            for at, weight in enumerate(row[start : start + 256]):
                half, within = divmod(at, 128)
                quarter, byte = divmod(within, 32)
                codes[half * 32 + byte] |= (weight + 1) << (2 * quarter)
            packed += bytes(codes) + struct.pack("<e", scale)
    return packed


def test_unpacking_gives_every_weight_its_place() -> None:
    rng = np.random.default_rng(3)
    weights = rng.integers(-1, 2, (5, 512)).tolist()
    matrix = unpack_tq2_0(np.frombuffer(pack(weights, 0.25), np.uint8), rows=5)
    assert matrix.scales.tolist() == [[0.25] * 5] * 2
    dense = matrix.signs.transpose(2, 0, 1).reshape(5, 512)
    assert dense.tolist() == weights
    assert matrix.signs.dtype == np.float32
    assert matrix.signs.flags.c_contiguous


@pytest.mark.parametrize(
    "packed",
    [b"\xff" * 64 + struct.pack("<e", 1.0), bytes(64) + struct.pack("<e", float("nan"))],
    ids=["fourth code", "scale not a number"],
)
def test_what_is_not_ternary_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="not ternary"):
        unpack_tq2_0(np.frombuffer(packed, np.uint8), rows=1)


def test_the_model_is_ternary_and_of_the_shape_its_card_says() -> None:
    weights = read_weights(SHIPPED_MODEL)
    config = weights.config
    assert (config.width, config.layers, config.ffn_width) == (512, 4, 1024)
    assert (config.heads, config.kv_heads, config.context) == (8, 4, 512)
    for layer in weights.layers:
        signs = layer.attn_qkv.signs
        assert signs.shape == (2, 256, 1024)
        assert set(np.unique(signs).tolist()) == {-1.0, 0.0, 1.0}


def edited(tmp_path: Path, old: bytes, new: bytes) -> Path:
    assert len(old) == len(new)
    data = SHIPPED_MODEL.read_bytes()
    assert old in data
    path = tmp_path / "edited.gguf"
    path.write_bytes(data.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"\x06\0\0\0\0\0\0\0bitnet", b"\x06\0\0\0\0\0\0\0llamas", "architecture is 'llamas'"),
        (b"bitnet.block_count", b"bitnet.block_cnt__", "block_count is None"),
        (b"blk.2.ffn_norm.", b"blk.2.ffn_mron.", "no F32 tensor blk.2.ffn_norm"),
        (
            b"eos_token_id" + struct.pack("<II", 4, 257),
            b"eos_token_id" + struct.pack("<II", 4, 2),
            "vocabulary",
        ),
        (
            b"attention.head_count_kv" + struct.pack("<II", 4, 4),
            b"attention.head_count_kv" + struct.pack("<II", 4, 3),
            "do not divide",
        ),
        (
            b"block_count" + struct.pack("<II", 4, 4),
            b"block_count" + struct.pack("<II", 4, 5),
            "blk.4.attn_norm",
        ),
    ],
)
def test_other_models_are_refused_by_name(
    tmp_path: Path, old: bytes, new: bytes, reason: str
) -> None:
    with pytest.raises(ToolError, match=reason) as caught:
        load(edited(tmp_path, old, new))
    assert caught.value.code == "E_MODEL_UNSUPPORTED"


@pytest.mark.parametrize(
    ("tensor", "word"), [("blk.1.ffn_down", "ternary"), ("output_norm", "nite")]
)
def test_spoilt_weights_are_refused(tmp_path: Path, tensor: str, word: str) -> None:
    info = next(t for t in read_header(SHIPPED_MODEL).tensors if t.name == f"{tensor}.weight")
    data = bytearray(SHIPPED_MODEL.read_bytes())
    data[info.offset : info.offset + 64] = b"\xff" * 64
    path = tmp_path / "spoilt.gguf"
    path.write_bytes(data)
    with pytest.raises(ToolError, match=word) as caught:
        load(path)
    assert caught.value.code == "E_MODEL_UNSUPPORTED"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"no model file at .*none\.gguf") as caught:
        load(tmp_path / "none.gguf")
    assert caught.value.code == "E_MODEL_MISSING"
