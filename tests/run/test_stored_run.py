"""Stored runs: whether their sides were measured together."""

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.run.stored_run import _list_gaps


def side(*runs: tuple[str, int]) -> Any:
    """Return a side with runs of 90 s, each of a role and begun at a minute."""
    return SimpleNamespace(
        runs=[
            SimpleNamespace(role=role, started_at=f"2026-11-29T08:{minute:02}:00.000Z", lasted_s=90)
            for role, minute in runs
        ]
    )


@pytest.mark.parametrize(
    ("head", "gaps"),
    [
        ([("timed", 0), ("profiled", 20)], [-90, -90]),
        ([("timed", 2), ("profiled", 20)], [30, -90]),  # one after the other
        ([("timed", 0), ("bricks", 10), ("profiled", 20)], [-90, -90]),  # of the head alone
    ],
)
def test_sides_are_compared_run_by_run_of_each_role(
    head: list[tuple[str, int]], gaps: list[int]
) -> None:
    assert _list_gaps(side(("timed", 0), ("profiled", 20)), side(*head)) == gaps
