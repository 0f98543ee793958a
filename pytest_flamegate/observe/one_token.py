"""The same workload for another number of tokens: what runs beside it to be subtracted."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flamegate.engines.base import PLACEHOLDER, Lasting

if TYPE_CHECKING:
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Plan, Streamed


_MAX_TOKENS = "max_tokens"


def retell(plan: Plan, workload: Workload, tokens: int) -> tuple[Plan, Workload] | None:
    """Return the plan and the workload for that many tokens; None where that cannot be told."""
    fewer = replace(workload, max_tokens=tokens)
    if isinstance(plan, Lasting):
        return plan, fewer
    argv = retold(plan, workload, tokens)
    return None if argv is None else (replace(plan, argv=argv), fewer)


def retold(plan: Streamed, workload: Workload, tokens: int) -> tuple[str, ...] | None:
    """Return the command line for that many tokens; None where it does not name them."""
    templates = workload.command
    if len(templates) != len(plan.argv) or not any(
        f"{{{_MAX_TOKENS}}}" in template for template in templates
    ):
        return None
    parts = []
    for template, part in zip(templates, plan.argv, strict=True):
        told = _retold(template, part, workload.max_tokens, tokens)
        if told is None:
            return None
        parts.append(told)
    return tuple(parts)


def _retold(template: str, part: str, planned: int, tokens: int) -> str | None:
    """Return ``part``, filled in from ``template``, for another number of tokens.

    None where it was not filled in from it.
    """
    if f"{{{_MAX_TOKENS}}}" not in template:
        return part
    pieces = PLACEHOLDER.split(template)  # text, name, text, name, …, text
    pattern = "".join(
        re.escape(piece) if index % 2 == 0 else f"({planned})" if piece == _MAX_TOKENS else "(.*?)"
        for index, piece in enumerate(pieces)
    )
    found = re.fullmatch(pattern, part, re.DOTALL)
    if found is None:
        return None
    names = pieces[1::2]
    filled = [
        str(tokens) if name == _MAX_TOKENS else value
        for name, value in zip(names, found.groups(), strict=True)
    ]
    return "".join(text + value for text, value in zip(pieces[::2], [*filled, ""], strict=True))
