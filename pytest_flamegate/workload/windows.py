"""Runs that are windows of one process: a server that ran before, and goes on running.

Elsewhere a process that stands twice among the runs is a copy. Here all of them are the same
one by the recipe's own word, so what tells a copy is that its times repeat, and no spread
between processes was seen: such a receipt can be honest and is not fit to gate on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def of_one_process(recipe: Mapping[str, object]) -> bool:
    """Whether the recipe asks a server that was not started for each run."""
    url = recipe.get("url")
    named = isinstance(url, str) and bool(url.strip())
    return recipe.get("engine") == "openai" and named and not recipe.get("serve")
