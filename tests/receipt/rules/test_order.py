"""The order of runs: only pairs that share a core run at once, each on another core."""

from datetime import datetime, timedelta

import pytest

from tests.made import Bundle, bundle
from tests.receipt.rules.changes import refusals

CLOCK = {"E_CLOCK_CONTRADICTION"}


def in_pairs(cpus: tuple[int, ...], cores: str = "2") -> Bundle:
    """One side of pairs: two start together, and so do the next two."""
    made = bundle(timed=len(cpus))
    first = made.evidence.runs[0]
    assert first.started_ticks is not None
    runs = made.evidence.runs
    for number, cpu in enumerate(cpus):
        like = runs[number // 2 * 2]
        made = made.with_run(
            number,
            pair=number,
            cpu=cpu,
            shares_core=True,
            started_ticks=like.started_ticks,
            started_at=like.started_at,
        )
    machine = {**made.evidence.machine, "cpu_cores": cores}
    return made.with_evidence(side="head", machine=machine).recomputed()


@pytest.mark.parametrize(
    ("cpus", "cores", "refused"),
    [
        ((0, 1, 1, 0), "2", set()),
        ((0, 0, 1, 0), "2", CLOCK),
        ((0, 1, 0, 1), "64", set()),
    ],
)
def test_pairs_run_at_once_on_other_cores_only(
    cpus: tuple[int, ...], cores: str, refused: set[str]
) -> None:
    assert refusals(in_pairs(cpus, cores)) == refused


def test_a_short_program_runs_several_times_in_a_pair() -> None:
    """Of two pairs at once, the second begins when the first does, not when its runs have ended."""
    made = in_pairs((0, 0, 0, 1, 1, 1))
    runs = made.evidence.runs
    for number in range(6):
        like = runs[number % 3 * 2]  # these begin one after the other
        made = made.with_run(
            number,
            pair=number // 3,
            started_ticks=like.started_ticks,
            started_at=like.started_at,
        )
    assert refusals(made.recomputed()) == set()


def test_no_more_than_two_pairs_run_at_once() -> None:
    made = in_pairs((0, 1, 2, 3), "64")
    first = made.evidence.runs[0]
    for number in range(4):
        made = made.with_run(number, started_ticks=first.started_ticks, started_at=first.started_at)
    assert refusals(made.recomputed()) == CLOCK


def test_one_step_of_the_clock_is_no_contradiction() -> None:
    made = in_pairs((0, 1, 1, 0, 0, 1))
    for number in range(2, 6):
        back = datetime.fromisoformat(made.evidence.runs[number].started_at) - timedelta(seconds=60)
        stamp = back.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        made = made.with_run(number, started_at=stamp)
    assert refusals(made.recomputed()) == set()


def test_a_run_alone_overlaps_none() -> None:
    made = in_pairs((0, 1, 1, 0))
    runs = made.evidence.runs
    late = made.with_run(3, shares_core=False, started_ticks=runs[2].started_ticks).recomputed()
    assert refusals(late) == CLOCK
