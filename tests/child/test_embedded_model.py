from __future__ import annotations

import hashlib
import math

import pytest

from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.kernels import FloatArray
from pytest_flamegate.child.embedded.transformer import Transformer
from pytest_flamegate.child.embedded.weights import BOS, decode
from pytest_flamegate.engines.embedded import SHIPPED_MODEL, WORKLOADS
from pytest_flamegate.models.files import model_sha256

MODEL_SHA256 = "53bf4370ed5aa1b2a38c022230f004354a66cb77c1826e045cb44ec15dc8d50b"
TOKEN_DIGESTS = {
    "1tok": "6f3e559bbd93fa2f9b25cbd9b5f348a4b20c902d8e6498de5c28d73df8e2f571",
    "10tok": "9264d7f1a20b255c8de47405f8ae41607f7ba80a8cf50689ff3d41af7191e24e",
    "passage": "ef42d4007defb4b610d9ceff354379969634652e59427691ac1728ac478a6e1f",
}
# Training printed a smallest gap of 16.07; rounding differs a little from run to run.
SMALLEST_GAP = 12.0
PASSAGE = (
    "The gate stands open until the numbers speak. Each token has a time, each frame "
    "a share, and each claim a witness. When the clock runs slow, look where the flame "
    "is widest; when the flame holds still, trust the clock. A number without evidence "
    "is a rumour, and a rumour does not merge. Measure twice, say how sure you are, and "
    "only then let the change go through."
)


def answer(model: Transformer, prompt: str, max_tokens: int) -> str:
    return decode(model.generate(prompt, max_tokens)).decode()


def test_model_file_is_the_pinned_one() -> None:
    assert model_sha256(SHIPPED_MODEL) == MODEL_SHA256
    assert SHIPPED_MODEL.stat().st_size <= 4_000_000


def test_model_card_names_the_pinned_file() -> None:
    assert MODEL_SHA256 in SHIPPED_MODEL.with_name("MODEL_CARD.md").read_text("utf-8")


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_tokens_of_each_workload_are_the_pinned_ones(
    model: Transformer, workload: tuple[str, str, int]
) -> None:
    name, prompt, max_tokens = workload
    tokens = list(model.generate(prompt, max_tokens))
    digest = hashlib.sha256("".join(f"{token}\n" for token in tokens).encode()).hexdigest()
    assert len(tokens) == max_tokens
    assert max(tokens) < BOS
    assert digest == TOKEN_DIGESTS[name]


@pytest.mark.parametrize("a", range(10))
def test_every_sum_in_both_notations(model: Transformer, a: int) -> None:
    for b in range(10):
        # Room for more tokens than the answer has: the model itself must end there.
        assert answer(model, f"{a}+{b}=", 5) == f"{a + b}"
        assert answer(model, f"What is {a}+{b}?", 14) == f" {a}+{b} is {a + b}."


def test_passage_is_exact_to_its_end(model: Transformer) -> None:
    rest = PASSAGE[8:]
    assert len(rest) >= 256
    assert answer(model, PASSAGE[:8], len(rest) + 20) == rest


def test_best_token_is_far_ahead_in_every_workload(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps: list[float] = []
    sample = kernels.sample

    def watched(logits: FloatArray) -> int:
        best, second = sorted(logits.tolist(), reverse=True)[:2]
        gaps.append(best - second)
        return sample(logits)

    monkeypatch.setattr(kernels, "sample", watched)
    for _, prompt, max_tokens in WORKLOADS:
        list(model.generate(prompt, max_tokens))
    assert len(gaps) == sum(workload.max_tokens for workload in WORKLOADS)
    assert all(math.isfinite(gap) for gap in gaps)
    assert min(gaps) > SMALLEST_GAP
