"""The store killed, or refused, at its system calls: a smoke test, and all of them nightly."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.receipt import crowd, points, small_disk
from tests.receipt.operations import OPERATIONS, Operation
from tests.receipt.points import Tally
from tests.tools import require

PUBLISH = OPERATIONS[0]


@pytest.fixture(scope="module")
def traced() -> None:
    reason = points.why_not()
    require(reason is None, str(reason))


def points_of(operation: Operation, state: str, place: Path) -> list[tuple[str, int]]:
    """Return each system call of the operation, with its number."""
    calls = points.calls_of(operation, state, place)
    return [(call, n) for call, count in sorted(calls.items()) for n in range(1, count + 1)]


@pytest.mark.usefixtures("traced")
def test_a_publish_that_is_killed_leaves_the_old_run_or_the_new_one(tmp_path: Path) -> None:
    tally, place = Tally(), tmp_path / "place"
    calls = [each for each in points_of(PUBLISH, "old", place) if each[0] in points.WRITING]
    for call, number in random.Random(7).sample(calls, 12):
        tally.add(points.kill(PUBLISH, "old", call, number, place))
    assert tally.faults == []
    assert tally.killed > 0


@pytest.mark.usefixtures("traced")
def test_an_operation_that_writes_in_place_would_be_found(tmp_path: Path) -> None:
    def in_place(artifacts: object) -> None:
        directory = tmp_path / "place" / ".flamegate" / "latest" / "toy"
        for name, data in PUBLISH.new.items():
            (directory / name).write_bytes(data)

    careless = Operation("careless", in_place, PUBLISH.view, PUBLISH.new, PUBLISH.states)
    tally = points.kill(careless, "old", "write", 2, tmp_path / "place")
    assert any("neither old nor new" in fault for fault in tally.faults)


@pytest.mark.parametrize("kind", crowd.KINDS)
def test_several_writers_lose_no_update(tmp_path: Path, kind: str) -> None:
    writers, times = (2, 5) if kind == "jobs" else (4, 20)
    came = crowd.together(kind, tmp_path / "place", writers, times)
    assert (came.lost, came.corrupt, came.failed) == (0, 0, 0)
    assert came.updates == writers * times


@pytest.mark.nightly
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_killed_at_any_system_call_it_leaves_the_old_or_the_new(
    tmp_path: Path, operation: Operation
) -> None:
    tally, place = Tally(), tmp_path / "place"
    for state in operation.states:
        for call, number in points_of(operation, state, place):
            tally.add(points.kill(operation, state, call, number, place))
    assert tally.faults == []
    assert tally.killed > 0


@pytest.mark.nightly
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_system_call_that_fails_leaves_the_old(tmp_path: Path, operation: Operation) -> None:
    tally, place = Tally(), tmp_path / "place"
    for state in operation.states:
        calls = points_of(operation, state, place)
        for number, (call, n) in enumerate(each for each in calls if each[0] in points.WRITING):
            error = points.ERRORS[number % len(points.ERRORS)]
            tally.add(points.refuse(operation, state, call, n, error, place))
    assert tally.faults == []
    assert tally.acknowledged + tally.refused == tally.points > 0


@pytest.mark.nightly
def test_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    reason = small_disk.why_not(tmp_path)
    require(reason is None, str(reason))
    tally = Tally()
    with small_disk.mounted(tmp_path / "disk") as disk:
        for operation, state, free in small_disk.every():
            for resource in ("blocks", "files"):
                tally.add(small_disk.fill(operation, state, free, resource, disk))
    assert tally.faults == []
    assert tally.acknowledged > 0
    assert tally.refused > 0
