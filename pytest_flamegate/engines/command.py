"""Any program: it gets the prompt on its command line and writes its answer to stdout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines import base
from pytest_flamegate.engines.base import Plan, Streamed
from pytest_flamegate.engines.figure_sources import check_sources, select_sources
from pytest_flamegate.engines.tokens import load

PLACEHOLDERS = ("model", "tokenizer", "prompt", "max_tokens", "seed", "threads")
TOKEN_UNITS = ("byte", "word", "line", "tokenizer", base.UNIT)


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
                "E_BAD_VALUE",
                "command is missing.",
                'Add command = ["path/to/program", "--prompt", "{prompt}"].',
            )
        base.check_placeholders(workload.command, PLACEHOLDERS, "command")
        if workload.prompts and "prompt" not in base.find_placeholders(workload.command):
            raise base.DeclarationError(
                "command has no {prompt}, so the program gets none of the prompts.",
                "Add {prompt} to command, or declare one prompt: prompt.",
                "prompts",
            )
        if workload.token_unit not in TOKEN_UNITS:
            raise UsageError(
                "E_BAD_VALUE",
                f"token_unit is {workload.token_unit!r}.",
                f"Use one of: {', '.join(TOKEN_UNITS)}.",
            )
        if workload.token_unit == "tokenizer" and not workload.tokenizer:
            raise UsageError(
                "E_TOKENIZER_MISSING", 'token_unit is "tokenizer", and tokenizer names no file.'
            )
        base.check_tokenizer(workload, workload.command, "command")
        check_sources(workload)
        if any("\0" in each for each in workload.all_prompts):
            raise UsageError(
                "E_BAD_PROMPT",
                "a prompt contains a NUL character, which no command line can hold.",
            )

    def model(self, workload: Workload) -> Path | None:
        """Return the declared model, or discover one if the command has {model}."""
        return base.find_model_of(workload, workload.command)

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Fill in the placeholders, all but the prompt and the number of tokens."""
        values = base.placeholder_values(workload, workload.command, model)
        values |= {"prompt": base.PROMPT, "max_tokens": base.MAX_TOKENS}
        argv = base.fill_placeholders(workload.command, values)
        tokenizer = None
        if workload.token_unit == "tokenizer":
            tokenizer = workload.directory / (workload.tokenizer or "")
            load(tokenizer)  # an error in the file comes before anything runs
        return Streamed(argv, workload.token_unit, tokenizer, select_sources(workload))
