"""What a receipt claims, computed once more from what the observer wrote down."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.receipt.metrics import DECODE, TOTAL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flamegate.workload.observation import Run

_S = 1e9


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens per second, the formula behind them, and over how many tokens."""

    tokens_per_second: float
    formula: str
    tokens: int


def rate_of(runs: Iterable[Run], clock_scope: Literal["sequence", "process"]) -> Rate | None:
    """Return the rate of the timed ``runs``; None where their token times give none.

    Scope ``sequence``: tokens ÷ time from request to last token. Scope ``process``,
    where the first token waits for start and load: (n - 1) ÷ (last - first token), or
    the first formula where every sequence has one token.
    """
    sequences = [
        gaps
        for run in runs
        if run.role == "timed"
        for block in run.blocks
        for gaps in block.sequences_ns
        if gaps
    ]
    decode = clock_scope == "process" and any(len(gaps) > 1 for gaps in sequences)
    skipped = 1 if decode else 0
    tokens = sum(len(gaps) - skipped for gaps in sequences)
    elapsed_ns = sum(sum(gaps[skipped:]) for gaps in sequences)
    if tokens <= 0 or elapsed_ns <= 0:
        return None
    return Rate(tokens / elapsed_ns * _S, DECODE if decode else TOTAL, tokens)


def token_digest(tokens: Iterable[str]) -> str:
    """Return the SHA-256 of ``tokens``, each as UTF-8 text and a newline."""
    text = "".join(f"{token}\n" for token in tokens)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
