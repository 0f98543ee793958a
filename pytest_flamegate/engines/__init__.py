"""How a workload becomes a process that can be observed: one file for each engine.

A new engine is one file here and one line in ``ENGINES``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.config import workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.text import suggest
from pytest_flamegate.engines import benchmark, command, embedded, llama_cpp, openai, python

if TYPE_CHECKING:
    from pytest_flamegate.engines.base import Engine


ENGINES: dict[str, Engine] = {
    "embedded": embedded.Embedded(),
    "command": command.Command(),
    "openai": openai.OpenAI(),
    workload.BENCHMARK_ENGINE: benchmark.Benchmark(),
    "python": python.Python(),
    "llama-cpp": llama_cpp.LlamaCpp(),
}


OPTIONS = tuple(key for each in ENGINES.values() for key in each.options.__annotations__)
"""The keys of a declaration that one engine alone accepts."""


def engine(name: str) -> Engine:
    """Return the engine called ``name``; ``UsageError`` ``E_UNKNOWN_ENGINE`` if there is none."""
    try:
        return ENGINES[name]
    except KeyError:
        raise UsageError(
            "E_UNKNOWN_ENGINE", f"There is no engine {name!r}.", suggest(name, ENGINES)
        ) from None
