"""Which sources a workload declares, by ``figures``, ``receipt`` and ``pattern``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.errors import UsageError
from pytest_flamegate.workload.sources import SOURCES, WITHOUT_ASKING, Hearing
from pytest_flamegate.workload.sources import pattern as patterns

if TYPE_CHECKING:
    from pytest_flamegate.workload.spec import Workload

FIGURES = ("auto", "none", *SOURCES, "pattern")
LLAMA_BENCH = "llama-bench"


def hearing(workload: Workload) -> Hearing:
    """Return what is read of what the program says of itself."""
    figures = str(workload.options.get("figures", "auto"))
    if figures == "none":
        return Hearing()
    receipt, pattern = (workload.options.get(name) for name in ("receipt", "pattern"))
    chosen = list(WITHOUT_ASKING) if figures == "auto" else [figures]
    if figures == "auto" and receipt is not None:
        chosen.append("receipt")
    sources = [source for name in chosen for source in SOURCES.get(name, ())]
    if pattern is not None and figures in ("auto", "pattern"):
        sources.append(patterns.Pattern(str(pattern)))
    asked = {"receipt": receipt is not None, "pattern": pattern is not None}
    named = {source.name for source in sources if asked.get(source.name, source.name == figures)}
    file = str(receipt) if receipt is not None and "receipt" in chosen else None
    return Hearing(tuple(sources), frozenset(named), file)


def check_figures(workload: Workload) -> None:
    """Refuse an unknown source, one without its option, and an option that nobody reads."""
    where = f"Workload {workload.name!r}"
    figures = workload.options.get("figures", "auto")
    if figures == LLAMA_BENCH or Path(workload.command[0]).stem == LLAMA_BENCH:
        raise UsageError(
            "E_NO_ANSWER",
            f"{where} runs llama-bench, which prints figures and no answer: nothing shows that "
            "two runs generated the same.",
            "Gate llama-completion on the same model, and take llama-bench's JSON in with "
            "flamegate import.",
        )
    if figures not in FIGURES:
        raise UsageError(
            "E_UNKNOWN_SOURCE",
            f"{where} asks for figures from {figures!r}.",
            f"Use one of: {', '.join(FIGURES)}.",
        )
    for name in ("receipt", "pattern"):
        given = workload.options.get(name)
        if (given is None and figures == name) or (
            given is not None and figures not in ("auto", name)
        ):
            raise UsageError(
                "E_BAD_VALUE",
                f"{where} says figures = {figures!r} and {'no ' if given is None else ''}{name}.",
                f"Say both {name} and figures = {name!r}, or leave figures out.",
            )
    if (receipt := workload.options.get("receipt")) is not None and (
        not receipt or "\0" in str(receipt)
    ):
        raise UsageError(
            "E_BAD_VALUE",
            f"{where} has a receipt file without a usable name.",
            'Say receipt = "ci/inference.json", as of the directory the command runs in.',
        )
    if (pattern := workload.options.get("pattern")) is not None:
        patterns.check(str(pattern), where)
