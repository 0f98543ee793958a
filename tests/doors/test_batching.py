"""Which measurements a baseline rests on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_flamegate.core.git import Commit
from pytest_flamegate.receipt.types import Batch
from pytest_flamegate.run.publish import MOST, batch_of, joined
from tests.gate.factory import QUIET, baseline, evidence

CLEAN = Commit("a" * 40, "main", 0, "t" * 64)


def batches(levels: list[float]) -> tuple[Batch, ...]:
    return tuple(Batch(f"n{i}", "", 5, level, level) for i, level in enumerate(levels))


def test_a_batch_is_the_mean_of_its_processes() -> None:
    made = batch_of(baseline())
    logs = [math.log(time * 1e-6) for time in QUIET]
    assert made.processes == len(QUIET)
    assert made.log_time == pytest.approx(sum(logs) / len(logs), abs=1e-4)
    assert made.log_time_ratio == pytest.approx(made.log_time - math.log(5e-3), abs=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (CLEAN, CLEAN, True),
        (CLEAN, replace(CLEAN, revision="b" * 40), True),  # a commit of baselines in between
        (CLEAN, replace(CLEAN, tree="u" * 64), False),
        (replace(CLEAN, tree=""), replace(CLEAN, tree=""), False),
        (replace(CLEAN, uncommitted=1), CLEAN, False),
        (CLEAN, replace(CLEAN, uncommitted=1), False),
        (None, CLEAN, False),
        (None, None, False),
    ],
)
def test_only_the_very_same_code_is_one_more_batch(
    old: Commit | None, new: Commit | None, kept: bool
) -> None:
    before = baseline(commit=old)
    after = evidence(commit=new)
    found = joined(before, (batch_of(before),), after)
    assert [batch.nonce for batch in found] == (["baseline"] * kept + ["current"])


def test_another_model_begins_anew() -> None:
    before = baseline(commit=CLEAN)
    after = evidence(commit=CLEAN, model_sha256="b" * 64)
    assert [batch.nonce for batch in joined(before, (batch_of(before),), after)] == ["current"]


def test_accepting_the_same_run_twice_counts_it_once_and_the_oldest_leave() -> None:
    before = baseline(commit=CLEAN)
    found = joined(before, (batch_of(before),), replace(before))
    assert len(found) == 1
    many = joined(before, batches([0.0] * (MOST + 5)), evidence(commit=CLEAN))
    assert len(many) == MOST
    assert many[-1].nonce == "current"
