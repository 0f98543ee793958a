"""Cross-checks over when things happened: runs follow one another, and then are written down.

Two clocks tell when a process began: the wall clock, which may be set meanwhile, and the
kernel's ticks since boot, which may not. How long it ran was told by a third one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.registry import Rulebook
from pytest_flamegate.receipt.timestamps import read_timestamp
from pytest_flamegate.workload.windows import of_one_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.case import Case
    from pytest_flamegate.workload.observation import Run

CLOCK_SET_S = 300
"""A wall clock may be set while a run lasts; the durations do not come from it."""
TICKS_PER_S = 100
"""Linux tells the start of a process in hundredths of a second, on every common machine."""
TICK_SLACK_S = 0.1
DATE_SLACK_S = 0.01
"""Dates are written in thousandths of a second."""
RATE_SLACK = 0.01
"""The clocks are disciplined apart: a hundredth is more than any of them is let stray."""
MEASURED_WITHIN_S = 24 * 3600
START_SLACK_S = 5.0
"""From reading the clock to the process on a busy machine, and a profiler's own start."""
MOST_STEPS = 2

CHECKS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; receipt and evidence are written together and changed by nobody."


@CHECKS.rule(
    "E_RUNS_OVERLAP",
    "A run begins after the one before it has ended.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _runs_overlap(case: Case) -> Iterator[str]:
    # Runs of one side never overlap, not even where another side runs between them.
    # Windows of one process have its start in common, and only their dates apart.
    windows = of_one_process(case.evidence.workload)
    set_back = 0
    for earlier, later in pairwise(case.evidence.runs):
        if not windows and earlier.started_ticks is not None and later.started_ticks is not None:
            apart_s = (later.started_ticks - earlier.started_ticks) / TICKS_PER_S
            lasted_s = _after_start_s(earlier)
            if lasted_s > apart_s * (1 + RATE_SLACK) + TICK_SLACK_S:
                yield (
                    f"The run of process {later.pid} began {apart_s:.2f} s after that of "
                    f"{earlier.pid}, which took {lasted_s:.2f} s at least."
                )
        apart_s = _started_s(later) - _started_s(earlier)
        lasted_s = _lasted_s(earlier)
        if lasted_s > apart_s + CLOCK_SET_S:
            yield (
                f"The run of process {later.pid} is dated {apart_s:,.0f} s after that of "
                f"{earlier.pid}, which took {lasted_s:,.0f} s at least."
            )
        set_back += windows and lasted_s > apart_s * (1 + RATE_SLACK) + DATE_SLACK_S
    if set_back > MOST_STEPS:
        yield f"{set_back} runs are dated before those before them, of one server, had ended."


@CHECKS.rule(
    "E_WINDOW_STARTED",
    "No run of a server that ran before tells of a start, and the server began once.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _window_started(case: Case) -> Iterator[str]:
    # Processes of their own, which ran side by side or on other days, relabelled as windows.
    if not of_one_process(case.evidence.workload):
        return
    started: dict[int, int] = {}
    for run in case.evidence.runs:
        if run.load_ns is not None:
            yield f"The server {run.pid} ran before, and took {run.load_ns / 1e6:,.1f} ms to start."
        if run.started_ticks is None:
            continue
        if started.setdefault(run.pid, run.started_ticks) != run.started_ticks:
            yield f"The server {run.pid} began twice, and was to run all the time."


@CHECKS.rule(
    "E_RUN_AFTER_WRITING",
    "All runs ended before the evidence was written, and began not long before.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _run_after_writing(case: Case) -> Iterator[str]:
    # Time that had not passed yet, or runs kept from some other day.
    created_s = read_timestamp(case.evidence.created).timestamp()
    for run in case.evidence.runs:
        passed_s = created_s - _started_s(run)
        if _lasted_s(run) > passed_s + CLOCK_SET_S:
            yield (
                f"The run of process {run.pid} took {_lasted_s(run):,.0f} s, and the evidence was "
                f"written {passed_s:,.0f} s after it began."
            )
        if passed_s > MEASURED_WITHIN_S:
            yield (
                f"The run of process {run.pid} began {passed_s / 3600:,.1f} hours before the "
                "evidence was written."
            )


@CHECKS.rule(
    "E_CLOCKS_DISAGREE",
    "The wall clock and the ticks since boot tell the same of when the runs began.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _clocks_disagree(case: Case) -> Iterator[str]:
    # A wall clock is set once or twice while runs last, by minutes at most; not before each.
    if of_one_process(case.evidence.workload):
        return
    offsets_s = [
        (run.pid, _started_s(run) - run.started_ticks / TICKS_PER_S)
        for run in case.evidence.runs
        if run.started_ticks is not None and not _is_wrapped(run)
    ]
    steps = [
        (pid, after_s - before_s)
        for (_, before_s), (pid, after_s) in pairwise(offsets_s)
        if abs(after_s - before_s) > START_SLACK_S
    ]
    for pid, step_s in steps:
        if abs(step_s) > CLOCK_SET_S:
            yield f"By the wall clock process {pid} began {step_s:+,.0f} s from what ticks tell."
    if len(steps) > MOST_STEPS:
        yield f"The wall clock would have been set {len(steps)} times while the runs lasted."


def _is_wrapped(run: Run) -> bool:
    """Whether a profiler began the program, which may take seconds before it does."""
    return run.role == "profiled" and run.load_ns is None


def _started_s(run: Run) -> float:
    return read_timestamp(run.started_at).timestamp()


def _lasted_s(run: Run) -> float:
    """Return what a run took at least from the moment its start was dated."""
    spent_ns = sum(block.interval.wall_ns for block in run.blocks)
    reference_ns = sum(block.reference.wall_ns for block in run.blocks if block.reference)
    # The reference kernel runs once between two blocks, and counts with both of them.
    return (spent_ns + reference_ns / 2 + (run.load_ns or 0)) / 1e9


def _after_start_s(run: Run) -> float:
    """Return what it took at least from the start of the process.

    A profiler's own time is part of the interval where it began the program: only what followed
    the first token was certainly after the program's start.
    """
    if _is_wrapped(run):
        return sum(sum(gaps[1:]) for block in run.blocks for gaps in block.sequences_ns) / 1e9
    return _lasted_s(run)
