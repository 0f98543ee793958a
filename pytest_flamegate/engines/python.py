"""A Python function that yields tokens: ``target = "module:function"``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypedDict

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.models.discover import find_model

TRACERS = ("torch", "target")
"""Who writes the trace of the kernels: torch.profiler around the target, or the target itself."""
KERNEL_TRACE = "FLAMEGATE_KERNEL_TRACE"
"""The environment variable with the directory for the traces, in the one run that is traced."""
_FACTORY = "pytest_flamegate.child.python:load_engine"


class PythonOptions(TypedDict, total=False):
    """``kernel_trace``: one of ``TRACERS``."""

    kernel_trace: Literal["torch", "target"]


class Python:
    """Imports the target in a fresh child process and calls it with prompt and max_tokens."""

    name = "python"
    keys = frozenset({"target", "model"})
    options = PythonOptions

    def sees_python(self, workload: Workload) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def validate(self, workload: Workload) -> None:
        """Raise ``UsageError`` ``E_NO_TARGET`` for a missing or misspelt target."""
        module, separator, function = (workload.target or "").partition(":")
        if not (module and separator and function):
            raise UsageError(
                "E_NO_TARGET",
                f"the engine python needs a target module:function, and target is "
                f"{workload.target!r}.",
                'Write target = "module:function"; it is called with prompt and max_tokens '
                "and yields tokens.",
            )

    def model(self, workload: Workload) -> Path | None:
        """Return the declared model file, if any: it is recorded, and the target loads it."""
        if workload.model is None:
            return None
        return find_model(workload.model, workload.directory)

    def plan(self, workload: Workload, model: Path | None) -> Plan:  # noqa: ARG002
        """Serve the target in a child process."""
        directory = str(workload.directory.resolve())
        load: dict[str, Any] = {
            "factory": _FACTORY,
            "target": workload.target,
            "directory": directory,
        }
        if workload.injection is not None:
            load["inject"] = [workload.injection.frame, workload.injection.extra_pct]
        return Served(load)

    def prompt_tokens(self, workload: Workload) -> int | None:  # noqa: ARG002
        """Return None: only the engine's own tokenizer knows."""
        return None
