"""``flamegate calibrate`` and ``selftest``: how well the gate works on this machine."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial

from pytest_flamegate.commands import common
from pytest_flamegate.commands.run import choose_entries
from pytest_flamegate.config.settings import Settings, read_number
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, UndecidedError, UsageError
from pytest_flamegate.core.files import relative
from pytest_flamegate.core.locks import machine_lock
from pytest_flamegate.core.progress import stream_progress
from pytest_flamegate.engines import engine
from pytest_flamegate.gate.calibration import FEW_POOL, LADDER, MIN_POOL
from pytest_flamegate.gate.statistics import variance
from pytest_flamegate.observe.build import build_workload
from pytest_flamegate.report.text import columns, paint, visible
from pytest_flamegate.run.calibration import (
    SupportedThresholds,
    calibrate,
    find_supported_thresholds,
    store,
    threshold_error,
)
from pytest_flamegate.run.instruments import Instruments
from pytest_flamegate.run.prepare import prepare_side
from pytest_flamegate.run.schedule import PAIRS_SHARE, describe_load
from pytest_flamegate.run.selftest import Bench, choose_injection, open_bench
from pytest_flamegate.run.selftest_cases import CASES, CaseRow, summarize, try_case
from pytest_flamegate.run.session import Session

_MAX_PAIRS = 10_000
_DEFAULT = "embedded::passage"
_HEAD = ("case", "expected", "result", "ok", "time")
_COLOURS = {"ok": "green", "failed": "red"}


def run_calibrate(parsed: argparse.Namespace) -> int:
    """Calibrate the workloads; raise one error for invalid ones and too small thresholds."""
    if not MIN_POOL <= parsed.pairs <= _MAX_PAIRS:
        raise UsageError(
            "E_BAD_OPTION",
            f"--pairs is {parsed.pairs}.",
            f"Give a whole number from {MIN_POOL} to {_MAX_PAIRS}.",
        )
    budget_s = read_number("budget", {"budget": parsed.seconds})
    settings = common.read_settings(parsed)
    entries = choose_entries(settings, parsed.workloads)
    workloads = [each for each in entries if isinstance(each, Workload)]
    errors: list[FlamegateError] = [
        each.error for each in entries if not isinstance(each, Workload)
    ]
    session = Session(settings, stream_progress(sys.stderr))
    session.bench.store.artifacts.require_writable()
    try:
        found = [_calibrate(session, workload, parsed.pairs, budget_s) for workload in workloads]
    finally:
        session.progress.stop()
        session.close()
    errors += [each for each in found if each is not None]
    if errors:
        raise type(errors[0])(
            errors[0].code,
            " ".join(each.problem for each in errors),
            " ".join(dict.fromkeys(each.remedy for each in errors)),
        )
    return 0


def _calibrate(
    session: Session, workload: Workload, pairs: int, budget_s: float | None
) -> UndecidedError | None:
    """Calibrate one workload, store and print the result; return the error of its threshold."""
    with machine_lock(session.progress.announce):
        engine(workload.engine).validate(workload)
        build_workload(workload)
        side = prepare_side(workload, session.bench.machine, None)
        calibration = calibrate(side, session.progress, pairs=pairs, budget_s=budget_s)
    drop_pct = workload.thresholds.tokens_per_second_pct
    found = find_supported_thresholds(
        calibration,
        drop_pct,
        session.settings.budget_of(workload, compare=True),
        1.0 if session.settings.profiler == "none" else PAIRS_SHARE,
    )
    artifacts = session.bench.store.artifacts
    stored = store(artifacts, calibration)
    for warning in stored.warnings:
        session.progress.announce(warning)
    pool = calibration.differences
    more = "--pairs" if len(pool) >= pairs else "--budget"
    few = f"; fewer than {FEW_POOL} flatter it ({more})" if len(pool) < FEW_POOL else ""
    sd_pct, largest_pct = 100 * math.sqrt(variance(pool)), 100 * max(map(abs, pool))
    rows = (
        ("pairs", f"{len(pool)} of the same code, {calibration.pair_s:.2f} s each{few}"),
        ("noise", f"sd {sd_pct:.2f} % a pair, largest {largest_pct:.1f} %"),
        ("budget", "pairs   smallest threshold   decided after (median, unchanged code)"),
        *_describe_thresholds(found, calibration.pair_s),
        ("stored in", relative(stored.path, session.settings.root)),
    )
    lines = (f"  {name:<10} {words}\n" for name, words in rows)
    common.print_text(f"{workload.node_name} on {calibration.machine_id}\n{''.join(lines)}")
    return threshold_error(workload.name, found)


def _describe_thresholds(found: SupportedThresholds, pair_s: float) -> Iterator[tuple[str, str]]:
    for row in found.rows:
        held = f"none up to {LADDER[-1]:g} %"
        if row.drop_pct is not None and row.median_pairs is not None:
            after = f"{row.median_pairs} pairs, {row.median_pairs * pair_s:.0f} s"
            held = f"{row.drop_pct:>16g} %   {after}"
        yield f"{row.budget_s:6g} s", f"{row.pairs:5}   {held}"
    rates, drop = found.rates, f"{found.drop_pct:g} %"
    alarms = f"{rates.false_alarm.words} false alarms, {rates.miss.words} misses"
    replays = f"{rates.false_alarm.trials:,} replays of the whole rule"
    yield f"at {drop}", f"{alarms} in {replays} within {found.budget_s:g} s"
    unchanged, slower, twice = (
        f"{100 * each.rate:.1f} %"
        for each in (
            rates.inconclusive_unchanged,
            rates.inconclusive_at_threshold,
            rates.inconclusive_twice,
        )
    )
    drops = f"{slower} of drops of {drop}, {twice} of drops twice as large"
    yield "", f"inconclusive: {unchanged} of unchanged code, {drops}"


def run_selftest(parsed: argparse.Namespace) -> int:
    """Try every case; return an exit code."""
    budget_s = read_number("budget", {"budget": parsed.seconds})
    settings = replace(common.read_settings(parsed), budget_s=budget_s)
    workload = _workload(parsed, settings)
    injection = choose_injection(workload, parsed.extra, parsed.frame)
    progress = stream_progress(sys.stderr)
    profiler = partial(Instruments(settings.profiler, settings.root).profiler, comparing=True)
    began_s = time.monotonic()
    try:
        with open_bench(workload, injection, settings, progress, profiler) as bench:
            progress.announce(f"{len(CASES)} cases, one to two minutes{describe_load()}")
            rows = tuple(try_case(bench, case) for case in CASES)
    finally:
        progress.stop()
    seconds, (status, advice) = time.monotonic() - began_s, summarize(rows)
    if parsed.format == "json":
        document = {
            "workload": workload.node_name,
            "profiler": bench.profiler.name if bench.profiler else None,
            "frame": injection.frame if injection else None,
            "extra_pct": injection.extra_pct if injection else None,
            "seconds": round(seconds, 1),
            "exit_code": status,
            "advice": advice,
            "cases": [asdict(row) for row in rows],
        }
        common.print_document(document)
    else:
        common.print_text("\n".join(_text(bench, rows, seconds, colour=sys.stdout.isatty())))
    return status


def _workload(parsed: argparse.Namespace, settings: Settings) -> Workload:
    found = choose_entries(settings, [parsed.workload or _DEFAULT])
    if len(found) > 1:
        raise UsageError(
            "E_UNKNOWN_WORKLOAD",
            f"{parsed.workload!r} names several workloads, and one is tested at a time.",
            f"Name one: {', '.join(each.name for each in found)}.",
        )
    assert isinstance(found[0], Workload)  # the error of a single invalid one was raised
    return found[0]


def _text(bench: Bench, rows: Sequence[CaseRow], seconds: float, *, colour: bool) -> list[str]:
    profiler = bench.profiler.name if bench.profiler else "no profiler"
    table, notes = [_HEAD], defaultdict[str, list[str]](list)
    for row in rows:
        if row.result != "ok":
            notes[f"({row.result}): {visible(row.detail, 1000)}"].append(row.name)
        result = paint(row.result, _COLOURS.get(row.result, "yellow")) if colour else row.result
        spent = f"{row.seconds:.0f} s" if row.seconds >= 1.0 else ""
        case, expected, happened = map(visible, (row.done, row.expected, row.happened))
        table.append((case, expected, happened, result, spent))
    found = Counter[str](row.result for row in rows)
    others = ("failed", "undecided", "left out")
    counts = [f"{found['ok']} of {len(rows)} as expected"]
    counts += [f"{found[result]} {result}" for result in others if found[result]]
    return [
        f"flamegate selftest: {visible(bench.workload.node_name)} · {profiler}",
        "",
        *columns(table, gap=2),
        "",
        *(f"{', '.join(names)} {detail}" for detail, names in notes.items()),
        f"{', '.join(counts)}, {seconds:.0f} s. {summarize(rows)[1]}",
    ]
