"""Seeded slices of what ``benchmarks/durability.py`` does at length."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.receipt import crowd, points, small_disk
from tests.receipt.operations import OPERATIONS, Operation
from tests.receipt.points import Tally
from tests.tools import require

_SEED = 7
_EACH = 4


@pytest.fixture(scope="module")
def traced() -> None:
    reason = points.why_not()
    require(reason is None, str(reason))


def a_state(operation: Operation, seed: str) -> str:
    return random.Random(f"{_SEED} {seed} {operation.name}").choice(sorted(operation.states))


def some(calls: list[tuple[str, int]], seed: str) -> list[tuple[str, int]]:
    return random.Random(f"{_SEED} {seed}").sample(calls, min(_EACH, len(calls)))


def points_of(operation: Operation, state: str, place: Path) -> list[tuple[str, int]]:
    calls = points.calls_of(operation, state, place)
    return [(call, n) for call, count in sorted(calls.items()) for n in range(1, count + 1)]


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_killed_at_a_system_call(tmp_path: Path, operation: Operation) -> None:
    state, tally = a_state(operation, "kill"), Tally()
    for call, number in some(points_of(operation, state, tmp_path / "place"), operation.name):
        tally.add(points.kill(operation, state, call, number, tmp_path / "place"))
    assert tally.faults == []
    assert tally.killed > 0


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_call_that_fails(tmp_path: Path, operation: Operation) -> None:
    state, tally = a_state(operation, "error"), Tally()
    place = tmp_path / "place"
    calls = [each for each in points_of(operation, state, place) if each[0] in points.WRITING]
    for (call, number), error in zip(some(calls, operation.name), points.ERRORS, strict=False):
        tally.add(points.refuse(operation, state, call, number, error, place))
    assert tally.faults == []
    assert tally.acknowledged + tally.refused == tally.points > 0


def test_what_is_lost_would_be_seen(tmp_path: Path) -> None:
    """An operation that writes in place is found out."""
    reason = points.why_not()
    require(reason is None, str(reason))
    publish = OPERATIONS[0]

    def in_place(artifacts: object) -> None:
        directory = tmp_path / "place" / ".flamegate" / "latest" / "toy"
        for name, data in publish.new.items():
            (directory / name).write_bytes(data)

    careless = Operation("careless", in_place, publish.view, publish.new, publish.states)
    tally = points.kill(careless, "old", "write", 2, tmp_path / "place")
    assert any("neither old nor new" in fault for fault in tally.faults)


def test_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    reason = small_disk.why_not(tmp_path)
    require(reason is None, str(reason))
    tally = Tally()
    every = random.Random(_SEED).sample(list(small_disk.every()), 40)
    with small_disk.mounted(tmp_path / "disk") as disk:
        for operation, state, free in every:
            for what in ("blocks", "files"):
                tally.add(small_disk.fill(operation, state, free, what, disk))
    assert tally.faults == []
    assert tally.acknowledged > 0
    assert tally.refused > 0


@pytest.mark.parametrize("kind", crowd.KINDS)
def test_no_writer_loses_an_update(tmp_path: Path, kind: str) -> None:
    writers, times = (2, 20) if kind == "jobs" else (8, 50)
    came = crowd.together(kind, tmp_path / "place", writers, times)
    assert (came.lost, came.corrupt, came.failed) == (0, 0, 0)
    assert came.updates == writers * times
