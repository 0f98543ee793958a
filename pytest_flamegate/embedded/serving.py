"""Load the embedded engine in the process that is going to be observed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.embedded import transformer
from pytest_flamegate.embedded.inject import inject
from pytest_flamegate.workload.spec import Injection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def load_engine(load: dict[str, Any]) -> Callable[[str, int], Iterable[int]]:
    """Load the GGUF file ``load["model"]``; ``load["inject"]`` is a frame and its extra percent."""
    generate = transformer.load(Path(load["model"])).generate
    if "inject" in load:
        frame, extra_pct = load["inject"]
        inject(Injection(frame, extra_pct))
    return generate
