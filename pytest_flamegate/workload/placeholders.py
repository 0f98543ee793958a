"""``{model}`` and its like in a command line: which are known, what they stand for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_flamegate.errors import UsageError
from pytest_flamegate.workload.discover import find_model, find_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_flamegate.workload.spec import Workload

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def used(argv: Sequence[str]) -> set[str]:
    """Return the names of the placeholders in a command line."""
    return set(PLACEHOLDER.findall(" ".join(argv)))


def check(workload: Workload, argv: Sequence[str], known: Sequence[str], where: str) -> None:
    """Refuse one that is not ``known``: ``UsageError`` ``E_UNKNOWN_PLACEHOLDER``."""
    if unknown := sorted(used(argv) - set(known)):
        raise UsageError(
            "E_UNKNOWN_PLACEHOLDER",
            f"Workload {workload.name!r} uses {{{unknown[0]}}} in {where}.",
            f"Known placeholders: {', '.join('{' + name + '}' for name in known)}.",
        )


def model_of(workload: Workload, argv: Sequence[str]) -> Path | None:
    """Return the model that is declared, or found where the command line asks for one."""
    if workload.model is None and "model" not in used(argv):
        return None
    return find_model(workload.model, workload.directory)


def common(workload: Workload, argv: Sequence[str], model: Path | None) -> dict[str, str]:
    """Return what stands for model, tokenizer, seed and threads.

    A tokenizer that is asked for and not declared is looked for. ``ToolError`` where there is
    none, or more than one.
    """
    tokenizer = workload.tokenizer
    if tokenizer is None and "tokenizer" in used(argv):
        tokenizer = str(find_tokenizer(workload.directory, model))
    return {
        "model": str(model or ""),
        "tokenizer": tokenizer or "",
        "seed": str(workload.seed),
        "threads": str(workload.threads),
    }


def filled(argv: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command line with ``values`` in it; what they hold is not looked at again."""
    return tuple(PLACEHOLDER.sub(lambda match: values[match.group(1)], part) for part in argv)
