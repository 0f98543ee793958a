"""The command line: ``flamegate COMMAND``.

Exit codes: 0 pass or improved, 1 regressed, 2 usage error, 3 receipt rejected, 4 inconclusive,
not comparable or no baseline, 5 a tool failed. They follow from verdicts and classes of errors.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_flamegate.core import __version__
from pytest_flamegate.core.errors import FlamegateError, system_errors
from pytest_flamegate.core.progress import Terminated, terminable

_COMMANDS = (
    "run",
    "pictures",
    "convert",
    "convert:add_export",
    "diff",
    "bricks",
    "verify",
    "sign:add_keygen",
    "sign",
    "pictures:add_report",
    "baseline",
    "calibrate",
    "selftest",
    "doctor",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for name in ("stdout", "stderr"):
        # A shell can start a program without these streams; its exit code still counts.
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    parsed = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the terminal's encoding lacks, or file names hold, are escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with terminable(), system_errors():
            return int(parsed.run(parsed))
    except FlamegateError as error:
        from pytest_flamegate.commands.common import escape_controls

        message = escape_controls(f"{error.code}: {error.problem}\n{error.remedy}")
        print(message, file=sys.stderr)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt as end:
        print("flamegate: interrupted; other results are untouched", file=sys.stderr)  # noqa: T201
        return 128 + (signal.SIGTERM if isinstance(end, Terminated) else signal.SIGINT)


def _parser() -> argparse.ArgumentParser:
    from importlib import import_module

    parser = argparse.ArgumentParser(
        prog="flamegate",
        description="Gate the performance of LLM inference: profiles, receipts, verdicts.",
        epilog="exit codes: 0 pass or improved, 1 regressed, 2 usage, 3 receipt rejected, "
        "4 inconclusive, not comparable or no baseline, 5 a tool failed",
    )
    parser.add_argument("--version", action="version", version=f"flamegate {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in _COMMANDS:
        module, _, function = name.partition(":")
        command = import_module(f"pytest_flamegate.commands.{module}")
        getattr(command, function or "add")(subparsers)
    return parser
