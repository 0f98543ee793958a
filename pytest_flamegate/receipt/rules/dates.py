"""Rules over dates: the order of the runs, the start of their processes, the age of evidence."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_flamegate.core.json import parse_timestamp
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.observe.observation import Run
    from pytest_flamegate.receipt.rules.subject import Submission


CLOCK_SET_S = 300
"""A wall clock may be set during a run. Durations come from another clock."""
TICKS_PER_S = 100
"""Linux states the start of a process in 1/100 s on every common machine."""
TICK_SLACK_S = 0.1
DATE_SLACK_S = 0.01
"""Dates are written in milliseconds."""
RATE_SLACK = 0.01
"""The clocks are disciplined independently; none may drift by as much as 1 %."""
MEASURED_WITHIN_S = 24 * 3600
WRITTEN_WITHIN_S = 24 * 3600
START_SLACK_S = 5.0
"""From reading the clock to the start of the process on a busy machine, under a profiler."""
MAX_STEPS = 2
"""A wall clock is set once or twice during a measurement, not before each run."""

CHECKS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)


@CHECKS.rule("E_DATES_CONTRADICT", "A run begins after the previous run has ended.")
def _check_order(case: Submission) -> Iterator[str]:
    # Runs of one side never overlap, even if runs of another side take turns with them.
    # Windows of one server share its start and differ only in their dates.
    set_back = 0
    for earlier, later in pairwise(case.evidence.runs):
        first, second = earlier.started_ticks, later.started_ticks
        if not case.in_windows and first is not None and second is not None:
            apart_s = (second - first) / TICKS_PER_S
            lasted_s = _lasted_after_start_s(earlier)
            if lasted_s > apart_s * (1 + RATE_SLACK) + TICK_SLACK_S:
                yield (
                    f"Process {later.pid} started {apart_s:.2f} s after process {earlier.pid}, "
                    f"whose run took at least {lasted_s:.2f} s."
                )
        apart_s = _started_s(later) - _started_s(earlier)
        lasted_s = _lasted_s(earlier)
        if lasted_s > apart_s + CLOCK_SET_S:
            yield (
                f"The run of process {later.pid} is dated {apart_s:,.0f} s after that of "
                f"{earlier.pid}, which took at least {lasted_s:,.0f} s."
            )
        set_back += case.in_windows and lasted_s > apart_s * (1 + RATE_SLACK) + DATE_SLACK_S
    if set_back > MAX_STEPS:
        yield f"{set_back} runs of one server are dated before the end of the previous run."


@CHECKS.rule("E_DATES_CONTRADICT", "A server that ran before the measurement started once.")
def _check_windows(case: Submission) -> Iterator[str]:
    # Processes of their own, relabelled as windows of one server, would skip the rule above.
    if not case.in_windows:
        return
    started: dict[int, int] = {}
    for run in case.evidence.runs:
        if run.load_ns is not None:
            yield (
                f"The server {run.pid} ran before the measurement, but its run has a start of "
                f"{run.load_ns / 1e6:,.1f} ms."
            )
        ticks = run.started_ticks
        if ticks is not None and started.setdefault(run.pid, ticks) != ticks:
            yield f"The server {run.pid} ran all the time, but has two different starts."


@CHECKS.rule(
    "E_DATES_CONTRADICT",
    "All runs ended before the evidence was written, and began at most 24 hours before.",
)
def _check_runs_before_evidence(case: Submission) -> Iterator[str]:
    created_s = parse_timestamp(case.evidence.created).timestamp()
    for run in case.evidence.runs:
        passed_s = created_s - _started_s(run)
        if _lasted_s(run) > passed_s + CLOCK_SET_S:
            yield (
                f"The run of process {run.pid} took {_lasted_s(run):,.0f} s, but the evidence was "
                f"written {passed_s:,.0f} s after it began."
            )
        if passed_s > MEASURED_WITHIN_S:
            yield (
                f"The run of process {run.pid} began {passed_s / 3600:,.1f} hours before the "
                f"evidence was written; {MEASURED_WITHIN_S / 3600:.0f} are allowed."
            )


@CHECKS.rule("E_DATES_CONTRADICT", "Dates and process start times agree on when the runs began.")
def _check_two_clocks(case: Submission) -> Iterator[str]:
    if case.in_windows:
        return
    offsets_s = [
        (run.pid, _started_s(run) - run.started_ticks / TICKS_PER_S)
        for run in case.evidence.runs
        if run.started_ticks is not None and not _started_by_profiler(run)
    ]
    steps = [
        (pid, after_s - before_s)
        for (_, before_s), (pid, after_s) in pairwise(offsets_s)
        if abs(after_s - before_s) > START_SLACK_S
    ]
    for pid, step_s in steps:
        if abs(step_s) > CLOCK_SET_S:
            yield f"The date of process {pid} differs by {step_s:+,.0f} s from its start in ticks."
    if len(steps) > MAX_STEPS:
        yield f"The wall clock would have been set {len(steps)} times during the runs."


@CHECKS.rule(
    "E_DATES_CONTRADICT",
    "Receipt and evidence were written within 24 hours.",
    needs={"timestamp"},
)
def _check_written_together(case: Submission) -> Iterator[str]:
    created = parse_timestamp(case.evidence.created)
    age_s = (case.claim.now - created).total_seconds()
    apart_s = abs(case.claim.age_s - age_s)
    if apart_s > WRITTEN_WITHIN_S:
        yield f"Receipt and evidence were written {apart_s / 3600:,.1f} hours apart."


@CHECKS.rule(
    "E_EXPIRED",
    "Evidence and runs are no older than the reader allows.",
    remedy="Measure again.",
    protects=None,
)
def _check_age(case: Submission) -> Iterator[str]:
    # A receipt may be dated up to a day later than its evidence.
    most_s, now = case.claim.max_age_s, case.claim.now
    if most_s is None:
        return
    stamps = {"The evidence was written": [case.evidence.created]}
    stamps["The last run began"] = [run.started_at for run in case.evidence.runs]
    for event, texts in stamps.items():
        ages_s = [(now - parse_timestamp(text)).total_seconds() for text in texts]
        if ages_s and not min(ages_s) <= most_s:
            yield (
                f"{event} {min(ages_s) / 3600:,.1f} hours ago; {most_s / 3600:,.1f} are allowed."
            )


def _started_by_profiler(run: Run) -> bool:
    """Whether a profiler started the program, which may take it seconds."""
    return run.role == "profiled" and run.load_ns is None


def _started_s(run: Run) -> float:
    return parse_timestamp(run.started_at).timestamp()


def _lasted_s(run: Run) -> float:
    """Return the shortest possible time from the dated start of a run to its end."""
    spent_ns = sum(block.interval.wall_ns for block in run.blocks)
    reference_ns = sum(block.reference.wall_ns for block in run.blocks if block.reference)
    # The reference kernel runs once between two blocks and is recorded in both.
    return (spent_ns + reference_ns / 2 + (run.load_ns or 0)) / 1e9


def _lasted_after_start_s(run: Run) -> float:
    """Return the shortest possible time from the start of the process to the end of the run.

    If a profiler started the program, the interval includes the profiler's own start. Only the
    time after the first token is certain to follow the program's start.
    """
    if _started_by_profiler(run):
        return sum(sum(gaps[1:]) for block in run.blocks for gaps in block.sequences_ns) / 1e9
    return _lasted_s(run)
