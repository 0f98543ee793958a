"""Bricks against their budgets: a call against a time, a token against the other side."""

import json
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pytest_flamegate.bricks.record import BrickRun, ThreadTotals
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.json import encode_json, encode_plain
from pytest_flamegate.gate.brick_costs import (
    brick_costs,
    check_brick_runs,
    common_window,
    find_grown_layer,
)
from pytest_flamegate.gate.bricks import RESOLUTION_SD, JudgedBricks, judge_bricks
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate.rule import ErrorRates, Signal
from pytest_flamegate.gate.statistics import Estimate, welch
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.receipt.types import Evidence
from tests import made
from tests.gate.bricked import CALLS, SPREAD, allowing, brick_runs, drawn, make_brick_run, row
from tests.gate.factory import (
    QUIET,
    baseline,
    check_reasons,
    codes,
    evidence,
    judge_paired,
    judge_stored,
    scaled,
    shifted,
    sides,
    undecided,
)
from tests.receipt.documents import load_schema

COSTS = {"RmsNorm": 2.0, "LmHead": 50.0}
OLD, NEW = brick_runs(COSTS, first_pid=800), brick_runs(COSTS, drawn(Random(1), 0.01))
RATES = ErrorRates(analyses=2)
TEN = allowing(RmsNorm=(None, 10.0))


# --- the cost of a brick in a process ------------------------------------------------------


def cost_of(*rows: Any, window: Any = "decode", **changes: Any) -> Any:
    (one,) = brick_costs([make_brick_run(rows, **changes)], window).values()
    return one


def test_interrupted_calls_do_not_count_as_slow_ones_and_most_calls_do() -> None:
    one = cost_of(row("RmsNorm", 2.0))
    assert (one.call_us, one.token_us) == (pytest.approx((2.0,)), pytest.approx((8.0,)))
    assert (one.calls, one.share, one.measured) == ((4.0,), 1.0, True)
    assert cost_of(row("RmsNorm", 0.5)).call_us_mean == pytest.approx(0.5)
    interrupted = row("RmsNorm", 2.0, calls=390, slow=10, slow_us=900.0)
    assert cost_of(interrupted).call_us == pytest.approx((2.0,), rel=0.02)
    slower = row("RmsNorm", 2.0, calls=80, slow=320, slow_us=3.0)
    assert cost_of(slower).call_us[0] > 2.7
    # A quarter of the calls is enough for the others to count no longer than they do.
    quarter = row("RmsNorm", 2.0, calls=100, slow=300, slow_us=3.0)
    assert cost_of(quarter).call_us == pytest.approx((2.0,), rel=0.02)


def test_own_time_and_plain_means() -> None:
    holding = row("Block", 10.0, self_ns=CALLS * 1_000)
    assert cost_of(holding).call_us == pytest.approx((1.0,))
    empty = cost_of(row("Block", 10.0, self_ns=0))
    assert (empty.share, empty.call_us_mean) == (0.0, 0.0)
    assert cost_of(row("RmsNorm", 2.0, durations={})).call_us == pytest.approx((2.0,))
    partly = row("RmsNorm", 2.0, slow=100, slow_us=9.0, durations={"2000": 200, "3000": 200})
    assert cost_of(partly).call_us == pytest.approx((3.4,))


def test_layers_and_aliases_are_rows_of_one_brick() -> None:
    layers = cost_of(row("RmsNorm", 2.0, layer=0), row("RmsNorm", 4.0, layer=1))
    assert layers.call_us == pytest.approx((3.0,))
    assert dict(layers.layers_us) == pytest.approx({0: 8.0, 1: 16.0})
    aliases = brick_costs([make_brick_run([row("Qkv", 2.0), row("QkvProjection", 4.0)])], "decode")
    assert {name: cost.calls for name, cost in aliases.items()} == {"QkvProjection": (8.0,)}


def test_prefill_is_left_out_if_decode_is_separated() -> None:
    rows = row("RmsNorm", 2.0), row("RmsNorm", 9.0, phase="prefill")
    separated = make_brick_run(rows)
    mixed = make_brick_run([row("RmsNorm", 2.0, phase=""), rows[1]])
    assert common_window([separated]) == "decode"
    assert common_window([separated], [mixed]) == "all"
    assert common_window([replace(separated, decode_tokens=0)]) == "all"
    assert cost_of(*rows).calls == (4.0,)
    assert cost_of(*rows, window="all").calls == pytest.approx((800 / 101,))


def layered(by: Sequence[float], factors: Sequence[float], pid: int) -> tuple[BrickRun, ...]:
    runs = []
    for number, factor in enumerate(factors):
        rows = [row("RmsNorm", 2.0 * f * factor, layer=i) for i, f in enumerate(by)]
        runs.append(make_brick_run(rows, pid=pid + number))
    return tuple(runs)


@pytest.mark.parametrize(
    ("by", "layer"),
    [
        ((1.0, 3.0, 1.0), 1),
        ((1.5, 1.5, 1.5), None),
        ((1.5, 1.5), 0),
        ((2.0, 1.0, 1.9), 0),  # a little more than half
        ((1.0, 1.0, 0.5), None),
        ((1.0, 1.1), 1),
        ((2.0,), None),
    ],
)
def test_the_layer_that_grew_most(by: tuple[float, ...], layer: int | None) -> None:
    before, after = (
        brick_costs(layered(factors, SPREAD, 800), "decode")["RmsNorm"]
        for factors in ((1.0,) * len(by), by)
    )
    grown = find_grown_layer(before, after)
    assert (grown.layer if grown else None) == layer


RMS = NEW[0].lanes[0].self_ns
SHORT_THREAD = (ThreadTotals("main", 1, 1),)


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ({"totals": ()}, "E_NO_BRICKS: A brick run of the current side recorded no call of any"),
        ({"tokens": 0}, "E_NO_TOKENS"),
        ({"totals": (row("RmsNorm", 2.0, self_ns=10**9),)}, "E_IMPOSSIBLE_FIGURE"),
        ({"wall_ns": 0}, "E_IMPOSSIBLE_FIGURE"),
        ({"wall_ns": round(RMS / 1.02)}, "E_IMPOSSIBLE_FIGURE"),
        ({"lanes": SHORT_THREAD, "wall_ns": NEW[0].wall_ns // 2}, "E_IMPOSSIBLE_FIGURE"),
        ({"pid": NEW[1].pid, "started_ticks": NEW[1].started_ticks}, "E_REPEATED_SAMPLES"),
        ({"wall_ns": NEW[1].wall_ns, "lanes": NEW[1].lanes}, "E_REPEATED_SAMPLES"),
    ],
)
def test_brick_runs_that_cannot_be_judged(first: dict[str, Any], code: str) -> None:
    with undecided(code):
        check_brick_runs((replace(NEW[0], **first), *NEW[1:]), "current side")


def test_brick_runs_that_can() -> None:
    check_brick_runs((replace(NEW[0], wall_ns=round(RMS / 1.009)), *NEW[1:]), "baseline")
    check_brick_runs((replace(NEW[0], lanes=(), tokens=1), *NEW[1:]), "current side")
    # Two threads may together take longer than the wall.
    up, threads = row("UpProjection", 50.0), []
    for each in NEW:
        lanes = (*each.lanes, ThreadTotals("other", each.lanes[0].self_ns, 1))
        threads.append(replace(each, lanes=lanes, totals=(*each.totals, up)))
    check_brick_runs(threads, "current side")
    missing = "There is no brick run of the baseline, and a budget is declared."
    with undecided(f"E_NO_BRICKS: {missing} Accept a new baseline, with an engine"):
        check_brick_runs((), "baseline")


# --- budgets -------------------------------------------------------------------------------


def slowed(by: float, brick: str = "RmsNorm", **options: Any) -> tuple[BrickRun, ...]:
    return brick_runs({**COSTS, brick: COSTS[brick] * by}, drawn(Random(1), 0.01), **options)


def judge(
    old: tuple[BrickRun, ...] | None,
    new: tuple[BrickRun, ...],
    thresholds: Thresholds,
    **options: Any,
) -> JudgedBricks:
    before = None if old is None else baseline(bricks=old)
    found = judge_bricks(before, evidence(bricks=new), thresholds, RATES, **options)
    check_reasons((*found.reasons, *(why for signal in found.signals for why in signal.reasons)))
    return found


def only(found: JudgedBricks) -> Signal:
    (signal,) = found.signals
    return signal


def codes_of(found: JudgedBricks) -> list[str]:
    reasons = [reason for signal in found.signals for reason in signal.reasons]
    return [reason.code for reason in (*reasons, *found.reasons)]


@pytest.mark.parametrize(
    ("by", "decision", "code"),
    [
        (1.0, "pass", []),
        (1.02, "pass", []),
        (1.3, "regressed", ["E_BRICK_SLOWER"]),
        (0.7, "improved", ["I_FASTER"]),
        (1.06, "inconclusive", ["E_NOISE"]),
    ],
)
def test_growth_of_the_cost_per_token(by: float, decision: str, code: list[str]) -> None:
    found = judge(OLD, slowed(by), TEN)
    signal = only(found)
    assert (signal.name, signal.unit, signal.decision) == ("brick:RmsNorm", "us/token", decision)
    assert codes_of(found) == code
    assert signal.change_pct == pytest.approx(100 * (by - 1), abs=3.0)
    ends = signal.ci_low_pct or 0.0, signal.ci_high_pct or 0.0
    assert ends[0] <= (signal.change_pct or 0.0) <= ends[1]
    assert signal.baseline == pytest.approx(8.0, rel=0.02)
    assert signal.more_processes == (("bricks",) if decision == "inconclusive" else ())


@pytest.mark.parametrize(
    ("budget_us", "decision", "code"),
    [
        (1.7, "regressed", ["E_BRICK_BUDGET"]),
        (2.04, "inconclusive", ["E_NOISE"]),
        (2.5, "pass", []),
    ],
)
def test_a_call_is_held_to_its_budget_with_and_without_baseline(
    budget_us: float, decision: str, code: list[str]
) -> None:
    for old in (OLD, None):
        found = judge(old, NEW, allowing(RmsNorm=(budget_us, None)))
        signal = only(found)
        assert (signal.unit, signal.decision, signal.threshold_pct) == ("us/call", decision, 0.0)
        assert codes_of(found) == code
        assert signal.change_pct == pytest.approx(100 * (2.0 / budget_us - 1), abs=2.0)
        # Growth that nothing is compared with is no further judgement.
        both = judge(None, NEW, allowing(RmsNorm=(budget_us, 10.0)))
        assert (only(both).ci_low_pct, only(both).ci_high_pct) == (
            signal.ci_low_pct,
            signal.ci_high_pct,
        )


@pytest.mark.parametrize("drift_sd", [0.0, 0.02])
def test_intervals_by_hand(drift_sd: float) -> None:
    found = judge(OLD, slowed(1.5), allowing(RmsNorm=(2.5, 10.0)), drift_sd=drift_sd)
    growth, call = found.signals
    (change,) = found.changes
    assert change.baseline is not None
    assert change.current is not None
    variance = drift_sd**2 + RESOLUTION_SD**2
    logs = [[math.log(us) for us in side.token_us] for side in (change.baseline, change.current)]
    estimate = welch(logs[0], logs[1]).widen(2 * variance)
    alpha = RATES.alpha / 2  # two judgements share the false alarms
    low, high = estimate.lower(alpha), estimate.upper(alpha)
    assert growth.ci_low_pct == pytest.approx(100 * math.expm1(low))
    assert growth.ci_high_pct == pytest.approx(100 * math.expm1(high))
    values = [math.log(us / 2.5) for us in change.current.call_us]
    own = statistics.variance(values) / 5
    df = (own + variance) ** 2 / (own**2 / 4)
    of_call = Estimate(sum(values) / 5, math.sqrt(own + variance), df)
    assert call.ci_low_pct == pytest.approx(100 * math.expm1(of_call.lower(alpha)))
    assert call.ci_high_pct == pytest.approx(100 * math.expm1(of_call.upper(RATES.beta)))


def test_without_a_budget_nothing_is_judged() -> None:
    assert judge(OLD, slowed(9.0), Thresholds()) == JudgedBricks()
    verdict = judge_stored(baseline(bricks=OLD), evidence(bricks=slowed(9.0)))
    assert replace(verdict, bricks=()) == judge_stored(baseline(), evidence())


def test_every_other_judges_bricks_of_one_percent_that_were_measured() -> None:
    costs = {"RmsNorm": 2.0, "LmHead": 50.0, "Sampling": 0.1}
    new = brick_runs({**costs, "LmHead": 100.0, "Sampling": 0.2}, drawn(Random(1), 0.01))
    found = judge(brick_runs(costs), new, allowing(every=(None, 15.0), RmsNorm=(None, 10.0)))
    assert [(each.name, each.decision, each.threshold_pct) for each in found.signals] == [
        ("brick:LmHead", "regressed", 15.0),
        ("brick:RmsNorm", "pass", 10.0),
    ]
    parts = zip(NEW, slowed(9.0, provenance="derived"), strict=True)
    derived = tuple(replace(each, totals=(odd.totals[0], each.totals[1])) for each, odd in parts)
    found = judge(OLD, derived, allowing(every=(None, 10.0)))
    assert (only(found).name, codes_of(found)) == ("brick:LmHead", [])
    # One percent on either side is enough.
    for old_us, new_us in ((0.1, 2.0), (2.0, 0.1)):
        pair = brick_runs({"Sampling": old_us, "LmHead": 50.0}, SPREAD[::-1], first_pid=800)
        found = judge(pair, brick_runs({"Sampling": new_us, "LmHead": 50.0}), EVERY)
        assert {"brick:Sampling", "brick:LmHead"} == {each.name for each in found.signals}
    # An alias is the brick that it stands for.
    old, aliased = brick_runs({"Qkv": 2.0}), brick_runs({"QkvProjection": 3.0}, SPREAD[::-1])
    found = judge(old, aliased, allowing(Qkv=(None, 10.0)))
    assert (only(found).name, only(found).decision) == ("brick:QkvProjection", "regressed")


def test_calls_and_the_layer_that_grew_are_reported() -> None:
    more = layered((2.0, 1.0, 1.0), drawn(Random(1), 0.01), 700)
    found = judge(layered((1.0,) * 3, SPREAD, 800), more, TEN)
    assert "; most of it in layer 0 (8.0" in only(found).reasons[0].message
    assert found.changes[0].grown is not None
    doubled = brick_runs({"RmsNorm": 2.0}, calls=800)
    found = judge(brick_runs({"RmsNorm": 2.0}, SPREAD[::-1], first_pid=800), doubled, TEN)
    assert codes_of(found) == ["E_BRICK_SLOWER", "I_BRICK_CALLS"]
    assert only(found).reasons[1].message == "RmsNorm runs 8 times per token, was 4."
    assert only(found).change_pct == pytest.approx(100.0, abs=1.0)


WITHOUT = (*NEW[:-1], make_brick_run(NEW[-1].totals[1:], pid=9))
"""The last run does not show RmsNorm."""
EVERY, BOTH = allowing(every=(None, 10.0)), allowing(RmsNorm=(1.0, 10.0))


@pytest.mark.parametrize(
    ("old", "new", "thresholds", "expected"),
    [
        (OLD, (), TEN, ["E_NO_BRICKS"]),
        ((), NEW, TEN, ["E_NO_BRICKS"]),
        (OLD, NEW[:4], TEN, ["E_FEW_PROCESSES"]),
        (OLD[:4], NEW, TEN, ["E_FEW_PROCESSES"]),
        (OLD, NEW, allowing(RmsNrom=(1.0, None)), ["E_BRICK_UNKNOWN"]),
        (OLD, NEW, allowing(RmsNrom=(None, 10.0)), ["E_BRICK_UNKNOWN"]),
        (OLD, brick_runs({"LmHead": 50.0}), TEN, ["E_BRICK_UNKNOWN"]),
        (brick_runs({"LmHead": 50.0}), NEW, TEN, ["E_BRICK_UNKNOWN"]),
        (OLD, WITHOUT, TEN, ["E_BRICK_UNKNOWN"]),
        (OLD, slowed(9.0, provenance="derived"), BOTH, ["E_BRICK_UNTIMED", "E_BRICK_UNTIMED"]),
        (OLD, slowed(9.0, provenance="ingested"), TEN, ["E_BRICK_UNTIMED"]),
        (OLD, slowed(1.0, self_ns=0), allowing(LmHead=(1.0, None)), ["E_BRICK_UNTIMED"]),
        (OLD, tuple(replace(each, sync="immediate") for each in NEW), TEN, ["E_BRICKS_UNLIKE"]),
        (OLD, slowed(9.0, provenance="derived"), EVERY, ["E_BRICK_UNKNOWN"]),
        (OLD, brick_runs({"Other": 50.0}), EVERY, ["E_BRICK_UNKNOWN"]),
    ],
)
def test_bricks_that_cannot_be_judged_never_pass(
    old: tuple[BrickRun, ...], new: tuple[BrickRun, ...], thresholds: Thresholds, expected: Any
) -> None:
    found = judge(old, new, thresholds)
    assert codes_of(found) == expected
    assert not {"pass", "improved", "regressed"} & {each.decision for each in found.signals}
    verdict = judge_stored(baseline(bricks=old), evidence(bricks=new), thresholds)
    assert (verdict.verdict, verdict.reasons[0].code) == ("inconclusive", expected[0])
    if thresholds == EVERY:
        assert " no brick reached 1 % of the time " in found.reasons[0].message
    few = expected == ["E_FEW_PROCESSES"] and len(new) < 5
    assert not few or found.reasons[0].message.startswith("The current side has 4 brick run(s), ")
    assert found.more_processes == (("bricks",) if few else ())
    assert ("bricks" in verdict.wanted_processes) is few


@pytest.mark.parametrize(("coverage", "judged"), [(0.49, False), (0.51, True)])
def test_marks_that_cover_little_show_a_call_and_not_a_token(
    coverage: float, *, judged: bool
) -> None:
    part = tuple(make_brick_run(each.totals, pid=each.pid, coverage=coverage) for each in NEW)
    found = judge(OLD, part, BOTH)
    assert len(found.signals) == 1 + judged
    assert found.signals[-1].unit == "us/call"
    assert ("E_BRICKS_COVERAGE" in codes_of(found)) is not judged
    words = " of the current side cover 49 % of the time; judging a cost per token needs 50 %."
    assert judged or words in found.reasons[0].message


# --- the verdict ---------------------------------------------------------------------------


def verdict_of(new: tuple[BrickRun, ...], thresholds: Thresholds) -> Verdict:
    return judge_stored(baseline(bricks=OLD), evidence(bricks=new), thresholds)


def test_a_brick_decides_the_verdict() -> None:
    verdict = verdict_of(slowed(1.5), TEN)
    assert (verdict.verdict, verdict.reasons[0].code) == ("regressed", "E_BRICK_SLOWER")
    assert "RmsNorm 8.00 → 12.0 µs/token (+50" in headline(verdict)
    assert [change.name for change in verdict.bricks] == ["RmsNorm"]
    over = headline(verdict_of(NEW, allowing(RmsNorm=(1.0, None))))
    assert re.match(
        r"regressed: RmsNorm 2\.\d+ µs/call \(\d{2,3}\.\d % over its budget\); tok", over
    )
    cheaper = verdict_of(slowed(0.5), TEN)
    assert headline(cheaper).startswith("improved: RmsNorm 8")
    slower = evidence(scaled(QUIET, 1.3), bricks=slowed(0.5))
    outweighed = judge_stored(baseline(bricks=OLD), slower, TEN)
    assert (outweighed.verdict, outweighed.reasons[0].code) == ("regressed", "E_SLOWER")
    assert verdict_of(slowed(1.06), TEN).wanted_processes == ("bricks",)
    copied = verdict_of(tuple(replace(each, pid=each.pid + 50) for each in OLD), TEN)
    assert (copied.verdict, codes(copied)[0]) == ("dishonest", "E_COPIED_BASELINE")


@pytest.mark.parametrize(
    ("budget_us", "decided"), [(1.0, True), (9.0, False), (2.05, False)], ids=str
)
def test_without_a_comparison_only_a_call_over_its_budget_decides(
    budget_us: float, *, decided: bool
) -> None:
    budget = allowing(RmsNorm=(budget_us, 10.0))
    old, new = sides(shifted(0.0), bricks=NEW)
    other = "0" * 64
    stored = judge_stored(baseline(bricks=OLD, model_sha256=other), evidence(bricks=NEW), budget)
    paired = judge_paired(replace(old, bricks=OLD, model_sha256=other), new, budget)
    alone = judge_stored(None, evidence(bricks=NEW), budget)
    for verdict, name, code in (
        (stored, "not_comparable", "E_MODEL_DIFFERS"),
        (paired, "not_comparable", "E_MODEL_DIFFERS"),
        (alone, "no_baseline", "E_NO_BASELINE"),
    ):
        expected = ("regressed", "E_BRICK_BUDGET") if decided else (name, code)
        assert (verdict.verdict, codes(verdict)[0]) == expected
        assert code in codes(verdict)
        assert headline(verdict)
        assert [each.unit for each in verdict.signals if "brick" in each.name] == ["us/call"]
        Draft202012Validator(load_schema("verdict")).validate(
            json.loads(encode_json(verdict_document(verdict)))
        )
    empty = judge_stored(None, evidence(bricks=()), BOTH)
    assert empty.verdict == "no_baseline"
    assert "E_NO_BRICKS" in codes(empty)


WEATHER = drawn(Random(3), 0.1)
"""The speed of the core during each pair."""


def on_one_core(
    bricks: tuple[BrickRun, ...], own_part: float = 0.5, *, shares_core: bool = True
) -> Evidence:
    wall_ns = 1_000_000
    interval = Interval(wall_ns, wall_ns // 2, round((1 - own_part) * wall_ns))
    block = Block(interval, ((wall_ns,),))
    runs = [
        made.run("bricks", each.pid, blocks=(block,), pair=number, cpu=0, shares_core=shares_core)
        for number, each in enumerate(bricks)
    ]
    plain = evidence(bricks=bricks)
    return replace(plain, runs=(*plain.runs, *runs))


@pytest.mark.parametrize(("by", "decision"), [(1.0, "pass"), (1.1, "regressed")])
def test_bricks_of_a_pair_met_the_same_weather(by: float, decision: str) -> None:
    old = brick_runs(COSTS, WEATHER, first_pid=800)
    new = brick_runs(COSTS, [by * each for each in WEATHER])
    allowed = allowing(RmsNorm=(None, 5.0))
    for shares_core in (True, False):
        base, head = (on_one_core(each, shares_core=shares_core) for each in (old, new))
        signal = only(judge_bricks(base, head, allowed, RATES, drift_sd=0.0))
        assert signal.decision == (decision if shares_core else "inconclusive")


def test_calls_longer_than_a_slice_leave_out_the_part_of_the_other_side() -> None:
    """Each call of the head was interrupted; the base's bricks had most of the core."""
    old = brick_runs({"FeedForward": 875.0, "RmsNorm": 950.0}, first_pid=800)
    new = brick_runs({"FeedForward": 1400.0, "RmsNorm": 950.0})
    budgets = allowing(FeedForward=(721.0, 5.0), RmsNorm=(960.0, None))
    found = judge_bricks(on_one_core(old, 0.8), on_one_core(new, 0.5), budgets, RATES, drift_sd=0.0)
    growth, call, short = found.signals
    assert {growth.decision, call.decision} == {"pass"}
    assert growth.change_pct == pytest.approx(0.0, abs=0.01)
    assert call.current == pytest.approx(700.0, rel=0.01)
    assert short.current == pytest.approx(950.0, rel=0.01)


def test_pairs_judge_bricks_of_both_sides() -> None:
    old, new = sides(shifted(0.0), bricks=slowed(1.2))
    verdict = judge_paired(replace(old, bricks=OLD), new, BOTH)
    assert verdict.verdict == "regressed"
    assert codes(verdict)[:2] == ["E_BRICK_SLOWER", "E_BRICK_BUDGET"]
    narrow, wide = verdict.signal("brick:RmsNorm"), only(judge(OLD, slowed(1.2), TEN))
    # Both sides ran in turn: no batch drifts from the other, so less is enough.
    assert narrow is not None
    assert (narrow.ci_low_pct or 0.0) > (wide.ci_low_pct or 0.0)
    (brick,) = encode_plain(verdict_document(verdict))["bricks"]
    assert brick["decisions"] == {"us/token": "regressed", "us/call": "regressed"}
    assert (brick["baseline"]["calls_per_token"], brick["baseline"]["processes"]) == (4.0, 5)
    assert brick["baseline"]["us_per_token"] == pytest.approx(8.0, rel=0.02)
    assert brick["current"]["us_per_call"] == pytest.approx(2.4, rel=0.02)
    assert (brick["budget_us_per_call"], brick["allowed_growth_pct"]) == (1.0, 10.0)
