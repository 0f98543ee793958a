"""The model that ships with flamegate, on its NumPy engine."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.models.discover import find_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Kinds


FACTORY = "pytest_flamegate.child.embedded.serving:load_engine"
SHIPPED_MODEL = Path(__file__).parents[1] / "child" / "embedded" / "model.gguf"


class Embedded:
    """Runs a ternary GGUF of architecture ``bitnet``: the shipped one unless told otherwise."""

    name = "embedded"
    keys = frozenset({"model"})
    options: Mapping[str, Kinds] = MappingProxyType({})

    def sees_python(self, workload: Workload) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def validate(self, workload: Workload) -> None:
        """Take every workload: there is nothing to lack."""

    def model(self, workload: Workload) -> Path:
        """Return the declared model, else the shipped one."""
        if workload.model is None:
            return SHIPPED_MODEL
        return find_model(workload.model, workload.directory)

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Serve the model in a child process."""
        load: dict[str, Any] = {"factory": FACTORY, "model": str(model)}
        if workload.injection is not None:
            load["inject"] = [workload.injection.frame, workload.injection.extra_pct]
        return Served(load, token_unit="byte", stands_still=True)

    def prompt_tokens(self, workload: Workload) -> int:
        """Return the bytes of the prompt and the one token that begins every sequence."""
        return len(workload.prompt.encode()) + 1
