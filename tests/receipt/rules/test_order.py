"""The order of runs: only pairs that share a core run at once, each on another core."""

import pytest

from tests.made import Bundle, bundle
from tests.receipt.rules.changes import refusals

CLOCK, ORIGIN = {"E_CLOCK_CONTRADICTION"}, {"E_ORIGIN_MISMATCH"}


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
        ((0, 1, 0, 2), "2", ORIGIN),
    ],
)
def test_pairs_run_at_once_on_other_cores_only(
    cpus: tuple[int, ...], cores: str, refused: set[str]
) -> None:
    assert refusals(in_pairs(cpus, cores)) == refused


def test_a_run_alone_overlaps_none() -> None:
    made = in_pairs((0, 1, 1, 0))
    runs = made.evidence.runs
    late = made.with_run(3, shares_core=False, started_ticks=runs[2].started_ticks).recomputed()
    assert refusals(late) == CLOCK
