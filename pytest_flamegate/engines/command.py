"""Any program: it is given the prompt on its command line and writes its answer to stdout."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines import base
from pytest_flamegate.engines.base import PLACEHOLDER, Lasting, Plan, Streamed
from pytest_flamegate.engines.figure_sources import check_figures, hearing
from pytest_flamegate.engines.tokens import load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Kinds


PLACEHOLDERS = ("model", "tokenizer", "prompt", "max_tokens", "seed", "threads")
TOKEN_UNITS = ("byte", "word", "line", "tokenizer", base.UNIT)


class Command:
    """Runs ``command`` once for each measurement; no shell ever sees it."""

    name = "command"
    keys = frozenset({"command", "model", "tokenizer", "token_unit"})
    options: Mapping[str, Kinds] = MappingProxyType(
        {"figures": (str,), "receipt": (str,), "pattern": (str,)}
    )

    def sees_python(self, workload: Workload) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def validate(self, workload: Workload) -> None:
        """Refuse what cannot be run, cannot be counted, or cannot be read of it."""
        if not workload.command:
            raise UsageError(
                "E_NO_COMMAND",
                f"Workload {workload.name!r} has the engine command and no command.",
                'Say command = ["path/to/program", "--prompt", "{prompt}"].',
            )
        base.check(workload, workload.command, PLACEHOLDERS, "its command")
        if workload.token_unit not in TOKEN_UNITS:
            raise UsageError(
                "E_UNKNOWN_TOKEN_UNIT",
                f"Workload {workload.name!r} counts tokens by {workload.token_unit!r}.",
                f"Use one of: {', '.join(TOKEN_UNITS)}.",
            )
        if workload.token_unit == "tokenizer" and not workload.tokenizer:
            raise UsageError(
                "E_NO_TOKENIZER",
                f"Workload {workload.name!r} counts tokens by a tokenizer and names none.",
                'Say tokenizer = "path/to/tokenizer.json", the file that belongs to the model.',
            )
        check_figures(workload)
        if "\0" in workload.prompt:
            raise UsageError(
                "E_BAD_PROMPT",
                f"The prompt of workload {workload.name!r} holds a NUL character.",
                "No program can be given one on its command line; take it out.",
            )

    def model(self, workload: Workload) -> Path | None:
        """Return the model the command names: declared, or discovered where it uses {model}."""
        return base.model_of(workload, workload.command)

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Fill the placeholders in."""
        values = base.common(workload, workload.command, model)
        values |= {"prompt": workload.prompt, "max_tokens": str(workload.max_tokens)}
        argv = base.filled(workload.command, values)
        counting = None
        if workload.token_unit == "tokenizer":
            counting = workload.directory / (workload.tokenizer or "")
            load(counting)  # a broken one is refused before anything runs
        return Streamed(argv, workload.token_unit, counting, hearing(workload))

    def prompt_tokens(self, workload: Workload) -> int | None:  # noqa: ARG002
        """Return None: only the engine's own tokenizer knows."""
        return None


def with_max_tokens(plan: Plan, workload: Workload, tokens: int) -> tuple[Plan, Workload] | None:
    """Return plan and workload for another number of tokens.

    None if the command line has no ``{max_tokens}``.
    """
    fewer = replace(workload, max_tokens=tokens)
    if isinstance(plan, Lasting):
        return plan, fewer
    argv = replace_max_tokens(plan, workload, tokens)
    return None if argv is None else (replace(plan, argv=argv), fewer)


def replace_max_tokens(plan: Streamed, workload: Workload, tokens: int) -> tuple[str, ...] | None:
    """Return the command line for another number of tokens; None if it has no {max_tokens}."""
    templates = workload.command
    if len(templates) != len(plan.argv) or not any(_MAX_TOKENS in part for part in templates):
        return None
    parts = [
        _refill(template, part, workload.max_tokens, tokens)
        for template, part in zip(templates, plan.argv, strict=True)
    ]
    return None if None in parts else tuple(part for part in parts if part is not None)


_MAX_TOKENS = "{max_tokens}"


def _refill(template: str, part: str, planned: int, tokens: int) -> str | None:
    """Return ``part`` with another number; None if it was not made from ``template``."""
    if _MAX_TOKENS not in template:
        return part
    pieces = PLACEHOLDER.split(template)  # text, name, text, name, …, text
    pattern = "".join(
        re.escape(piece) if index % 2 == 0 else f"({planned})" if piece == "max_tokens" else "(.*?)"
        for index, piece in enumerate(pieces)
    )
    match = re.fullmatch(pattern, part, re.DOTALL)
    if match is None:
        return None
    values = [
        str(tokens) if name == "max_tokens" else value
        for name, value in zip(pieces[1::2], match.groups(), strict=True)
    ]
    return "".join(text + value for text, value in zip(pieces[::2], [*values, ""], strict=True))
