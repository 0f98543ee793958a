"""The engines that load a GGUF file in a child process: the embedded one and llama.cpp."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from pytest_flamegate.config.options import COUNTER, EMBEDDED
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import PACKAGE, limit
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.base import THREAD_VARIABLES, Engine, Plan, Served
from pytest_flamegate.models.discover import find_model

SHIPPED_MODEL = PACKAGE / "child" / "embedded" / "model.gguf"
_PROFILERS = ("perf", COUNTER)
_SPARE_TOKENS = 16
_CONTEXT_STEP = 256
_MAX_DEFAULT_CONTEXT = 8192
"""A context costs memory for each token that it could hold, so a larger one must be declared."""


WORKLOADS = (("1tok", "2+2=", 1), ("10tok", "What is 2+2?", 10), ("passage", "The gate", 256))
"""Name, prompt and number of tokens (bytes) to generate; none of them is the end token."""


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


class Embedded(Engine):
    """Runs a ternary GGUF of architecture ``bitnet`` on NumPy: the declared or the shipped one."""

    name = EMBEDDED
    keys = frozenset({"model"})
    runs_python = True
    kernel_policy = "embedded"
    variables = THREAD_VARIABLES

    def model(self, workload: Workload) -> Path:
        """Return the declared model, else the shipped one."""
        return super().model(workload) or SHIPPED_MODEL

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Serve the model in a child process."""
        factory = "pytest_flamegate.child.embedded.serving:load_engine"
        load: dict[str, Any] = {"factory": factory, "model": str(model)}
        if workload.injection is not None:
            load["inject"] = [workload.injection.frame, workload.injection.extra_pct]
        return Served(load, token_unit="byte")

    def prompt_tokens(self, workload: Workload) -> int | None:
        """Return the bytes of the prompt and the one token that begins every sequence."""
        lengths = {len(each.encode()) for each in workload.all_prompts}
        return lengths.pop() + 1 if len(lengths) == 1 else None


class LlamaCppOptions(TypedDict, total=False):
    """``context`` and ``batch`` in tokens; ``gpu_layers`` are computed by a GPU, 0 by default."""

    library: Literal["xllamacpp"]
    context: Annotated[int, limit(ge=1, lt=2**31)]
    batch: Annotated[int, limit(ge=1, lt=2**31)]
    gpu_layers: Annotated[int, limit(ge=0, lt=2**31)]


class LlamaCpp(Engine):
    """Loads a file once with xllamacpp; generates greedily, each sequence in an empty context."""

    name = "llama-cpp"
    keys = frozenset({"model"})
    options = LlamaCppOptions
    kernel_policy = "ggml"

    def check_profiler(self, workload: Workload, profiler: str) -> None:
        """Raise ``ToolError`` ``E_PROFILER_BLIND`` for a profiler of Python's frames."""
        if profiler not in _PROFILERS:
            raise ToolError(
                "E_PROFILER_BLIND",
                f"{profiler} sees nothing of the computation of {workload.name!r}: llama.cpp runs "
                "on a native thread of its own.",
            )

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
            "factory": "pytest_flamegate.child.llama_cpp:load_engine",
            "model": str(model),
            "threads": workload.threads,
            "seed": workload.seed,
            "context": workload.options.get("context", context_for(workload)),
            "batch": workload.options.get("batch"),
            "gpu_layers": workload.options.get("gpu_layers", 0),
        }
        return Served(load, token_unit="text")


def context_for(workload: Workload) -> int:
    """Return a context for prompt and answer, up to 8,192: a token has at least one byte."""
    longest = max(len(each.encode()) for each in workload.all_prompts)
    needed = longest + workload.max_tokens + _SPARE_TOKENS
    return min(-(-needed // _CONTEXT_STEP) * _CONTEXT_STEP, _MAX_DEFAULT_CONTEXT)
