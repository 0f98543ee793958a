"""``flamegate report``: the latest run of every workload as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common

if TYPE_CHECKING:
    import argparse


DEFAULT = Path("flamegate-report.html")


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "report",
        help="write the latest run of every workload as one HTML page",
        description="Makes one self-contained page of what lies in the artifact directory: "
        "verdicts, flame graphs, figures. Nothing is measured and nothing is judged again.",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=DEFAULT, metavar="PATH", help=f"default: {DEFAULT}"
    )
    common.add_options(parser, "dir")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Write the page; 0 whatever the verdicts on it are."""
    from pytest_flamegate.run.present import report_directory, require_writable, write_report

    settings = common.read_settings(parsed)
    require_writable(parsed.output)
    write_report(parsed.output, report_directory(settings), settings)
    common.print_text(str(parsed.output))
    return 0
