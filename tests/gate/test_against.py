from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.git import Commit
from pytest_flamegate.gate import FIRST_ANALYSES, ReportedRates, Verdict, headline, verdict_document
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import PROFILE, judge_paired, moved
from tests.gate.paired import shifted, sides

SLOWER = tuple({**counts, "rms_norm": counts["rms_norm"] + 70} for counts in PROFILE)
"""The same samples and 70 more in one function: 7 % more time, all of it there."""


def judged(base: Evidence, head: Evidence, **options: Any) -> Verdict:
    return judge_paired(base, head, options.pop("thresholds", Thresholds()), **options)


@pytest.mark.parametrize(
    ("shift", "verdict", "code"),
    [
        (0.0, "pass", "I_WITHIN_THRESHOLD"),
        (0.06, "regressed", "E_SLOWER"),
        (-0.06, "improved", "I_FASTER"),
    ],
)
def test_the_verdict_follows_the_pairs(shift: float, verdict: str, code: str) -> None:
    found = judged(*sides(shifted(shift)))
    assert found.verdict == verdict
    assert found.reasons[0].code == code
    assert found.looks == FIRST_ANALYSES
    assert found.pairs in FIRST_ANALYSES
    assert found.smallest_detectable_pct is not None
    assert 0 < found.smallest_detectable_pct < 5


def test_fewer_pairs_than_the_first_look_never_pass() -> None:
    found = judged(*sides(shifted(0.0, 4)))
    assert (found.verdict, found.reasons[0].code) == ("inconclusive", "E_FEW_PAIRS")
    assert found.exit_code == 4


def test_a_regression_says_where_and_in_which_phase() -> None:
    base, head = sides(shifted(0.0677), PROFILE, PROFILE)
    head = replace(
        head,
        profile=sides(shifted(0.0), None, SLOWER)[1].profile,
    )
    assert head.profile is not None
    head = replace(
        head,
        profile=replace(
            head.profile,
            processes=tuple(
                replace(process, samples=process.samples + 70) for process in head.profile.processes
            ),
        ),
    )
    found = judged(base, head)
    assert found.verdict == "regressed"
    assert found.explained_by == ("rms_norm",)
    row = found.attribution[0]
    assert row.name == "rms_norm"
    assert row.change_us == pytest.approx(70, rel=0.15)
    assert row.explains == pytest.approx(1.0, abs=0.2)
    phases = {phase.name: phase for phase in found.phases}
    assert phases["decode"].certain
    assert phases["decode"].change_pct == pytest.approx(-6.5, abs=0.5)
    assert "rms_norm" in headline(found)


def test_what_is_known_of_the_rule_stands_in_the_verdict() -> None:
    plain = judged(*sides(shifted(0.0)))
    assert (plain.false_alarm_rate, plain.miss_rate) == (None, None)
    assert "not calibrated" in plain.error_rate_basis
    known = judged(*sides(shifted(0.0)), rates=ReportedRates(0.002, 0.003, "calibrated"))
    assert (known.false_alarm_rate, known.miss_rate) == (0.002, 0.003)
    document = verdict_document(known)
    assert (document.method, document.miss_rate) == ("pairs", 0.003)


@pytest.mark.parametrize(
    ("change", "verdict", "code"),
    [
        ({"side": "base"}, "dishonest", "E_SIDES_SWAPPED"),
        ({"side": None}, "dishonest", "E_SIDES_SWAPPED"),
        ({"nonce": "base"}, "dishonest", "E_COPIED_BASELINE"),
        ({"tokens": ("1", "2"), "token_digest": "e" * 64}, "not_comparable", "E_TOKENS_DIFFER"),
        ({"model_sha256": "b" * 64}, "not_comparable", "E_MODEL_DIFFERS"),
        ({"runs": ()}, "not_comparable", "E_CLOCK_DIFFERS"),
    ],
)
def test_refusals(change: dict[str, Any], verdict: str, code: str) -> None:
    base, head = sides(shifted(0.0), **change)
    found = judged(base, head)
    assert (found.verdict, found.reasons[0].code) == (verdict, code)
    assert found.exit_code != 0


def test_exchanged_sides_are_refused_however_they_differ() -> None:
    base, head = sides(shifted(0.06))
    assert judged(head, base).reasons[0].code == "E_SIDES_SWAPPED"


def test_a_direction_that_disagrees_is_refused() -> None:
    base, head = sides(shifted(0.0))
    turned = tuple(replace(metric, direction="lower_is_better") for metric in head.metrics)
    found = judged(base, replace(head, metrics=turned))
    assert (found.verdict, found.reasons[0].code) == ("not_comparable", "E_DIRECTION_DIFFERS")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0, -5])
def test_impossible_times_are_refused(value: Any) -> None:
    base, head = sides(shifted(0.0))
    blocks = head.runs[0].blocks
    broken = replace(blocks[0], interval=Interval(value, value, None))
    runs = (replace(head.runs[0], blocks=(broken, *blocks[1:])), *head.runs[1:])
    found = judged(base, replace(head, runs=runs))
    assert found.verdict in ("inconclusive", "not_comparable")
    assert found.exit_code != 0


def test_pairs_that_differ_by_exactly_the_same_are_refused() -> None:
    base, head = sides([0.0] * 6)
    same = tuple(
        replace(run, blocks=tuple(replace(b, reference=None) for b in other.blocks))
        for run, other in zip(head.runs, base.runs, strict=True)
    )
    found = judged(base, replace(head, runs=same))
    # Byte for byte the same times: a copy, before it is a constant.
    assert (found.verdict, found.reasons[0].code) == ("dishonest", "E_COPIED_BASELINE")


def test_a_share_that_drifts_fails_at_an_unchanged_rate() -> None:
    found = judged(*sides(shifted(0.0), PROFILE, moved(PROFILE, "rms_norm", 80, "gemv")))
    assert found.verdict == "regressed"
    assert {h.name for h in found.hotspots if h.decision == "regressed"} == {"rms_norm", "gemv"}


def test_a_faster_neighbour_fails_nobody() -> None:
    # gemv took 700 of 1000 µs and now takes 600: what is left weighs more and costs the same.
    faster = tuple({**counts, "gemv": round(counts["gemv"] * 6 / 7)} for counts in PROFILE)
    base, head = sides(shifted(-0.105), PROFILE, faster)
    assert head.profile is not None
    processes = tuple(replace(p, samples=p.samples - 100) for p in head.profile.processes)
    head = replace(head, profile=replace(head.profile, processes=processes))
    found = judged(base, head, thresholds=Thresholds(5.0, MappingProxyType({"*": 1.5})))
    assert found.verdict == "improved"
    assert not [h for h in found.hotspots if h.finding == "costs_more"]
    assert next(h for h in found.hotspots if h.name == "gemv").finding == "costs_less"


def test_waiting_says_how_much_less_can_be_seen() -> None:
    base, head = sides(shifted(0.0))

    def waits(side: Evidence) -> Evidence:
        runs = tuple(
            replace(
                run,
                blocks=tuple(
                    replace(b, interval=replace(b.interval, cpu_ns=b.interval.cpu_ns // 2))
                    for b in run.blocks
                ),
            )
            for run in side.runs
        )
        return replace(side, runs=runs)

    found = judged(waits(base), waits(head))
    assert "I_WAITING" in {reason.code for reason in found.reasons}
    assert "I_WAITING" not in {reason.code for reason in judged(base, head).reasons}


def test_the_base_is_named_by_its_commit() -> None:
    base, head = sides(shifted(0.0))
    found = judged(replace(base, commit=Commit("f" * 40, "HEAD", 0)), head)
    assert found.against == "f" * 40
