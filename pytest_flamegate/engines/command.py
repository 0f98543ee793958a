"""Any program: it gets the prompt on its command line and writes its answer to stdout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines import base
from pytest_flamegate.engines.base import PLACEHOLDER, Plan, Streamed
from pytest_flamegate.engines.figure_sources import check_sources, select_sources
from pytest_flamegate.engines.tokens import load

PLACEHOLDERS = ("model", "tokenizer", "prompt", "max_tokens", "seed", "threads")
TOKEN_UNITS = ("byte", "word", "line", "tokenizer", base.UNIT)
_MAX_TOKENS = "{max_tokens}"


class CommandOptions:
    """The program's report: a file ``receipt`` that it writes, or a regular expression."""

    figures: Literal["auto", "none", "timing", "llama.cpp", "receipt", "pattern"]
    receipt: str
    pattern: str


class Command(base.Engine):
    """Runs ``command`` once for each measurement, without a shell."""

    name = "command"
    keys = frozenset({"command", "model", "tokenizer", "token_unit"})
    options = CommandOptions
    clock_scope = "process"
    origin_keys = ("command",)
    variables = base.PROGRAM_VARIABLES

    def validate(self, workload: Workload) -> None:
        """Raise ``UsageError`` if it cannot be run, or tokens or figures cannot be counted."""
        if not workload.command:
            raise UsageError(
                "E_MISSING_KEY",
                "command is missing.",
                'Add command = ["path/to/program", "--prompt", "{prompt}"].',
            )
        base.check_placeholders(workload.command, PLACEHOLDERS, "command")
        if workload.token_unit not in TOKEN_UNITS:
            raise UsageError(
                "E_BAD_VALUE",
                f"token_unit is {workload.token_unit!r}.",
                f"Use one of: {', '.join(TOKEN_UNITS)}.",
            )
        if workload.token_unit == "tokenizer" and not workload.tokenizer:
            raise UsageError(
                "E_NO_TOKENIZER",
                'token_unit is "tokenizer", and tokenizer names no file.',
                'Write tokenizer = "path/to/tokenizer.json", the file that belongs to the model.',
            )
        check_sources(workload)
        if "\0" in workload.prompt:
            raise UsageError(
                "E_BAD_PROMPT",
                "the prompt contains a NUL character, which no command line can hold.",
                "Remove it.",
            )

    def model(self, workload: Workload) -> Path | None:
        """Return the declared model, or discover one if the command has {model}."""
        return base.find_model_of(workload, workload.command)

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Fill in the placeholders."""
        values = base.placeholder_values(workload, workload.command, model)
        values |= {"prompt": workload.prompt, "max_tokens": str(workload.max_tokens)}
        argv = base.fill_placeholders(workload.command, values)
        tokenizer = None
        if workload.token_unit == "tokenizer":
            tokenizer = workload.directory / (workload.tokenizer or "")
            load(tokenizer)  # an error in the file comes before anything runs
        return Streamed(argv, workload.token_unit, tokenizer, select_sources(workload))


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
