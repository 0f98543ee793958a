"""JudgedBricks against their budgets: a call against a time, a token against the other side."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from pytest_flamegate.bricks.record import ThreadTotals
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.gate import (
    ErrorRates,
    Signal,
    Verdict,
    headline,
    read_measurement,
    verdict_document,
)
from pytest_flamegate.gate.bricks import JudgedBricks, judge_bricks
from pytest_flamegate.receipt.documents import load_schema
from tests.gate.bricked import SPREAD, allowing, clocked, drawn, passes, row
from tests.gate.factory import (
    AGAIN,
    QUIET,
    baseline,
    evidence,
    judge_paired,
    judge_stored,
    run,
    scaled,
)
from tests.gate.paired import shifted, sides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.bricks.record import BrickRun


COSTS = {"RmsNorm": 2.0, "LmHead": 50.0}
OLD, NEW = passes(COSTS, first_pid=800), passes(COSTS, drawn(Random(1), 0.01))
RATES = ErrorRates(analyses=2)
TEN = allowing(RmsNorm=(None, 10.0))


def slowed(by: float, brick: str = "RmsNorm", **options: Any) -> tuple[BrickRun, ...]:
    return passes({**COSTS, brick: COSTS[brick] * by}, drawn(Random(1), 0.01), **options)


def bricks(
    old: Sequence[BrickRun] | None, new: Sequence[BrickRun], thresholds: Thresholds
) -> JudgedBricks:
    before = None if old is None else baseline(bricks=tuple(old))
    return judge_bricks(before, evidence(bricks=tuple(new)), thresholds, RATES)


def only(found: JudgedBricks) -> Signal:
    (signal,) = found.signals
    return signal


def codes(found: JudgedBricks) -> list[str]:
    told = [reason.code for signal in found.signals for reason in signal.reasons]
    return told + [reason.code for reason in found.reasons]


@pytest.mark.parametrize(
    ("by", "decision", "code"),
    [
        (1.0, "pass", []),
        (1.02, "pass", []),
        (1.3, "regressed", ["E_BRICK_SLOWER"]),
        (3.0, "regressed", ["E_BRICK_SLOWER"]),
        (0.7, "improved", ["I_BRICK_CHEAPER"]),
        (1.06, "inconclusive", ["E_BRICK_NOISE"]),
    ],
)
def test_growth_of_the_cost_per_token(by: float, decision: str, code: list[str]) -> None:
    found = bricks(OLD, slowed(by), TEN)
    signal = only(found)
    assert (signal.name, signal.unit, signal.decision) == ("brick:RmsNorm", "us/token", decision)
    assert codes(found) == code
    assert signal.change_pct == pytest.approx(100 * (by - 1), abs=3.0)
    assert None not in (signal.ci_low_pct, signal.change_pct, signal.ci_high_pct)
    ends = signal.ci_low_pct or 0.0, signal.ci_high_pct or 0.0
    assert ends[0] <= (signal.change_pct or 0.0) <= ends[1]
    assert signal.baseline == pytest.approx(8.0, rel=0.02)
    assert signal.helped_by == (("bricks",) if decision == "inconclusive" else ())


@pytest.mark.parametrize(
    ("budget_us", "decision", "code"),
    [
        (1.0, "regressed", ["E_BRICK_BUDGET"]),
        (1.7, "regressed", ["E_BRICK_BUDGET"]),
        (2.04, "inconclusive", ["E_BRICK_NOISE"]),
        (2.5, "pass", []),
    ],
)
def test_a_call_is_held_to_its_budget_with_and_without_baseline(
    budget_us: float, decision: str, code: list[str]
) -> None:
    for old in (OLD, None):
        found = bricks(old, NEW, allowing(RmsNorm=(budget_us, None)))
        assert (only(found).unit, only(found).decision) == ("us/call", decision)
        assert codes(found) == code


def test_both_may_be_asked_of_one_brick() -> None:
    found = bricks(OLD, slowed(1.5), allowing(RmsNorm=(2.2, 10.0)))
    assert [(each.unit, each.decision) for each in found.signals] == [
        ("us/token", "regressed"),
        ("us/call", "regressed"),
    ]


def test_a_budget_equal_to_its_own_measurement_is_refused() -> None:
    (change,) = bricks(None, NEW, allowing(RmsNorm=(9.0, None))).changes
    assert change.current is not None
    itself = round(change.current.call_us_mean, 3)
    found = bricks(None, NEW, allowing(RmsNorm=(itself, None)))
    assert (only(found).decision, codes(found)) == ("inconclusive", ["E_BUDGET_IS_MEASURED"])
    beside = bricks(None, NEW, allowing(RmsNorm=(itself + 0.002, None)))
    assert codes(beside) == ["E_BRICK_NOISE"]


def test_without_a_budget_nothing_is_judged() -> None:
    assert bricks(OLD, slowed(9.0), Thresholds()) == JudgedBricks()
    verdict = judge_stored(baseline(bricks=OLD), evidence(bricks=slowed(9.0)), Thresholds())
    plain = judge_stored(baseline(), evidence(), Thresholds())
    assert replace(verdict, bricks=()) == plain


def test_every_other_speaks_of_those_that_weigh_anything() -> None:
    costs = {"RmsNorm": 2.0, "LmHead": 50.0, "Sampling": 0.1}
    dearer = {**costs, "LmHead": 100.0, "Sampling": 0.2}
    new = passes(dearer, drawn(Random(1), 0.01))
    found = bricks(passes(costs), new, allowing(every=(None, 15.0), RmsNorm=(None, 10.0)))
    assert [(each.name, each.decision) for each in found.signals] == [
        ("brick:LmHead", "regressed"),
        ("brick:RmsNorm", "pass"),
    ]
    assert found.signals[0].threshold_pct == 15.0


def test_an_alias_is_the_brick_it_stands_for() -> None:
    old, new = passes({"Qkv": 2.0}, first_pid=800), passes({"QkvProjection": 3.0}, SPREAD[::-1])
    found = bricks(old, new, allowing(Qkv=(None, 10.0)))
    assert (only(found).name, only(found).decision) == ("brick:QkvProjection", "regressed")


def layered(by: tuple[float, ...], factors: Sequence[float], pid: int) -> tuple[BrickRun, ...]:
    return tuple(
        clocked(
            [row("RmsNorm", 2.0 * f * factor, layer=i) for i, f in enumerate(by)],
            pid=pid + number,
        )
        for number, factor in enumerate(factors)
    )


@pytest.mark.parametrize(
    ("by", "layer"), [((1.0, 3.0, 1.0), 1), ((1.5, 1.5, 1.5), None), ((1.0, 1.0, 2.0), 2)]
)
def test_the_layer_that_grew_most_is_named(by: tuple[float, ...], layer: int | None) -> None:
    old = layered((1.0, 1.0, 1.0), SPREAD, 800)
    found = bricks(old, layered(by, drawn(Random(1), 0.01), 700), TEN)
    (change,) = found.changes
    assert (change.grown.layer if change.grown else None) == layer
    (reason,) = only(found).reasons
    assert ("most of it in layer" in reason.message) == (layer is not None)


def test_calls_that_became_more_are_told() -> None:
    more = tuple(
        clocked([row("RmsNorm", 2.0 * factor, calls=800)], pid=700 + number)
        for number, factor in enumerate(SPREAD)
    )
    found = bricks(passes({"RmsNorm": 2.0}, SPREAD[::-1], first_pid=800), more, TEN)
    assert codes(found) == ["E_BRICK_SLOWER", "I_BRICK_CALLS"]
    assert only(found).reasons[1].message == "RmsNorm runs 8 times per token, was 4."
    assert only(found).change_pct == pytest.approx(100.0, abs=1.0)


def partly(name: str) -> tuple[BrickRun, ...]:
    """Passes of which the last does not show a brick."""
    *most, last = NEW
    rest = [each for each in last.totals if each.name != name]
    return (*most, clocked(rest, pid=last.pid))


def told_as(provenance: Any) -> tuple[BrickRun, ...]:
    return slowed(9.0, provenance=provenance)


def lasting(bucket: str) -> tuple[BrickRun, ...]:
    """Passes in which the calls of a brick are told in a bucket of that name."""
    first, *others = NEW
    row, *rest = first.totals
    odd = replace(row, durations=MappingProxyType({bucket: row.calls}))
    return (replace(first, totals=(odd, *rest)), *others)


FEW = "E_FEW_PROCESSES"
WAITED = tuple(replace(each, sync="immediate") for each in NEW)
BOTH = allowing(RmsNorm=(1.0, 10.0))


@pytest.mark.parametrize(
    ("old", "new", "thresholds", "expected"),
    [
        (OLD, (), TEN, ["E_NO_BRICKS"]),
        ((), NEW, TEN, ["E_NO_BRICKS"]),
        (OLD, tuple(replace(each, totals=()) for each in NEW), TEN, ["E_NO_BRICKS"]),
        (OLD, NEW[:4], TEN, [FEW]),
        (OLD[:4], NEW, TEN, [FEW]),
        (OLD, NEW, allowing(RmsNrom=(1.0, None)), ["E_BRICK_UNKNOWN"]),
        (OLD, NEW, allowing(RmsNrom=(None, 10.0)), ["E_BRICK_UNKNOWN"]),
        (OLD, passes({"LmHead": 50.0}), TEN, ["E_BRICK_ABSENT"]),
        (passes({"LmHead": 50.0}), NEW, TEN, ["E_BRICK_ABSENT"]),
        (OLD, partly("RmsNorm"), TEN, ["E_BRICK_ABSENT"]),
        (OLD, told_as("derived"), BOTH, ["E_BRICK_UNTIMED", "E_BRICK_UNTIMED"]),
        (OLD, told_as("ingested"), TEN, ["E_BRICK_UNTIMED"]),
        (OLD, slowed(1.0, self_ns=0), allowing(LmHead=(1.0, None)), ["E_BRICK_UNTIMED"]),
        (OLD, WAITED, TEN, ["E_BRICKS_UNLIKE"]),
        (OLD, lasting("x"), TEN, ["E_IMPOSSIBLE_FIGURE"]),
        (OLD, lasting("9" * 18), TEN, ["E_IMPOSSIBLE_FIGURE"]),
        (OLD, told_as("derived"), allowing(every=(None, 10.0)), ["E_BRICK_UNKNOWN"]),
        (OLD, passes({"Other": 50.0}), allowing(every=(None, 10.0)), ["E_BRICK_UNKNOWN"]),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_undecided_and_never_passes(
    old: tuple[BrickRun, ...], new: tuple[BrickRun, ...], thresholds: Thresholds, expected: Any
) -> None:
    found = bricks(old, new, thresholds)
    assert codes(found) == expected
    assert not {"pass", "improved", "regressed"} & {each.decision for each in found.signals}
    verdict = judge_stored(baseline(bricks=old), evidence(bricks=new), thresholds)
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons[0].code == expected[0]


def test_marks_that_cover_little_tell_a_call_and_not_a_token() -> None:
    part = tuple(clocked(each.totals, pid=each.pid, coverage=0.4) for each in NEW)
    found = bricks(OLD, part, BOTH)
    assert codes(found) == ["E_BRICK_BUDGET", "E_BRICKS_COVERAGE"]
    assert only(found).unit == "us/call"


def test_every_other_leaves_out_what_was_not_measured() -> None:
    new = tuple(
        replace(each, totals=(replace(each.totals[0], provenance="derived"), *each.totals[1:]))
        for each in NEW
    )
    found = bricks(OLD, new, allowing(every=(None, 10.0)))
    assert (only(found).name, codes(found)) == ("brick:LmHead", [])


def verdict_of(new: tuple[BrickRun, ...], thresholds: Thresholds, **options: Any) -> Verdict:
    return judge_stored(baseline(bricks=OLD), evidence(bricks=new), thresholds, **options)


def test_a_regression_of_a_brick_is_the_verdict() -> None:
    verdict = verdict_of(slowed(1.5), TEN)
    assert (verdict.verdict, verdict.reasons[0].code) == ("regressed", "E_BRICK_SLOWER")
    assert "RmsNorm 8.00 → 12.0 µs/token (+50" in headline(verdict)
    assert verdict.signal("brick:RmsNorm") is not None
    assert [change.name for change in verdict.bricks] == ["RmsNorm"]


def test_a_brick_that_got_cheaper_is_named() -> None:
    verdict = verdict_of(slowed(0.5), TEN)
    assert verdict.verdict == "improved"
    assert headline(verdict).startswith("improved: RmsNorm 8")


def test_slower_tokens_outweigh_a_cheaper_brick() -> None:
    new = evidence(scaled(QUIET, 1.3), bricks=slowed(0.5))
    verdict = judge_stored(baseline(bricks=OLD), new, TEN)
    assert (verdict.verdict, verdict.reasons[0].code) == ("regressed", "E_SLOWER")


def test_more_passes_are_asked_for_where_they_help() -> None:
    more = verdict_of(slowed(1.06), TEN).more_processes
    assert (bool(more), more.bricks, more.timed, more.profiled) == (True, True, False, False)
    assert verdict_of(NEW[:3], TEN).more_processes.bricks
    assert not verdict_of(NEW, allowing(RmsNrom=(None, 10.0))).more_processes.bricks


@pytest.mark.parametrize(
    ("budget_us", "name", "first"),
    [(1.0, "regressed", "E_BRICK_BUDGET"), (9.0, "no_baseline", "E_NO_BASELINE"),
     (2.05, "no_baseline", "E_NO_BASELINE")],
)  # fmt: skip
def test_without_baseline_only_a_call_over_its_budget_decides(
    budget_us: float, name: str, first: str
) -> None:
    verdict = judge_stored(None, evidence(bricks=NEW), allowing(RmsNorm=(budget_us, 10.0)))
    assert (verdict.verdict, verdict.reasons[0].code) == (name, first)
    assert headline(verdict)
    assert [signal.unit for signal in verdict.signals[2:]] == ["us/call"]


@pytest.mark.parametrize(
    ("budget_us", "name", "first"),
    [(1.0, "regressed", "E_BRICK_BUDGET"), (9.0, "not_comparable", "E_MODEL_DIFFERS")],
)
def test_a_call_over_its_budget_needs_no_side_that_can_be_compared(
    budget_us: float, name: str, first: str
) -> None:
    budget = allowing(RmsNorm=(budget_us, 10.0))
    old, new = sides(shifted(0.0), bricks=NEW)
    for other, now, rule in (
        (baseline(bricks=OLD), evidence(bricks=NEW), judge_stored),
        (replace(old, bricks=OLD), new, judge_paired),
    ):
        verdict = rule(replace(other, model_sha256="0" * 64), now, budget)
        assert verdict.verdict == name
        assert verdict.reasons[0].code == first
        assert "E_MODEL_DIFFERS" in {reason.code for reason in verdict.reasons}
        assert headline(verdict)
        signal = verdict.signal("brick:RmsNorm")
        assert signal is not None
        assert signal.unit == "us/call"


def test_an_empty_run_is_refused_and_not_scored() -> None:
    verdict = judge_stored(None, evidence(bricks=()), BOTH)
    assert verdict.verdict == "no_baseline"
    assert "E_NO_BRICKS" in [reason.code for reason in verdict.reasons]
    assert verdict_of((), BOTH).verdict == "inconclusive"


def paired(base: tuple[BrickRun, ...], head: tuple[BrickRun, ...], by: float = 0.0) -> Verdict:
    old, new = sides(shifted(by), bricks=head)
    return judge_paired(replace(old, bricks=base), new, BOTH)


def test_pairs_judge_bricks_of_both_sides() -> None:
    verdict = paired(OLD, slowed(1.2))
    assert verdict.verdict == "regressed"
    assert [reason.code for reason in verdict.reasons[:2]] == ["E_BRICK_SLOWER", "E_BRICK_BUDGET"]
    narrow, wide = verdict.signal("brick:RmsNorm"), only(bricks(OLD, slowed(1.2), TEN))
    # Side by side no batch drifts from the other, so less is enough.
    assert narrow is not None
    assert (narrow.ci_low_pct or 0.0) > (wide.ci_low_pct or 0.0)


def test_pairs_without_passes_are_undecided() -> None:
    verdict = paired((), ())
    assert (verdict.verdict, verdict.reasons[0].code) == ("inconclusive", "E_NO_BRICKS")


def test_passes_of_the_baseline_are_no_passes_of_now() -> None:
    stolen = tuple(replace(each, pid=each.pid + 50) for each in OLD)
    verdict = verdict_of(stolen, TEN)
    assert (verdict.verdict, verdict.reasons[0].code) == ("dishonest", "E_COPIED_BASELINE")


def test_a_run_over_bricks_never_supplies_tokens_per_second() -> None:
    crawling = replace(run(4000, 9e5), role="bricks")
    new = evidence(AGAIN, bricks=NEW)
    beside = replace(new, runs=(*new.runs, crawling))
    with_it = judge_stored(baseline(bricks=OLD), beside, TEN)
    assert with_it == judge_stored(baseline(bricks=OLD), new, TEN)
    alone = replace(new, runs=tuple(replace(each, role="bricks") for each in new.runs))
    with pytest.raises(UndecidedError) as raised:
        read_measurement(alone)
    assert raised.value.code == "E_FEW_PROCESSES"


def test_two_lanes_may_together_take_longer_than_the_wall() -> None:
    new = tuple(
        replace(
            each,
            lanes=(*each.lanes, ThreadTotals("other", each.lanes[0].self_ns, 1)),
            totals=(*each.totals, row("UpProjection", 50.0)),
        )
        for each in NEW
    )
    assert only(bricks(OLD, new, allowing(RmsNorm=(9.0, None)))).decision == "pass"


def test_the_verdict_holds_what_was_judged() -> None:
    document = json.loads(encode_json(verdict_document(verdict_of(slowed(1.5), BOTH))))
    Draft202012Validator(load_schema("verdict")).validate(document)
    (told,) = document["bricks"]
    assert told["decisions"] == {"us/token": "regressed", "us/call": "regressed"}
    assert told["baseline"]["calls_per_token"] == 4.0
    assert told["current"]["us_per_call"] == pytest.approx(3.0, rel=0.02)
    assert (told["budget_us_per_call"], told["allowed_growth_pct"]) == (1.0, 10.0)
