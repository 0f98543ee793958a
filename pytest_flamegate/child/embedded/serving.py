"""Load the embedded engine in the process that is going to be observed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.child.embedded import traffic, transformer
from pytest_flamegate.child.embedded.inject import inject
from pytest_flamegate.config.workload import Injection

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager


class Engine(partial[Iterator[int]]):
    """Called with prompt and max_tokens; in C, so that no profile has one more frame for it."""

    def mark_bricks(self) -> AbstractContextManager[None]:
        """Return a context within which every kernel is a brick."""
        # Whoever clocks no bricks loads nothing of them.
        from pytest_flamegate.child.embedded.marks import mark_kernels

        return mark_kernels(self._model.weights)

    @property
    def facts(self) -> Mapping[str, str]:
        """What the engine tells of itself: the bytes that a token takes."""
        return traffic.facts(self._model.weights)

    @property
    def _model(self) -> transformer.Transformer:
        model: transformer.Transformer = self.func.__self__  # type: ignore[attr-defined]
        return model


def load_engine(load: dict[str, Any]) -> Engine:
    """Load the GGUF file ``load["model"]``; ``load["inject"]`` is a frame and its extra percent."""
    engine = Engine(transformer.load(Path(load["model"])).generate)
    if "inject" in load:
        frame, extra_pct = load["inject"]
        inject(Injection(frame, extra_pct))
    return engine
