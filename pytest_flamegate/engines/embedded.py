"""The model that ships with flamegate, on its NumPy engine, and the workloads that need no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pytest_flamegate.config.marker import EMBEDDED
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.models.discover import find_model

SHIPPED_MODEL = Path(__file__).parents[1] / "child" / "embedded" / "model.gguf"


class EmbeddedWorkload(NamedTuple):
    """A prompt and the number of tokens (bytes) to generate; none of them is the end token."""

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
    """Return the workloads that run if the project ``directory`` declares none."""
    allowed = thresholds or Thresholds()
    return tuple(
        Workload(
            name=name,
            engine=EMBEDDED,
            prompt=prompt,
            max_tokens=max_tokens,
            source=EMBEDDED,
            directory=directory,
            thresholds=allowed,
        )
        for name, prompt, max_tokens in WORKLOADS
    )


_FACTORY = "pytest_flamegate.child.embedded.serving:load_engine"


class EmbeddedOptions:
    """There is no further option."""


class Embedded:
    """Runs a ternary GGUF of architecture ``bitnet``: the declared one, or the shipped one."""

    name = EMBEDDED
    keys = frozenset({"model"})
    options = EmbeddedOptions

    def sees_python(self, workload: Workload) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def validate(self, workload: Workload) -> None:
        """Accept every workload."""

    def model(self, workload: Workload) -> Path:
        """Return the declared model, else the shipped one."""
        if workload.model is None:
            return SHIPPED_MODEL
        return find_model(workload.model, workload.directory)

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Serve the model in a child process."""
        load: dict[str, Any] = {"factory": _FACTORY, "model": str(model)}
        if workload.injection is not None:
            load["inject"] = [workload.injection.frame, workload.injection.extra_pct]
        return Served(load, token_unit="byte", stands_still=True)

    def prompt_tokens(self, workload: Workload) -> int:
        """Return the bytes of the prompt and the one token that begins every sequence."""
        return len(workload.prompt.encode()) + 1
