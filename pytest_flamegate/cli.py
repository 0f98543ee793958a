"""The command line: ``flamegate COMMAND``. Exit codes follow from verdicts and errors."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_flamegate.core import __version__
from pytest_flamegate.core.errors import FlamegateError, system_errors
from pytest_flamegate.core.progress import INTERRUPTED, Terminated, ignore_closed_pipe, terminable
from pytest_flamegate.core.text import suggest

_COMMANDS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("commands").joinpath("commands.toml").read_text("utf-8")
)
"""The function that runs each command, its arguments, and its words in the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for name in ("stdout", "stderr"):
        # A shell can start a program without these streams; its exit code still counts.
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the terminal's encoding lacks, or file names hold, are escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with terminable(), system_errors():
            parsed = _parse(sys.argv[1:] if arguments is None else arguments)
            return int(parsed.run(parsed))
    except FlamegateError as error:
        from pytest_flamegate.commands.common import escape_controls
        from pytest_flamegate.config.options import shorten_options

        message = f"{error.code}: {error.problem}\n{error.remedy}"
        _print_error(escape_controls(shorten_options(message)))
        return error.exit_code
    except KeyboardInterrupt as end:
        _print_error(INTERRUPTED)
        return 128 + (end.number if isinstance(end, Terminated) else signal.SIGINT)


def _print_error(message: str) -> None:
    with ignore_closed_pipe(sys.stderr):
        print(message, file=sys.stderr, flush=True)  # noqa: T201


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; only the module of its command is imported."""
    parser = argparse.ArgumentParser(
        prog="flamegate",
        description="Gate the performance of LLM inference: profiles, receipts, verdicts.",
        epilog="exit codes: 0 pass or improved, 1 regressed, 2 usage, 3 receipt rejected, "
        "4 inconclusive, not comparable or no baseline, 5 a tool failed",
    )
    parser.add_argument("--version", action="version", version=f"flamegate {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    words = [each for each in arguments if not each.startswith("-")]
    command = words[0] if words else None
    if command is not None and command not in _COMMANDS:
        parser.error(f"there is no command {command!r}. {suggest(command, _COMMANDS)}")
    actions = _COMMANDS[command].get("actions") if command is not None else None
    if actions and len(words) > 1 and words[1] not in actions:
        parser.error(f"{command} has no action {words[1]!r}. {suggest(words[1], actions)}")
    for name, row in _COMMANDS.items():
        description, epilog = row.get("description"), row.get("epilog")
        subparser = subparsers.add_parser(
            name, help=row["help"], description=description, epilog=epilog
        )
        if name == command:
            _declare(subparser, row)
    return parser.parse_args(arguments, argparse.Namespace(words=[*arguments]))


def _declare(parser: argparse.ArgumentParser, row: Mapping[str, Any]) -> None:
    """Declare the arguments of one command, or those of its actions."""
    from pytest_flamegate.commands.common import add_arguments

    add_arguments(parser, row)
    if "place" in row:
        module, _, function = row["place"].partition(":")
        place = import_module(f"pytest_flamegate.commands.{module}")
        parser.set_defaults(run=getattr(place, function))
        return
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for name, action in row["actions"].items():
        _declare(actions.add_parser(name, help=action["help"]), action)
