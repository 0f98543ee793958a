"""How a workload becomes a process that can be observed.

A new engine is one class in a file of this package, and its instance in ``ENGINES``.
"""

from __future__ import annotations

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.text import suggest
from pytest_flamegate.engines.base import Engine
from pytest_flamegate.engines.command import Command
from pytest_flamegate.engines.gguf import Embedded, LlamaCpp
from pytest_flamegate.engines.openai import OpenAI
from pytest_flamegate.engines.python import Benchmark, Python

ENGINES: dict[str, Engine] = {
    each.name: each for each in (Embedded(), Command(), OpenAI(), Benchmark(), Python(), LlamaCpp())
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
