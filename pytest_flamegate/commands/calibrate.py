"""``flamegate calibrate``: measure how small a slowdown this machine can detect."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.core.errors import UndecidedError, UsageError

if TYPE_CHECKING:
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.gate.statistics import Count
    from pytest_flamegate.run.calibrate import Supported
    from pytest_flamegate.run.calibration import Calibration
    from pytest_flamegate.run.session import Session


_BUDGET_S = (1.0, 86_400.0)


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "calibrate",
        help="measure how small a slowdown this machine can detect",
        description="Measures pairs of the same code, replays the whole decision rule on them, and "
        "prints its error rates here and the thresholds that hold. A workload's threshold that "
        "this machine cannot hold is an error.",
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="default: all declared")
    parser.add_argument("--pairs", metavar="N", help="pairs to measure (default 40)")
    parser.add_argument(
        "--budget",
        dest="seconds",
        metavar="SECONDS",
        help="measuring time for each workload in seconds (default 180)",
    )
    common.add_options(parser, "profiler", "config", "dir")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Calibrate the workloads; raises one error for all thresholds that are too small."""
    from pytest_flamegate.commands.run import choose_workloads
    from pytest_flamegate.core.progress import stream_progress
    from pytest_flamegate.gate.calibration import MIN_POOL
    from pytest_flamegate.run.calibrate import BUDGET_S, PAIRS
    from pytest_flamegate.run.session import Session

    pairs = round(_number("--pairs", parsed.pairs, PAIRS, MIN_POOL, 10_000, whole=True))
    budget_s = _number("--budget", parsed.seconds, BUDGET_S, *_BUDGET_S)
    settings = common.read_settings(parsed)
    workloads = choose_workloads(common.read_workloads(settings), parsed.workloads)
    session = Session(settings, stream_progress(sys.stderr))
    session.bench.store.artifacts.require_writable()
    try:
        found = [_calibrate(session, workload, pairs, budget_s) for workload in workloads]
    finally:
        session.progress.stop()
        session.close()
    errors = [each for each in found if each is not None]
    if errors:
        raise UndecidedError(
            errors[0].code,
            " ".join(each.problem for each in errors),
            " ".join(dict.fromkeys(each.remedy for each in errors)),
        )
    return 0


def _calibrate(
    session: Session, workload: Workload, pairs: int, budget_s: float
) -> UndecidedError | None:
    """Calibrate one workload, store and print the result; return the error of its threshold."""
    from pytest_flamegate.core.locks import machine_lock
    from pytest_flamegate.gate.calibration import count_alarms, describe_alarms, split_into_gates
    from pytest_flamegate.run.calibrate import calibrate, document, refusal, supported
    from pytest_flamegate.run.calibration import append_gates, load_ledger, store
    from pytest_flamegate.run.hints import relative
    from pytest_flamegate.run.schedule import PAIRS_SHARE

    with machine_lock(session.progress.announce):
        calibration = calibrate(
            workload,
            session.bench.machine,
            session.progress,
            pairs=pairs,
            budget_s=budget_s,
        )
    drop_pct = workload.thresholds.tokens_per_second_pct
    found = supported(
        calibration,
        drop_pct,
        session.settings.compare_budget_s,
        1.0 if session.settings.profiler == "none" else PAIRS_SHARE,
    )
    artifacts = session.bench.store.artifacts
    stored = store(artifacts, calibration, **document(found))
    for warning in stored.warnings:
        session.progress.announce(warning)
    gates = split_into_gates(calibration.differences, drop_pct, found.plan)
    append_gates(artifacts, calibration, drop_pct, gates)
    known = load_ledger(artifacts, session.progress.announce)
    bound = count_alarms(known, calibration.machine_id, workload.name, drop_pct)
    lines = [
        f"{workload.node_name} on {calibration.machine_id}",
        *_describe_noise(calibration),
        *_tabulate_budgets(found, calibration.pair_s),
        *_describe_rates(found),
        _row("ledger", f"{describe_alarms(bound)} at {drop_pct:g} %"),
        _row("stored in", relative(stored.path, session.settings.root)),
    ]
    common.print_text("\n".join(lines) + "\n")
    return refusal(workload.name, found)


def _describe_noise(calibration: Calibration) -> list[str]:
    from pytest_flamegate.gate.calibration import FEW_POOL
    from pytest_flamegate.gate.statistics import variance

    pool = calibration.differences
    few = f"; {FEW_POOL} or more say it better (--pairs)" if len(pool) < FEW_POOL else ""
    sd_pct, largest_pct = 100 * math.sqrt(variance(pool)), 100 * max(map(abs, pool))
    return [
        _row("pairs", f"{len(pool)} of the same code, {calibration.pair_s:.2f} s each{few}"),
        _row("noise", f"sd {sd_pct:.2f} % a pair, largest {largest_pct:.1f} %"),
    ]


def _tabulate_budgets(found: Supported, pair_s: float) -> list[str]:
    from pytest_flamegate.gate.calibration import LADDER

    lines = [_row("budget", "pairs   smallest threshold   decided after (median, unchanged code)")]
    for row in found.rows:
        held = f"none up to {LADDER[-1]:g} %"
        if row.drop_pct is not None and row.median_pairs is not None:
            after = f"{row.median_pairs} pairs, {row.median_pairs * pair_s:.0f} s"
            held = f"{row.drop_pct:>16g} %   {after}"
        lines.append(_row(f"{row.budget_s:6g} s", f"{row.pairs:5}   {held}"))
    return lines


def _describe_rates(found: Supported) -> list[str]:
    rates, drop = found.rates, f"{found.drop_pct:g} %"

    def part(count: Count) -> str:
        return f"{100 * count.rate:.1f} %"

    return [
        _row(
            f"at {drop}",
            f"{rates.false_alarm.words} false alarms, {rates.miss.words} misses in "
            f"{rates.false_alarm.trials:,} replays of the whole rule within {found.budget_s:g} s",
        ),
        _row(
            "",
            f"inconclusive: {part(rates.inconclusive_unchanged)} of unchanged code, "
            f"{part(rates.inconclusive_at_threshold)} of drops of {drop}, "
            f"{part(rates.inconclusive_twice)} of drops twice as large",
        ),
    ]


def _row(name: str, words: str) -> str:
    return f"  {name:<10} {words}"


def _number(
    name: str, given: str | None, default: float, low: float, high: float, *, whole: bool = False
) -> float:
    """Return an option's number; ``UsageError`` ``E_BAD_OPTION`` if it is not in its range."""
    try:
        value = float(default if given is None else int(given) if whole else float(given))
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise UsageError(
            "E_BAD_OPTION",
            f"{name} is {given!r}.",
            f"Give a {'whole ' if whole else ''}number from {low:g} to {high:g}.",
        )
    return value
