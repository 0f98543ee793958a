"""The three workloads that run when nobody declares any, and the model they run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Workload

MODEL_PATH = Path(__file__).with_name("model.gguf")
ENGINE = "embedded"


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


def embedded_workloads(
    directory: Path, thresholds: Thresholds | None = None
) -> tuple[Workload, ...]:
    """Return the three workloads that need no declaration, as of the project ``directory``."""
    allowed = thresholds or Thresholds()
    return tuple(
        Workload(
            name=name,
            engine=ENGINE,
            prompt=prompt,
            max_tokens=max_tokens,
            source=ENGINE,
            directory=directory,
            thresholds=allowed,
        )
        for name, prompt, max_tokens in WORKLOADS
    )
