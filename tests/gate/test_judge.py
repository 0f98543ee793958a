"""Whole verdicts: what outweighs what, what is dishonest, undecided or not comparable."""

import math
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.config.thresholds import Thresholds, parse_thresholds
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.errors import find_remedy
from pytest_flamegate.core.git import Commit
from pytest_flamegate.core.json import replace
from pytest_flamegate.core.text import significant
from pytest_flamegate.gate.analyses import FIRST_ANALYSES
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate.judge import GatedRun, GatePolicy, judge
from pytest_flamegate.gate.lines import count_lines
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.gate.paired_rate import PairedBase
from pytest_flamegate.gate.rule import Reason, ReportedRates, Signal
from pytest_flamegate.gate.ungated import (
    explain_costs,
    find_notes,
    instruction_signals,
    wall_signals,
)
from pytest_flamegate.gate.verdict import KINDS, Verdict, headline
from pytest_flamegate.observe.build import Program, ProgramFile
from pytest_flamegate.observe.observation import Answer
from pytest_flamegate.profile.calls import CallChange, CallCounts, NativeWork
from pytest_flamegate.receipt.baseline import Baseline
from pytest_flamegate.receipt.types import Evidence, VerdictName
from tests import made
from tests.gate.factory import (
    AGAIN,
    PROFILE,
    QUIET,
    Counts,
    baseline,
    changed,
    check_reasons,
    codes,
    evidence,
    judge_paired,
    judge_stored,
    moved,
    scaled,
    shifted,
    sides,
    undecided,
    with_clocks,
)
from tests.profile.profiles import native, profile
from tests.report import verdicts

NOISY = (1001.5, 1200.0, 900.0, 1100.0, 950.0, 1050.0)
SLOW = scaled(QUIET, 1.2)
FAST = scaled(QUIET, 0.7)
DRIFTED = moved(PROFILE, "rms_norm", 90, "gemv")
WIDE = tuple({"gemv": 700 + i, "attention": 300 - i} for i in (0, 150, -150, 80, -80, 100))
WIDER = moved(WIDE, "attention", 70, "gemv")
WHY = (Reason("E_WHY", "Because."),)


# --- the verdict itself --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code", "locally", "in_ci"),
    [
        ("pass", 0, False, False),
        ("improved", 0, False, False),
        ("regressed", 1, True, True),
        ("dishonest", 3, True, True),
        ("error", 5, True, True),
        ("inconclusive", 4, False, True),
        ("not_comparable", 4, False, True),
        ("no_baseline", 4, False, True),
    ],
)
def test_exit_code_and_outcome(name: VerdictName, code: int, *, locally: bool, in_ci: bool) -> None:
    verdict = Verdict(verdict=name, reasons=WHY, grade="OBSERVED")
    assert verdict.exit_code == code
    assert verdict.fails_test(ci=False, strict=False) is locally
    assert verdict.fails_test(ci=True, strict=False) is in_ci
    assert verdict.fails_test(ci=False, strict=True) is in_ci


def test_every_verdict_has_a_kind() -> None:
    assert set(KINDS) == set(get_args(VerdictName))


def test_a_verdict_that_was_not_judged_has_a_reason() -> None:
    warned = Reason("W_X", "It warns.")
    assert Verdict("error", (*WHY, warned), grade="CONSISTENT").warnings == (warned,)
    for old in (None, baseline(), evidence()):
        found = judge_stored(old, evidence(), errors=WHY)
        assert (found.verdict, found.reasons) == ("dishonest", WHY)


# --- against a stored baseline -------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "before", "after", "verdict", "first", "more_processes"),
    [
        (AGAIN, None, None, "pass", "I_WITHIN_THRESHOLD", ""),
        (AGAIN, PROFILE, PROFILE, "pass", "I_WITHIN_THRESHOLD", ""),
        (SLOW, None, None, "regressed", "E_SLOWER", ""),
        (FAST, PROFILE, PROFILE, "improved", "I_FASTER", ""),
        (NOISY, None, None, "inconclusive", "E_NOISE", "timed"),
        (AGAIN[:2], None, None, "inconclusive", "E_FEW_PROCESSES", "timed"),
        # A share that may have drifted by chance passes with the whole.
        (FAST, WIDE, WIDER, "improved", "I_FASTER", ""),
        (AGAIN, WIDE, WIDER, "pass", "I_WITHIN_THRESHOLD", ""),
        # Work that moves from one function to another costs the whole nothing.
        (AGAIN, PROFILE, DRIFTED, "pass", "I_WITHIN_THRESHOLD", ""),
        (FAST, PROFILE, DRIFTED, "improved", "I_FASTER", ""),
        # Certain harm outweighs anything else.
        (SLOW, PROFILE, DRIFTED, "regressed", "E_SLOWER", ""),
        (SLOW, WIDE, WIDER, "regressed", "E_SLOWER", ""),
        (tuple(time * 1.1 for time in NOISY), PROFILE, DRIFTED, "regressed", "E_SHARE_DRIFT", ""),
        (SLOW, PROFILE, PROFILE[:2], "regressed", "E_SLOWER", ""),
        # An open question outweighs an improvement and a pass.
        (NOISY, WIDE, WIDER, "inconclusive", "E_NOISE", "timed profiled"),
        (FAST, PROFILE, PROFILE[:2], "inconclusive", "E_FEW_PROCESSES", "profiled"),
        (NOISY, PROFILE, PROFILE[:2], "inconclusive", "E_NOISE", "timed profiled"),
        (AGAIN, PROFILE[:2], PROFILE, "inconclusive", "E_FEW_PROCESSES", ""),
    ],
)
def test_verdicts_and_the_processes_that_could_settle_them(
    times: tuple[float, ...],
    before: Counts | None,
    after: Counts | None,
    verdict: str,
    first: str,
    more_processes: str,
) -> None:
    found = judge_stored(baseline(profile=before), evidence(times, after))
    assert (found.verdict, codes(found)[0]) == (verdict, first)
    assert set(found.wanted_processes) == set(more_processes.split())
    assert found.is_suspicious is (verdict in ("regressed", "inconclusive"))


def test_an_unknown_hotspot_keeps_the_verdict_open_and_more_does_not_help() -> None:
    thresholds = Thresholds(hotspots_pp=MappingProxyType({"matmul": 3.0}))
    found = judge_stored(baseline(profile=PROFILE), evidence(profile=PROFILE), thresholds)
    assert (found.verdict, codes(found)[0]) == ("inconclusive", "E_FUNCTION_UNKNOWN")
    assert not found.wanted_processes


def test_a_verdict_holds_everything_it_was_reached_by() -> None:
    new = evidence(SLOW, PROFILE)
    notes = (Reason("I_NOTE", "A note."),)
    found = judge_stored(baseline(profile=PROFILE), new, analyses=3, notes=notes)
    assert [signal.name for signal in found.signals] == [
        *("tokens_per_second", "tokens_per_second_wall"),
        *("share:gemv", "share:attention", "share:rms_norm", "share:(other)"),
    ]
    assert (found.grade, found.differences) == ("OBSERVED", ())
    assert (found.baseline_processes, found.current_processes) == (6, 6)
    assert (found.cpu_pressure_pct, found.false_alarm_rate) == (3.0, None)
    assert found.error_rate_basis.endswith("spent over 3 analyses")
    assert found.smallest_detectable_pct == found.signals[0].smallest_detectable_pct
    assert (found.pairs, found.analyses, found.against) == (None, (), None)
    assert found.attribution[0].name == "gemv"
    assert found.signals[1].baseline == pytest.approx(1000.0, rel=1e-3)
    assert found.reasons[-1] == notes[0]


@pytest.mark.parametrize(
    "old",
    [
        evidence(),
        evidence(nonce="edited"),  # the same times under another name
        baseline(AGAIN[:3] + scaled(QUIET[3:], 1.1)),  # three processes copied
        evidence(SLOW, nonce="current", first_pid=300),  # other times, the same run's nonce
        evidence(model_sha256=None),  # copying outweighs being incomparable
    ],
)
def test_a_copied_baseline_is_dishonest(old: Evidence) -> None:
    found = judge_stored(old, evidence())
    assert (found.verdict, codes(found)) == ("dishonest", ["E_COPIED_BASELINE"])
    same = "process 100 took" if old.runs[0].blocks == evidence().runs[0].blocks else "the nonce"
    assert same in found.reasons[0].message


def test_sides_that_differ_neither_pass_nor_fail() -> None:
    found = judge_stored(baseline(), evidence(SLOW, model_sha256="b" * 64, clock_scope="process"))
    assert found.verdict == "not_comparable"
    assert codes(found) == ["E_MODEL_DIFFERS", "E_CLOCK_DIFFERS"]
    assert not any((found.wanted_processes, found.is_suspicious, found.current_processes))
    assert found.baseline_processes == 0


def test_another_state_of_the_machine_is_not_comparable_and_may_pass_by() -> None:
    found = judge_stored(baseline(), evidence(SLOW, process={"pressure": 90.0}))
    assert (found.verdict, codes(found)) == ("not_comparable", ["E_MACHINE_STATE"])
    rate, wall = found.signals
    assert (rate.decision, wall.decision, rate.change_pct) == ("not_comparable", "not_gated", None)
    assert rate.baseline == pytest.approx(1000.0, rel=1e-3)
    assert (found.baseline_processes, found.current_processes) == (6, 6)
    assert found.wanted_processes == ("timed",)
    assert found.is_suspicious
    assert found.reasons[0].message.endswith(find_remedy("E_MACHINE_STATE"))


def test_a_baseline_that_is_newer_than_the_run_is_not_comparable() -> None:
    newer = baseline(created="2026-01-01T00:00:00.001Z", model_sha256="b" * 64)
    new = evidence(created="2026-01-01T00:00:00.000Z")
    found = judge_stored(newer, new)
    assert codes(found) == ["E_BASELINE_NEWER", "E_MODEL_DIFFERS"]
    assert judge_stored(baseline(created=new.created), new).verdict == "pass"


ZERO = Interval(0, 0, 0)


def spoiled(interval: Interval, made: Evidence) -> Evidence:
    first = made.runs[0]
    block = replace(first.blocks[0], interval=interval)
    return replace(made, runs=(replace(first, blocks=(block,)), *made.runs[1:]))


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (spoiled(ZERO, baseline()), evidence(), "E_IMPOSSIBLE_FIGURE"),
        (baseline(QUIET[:2]), evidence(), "E_FEW_PROCESSES"),
        (None, spoiled(ZERO, evidence()), "E_IMPOSSIBLE_FIGURE"),
        (None, evidence(()), "E_FEW_PROCESSES"),
    ],
)
def test_impossible_evidence_is_undecided(old: Evidence | None, new: Evidence, code: str) -> None:
    found = judge_stored(old, new)
    assert (found.verdict, codes(found)[0]) == ("inconclusive", code)


def test_without_a_baseline_the_rates_are_shown() -> None:
    found = judge_stored(None, evidence())
    assert (found.verdict, codes(found)) == ("no_baseline", ["E_NO_BASELINE"])
    rate = found.signals[0]
    assert (rate.baseline, rate.decision) == (None, "no_baseline")
    assert rate.current == pytest.approx(1000.0, rel=1e-3)
    assert "Accept this run with --flamegate-update." in found.reasons[0].message
    # A run that has a receipt need not be measured again.
    policy = GatePolicy(Thresholds(), accept="flamegate baseline accept toy")
    for judged, advice in (
        (evidence(profile=({"gemv": 1},)), "Accept this run: flamegate baseline accept toy"),
        (evidence(), "Accept this run with --flamegate-update."),
    ):
        reason = judge(GatedRun(judged, "OBSERVED"), None, policy).reasons[0]
        assert reason.message.endswith(f"on this machine. {advice}")
    in_ci = judge_stored(None, evidence(), ci=True)
    remedy = "this machine. Compare with a revision instead: --flamegate-against=origin/main."
    assert in_ci.reasons[0].message.endswith(remedy)
    policy = GatePolicy(Thresholds(), ci=True, update=True)
    accepted = judge(GatedRun(evidence(), "OBSERVED"), None, policy)
    assert accepted.reasons[0].message.endswith("this machine. This run becomes the first.")
    assert codes(judge_stored(None, evidence(QUIET[:2]))) == ["E_NO_BASELINE", "E_FEW_PROCESSES"]


# --- against a base in pairs ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("shift", "verdict", "code"),
    [
        (0.0, "pass", "I_WITHIN_THRESHOLD"),
        (0.06, "regressed", "E_SLOWER"),
        (-0.06, "improved", "I_FASTER"),
    ],
)
def test_the_verdict_follows_the_pairs(shift: float, verdict: str, code: str) -> None:
    found = judge_paired(*sides(shifted(shift)))
    assert (found.verdict, codes(found)[0]) == (verdict, code)
    assert (found.analyses, found.pairs) == (FIRST_ANALYSES, 4)
    assert found.smallest_detectable_pct is not None
    assert 0 < found.smallest_detectable_pct < 7
    assert found.signals[0].change_pct == pytest.approx(100 * math.expm1(-shift), abs=0.5)


def test_undecided_pairs_are_not_helped_once_they_have_ended() -> None:
    noisy = [0.2 * (-1) ** i for i in range(6)]
    noisy[0] += 0.01
    ended = judge_paired(*sides(noisy))
    assert (ended.verdict, ended.more_processes, ended.pairs) == ("inconclusive", (), 6)
    few = judge_paired(*sides(shifted(0.0, 2)))
    assert (few.verdict, codes(few)[0]) == ("inconclusive", "E_FEW_PROCESSES")
    assert few.reasons[0].message.startswith("2 pair(s) were measured; the first analysis needs 4.")


def test_a_regression_names_the_function_and_the_phase() -> None:
    whole, slower = changed(rms_norm=2.0)
    base, head = sides(shifted(math.log(whole)), PROFILE, slower)
    found = judge_paired(replace(base, commit=Commit("f" * 40, "HEAD", 0)), head)
    assert (found.verdict, found.explained_by) == ("regressed", ("rms_norm",))
    row = found.attribution[0]
    assert row.name == "rms_norm"
    assert row.change_us == pytest.approx(60, rel=0.15)
    decode = found.phases[1]
    assert decode.name == "decode"
    assert decode.change_pct == pytest.approx(-5.7, abs=0.5)
    assert (found.false_alarm_rate, found.miss_rate, found.against) == (None, None, "f" * 40)
    assert "not yet measured" in found.error_rate_basis
    known = judge_paired(base, head, rates=ReportedRates(0.002, 0.003, "calibrated"))
    assert (known.false_alarm_rate, known.miss_rate, known.against) == (0.002, 0.003, None)


@pytest.mark.parametrize("few", ["base", "head", None])
def test_few_samples_of_either_side_leave_the_shares_open(few: str | None) -> None:
    base, head = sides(shifted(0.06))
    assert base.profile is not None
    counts = {"samples": 30, "self_samples": MappingProxyType({"gemv": 30})}
    processes = tuple(replace(each, **counts) for each in base.profile.processes)
    scarce = replace(base.profile, processes=processes)
    base = replace(base, profile=scarce) if few == "base" else base
    head = replace(head, profile=scarce) if few == "head" else head
    one = [profile({(native("run"),): 9}, lines={})] * 4
    run = GatedRun(head, "OBSERVED", lines=count_lines(one, one, ()))
    found = judge(run, PairedBase(base), GatePolicy(Thresholds(5.0, {"gemv": 5.0})))
    assert ("E_FEW_SAMPLES" in codes(found)) == (few is not None)
    assert ("I_NO_LINES" in codes(found)) == (few is None)


@pytest.mark.parametrize("cut", ["base", "head"])
@pytest.mark.parametrize(
    ("shift", "hotspots", "call_graph", "verdict", "code"),
    [
        # It got much faster by a cache, so most of its samples are outside of the workload.
        (-0.5, {}, "python", "improved", "I_NO_PROFILE"),
        (0.0, {"*": 5.0}, "python", "pass", "I_NO_PROFILE"),
        (-0.5, {"gemv": 5.0}, "python", "inconclusive", "E_STACKS_CUT"),
        (0.06, {}, "python", "regressed", "I_NO_PROFILE"),
        (0.0, {}, "none", "pass", "I_WITHIN_THRESHOLD"),
    ],
)
def test_cut_stacks_of_either_side_leave_the_shares_open(
    shift: float,
    hotspots: dict[str, float],
    call_graph: str,
    verdict: str,
    code: str,
    cut: str,
) -> None:
    made = dict(zip(("base", "head"), sides(shifted(shift)), strict=True))
    for side, taken in made.items():
        assert taken.profile is not None
        whole = 0.49 if side == cut else 0.5
        cut_profile = replace(taken.profile, call_graph=call_graph, completeness=whole)
        made[side] = replace(taken, profile=cut_profile)
    run = GatedRun(made["head"], "OBSERVED")
    found = judge(run, PairedBase(made["base"]), GatePolicy(Thresholds(5.0, hotspots)))
    assert (found.verdict, code in codes(found)) == (verdict, True)
    assert (found.hotspots == ()) is (call_graph != "none")


@pytest.mark.parametrize("code", ["E_NO_SAMPLES", "E_FEW_SAMPLES"])
@pytest.mark.parametrize(
    ("shift", "hotspots", "drift", "verdict", "reason"),
    [
        (0.0, {}, "cost", "pass", "I_NO_PROFILE"),
        (0.0, {"*": 5.0}, "cost", "pass", "I_NO_PROFILE"),
        (0.0, {"gemv": 5.0}, "cost", "inconclusive", "E_FEW_SAMPLES"),
        (0.0, {}, "strict", "inconclusive", "E_FEW_SAMPLES"),
        (0.06, {"gemv": 5.0}, "cost", "regressed", "E_FEW_SAMPLES"),
    ],
)
def test_a_profile_without_samples_leaves_the_shares_open(
    shift: float,
    hotspots: dict[str, float],
    drift: Any,
    verdict: str,
    reason: str,
    code: str,
) -> None:
    base, head = sides(shifted(shift), head_profile=None)
    run = GatedRun(head, "OBSERVED", notes=(Reason(code, "Too few."),))
    policy = GatePolicy(Thresholds(5.0, hotspots), drift)
    found = judge(run, PairedBase(base), policy)
    assert (found.verdict, found.hotspots) == (verdict, ())
    assert {reason, code} <= set(codes(found))
    assert found.signals[0].change_pct == pytest.approx(100 * math.expm1(-shift), abs=0.5)


@pytest.mark.parametrize(
    ("change", "verdict", "code"),
    [
        ({"side": "base"}, "dishonest", "E_SIDES_SWAPPED"),
        ({"side": None}, "dishonest", "E_SIDES_SWAPPED"),
        ({"nonce": "base"}, "dishonest", "E_COPIED_BASELINE"),
        ({"tokens": ("1", "2"), "token_digest": "e" * 64}, "not_comparable", "E_TOKENS_DIFFER"),
        ({"runs": ()}, "not_comparable", "E_CLOCK_DIFFERS"),
    ],
)
def test_sides_that_do_not_belong_together(change: Any, verdict: str, code: str) -> None:
    base, head = sides(shifted(0.06), **change)
    found = judge_paired(base, head)
    assert (found.verdict, codes(found)[0]) == (verdict, code)
    assert codes(judge_paired(head, base))[0] in ("E_SIDES_SWAPPED", "E_COPIED_BASELINE")


def test_other_tokens_name_the_commit_that_was_compared() -> None:
    """The command that measures again needs it: a branch moves, a commit does not."""
    base, head = sides(shifted(0.06), tokens=("1", "2"), token_digest="e" * 64)
    found = judge_paired(replace(base, commit=Commit("f" * 40, "HEAD", 0)), head)
    assert (found.verdict, found.against) == ("not_comparable", "f" * 40)


def test_pairs_that_differ_by_exactly_the_same_are_undecided() -> None:
    base, head = sides([0.0] * 6)
    # Byte for byte the same times: a copy, before it is a constant.
    assert codes(judge_paired(base, head)) == ["E_COPIED_BASELINE"]
    slower = with_clocks(head, lambda each: Interval(2 * each.wall_ns, 2 * each.cpu_ns, 14_000))
    found = judge_paired(base, slower)
    assert (found.verdict, codes(found)) == ("inconclusive", ["E_REPEATED_SAMPLES"])


times_us = st.lists(st.floats(10.0, 1e5), min_size=3, max_size=6, unique_by=lambda t: round(t, 1))
counts = st.fixed_dictionaries(
    {"gemv": st.integers(0, 600), "attention": st.integers(0, 300)},
    optional={"rope": st.integers(0, 100)},
)
profile_lists = st.none() | st.lists(counts, min_size=1, max_size=5)


@settings(max_examples=50)
@given(times_us, times_us, profile_lists, profile_lists)
def test_any_evidence_gets_a_verdict_with_reasons(
    old: list[float],
    new: list[float],
    before: list[dict[str, int]] | None,
    after: list[dict[str, int]] | None,
) -> None:
    verdict = judge_stored(baseline(old, before), evidence(new, after))
    assert all(reason.code and reason.message for reason in verdict.reasons)
    assert "\n" not in verdict_document(verdict)["headline"]


def test_wall_rate_is_shown_and_never_gated() -> None:
    slower = evidence(scaled(QUIET, 2.0))
    old, new = read_measurement(baseline()), read_measurement(slower)
    (signal,) = wall_signals(old, new, slower)
    assert signal.decision == "not_gated"
    assert signal.change_pct == pytest.approx(-50.0, abs=0.1)
    assert wall_signals(None, new, slower)[0].change_pct is None
    shared = replace(
        slower, runs=tuple(replace(run, shares_core=run is slower.runs[0]) for run in slower.runs)
    )
    assert wall_signals(old, new, shared) == ()


def compare_counts(before: float | None, after: float | None) -> tuple[Signal, ...]:
    old, new = (
        evidence(metrics=() if value is None else (made.metric("instructions_per_token", value),))
        for value in (before, after)
    )
    return instruction_signals(old, new)


@pytest.mark.parametrize(
    ("before", "after", "change_pct", "words"),
    [
        (1e6, 1e6 + 40.0, 0.004, "unchanged to 0.01 %"),
        (1e6, 1e6 + 60.0, 0.006, "0.01 % more"),
        (4.895e6, 5.1397e6, 4.999, "5.00 % more"),
        (2.0, 1.0, -50.0, "50.00 % fewer"),
    ],
)
def test_instructions_are_shown_and_not_gated(
    before: float, after: float, change_pct: float, words: str
) -> None:
    (signal,) = compare_counts(before, after)
    assert (signal.baseline, signal.current) == (before, after)
    assert (signal.name, signal.unit) == ("instructions_per_token", "instructions")
    assert (signal.direction, signal.decision) == ("lower_is_better", "not_gated")
    assert signal.change_pct == pytest.approx(change_pct, abs=1e-3)
    (reason,) = signal.reasons
    assert reason.code == "I_INSTRUCTIONS"
    check_reasons(signal.reasons)
    assert reason.message.startswith(f"Instructions per token: {words}. This counts work, not time")
    # A count of one side is shown alone.
    assert compare_counts(before, None) == ()
    (alone,) = compare_counts(None, after)
    assert (alone.baseline, alone.current, alone.change_pct, alone.reasons) == (
        *(None, after, None, ()),
    )


SAME = "the same instructions, {} time: memory, caches or waiting"


@pytest.mark.parametrize(
    ("change_us", "before", "after", "words"),
    [
        (0.5, (1000, 4), (1019, 4), SAME.format("more")),
        (-30.0, (1000, 4), (981, 4), SAME.format("less")),
        (80.0, (1000, 0), (1980, 0), "98 % more instructions"),
        (80.0, (1000, 0), (1980, 4), "98 % more instructions"),
        (80.0, (1000, 4), (1026, 4), "3 % more instructions in the same calls"),
        (80.0, (1000, 4), (1980, 4), "98 % more instructions in the same calls"),
        (80.0, (1000, 4), (2000, 8), "called 2.0 times as often"),
        (
            80.0,
            (1000, 1),
            (3900, 3),
            "called 3.0 times as often, with 30 % more instructions a call",
        ),
        (-30.0, (1000, 4), (500, 4), "50 % fewer instructions in the same calls"),
        (-30.0, (1000, 4), (500, 2), "called 0.50 times as often"),
        (80.0, (1000, 100), (1500, 104), "50 % more instructions in the same calls"),
        (80.0, (0, 4), (500, 4), None),
        (80.0, (500, 4), (0, 0), None),
    ],
)
def test_instructions_and_calls_explain_what_a_function_costs(
    change_us: float, before: tuple[float, float], after: tuple[float, float], words: str | None
) -> None:
    costs = (
        verdicts.cost("norm", 100.0, 120.0, 30.0, 0.9, 0.02),
        verdicts.cost("gemv", 100.0, 100.0 + change_us, 9.0, 0.0001, 0.98),
        verdicts.cost("unseen", 100.0, 190.0, 9.0, 0.0001, 0.5),
    )
    sides = (
        {"gemv": NativeWork(*before), "norm": NativeWork(5.0, 1.0)},
        {"gemv": NativeWork(*after), "norm": NativeWork(9.0, 1.0)},
    )
    found = explain_costs(costs, sides)
    expected = [] if words is None else [("I_CAUSE", f"gemv: {words}.")]
    assert [(each.code, each.message) for each in found] == expected
    check_reasons(found)
    assert explain_costs(costs, None) == ()


@pytest.mark.parametrize("is_slower", [True, False])
def test_counts_explain_a_certain_change_alone(*, is_slower: bool) -> None:
    base, head = sides(shifted(0.2 if is_slower else 0.0))
    once, twice = (
        CallCounts(11, {}, {("(workload)", "gemv"): number}, {"gemv": "engine.py"})
        for number in (10, 20)
    )
    run = GatedRun(head, "OBSERVED", calls=(once, twice))
    verdict = judge(run, PairedBase(base), GatePolicy(Thresholds()))
    expected = CallChange("gemv", "engine.py", "decode", 1.0, 2.0, ("(workload)",))
    assert verdict.calls == ((expected,) if is_slower else ())


def count(decode: dict[str, int], **changes: Any) -> CallCounts:
    """Return calls of functions by the workload itself in the ten tokens after the first."""
    calls = {("(workload)", name): number for name, number in decode.items()}
    return replace(CallCounts(11, {}, calls, dict.fromkeys(decode, "engine.py")), **changes)


def judge_counted(limits: dict[str, str], *counted: CallCounts, shift: float = 0.0) -> Verdict:
    base, head = sides(shifted(shift))
    run = GatedRun(head, "OBSERVED", calls=(counted[0], counted[1]) if counted else None)
    policy = GatePolicy(parse_thresholds({"counts": limits}, ""))
    return judge(run, PairedBase(base), policy)


@pytest.mark.parametrize(
    ("limits", "before", "after", "is_over"),
    [
        ({"gemv": "0"}, 10, 11, True),
        ({"gemv": "0"}, 10, 10, False),
        ({"gemv": "0"}, 10, 9, False),
        ({"*": "+1"}, 10, 20, False),
        ({"*": "+1"}, 20, 31, True),
        ({"*": "+1", "gemv": "0"}, 10, 20, True),
        ({"*": "0", "gem*": "+1"}, 10, 20, False),
        ({"gemv": "+50%"}, 10, 15, False),
        ({"gemv": "+50%"}, 10, 16, True),
        ({"gemv": "+900%"}, 0, 1, True),
        ({"gemv": "+0.1"}, 0, 1, False),
    ],
)
def test_calls_beyond_their_declared_limit_fail(
    limits: dict[str, str], before: int, after: int, *, is_over: bool
) -> None:
    verdict = judge_counted(
        limits, count({"gemv": before, "norm": 3}), count({"gemv": after, "norm": 3})
    )
    assert verdict.verdict == ("regressed" if is_over else "pass")
    change_pct = pytest.approx(100.0 * (after / before - 1.0)) if before else None
    shown = [
        (each.name, each.decision, each.change_pct)
        for each in verdict.signals
        if each.unit == "calls/token"
    ]
    decision = "regressed" if is_over else "pass"
    assert shown == ([("calls:gemv", decision, change_pct)] if after > before else [])
    if is_over:
        words = f"gemv: {significant(before / 10)} → {significant(after / 10)} calls a token"
        assert headline(verdict).startswith(f"regressed: {words}; tokens/s ")
        assert codes(verdict)[0] == "E_CALLS_ROSE"
        assert verdict.reasons[0].message.startswith(f"{words}. ")
    else:
        assert "I_CALLS_COUNTED" in codes(verdict)
    check_reasons(verdict.reasons)


def test_limits_of_calls_are_shown_in_percent() -> None:
    before, after = count({"gemv": 10, "norm": 20}), count({"gemv": 12, "norm": 25})
    limits = {"gemv": "+50%", "norm": "+0.5"}
    found = judge_counted(limits, before, after)
    limited = [each for each in found.signals if each.unit == "calls/token"]
    assert {each.name: each.threshold_pct for each in limited} == pytest.approx(
        {"calls:gemv": 50.0, "calls:norm": 25.0}
    )


def test_limits_of_calls_are_never_passed_in_silence() -> None:
    one = count({"gemv": 10})
    answers: dict[str, list[tuple[CallCounts, ...]]] = {
        "E_CALLS_NOT_COUNTED": [(), (one, replace(one, tokens=0)), (one, replace(one, tokens=12))],
        "E_FUNCTION_UNKNOWN": [(count({"norm": 10}), count({"norm": 10}))],
        "E_CALLS_VARY": [(one, replace(one, varying=frozenset({"gemv"})))],
    }
    for code, cases in answers.items():
        for counted in cases:
            verdict = judge_counted({"gemv": "0"}, *counted)
            assert (verdict.verdict, code in codes(verdict)) == ("inconclusive", True)
            check_reasons(verdict.reasons)
    for counted, side in (
        ((replace(one, tokens=0), one), "base"),
        ((one, replace(one, tokens=0)), "head"),
    ):
        assert (
            f"The {side}'s interpreter" in judge_counted({"gemv": "0"}, *counted).reasons[0].message
        )
    # Under a pattern only what varies since the change.
    varying = replace(one, varying=frozenset({"gemv"}))
    assert "E_CALLS_VARY" in codes(judge_counted({"*": "0"}, one, varying))
    assert judge_counted({"*": "0"}, varying, varying).verdict == "pass"
    many = count({f"f{number}": 10 for number in range(300)})
    more = count({f"f{number}": 20 for number in range(300)})
    rose = judge_counted({"*": "0"}, many, more)
    assert len(rose.calls) == 200
    assert "; f101: 1.00 → 2.00 calls a token. And 295 more. See" in rose.reasons[0].message
    base, head = sides(shifted(0.0))
    policy = GatePolicy(parse_thresholds({"counts": {"gemv": "0"}}, ""))
    accepted = Baseline(Path(), replace(base, side=None), "machine")
    head = replace(head, side=None)
    stored = judge(GatedRun(head, "OBSERVED", calls=(one, one)), accepted, policy)
    assert "E_CALLS_NOT_COUNTED" in codes(stored)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_an_impossible_count_is_an_error(bad: float) -> None:
    for counts in ((bad, 1.0), (1.0, bad)):
        with undecided("E_IMPOSSIBLE_FIGURE: The number of instructions per token is "):
            compare_counts(*counts)


# --- notes ---------------------------------------------------------------------------------


def program(sha256: str, *, inside: bool = True) -> Program:
    return Program("bin/engine", sha256 * 64, 10, inside)


def notes(old: Evidence | None, new: Evidence) -> dict[str, str]:
    return {reason.code: reason.message for reason in find_notes(old, new)}


@pytest.mark.parametrize(
    ("at", "later", "words"),
    [
        (1, "9", "token 1 was 'b' in the first run and '9' in a later one"),
        (1, None, "token 1 was 'b' in the first run and missing, because it had ended, in a later"),
        (2, "c", "token 2 was missing, because it had ended, in the first run and 'c' in a later"),
        (0, "x" * 41, f"in the first run and '{'x' * 39}…' in a later"),
        (0, "x" * 40, f"in the first run and '{'x' * 40}' in a later"),
    ],
)
def test_the_first_token_that_differs_is_shown(at: int, later: str | None, words: str) -> None:
    found = replace(evidence(), tokens=("a", "b"), differs_at=at, differs_to=later)
    assert words in notes(None, found)["W_NOT_DETERMINISTIC"]
    several = replace(found, answers=(Answer(0, 2, "0" * 64), Answer(1, 3, "1" * 64)))
    assert f"token {at} was another one (" in notes(None, several)["W_NOT_DETERMINISTIC"]


def test_variables_that_were_not_as_requested_are_named() -> None:
    asked = {"A": "1", "B": "2", "C": "3"}
    plain = replace(evidence(), requested_environment=asked, program=program("1"))
    had = replace(plain, effective_environment={"A": "1", "B": "8", "Z": "0"})
    message = notes(None, had)["W_ENVIRONMENT"]
    assert "B was '8' and not '2', C was not set, and not '3'. A wrapper script" in message
    assert notes(None, plain) == notes(baseline(), replace(had, program=None)) == {}
    many = replace(had, requested_environment={f"V{i}": "1" for i in range(6)})
    assert "V3 was not set, and not '1' and 2 more. A" in notes(None, many)["W_ENVIRONMENT"]


def test_two_sides_of_one_program_are_reported() -> None:
    old = replace(baseline(), program=program("1"), side="base")
    new = replace(evidence(), program=program("1"), side="head")
    assert (
        "very same program, bin/engine (sha256 111111111111)" in notes(old, new)["W_SAME_PROGRAM"]
    )
    assert notes(old, replace(new, program=program("2"))) == {}
    assert notes(old, replace(new, program=program("1", inside=False))) == {}
    script = replace(program("1"), interpreter=ProgramFile("sh", "3" * 64, 10))
    assert notes(old, replace(new, program=script)) == {}
    assert notes(replace(old, side=None), replace(new, side=None)) == {}
