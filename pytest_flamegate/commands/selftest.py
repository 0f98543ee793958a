"""``flamegate selftest [WORKLOAD]``: prove that the gate fails when it must, and only then."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from pytest_flamegate.config.settings import Settings
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.run.selftest import Bench
    from pytest_flamegate.run.selftest_cases import Row


_DEFAULT = "passage"
_EXTRA = "25%"
_HEAD = ("case", "expected", "result", "ok")
_COLOURS = {"ok": "green", "differs": "red"}


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "selftest",
        help="prove that the gate fails when it must, and only then",
        description="Slows a function for real, forges a receipt, and checks what the gate "
        "decides in each case. Nothing is written. Exits with 0 if all is as "
        "expected, 1 if anything differs, 4 if noise left a case undecided or a case cannot be "
        "tried here: without a profiler, or with a program of unknown functions.",
    )
    parser.add_argument(
        "workload", nargs="?", metavar="WORKLOAD", help=f"default: the embedded {_DEFAULT}"
    )
    parser.add_argument(
        "--frame", metavar="NAME", help="the function to slow; needed for a Python workload"
    )
    parser.add_argument("--other", metavar="NAME", help="the function that is made faster instead")
    parser.add_argument(
        "--extra", metavar="25%", default=_EXTRA, help=f"how much slower (default {_EXTRA})"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    common.add_options(parser, "profiler", "budget", "config")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Try every case; return an exit code."""
    from pytest_flamegate.core.progress import stream_progress
    from pytest_flamegate.run.instruments import Instruments
    from pytest_flamegate.run.selftest import BUDGET_S, make_plan, open_bench
    from pytest_flamegate.run.selftest_cases import exit_code_of, try_cases

    settings = common.read_settings(parsed)
    if parsed.budget is None and settings.compare_budget_s == COMPARE_BUDGET_S:
        settings = replace(settings, compare_budget_s=BUDGET_S)
    plan = make_plan(_workload(parsed, settings), parsed.extra, parsed.frame, parsed.other)
    progress = stream_progress(sys.stderr)
    profiler = partial(Instruments(settings.profiler, settings.root).profiler, comparing=True)
    began_s = time.monotonic()
    try:
        with open_bench(plan, settings, progress, profiler) as bench:
            rows = tuple(try_cases(bench))
    finally:
        progress.stop()
    seconds, status = time.monotonic() - began_s, exit_code_of(rows)
    if parsed.format == "json":
        document = _document(bench, rows, seconds, status)
        common.print_text(json.dumps(document, indent=2))
    else:
        common.print_text("\n".join(_text(bench, rows, seconds, colour=sys.stdout.isatty())))
    return status


def _workload(parsed: argparse.Namespace, settings: Settings) -> Workload:
    from pytest_flamegate.commands.run import choose_workloads
    from pytest_flamegate.engines.embedded import embedded_workloads

    embedded = embedded_workloads(settings.root, settings.thresholds)
    if parsed.workload is None:
        return choose_workloads(embedded, [_DEFAULT])[0]
    declared = common.read_workloads(settings)
    names = {workload.name for workload in declared}
    known = (*declared, *(each for each in embedded if each.name not in names))
    found = choose_workloads(known, [parsed.workload])
    if len(found) > 1:
        raise UsageError(
            "E_UNKNOWN_WORKLOAD",
            f"{parsed.workload!r} has several variants, and one workload is tested at a time.",
            f"Name one: {', '.join(each.name for each in found)}.",
        )
    return found[0]


def _text(bench: Bench, rows: Sequence[Row], seconds: float, *, colour: bool) -> list[str]:
    from rich.text import Text

    from pytest_flamegate.report.text import columns, visible

    profiler = bench.profiler.name if bench.profiler else "no profiler"
    table = [
        (
            visible(row.done),
            visible(row.expected),
            visible(row.happened),
            Text.styled(row.result, f"bold {_COLOURS.get(row.result, 'yellow')}"),
        )
        for row in rows
    ]
    return [
        f"flamegate selftest: {visible(bench.plan.workload.node_name)} · {profiler}",
        "",
        *columns([_HEAD, *table], gap=2, colour=colour),
        "",
        *(
            f"{row.name} ({row.result}): {visible(row.detail, 1000)}"
            for row in rows
            if row.result != "ok"
        ),
        f"{_count_results(rows)}, {seconds:.0f} s",
    ]


def _count_results(rows: Sequence[Row]) -> str:
    found = [row.result for row in rows]
    parts = [f"{found.count('ok')} of {len(rows)} as expected"]
    for result, word in (
        ("differs", "different"),
        ("undecided", "undecided"),
        ("left out", "left out"),
    ):
        if number := sum(each == result for each in found):
            parts.append(f"{number} {word}")
    return ", ".join(parts)


def _document(bench: Bench, rows: Sequence[Row], seconds: float, status: int) -> dict[str, object]:
    plan = bench.plan
    return {
        "workload": plan.workload.node_name,
        "profiler": bench.profiler.name if bench.profiler else None,
        "frame": plan.slowed.frame if plan.slowed else None,
        "extra_pct": plan.slowed.extra_pct if plan.slowed else None,
        "other": plan.other,
        "seconds": round(seconds, 1),
        "exit_code": status,
        "cases": [asdict(row) for row in rows],
    }
