"""The three workloads that run when nobody declares any, and the model they run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

MODEL_PATH = Path(__file__).with_name("model.gguf")


class EmbeddedWorkload(NamedTuple):
    """A prompt and how many tokens (bytes) to generate; none of them is the end token."""

    name: str
    prompt: str
    max_tokens: int


WORKLOADS = (
    EmbeddedWorkload("1tok", "2+2=", 1),
    EmbeddedWorkload("10tok", "What is 2+2?", 10),
    EmbeddedWorkload("passage", "The gate", 256),
)
