"""llama.cpp inside the served process, through the library xllamacpp."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import limit
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.models.discover import find_model

_FACTORY = "pytest_flamegate.child.llama_cpp:load_engine"
_PROFILERS = ("perf", "callgrind")
_SPARE_TOKENS = 16
_CONTEXT_STEP = 256
_MAX_DEFAULT_CONTEXT = 8192
"""A context costs memory for each token that it could hold, so a larger one must be declared."""


class LlamaCppOptions(TypedDict, total=False):
    """``context`` and ``batch`` in tokens; ``gpu_layers`` are computed by a GPU, 0 by default."""

    library: Literal["xllamacpp"]
    context: Annotated[int, limit(ge=1, lt=2**31)]
    batch: Annotated[int, limit(ge=1, lt=2**31)]
    gpu_layers: Annotated[int, limit(ge=0, lt=2**31)]


class LlamaCpp:
    """Loads a GGUF file once and generates greedily, each time from an empty context."""

    name = "llama-cpp"
    keys = frozenset({"model"})
    options = LlamaCppOptions

    def sees_python(self, workload: Workload) -> bool:  # noqa: ARG002
        """Return False: llama.cpp decodes in native code."""
        return False

    def check_profiler(self, workload: Workload, profiler: str) -> None:
        """Raise ``ToolError`` ``E_PROFILER_BLIND`` for a profiler of Python's frames."""
        if profiler not in _PROFILERS:
            raise ToolError(
                "E_PROFILER_BLIND",
                f"{profiler} sees nothing of the computation of {workload.name!r}: llama.cpp runs "
                "on a native thread of its own.",
                "Use perf: --flamegate-profiler=perf.",
            )

    def validate(self, workload: Workload) -> None:
        """Accept every workload."""

    def model(self, workload: Workload) -> Path:
        """Return the declared model, or the one in the usual places."""
        return find_model(workload.model, workload.directory)

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Serve the model in a child process; ``ToolError`` ``E_NO_LIBRARY`` without xllamacpp."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise ToolError(
                "E_NO_LIBRARY",
                "The engine llama-cpp needs the library xllamacpp, which is not installed.",
                "Install it: pip install xllamacpp.",
            )
        load: dict[str, Any] = {
            "factory": _FACTORY,
            "model": str(model),
            "threads": workload.threads,
            "seed": workload.seed,
            "context": workload.options.get("context", context_for(workload)),
            "batch": workload.options.get("batch"),
            "gpu_layers": workload.options.get("gpu_layers", 0),
        }
        return Served(load, token_unit="text")

    def prompt_tokens(self, workload: Workload) -> int | None:  # noqa: ARG002
        """Return None: only the model's own tokenizer knows, and the engine reports it."""
        return None


def context_for(workload: Workload) -> int:
    """Return a context in tokens that holds the prompt and the answer, up to 8,192.

    A text has at most as many tokens as bytes, except for a few that begin it.
    """
    needed = len(workload.prompt.encode()) + workload.max_tokens + _SPARE_TOKENS
    return min(-(-needed // _CONTEXT_STEP) * _CONTEXT_STEP, _MAX_DEFAULT_CONTEXT)
