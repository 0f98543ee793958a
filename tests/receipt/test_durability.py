"""Kills and errors at system calls of the store, and many writers at once."""

import random
from itertools import cycle
from pathlib import Path

import pytest

from tests.receipt import crowd, points
from tests.receipt.operations import OPERATIONS, Operation
from tests.receipt.points import Tally
from tests.tools import require

_SEED = 7
FEW = 3
EACH = [FEW, pytest.param(150, marks=pytest.mark.nightly)]
"""How many points are tried of each operation: a few in one state, or more in all of them."""


@pytest.fixture(scope="module", autouse=True)
def traced() -> None:
    reason = points.why_not()
    require(reason is None, str(reason))


def choose_points(
    operation: Operation, each: int, place: Path, *, writing: bool
) -> list[tuple[str, str, int]]:
    """Return state, system call and number of so many points."""
    source = random.Random(f"{_SEED} {writing} {operation.name}")
    states = sorted(operation.states)
    found = [
        (state, call, number)
        for state in ([source.choice(states)] if each == FEW else states)
        for call, count in sorted(points.calls_of(operation, state, place).items())
        for number in range(1, count + 1)
        if call in points.WRITING or not writing
    ]
    return source.sample(found, min(each, len(found)))


@pytest.mark.parametrize("errors", [(None,), points.ERRORS], ids=["killed", "error"])
@pytest.mark.parametrize("each", EACH)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_stopped_at_a_system_call(
    tmp_path: Path, operation: Operation, each: int, errors: tuple[str | None, ...]
) -> None:
    tally, place = Tally(), tmp_path / "place"
    chosen = choose_points(operation, each, place, writing=errors != (None,))
    for (state, call, number), error in zip(chosen, cycle(errors)):
        tally.add(points.stop(operation, state, call, number, place, error))
    assert tally.faults == []
    assert tally.killed + tally.acknowledged + tally.refused == tally.points > 0
    assert (tally.killed > 0) is (errors == (None,))


@pytest.mark.parametrize(
    ("writers", "times"), [(4, 8), pytest.param(32, 300, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("kind", crowd.KINDS)
def test_no_writer_loses_an_update(tmp_path: Path, kind: str, writers: int, times: int) -> None:
    writers = 2 if kind == "jobs" else writers
    result = crowd.run(kind, tmp_path / "place", writers, times)
    assert (result.lost, result.corrupt, result.failed) == (0, 0, 0)
    assert result.updates == writers * times
