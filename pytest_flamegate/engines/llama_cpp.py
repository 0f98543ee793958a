"""llama.cpp inside the served process, through whichever of its Python libraries is there."""

from __future__ import annotations

import importlib.util
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.models.discover import find_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Kinds


FACTORY = "pytest_flamegate.child.llama_cpp:load_engine"
MODULES: Mapping[str, str] = MappingProxyType(
    {"xllamacpp": "xllamacpp", "llama-cpp-python": "llama_cpp"}
)
"""The libraries by the names that install them, each with the module that it brings."""
TOKEN_UNITS: Mapping[str, str] = MappingProxyType({"xllamacpp": "text", "llama-cpp-python": "id"})
"""What each tells of a token: its text, or its id."""
_RANGES = {"context": (1, 2**31 - 1), "batch": (1, 2**31 - 1), "gpu_layers": (0, 2**31 - 1)}
_NATIVE_PROFILERS = ("perf", "callgrind")
_SPARE_TOKENS = 16
_CONTEXT_STEP = 256
_MOST_CONTEXT = 8192
"""What is taken unasked: a context costs memory for each token that it could hold."""


class LlamaCpp:
    """Loads a GGUF file once and generates greedily, each time from an empty context.

    Options: ``library`` (a key of ``MODULES``), ``context`` and ``batch`` in tokens,
    ``gpu_layers`` (0 unless asked: how many layers are given to a GPU).
    """

    name = "llama-cpp"
    keys = frozenset({"model"})
    options: Mapping[str, Kinds] = MappingProxyType(
        {"library": (str,), "context": (int,), "batch": (int,), "gpu_layers": (int,)}
    )

    def sees_python(self, workload: Workload) -> bool:  # noqa: ARG002
        """Return False: both libraries decode in llama.cpp's own code."""
        return False

    def check_profiler(self, workload: Workload, profiler: str) -> None:
        """Refuse what shows Python's frames: ``ToolError`` ``E_PROFILER_BLIND``.

        py-spy does see native frames, beneath Python's: so those of llama-cpp-python, which
        decodes on the thread that asks, and not those of xllamacpp, which has one of its own.
        """
        library = workload.options.get("library") or installed()
        native = profiler == "py-spy" and workload.sampling.native
        if profiler in _NATIVE_PROFILERS or (native and library == "llama-cpp-python"):
            return
        raise ToolError(
            "E_PROFILER_BLIND",
            f"{profiler} sees nothing of what {library} computes in {workload.name!r}: "
            "that is native code, and none of it is Python's.",
            "Use perf: --flamegate-profiler=perf; py-spy sees it with "
            'library = "llama-cpp-python" and profile = { native = true }.',
        )

    def validate(self, workload: Workload) -> None:
        """Refuse an unknown library, and figures that llama.cpp has no use for."""
        library = workload.options.get("library")
        if library is not None and library not in MODULES:
            raise UsageError(
                "E_BAD_VALUE",
                f"Workload {workload.name!r} asks for the library {library!r}.",
                f"Use one of: {', '.join(MODULES)}.",
            )
        for name, (low, high) in _RANGES.items():
            value = workload.options.get(name, low)
            if not isinstance(value, int) or not low <= value <= high:
                raise UsageError(
                    "E_BAD_VALUE",
                    f"Workload {workload.name!r} has {name} = {value!r}.",
                    f"It takes a figure from {low} to {high}.",
                )

    def model(self, workload: Workload) -> Path:
        """Return the declared model, or the one in the usual places."""
        return find_model(workload.model, workload.directory)

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Serve the model in a child process; ``ToolError`` ``E_NO_LIBRARY`` without a library."""
        library = str(workload.options.get("library") or installed())
        load: dict[str, Any] = {
            "factory": FACTORY,
            "library": library,
            "module": MODULES[library],
            "model": str(model),
            "threads": workload.threads,
            "seed": workload.seed,
            "context": workload.options.get("context", context_for(workload)),
            "batch": workload.options.get("batch"),
            "gpu_layers": workload.options.get("gpu_layers", 0),
        }
        return Served(load, token_unit=TOKEN_UNITS[library])

    def prompt_tokens(self, workload: Workload) -> int | None:  # noqa: ARG002
        """Return None: only the model's own tokenizer knows, and the engine reports it."""
        return None


def installed() -> str:
    """Return the first library that is there; ``ToolError`` ``E_NO_LIBRARY`` without one."""
    for library, module in MODULES.items():
        if importlib.util.find_spec(module) is not None:
            return library
    raise ToolError(
        "E_NO_LIBRARY",
        "No Python library of llama.cpp is installed here.",
        "Install one: pip install xllamacpp (or llama-cpp-python).",
    )


def context_for(workload: Workload) -> int:
    """Return a context in tokens that holds the prompt and the answer, up to 8,192.

    No tokenizer makes more tokens of a text than it has bytes, but for a few that begin it.
    """
    needed = len(workload.prompt.encode()) + workload.max_tokens + _SPARE_TOKENS
    return min(-(-needed // _CONTEXT_STEP) * _CONTEXT_STEP, _MOST_CONTEXT)
