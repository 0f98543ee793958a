"""``flamegate export PATH --format FORMAT``: a profile for other tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    import argparse


_FORMATS = ("folded", "speedscope", "pprof")


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "export",
        help="write a profile for other tools",
        description="Writes the profile of a run (its directory, receipt or evidence), of folded "
        "stacks or of a speedscope file. Equal profiles give equal bytes.",
    )
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.add_argument("--format", required=True, choices=_FORMATS)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Export the profile."""
    from pytest_flamegate.profile.formats.registry import BINARY, export_profile
    from pytest_flamegate.profile.frames import path_prefixes
    from pytest_flamegate.receipt import store
    from pytest_flamegate.run.open import open_profile

    if parsed.output is None and parsed.format in BINARY and sys.stdout.isatty():
        raise UsageError(
            "E_TERMINAL",
            f"{parsed.format} is a binary format, and standard output is a terminal.",
            "Say -o FILE.",
        )
    opened = open_profile(parsed.path, path_prefixes(Path.cwd()))
    data = export_profile(opened.profile, parsed.format, opened.title)
    if parsed.output is None:
        common.print_bytes(data)
    else:
        store.write_atomic(parsed.output, data)
        common.print_text(str(parsed.output))
    return 0
