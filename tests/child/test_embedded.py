"""The embedded model: its file, its tokens, and the sequences it generates."""

import hashlib
import math
import struct
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.kernels import FloatArray
from pytest_flamegate.child.embedded.transformer import (
    BOS,
    EOS,
    Transformer,
    encode,
    load,
)
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.engines.gguf import SHIPPED_MODEL, WORKLOADS
from pytest_flamegate.models.files import model_sha256
from pytest_flamegate.models.gguf import read_header

MODEL_SHA256 = "53bf4370ed5aa1b2a38c022230f004354a66cb77c1826e045cb44ec15dc8d50b"
TOKEN_DIGESTS = {
    "1tok": "6f3e559bbd93fa2f9b25cbd9b5f348a4b20c902d8e6498de5c28d73df8e2f571",
    "10tok": "9264d7f1a20b255c8de47405f8ae41607f7ba80a8cf50689ff3d41af7191e24e",
    "passage": "ef42d4007defb4b610d9ceff354379969634652e59427691ac1728ac478a6e1f",
}
# Training printed a smallest gap of 16.07; rounding differs a little from run to run.
SMALLEST_GAP = 12.0
# A kernel that computes something else changes the mean, mostly before it changes a token.
MEAN_GAP = 18.15


def decode(tokens: Iterable[int]) -> bytes:
    return bytes(token for token in tokens if token < BOS)


def answer(model: Transformer, prompt: str, max_tokens: int) -> str:
    return decode(model.generate(prompt, max_tokens)).decode()


def test_model_file_is_the_pinned_one_of_its_card() -> None:
    assert model_sha256(SHIPPED_MODEL) == MODEL_SHA256
    assert SHIPPED_MODEL.stat().st_size <= 4_000_000
    assert MODEL_SHA256 in SHIPPED_MODEL.with_name("MODEL_CARD.md").read_text("utf-8")


def test_workload_tokens_are_pinned(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    gaps: list[float] = []
    sample = kernels.sample

    def watch(logits: FloatArray) -> int:
        best, second = sorted(logits.tolist(), reverse=True)[:2]
        gaps.append(best - second)
        return sample(logits)

    monkeypatch.setattr(kernels, "sample", watch)
    for name, prompt, max_tokens in WORKLOADS:
        tokens = list(model.generate(prompt, max_tokens))
        digest = hashlib.sha256("".join(f"{token}\n" for token in tokens).encode()).hexdigest()
        assert len(tokens) == max_tokens
        assert max(tokens) < BOS
        assert digest == TOKEN_DIGESTS[name]
    assert len(gaps) == sum(max_tokens for _, _, max_tokens in WORKLOADS)
    assert all(math.isfinite(gap) for gap in gaps)
    assert min(gaps) > SMALLEST_GAP
    assert fmean(gaps) == pytest.approx(MEAN_GAP, rel=2e-3)
    assert sample(np.array([1, 4, 2, 4], np.float32)) == 1  # the lowest id of equals


@pytest.mark.parametrize("a", [0, 4, 9])
def test_sums_in_both_notations(model: Transformer, a: int) -> None:
    for b in (0, 1, 5, 9):
        # Room for more tokens than the answer has: the model itself must end there.
        assert answer(model, f"{a}+{b}=", 5) == f"{a + b}"
        assert answer(model, f"What is {a}+{b}?", 14) == f" {a}+{b} is {a + b}."


def test_two_sequences_at_once_do_not_mix(model: Transformer) -> None:
    passage, total = model.generate("The gate", 12), model.generate("What is 4+5?", 10)
    mixed = [token for pair in zip(passage, total, strict=False) for token in pair]
    assert bytes(mixed[0::2]) == b" stands op"
    assert bytes(mixed[1::2]) == b" 4+5 is 9."


def test_an_abandoned_sequence_leaves_nothing_behind(model: Transformer) -> None:
    abandoned = model.generate("The gate", 200)
    for _ in range(50):
        next(abandoned)
    del abandoned
    before = [id(cache) for cache in model.idle_caches]
    assert answer(model, "8+9=", 5) == "17"
    assert [id(cache) for cache in model.idle_caches] == before != []


def test_sequences_beyond_the_context(model: Transformer) -> None:
    for prompt, max_tokens in (("2+2=", 0), ("2+2=", 508), ("x" * 512, 1)):
        with pytest.raises(UsageError, match=r"E_CONTEXT_FULL.*512"):
            next(iter(model.generate(prompt, max_tokens)))
    assert len(list(model.generate("x" * 509, 2))) <= 2  # to the last position


@given(st.text())
def test_text_survives_encoding(text: str) -> None:
    tokens = encode(text)
    assert tokens[0] == BOS
    assert decode([*tokens, EOS]).decode() == text
    assert encode("a\udcff") == [BOS, 0x61, 0xFF]  # a byte that is not UTF-8
    with pytest.raises(UsageError, match=r"E_BAD_PROMPT.*character 1 "):
        encode("a\ud800")


def u32_key(name: bytes, value: int) -> bytes:
    return name + struct.pack("<II", 4, value)


OTHER_MODELS = [
    (b"\x06\0\0\0\0\0\0\0bitnet", b"\x06\0\0\0\0\0\0\0llamas", "architecture is 'llamas'"),
    (b"bitnet.block_count", b"bitnet.block_cnt__", "block_count is None"),
    (b"blk.2.ffn_norm.", b"blk.2.ffn_mron.", "no F32 tensor blk.2.ffn_norm"),
    (u32_key(b"eos_token_id", 257), u32_key(b"eos_token_id", 2), "vocabulary"),
    (u32_key(b"head_count_kv", 4), u32_key(b"head_count_kv", 3), "do not divide"),
    (u32_key(b"block_count", 4), u32_key(b"block_count", 5), "blk.4.attn_norm"),
]


@pytest.mark.parametrize(("old", "new", "reason"), OTHER_MODELS, ids=range(len(OTHER_MODELS)))
def test_other_models_are_rejected(tmp_path: Path, old: bytes, new: bytes, reason: str) -> None:
    data, path = SHIPPED_MODEL.read_bytes(), tmp_path / "edited.gguf"
    assert old in data
    path.write_bytes(data.replace(old, new))
    with pytest.raises(ToolError, match=f"E_MODEL_UNSUPPORTED.*{reason}"):
        load(path)


@pytest.mark.parametrize(
    ("tensor", "start", "spoilt", "word"),
    [
        ("blk.1.ffn_down", 0, b"\xff" * 64, "ternary"),
        ("blk.1.ffn_down", 64, struct.pack("<e", math.nan), "ternary"),
        ("output_norm", 0, b"\xff" * 64, "nite"),
    ],
    ids=["fourth code", "scale not a number", "norm not a number"],
)
def test_spoilt_weights_are_rejected(
    tmp_path: Path, tensor: str, start: int, spoilt: bytes, word: str
) -> None:
    info = next(t for t in read_header(SHIPPED_MODEL).tensors if t.name == f"{tensor}.weight")
    data, at = bytearray(SHIPPED_MODEL.read_bytes()), info.offset + start
    data[at : at + len(spoilt)] = spoilt
    path = tmp_path / "spoilt.gguf"
    path.write_bytes(data)
    with pytest.raises(ToolError, match=f"E_MODEL_UNSUPPORTED.*{word}"):
        load(path)
