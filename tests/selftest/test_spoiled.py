"""Each spoiled measurement is refused by the gate as it is, and found out where it is not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.gate import GatedRun, GatePolicy, PairedBase, Reason, Verdict, judge
from pytest_flamegate.run import selftest_cases
from pytest_flamegate.run.selftest import Compared
from pytest_flamegate.run.selftest_cases import CASES, Case, try_all
from tests.selftest.bench import bench, honest, verdict

MEASURED = {"slowed", "named", "same code", "faster", "neighbours"}
SPOILED = [each for each in CASES if each.name not in MEASURED]
JUDGES = ("judge", "verify_receipt")

of_each = pytest.mark.parametrize("case", SPOILED, ids=lambda case: case.name)


def gullible(*_: Any, **__: Any) -> Any:
    """A judge of anything that finds nothing wrong."""
    return verdict("pass")


def believing(*_: Any, **__: Any) -> Any:
    return SimpleNamespace(ok=True, refusals=())


def crying_wolf(*_: Any, **__: Any) -> Any:
    """A judge that refuses everything, for a reason of its own."""
    return Verdict.unjudged(
        "inconclusive", [Reason("E_ALWAYS", "It always does.")], grade="OBSERVED"
    )


def test_the_pair_is_honest(tmp_path: Path) -> None:
    # Else a refusal would show nothing: all that is wrong with a case is its spoiling.
    made = honest(tmp_path)
    base, head = made.pair
    policy = GatePolicy(made.asked.workload.thresholds)
    found = judge(GatedRun(head.side.evidence, "OBSERVED"), PairedBase(base.side.evidence), policy)
    codes = {reason.code for reason in found.reasons}
    assert found.verdict in ("pass", "improved", "regressed", "inconclusive")
    assert not codes & {code for each in SPOILED for code in each.expected.split(", ")}


@of_each
def test_the_gate_closes(case: Case, tmp_path: Path) -> None:
    (row,) = try_all(honest(tmp_path), [case])
    assert row.result == "ok", row
    assert row.happened == row.expected


@of_each
def test_a_gate_that_does_not_close_is_found_out(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = honest(tmp_path)
    assert made.pair
    for name, broken in zip(JUDGES, (gullible, believing), strict=True):
        monkeypatch.setattr(selftest_cases, name, broken)
    (row,) = try_all(made, [case])
    assert row.result == "differs", row


@pytest.mark.parametrize(
    "case",
    [each for each in SPOILED if not each.expected.startswith("refused")],
    ids=lambda case: case.name,
)
def test_a_gate_that_closes_for_another_reason_is_found_out(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("judge",):
        monkeypatch.setattr(selftest_cases, name, crying_wolf)
    (row,) = try_all(honest(tmp_path), [case])
    assert row.result == "differs", row
    assert row.happened == "inconclusive, E_ALWAYS"


@of_each
def test_too_little_to_spoil_is_no_success(case: Case, tmp_path: Path) -> None:
    nothing = Compared(crying_wolf())
    (row,) = try_all(bench(tmp_path, slowed=nothing), [case])
    assert row.result == "undecided", row


def test_a_refusal_of_the_honest_receipt_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = honest(tmp_path)
    head = made.pair[1]
    object.__setattr__(head, "verification", SimpleNamespace(ok=False))
    rows = try_all(made, [each for each in SPOILED if each.name.endswith(" receipt")])
    assert [row.result for row in rows] == ["differs", "differs"]
