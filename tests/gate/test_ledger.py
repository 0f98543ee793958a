"""Gates of unchanged code: how pairs become gates, and what the gates prove."""

from __future__ import annotations

from random import Random

from pytest_flamegate.gate import FIRST_ANALYSES
from pytest_flamegate.gate.calibration import (
    AnalysisPlan,
    LedgerLine,
    count_alarms,
    describe_alarms,
    split_into_gates,
)
from pytest_flamegate.gate.statistics import Count

PLAN = AnalysisPlan.complete(FIRST_ANALYSES)


def noise(sd: float, count: int) -> list[float]:
    random = Random(4)
    return [random.gauss(0.0, sd) for _ in range(count)]


def line(decision: str, **changes: object) -> LedgerLine:
    fields: dict[str, object] = {
        "created": "2026-01-01T00:00:00Z",
        "machine": "here",
        "workload": "decode",
        "engine": "embedded",
        "recipe_sha256": "r",
        "flamegate_version": "0",
        "via": "calibrate",
        "threshold_pct": 5.0,
        "pairs": 5,
        "decision": decision,
        "change_pct": 0.1,
        "differences": (0.0,),
    }
    return LedgerLine(**{**fields, **changes})  # type: ignore[arg-type]


def test_no_pair_is_in_two_gates_and_none_is_left_out_between_them() -> None:
    values = noise(0.005, 43)
    gates = split_into_gates(values, 5.0, PLAN)
    assert [each.decision for each in gates] == ["pass"] * 8
    joined = [value for gate in gates for value in gate.differences]
    assert joined == values[:40]  # three are too few for a look


def test_a_slow_gate_takes_what_it_needs_and_the_last_ends_with_the_pairs() -> None:
    gates = split_into_gates(noise(0.3, 40), 1.0, PLAN)
    assert [len(each.differences) for each in gates] == [28, 12]
    assert gates[-1].decision == "inconclusive"


def test_a_gate_says_by_how_much_the_rate_changed() -> None:
    (gate,) = split_into_gates([0.2, 0.201, 0.199, 0.2, 0.2005], 5.0, PLAN)
    assert gate.decision == "regressed"
    assert -18.3 < gate.change_pct < -18.0


def test_too_few_pairs_make_no_gate() -> None:
    assert split_into_gates(noise(0.005, 4), 5.0, PLAN) == ()
    assert split_into_gates([], 5.0, PLAN) == ()


def test_a_bound_is_of_one_machine_workload_and_threshold() -> None:
    lines = [
        *[line("pass") for _ in range(9)],
        line("regressed"),
        line("inconclusive"),
        line("improved"),
        line("regressed", machine="there"),
        line("regressed", workload="prefill"),
        line("regressed", threshold_pct=2.0),
    ]
    assert count_alarms(lines, "here", "decode", 5.0) == Count(1, 12)
    assert count_alarms(lines, "here", "other", 5.0) == Count(0, 0)


def test_words() -> None:
    told = describe_alarms(count_alarms([line("pass")] * 312, "here", "decode", 5.0))
    assert told == "0 of 312 A/A gates raised an alarm: ≤ 1.0 % (95 % confidence)"
    assert describe_alarms(Count(0, 0)) == "no A/A gate is in the ledger yet"
