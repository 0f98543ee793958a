"""SmolLM2 through xllamacpp, with a callback that really computes: copied into a repository.

Run by itself it prints how many rounds of the extra work take 1 % of a token's CPU time.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_flamegate.child.llama_cpp import load_engine

ROUNDS = 0
PIECE = bytes(1024)


def work(rounds: int) -> None:
    """Hash so many pieces."""
    for _ in range(rounds):
        hashlib.sha256(PIECE).digest()


_engine = load_engine(
    {
        "model": Path(__file__).with_name("model.txt").read_text().strip(),
        "threads": 1,
        "seed": 42,
        "context": 256,
        "batch": None,
        "gpu_layers": 0,
    }
)


def generate(prompt: str, max_tokens: int) -> Iterator[str]:
    """Yield the tokens; each is followed by the extra work of this revision."""
    tokens: list[str] = []

    def token(text: Any) -> None:
        tokens.append(text)
        work(ROUNDS)

    _engine.stream(prompt, max_tokens, token)
    yield from tokens


def rounds_of_one_percent(tokens: int, repeats: int) -> float:
    """Return how many rounds take 1 % of a token's CPU time: the median of neighbours."""
    found = []
    for _ in range(repeats):
        began = time.process_time_ns()
        list(generate("Once upon a time", tokens))
        between = time.process_time_ns()
        work(10_000)
        ended = time.process_time_ns()
        found.append((between - began) / tokens / 100 / ((ended - between) / 10_000))
    return statistics.median(found[1:])


if __name__ == "__main__":
    print(rounds_of_one_percent(int(sys.argv[1]), int(sys.argv[2])))
