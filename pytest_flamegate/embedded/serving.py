"""Load the embedded engine in the process that is going to be observed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.embedded import traffic, transformer
from pytest_flamegate.embedded.inject import inject
from pytest_flamegate.workload.spec import Injection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Served:
    """What generates, and what it tells of itself."""

    generate: Callable[[str, int], Iterable[int]]
    facts: Mapping[str, str]

    def __call__(self, prompt: str, max_tokens: int) -> Iterable[int]:
        """Return the tokens as they are generated."""
        return self.generate(prompt, max_tokens)


def load_engine(load: dict[str, Any]) -> Served:
    """Load the GGUF file ``load["model"]``; ``load["inject"]`` is a frame and its extra percent."""
    model = transformer.load(Path(load["model"]))
    if "inject" in load:
        frame, extra_pct = load["inject"]
        inject(Injection(frame, extra_pct))
    return Served(model.generate, traffic.facts(model.weights))
