"""Pairs: their differences, the trimmed mean, phases, and when a decision is allowed."""

import math
import random
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.analyses import (
    FIRST_ANALYSES,
    InterimAnalysis,
    analyse,
    is_whole_open,
    last_analysis,
    pair_rates,
    plan_analyses,
)
from pytest_flamegate.gate.attempts import Attempt, attempt_of
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.gate.paired_rate import PairedBase, judge_paired_rate
from pytest_flamegate.gate.pairs import (
    PairDifference,
    are_cores_busy,
    describe_size_alone,
    find_busy_cores,
    find_disagreement,
    judge_whole,
    others_pct,
    pair_differences,
    phase_changes,
)
from pytest_flamegate.gate.rule import RateVerdict, log_time_of_drop
from pytest_flamegate.gate.statistics import Estimate, trimmed_mean
from pytest_flamegate.gate.verdict import headline
from pytest_flamegate.observe.observation import Block, Run
from pytest_flamegate.receipt.types import Evidence
from tests import made
from tests.gate.factory import (
    SPREAD,
    block,
    judge_paired,
    shifted,
    sides,
    undecided,
    with_blocks,
    with_clocks,
    with_threads,
)

TAU = log_time_of_drop(5.0)
RATES = pair_rates(FIRST_ANALYSES)
UNDECIDED = [0.2 * (-1) ** i + SPREAD[i % 10] for i in range(28)]


def decisions(values: list[float], *, ended: bool = False) -> list[str]:
    """The decision at each analysis: all but the last one are open."""
    asked: list[int] = []

    def estimate(pairs: int) -> Estimate:
        asked.append(pairs)
        return trimmed_mean(values[:pairs])

    last = analyse(estimate, len(values), TAU, FIRST_ANALYSES, ended=ended)
    assert (last.pairs if last else 0) == (asked[-1] if asked else 0)
    return ["inconclusive"] * len(asked[1:]) + ([last.verdict.decision] if last else [])


def with_gaps(side: Evidence, *gaps: int) -> Evidence:
    """The same side with sequences of these gaps in ns."""
    return with_blocks(side, lambda block: replace(block, sequences_ns=(gaps,)))


def test_a_pair_differs_by_the_mean_over_its_blocks() -> None:
    found = pair_differences(*sides(SPREAD))
    assert [pair.quiet for pair in found] == pytest.approx(SPREAD, abs=1e-6)
    assert [pair.cpu for pair in found] == pytest.approx(SPREAD, abs=1e-6)
    assert [pair.wall for pair in found] == pytest.approx(SPREAD, abs=1e-5)
    assert [pair.decode for pair in found] == pytest.approx(SPREAD, abs=1e-5)


def test_a_pair_differs_in_the_time_of_a_token() -> None:
    base, head = sides(SPREAD)
    twice = with_blocks(head, lambda block: replace(block, sequences_ns=block.sequences_ns * 2))
    for pair, spread in zip(pair_differences(base, twice), SPREAD, strict=True):
        assert (pair.quiet, pair.cpu, pair.wall) == pytest.approx(
            (spread - math.log(2.0),) * 3, abs=1e-5
        )


def test_pairs_come_in_their_order_and_other_roles_are_left_out() -> None:
    base, head = sides(SPREAD)
    head = replace(head, runs=(*head.runs[::-1], made.run("profiled", 9), made.run("bricks", 8)))
    found = pair_differences(base, head)
    assert [pair.quiet for pair in found] == pytest.approx(SPREAD, abs=1e-6)


def test_phases_are_the_first_gap_and_the_mean_of_the_others() -> None:
    base, head = sides(SPREAD)
    base, head = with_gaps(base, 1_000_000, 100_000, 300_000), with_gaps(head, 2_000_000, 100_000)
    found = pair_differences(base, head)
    assert [pair.prefill for pair in found] == pytest.approx([math.log(2.0)] * 10)
    assert [pair.decode for pair in found] == pytest.approx([math.log(0.5)] * 10)
    prefill, decode = phase_changes(base, head, found, RATES)
    assert (prefill.name, prefill.baseline_ms, prefill.current_ms) == ("prefill", 1.0, 2.0)
    assert (decode.name, decode.baseline_ms, decode.current_ms) == ("decode", 0.2, 0.1)
    assert (prefill.change_pct, decode.change_pct) == pytest.approx((-50.0, 100.0))
    assert prefill.certain


def test_the_interval_of_a_phase_errs_on_both_sides() -> None:
    base, head = sides(shifted(0.0, 6))
    differences = pair_differences(base, head)
    (_, decode) = phase_changes(base, head, differences, RATES)
    assert not decode.certain
    estimate = trimmed_mean([pair.decode or 0.0 for pair in differences])
    low, high = estimate.lower(RATES.alpha / 2), estimate.upper(RATES.alpha / 2)
    assert decode.ci_low_pct == pytest.approx(100 * math.expm1(-high))
    assert decode.ci_high_pct == pytest.approx(100 * math.expm1(-low))


def test_phases_need_every_pair_and_a_clock_of_sequences() -> None:
    base, head = sides(SPREAD)
    programs = (replace(side, clock_scope="process") for side in (base, head))
    found = pair_differences(*programs)
    assert {pair.prefill for pair in found} == {pair.decode for pair in found} == {None}
    assert phase_changes(base, head, found, RATES) == ()
    single = with_gaps(base, 1000), with_gaps(head, 1000)
    assert [phase.name for phase in phase_changes(*single, pair_differences(*single), RATES)] == [
        "prefill"
    ]
    one = pair_differences(*sides(SPREAD[:1]))
    assert phase_changes(base, head, one, RATES) == ()


BLOCK = block(1000.0)
NO_TIME = replace(BLOCK, interval=replace(BLOCK.interval, cpu_ns=0))


@pytest.mark.parametrize(
    "changes",
    [None, {"pair": None}, {"blocks": ()}, {"pair": 99}, {"blocks": (NO_TIME, NO_TIME)}],
    ids=str,
)
def test_sides_that_do_not_belong_together_are_an_error(changes: dict[str, Any] | None) -> None:
    base, head = sides(SPREAD)
    last = () if changes is None else (replace(head.runs[-1], **changes),)
    with undecided("E_UNPAIRED"):
        pair_differences(base, replace(head, runs=(*head.runs[:-1], *last)))


def test_the_sides_of_a_pair_share_one_core() -> None:
    base, head = sides(SPREAD)
    apart = [
        replace(side, runs=tuple(replace(run, cpu=cpu, shares_core=True) for run in side.runs))
        for side, cpu in ((base, 0), (head, 1))
    ]
    with undecided("E_UNPAIRED"):
        pair_differences(*apart)


@pytest.mark.parametrize(("most", "last"), [(1, 28), (39, 28), (40, 40), (84, 81)])
def test_analyses_are_planned_for_the_most_pairs(most: int, last: int) -> None:
    planned = plan_analyses(most)
    assert planned[:7] == FIRST_ANALYSES == (4, 6, 8, 10, 14, 20, 28)
    assert planned[-1] == last
    assert all(later > earlier for earlier, later in pairwise(planned))


def test_few_pairs_are_not_trimmed() -> None:
    plain = trimmed_mean([1.0, 2.0, 3.0, 4.0, 6.0, 8.0])
    assert plain.mean_diff == 4.0
    assert plain.df == 5.0
    # The plain standard error: variance 6.8 of six values.
    assert plain.standard_error == pytest.approx(math.sqrt(6.8 / 6))


def test_many_pairs_are_trimmed_by_yuen() -> None:
    trimmed = trimmed_mean([100.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0])
    assert (trimmed.mean_diff, trimmed.df) == (4.0, 4.0)
    # Winsorised: 2 2 3 4 5 6 6, a sum of squares of 18 around 4; divided by h (h - 1) = 20.
    assert trimmed.standard_error == pytest.approx(math.sqrt(18 / 20))
    # Neither its size nor its weight depends on how wild the one pair was.
    assert trimmed_mean([1e6, 2.0, 3.0, 4.0, 5.0, 6.0, -5.0]) == trimmed


def test_analyses_end_at_the_first_decision() -> None:
    assert decisions(shifted(0.0, 28)) == ["pass"]
    assert decisions(shifted(0.06, 28)) == ["regressed"]
    assert decisions(shifted(-0.06, 28)) == ["improved"]
    assert decisions(UNDECIDED) == ["inconclusive"] * 7


def test_pairs_after_the_decision_explain_a_change_and_decide_nothing() -> None:
    values = shifted(0.06, 6)
    base, head = sides([*values[:4], 0.9, -0.9])
    old, new = (read_measurement(side) for side in (base, head))
    judged = judge_paired_rate(PairedBase(base), head, old, new, Thresholds())
    assert (judged.signal.decision, judged.pairs) == ("regressed", 4)
    assert judged.cpu == trimmed_mean([pair.cpu for pair in pair_differences(base, head)])
    assert judged.cpu.df == 5


def test_a_slowdown_below_the_threshold_waits_for_pairs_that_may_let_it_pass() -> None:
    """About 3.5 % slower at first 4.5 %, noisy, 5 % allowed: only the last analysis may fail it."""
    noise = [0.0, 0.009, -0.009, 0.006, -0.006, 0.0]
    early = [0.045 + each for each in noise]
    assert decisions(early) == ["inconclusive"] * 2
    assert decisions(early, ended=True) == ["inconclusive", "regressed"]
    assert decisions([*early, *(0.03 + each for each in noise * 5)])[-1] == "pass"
    # A narrow interval that reaches the threshold is an answer, and so is an estimate above it.
    assert decisions([0.045 + each / 20 for each in noise])[-1] == "pass"
    assert decisions([0.0505 + each / 20 for each in noise])[-1] == "regressed"
    assert decisions([0.053 + each for each in noise])[-1] == "regressed"


def test_an_improvement_beyond_the_threshold_waits_until_it_is_certain() -> None:
    """Four noisy pairs show that head is not slower, and not yet that it is faster."""
    early = [-0.5, -1.2, -1.35, -0.7]
    assert decisions(early) == ["inconclusive"]
    assert decisions([*early, -1.05, -1.1]) == ["inconclusive", "improved"]
    # Time ends it: the last analysis spends what the plan had left, and judges by the rule alone.
    assert decisions(early, ended=True) == ["improved"]
    assert decisions([-0.10, -0.05, -0.04, -0.02], ended=True) == ["pass"]
    assert decisions([-0.045, -0.02, -0.04, -0.015]) == ["pass"]  # probably within the threshold


def test_nothing_is_analysed_between_the_planned_analyses_unless_it_is_the_end() -> None:
    assert decisions(UNDECIDED[:3]) == decisions(UNDECIDED[:3], ended=True) == []
    assert len(decisions(UNDECIDED[:7])) == 2
    assert len(decisions(UNDECIDED[:7], ended=True)) == 3
    assert len(decisions(UNDECIDED[:27], ended=True)) == 7
    assert len(decisions(UNDECIDED[:20], ended=True)) == 6
    assert len(decisions([*UNDECIDED, 0.0], ended=True)) == 7
    base, head = sides(UNDECIDED[:7])
    analyses = [last_analysis(base, head, 5.0, FIRST_ANALYSES, ended=end) for end in (False, True)]
    assert [analysis and analysis.pairs for analysis in analyses] == [6, 7]
    assert last_analysis(*sides(SPREAD[:3]), 5.0, FIRST_ANALYSES, ended=True) is None


def test_the_last_analysis_spends_what_the_plan_had_left() -> None:
    # A busy machine, whose time sufficed for four pairs of unchanged code.
    busy = [0.02, -0.02, -0.01, 0.014]
    assert decisions(busy) == ["inconclusive"]
    assert decisions(busy, ended=True) == ["pass"]
    rest = pair_rates((3, 5, 7, 10)).spend_rest(1)
    assert (rest.alpha, rest.beta) == pytest.approx((0.0075, 0.01125))
    # By its own part of the rates this slowdown of 3 % may reach the threshold of 5.
    assert decisions([0.026, 0.038, 0.030, 0.038], ended=True) == ["pass"]
    assert decisions([0.000, 0.080, 0.030, 0.060], ended=True) == ["inconclusive"]


@pytest.mark.parametrize(
    ("shift", "wrong", "most"), [(0.0, "regressed", 0.01), (TAU, "pass", 0.015)]
)
def test_errors_stay_rare_if_time_ends_the_comparison_early(
    shift: float, wrong: str, most: float
) -> None:
    drawn, times = random.Random(7), 3000
    found = Counter(
        decisions([drawn.gauss(shift, 0.02) for _ in range(6)], ended=True)[-1]
        for _ in range(times)
    )
    # Three standard errors above the rate that is allowed; a rule that spent all of it at each of
    # the three analyses would err twice as often.
    assert found[wrong] <= times * most + 3 * math.sqrt(times * most)


@pytest.mark.parametrize(
    ("decision", "wall", "cpu", "shared", "clock"),
    [
        ("improved", 0.15, -0.5, True, "wall"),
        ("improved", -0.3, 0.2, True, "CPU"),
        ("improved", -0.3, 0.2, False, ""),  # several threads may use more CPU time and be faster
        ("pass", 0.004, 0.0, True, ""),
        ("regressed", 0.15, 0.2, True, ""),
    ],
)
def test_clocks_that_disagree_are_named(
    decision: Any, wall: float, cpu: float, shared: bool, clock: str
) -> None:
    quiet = RateVerdict(decision, -0.02, 0.01, slower=False, faster=False, detectable=0.02)
    noise = (-0.001, 0.0, 0.001, 0.002, -0.002)
    found = [PairDifference(0.0, cpu + each, wall + each, None, None) for each in noise]
    _, head = sides(SPREAD)
    timed = (replace(run, shares_core=shared) for run in head.runs)
    head = replace(head, runs=(*timed, made.run("profiled", 9)))
    reasons = find_disagreement(found, quiet, RATES, head)
    assert [reason.code for reason in reasons] == ["E_CLOCK_CONFLICT"] * bool(clock)
    assert all(f"The {clock} clock shows head at least" in reason.message for reason in reasons)


@pytest.mark.parametrize(
    ("whole", "shared", "is_doubted"),
    [
        ([-0.05] * 5, True, False),
        ([-0.2, 0.15, -0.2, 0.15, -0.2], True, True),  # not certainly faster
        ([0.05] * 5, True, True),
        ([-0.05] * 5, False, True),
        ([None] * 5, True, True),
    ],
)
def test_a_program_that_starts_faster_may_decode_beside_the_other_ones_start(
    whole: list[float | None], shared: bool, is_doubted: bool
) -> None:
    quiet = RateVerdict("pass", -0.02, 0.01, slower=False, faster=False, detectable=0.02)
    found = [
        PairDifference(0.0, 0.0, 0.2 + each, None, None, whole_wall=of_pair)
        for each, of_pair in zip((-0.001, 0.0, 0.001, 0.002, -0.002), whole, strict=True)
    ]
    _, head = sides(SPREAD)
    head = replace(head, runs=tuple(replace(run, shares_core=shared) for run in head.runs))
    assert bool(find_disagreement(found, quiet, RATES, head)) == is_doubted


@pytest.mark.parametrize("clock", ["whole_cpu", "whole_quiet"])
@pytest.mark.parametrize(
    ("whole", "decision", "how", "doubted"),
    [
        (0.11, "pass", "shares", {"whole_cpu", "whole_quiet"}),
        (0.11, "improved", "shares", {"whole_cpu", "whole_quiet"}),
        (0.11, "regressed", "shares", ()),
        # Several threads may use more CPU time and be faster.
        (0.11, "improved", "threads", ()),
        # One that mostly waits may compute a little more.
        (0.11, "pass", "waits", {"whole_quiet"}),
        (0.045, "pass", "shares", ()),
        (None, "pass", "shares", ()),
    ],
)
def test_a_program_that_works_more_outside_of_its_decode_does_not_pass(
    whole: float | None, decision: Any, how: str, doubted: Collection[str], clock: str
) -> None:
    quiet = RateVerdict(decision, -0.02, 0.01, slower=False, faster=False, detectable=0.02)
    even = PairDifference(0.0, 0.0, 0.0, None, None, 0.0, 0.0)
    found = [
        replace(even, **{clock: None if whole is None else whole + each})
        for each in (-0.001, 0.0, 0.001, 0.002, -0.002)
    ]
    _, head = sides(SPREAD)
    place = {"shares_core": how == "shares", "cpu": None if how == "threads" else 0}
    runs = (replace(run, threads=1 + (how == "threads"), **place) for run in head.runs)
    head = replace(head, runs=tuple(runs))
    reason = judge_whole(found, len(found), quiet, head, threshold=0.05)
    assert (reason and reason.code) == ("E_WHOLE_SLOWER" if clock in doubted else None)


def test_a_program_may_sleep_a_little_outside_of_its_decode_and_not_work_more() -> None:
    quiet = RateVerdict("pass", -0.02, 0.01, slower=False, faster=False, detectable=0.02)
    _, head = sides(SPREAD)
    head = replace(head, runs=tuple(replace(run, shares_core=True) for run in head.runs))
    for clock, is_doubted in (("whole_cpu", True), ("whole_quiet", False)):
        even = PairDifference(0.0, 0.0, 0.0, None, None, 0.0, 0.0)
        found = [replace(even, **{clock: 0.08 + each}) for each in (-0.001, 0.0, 0.001, 0.002)]
        reason = judge_whole(found, len(found), quiet, head, threshold=0.05)
        assert bool(reason) == is_doubted


def programs(longer: Sequence[float], decode: Sequence[float] = ()) -> tuple[Evidence, Evidence]:
    """Two sides with an equal decode, of which head takes longer from its start to its end."""

    def with_start(each: Block, by: float) -> Block:
        ns = round(each.interval.wall_ns * 4 * math.exp(by))
        return replace(
            each, interval=Interval(ns, ns, 0), decode=each.interval, decode_tokens=each.tokens
        )

    def program(side: Evidence, longer: Sequence[float]) -> Evidence:
        runs = [
            replace(
                run,
                blocks=tuple(with_start(each, by) for each in run.blocks),
                shares_core=True,
                cpu=0,
            )
            for run, by in zip(side.runs, longer, strict=True)
        ]
        return replace(side, runs=tuple(runs), clock_scope="process")

    decode = decode or shifted(0.0, len(longer))
    base, head = sides(decode)
    longer = [by - already for by, already in zip(longer, decode, strict=True)]
    return program(base, [0.0] * len(longer)), program(head, longer)


def test_the_size_alone_is_of_the_same_part_of_both_programs() -> None:
    base, head = programs([0.2] * 6, [0.2] * 6)
    assert str(describe_size_alone(base, head)).startswith(
        "Alone, one side after the other: 18.1 %"
    )
    runs = [
        replace(run, blocks=tuple(replace(block, decode=None) for block in run.blocks))
        for run in head.runs
    ]
    assert describe_size_alone(base, replace(head, runs=tuple(runs))) is None


def around(change: float, noise: float, pairs: int = 6) -> list[float]:
    """Changes of which every other one is as much above as the rest is below."""
    return [change + noise * (-1) ** number for number in range(pairs)]


def four(t: float) -> list[float]:
    """Four changes that exceed the threshold by ``t`` standard errors."""
    error = 0.01 * math.sqrt(5.0 / 3.0) / 2.0
    return [TAU + t * error + 0.01 * each for each in (-1.5, -0.5, 0.5, 1.5)]


@pytest.mark.parametrize(
    ("longer", "decision", "code", "is_open"),
    [
        (around(0.4, 0.01), "pass", "E_WHOLE_SLOWER", False),
        (around(0.4, 0.01), "improved", "E_WHOLE_SLOWER", False),
        (around(0.4, 0.3), "pass", "W_WHOLE_UNCERTAIN", True),
        (around(0.04, 0.3), "pass", None, False),
        (around(0.4, 0.3), "regressed", None, False),
        # Each look errs with 0.25 % for each of two clocks: t = 7.45 for four pairs.
        (four(8.0), "pass", "E_WHOLE_SLOWER", False),
        (four(7.0), "pass", "W_WHOLE_UNCERTAIN", True),
        # What the first look is certain of no further pair takes back.
        ([0.30, 0.31, 0.30, 0.29, 0.05, 0.75], "improved", "E_WHOLE_SLOWER", False),
        # Pairs that explain a change can make it open, and leave the last look to come.
        ([0.01, 0.06, 0.02, 0.06, 0.4, 0.5], "improved", "W_WHOLE_UNCERTAIN", True),
        ([0.2, 0.4, 0.1, 0.5, *around(0.3, 0.01, 8)], "pass", "E_WHOLE_SLOWER", True),
    ],
)
def test_the_whole_is_looked_at_when_the_rate_is_decided_and_at_the_end(
    longer: list[float], decision: Any, code: str | None, is_open: bool
) -> None:
    verdict = RateVerdict(decision, -0.02, 0.01, slower=False, faster=False, detectable=0.02)
    base, head = programs(longer)
    analysis = InterimAnalysis(4, Estimate(0.0, 0.001, 3.0), verdict)
    assert is_whole_open(base, head, analysis, 5.0) == is_open
    reason = judge_whole(pair_differences(base, head), 4, verdict, head, TAU)
    assert (reason and reason.code) == code


@pytest.mark.parametrize(
    ("cpu", "quiet", "said"),
    [
        (0.3, 0.0, "By its CPU time from start to end the program is 25.9 % slower in 6 pairs, "
         "and not certainly by more than 5.0 %."),
        (0.0, 0.3, "By its quiet clock from start to end the program is 25.9 % slower in 6 pairs, "
         "and not certainly by more than 9.1 %."),
        (0.3, 0.3, "By its CPU time from start to end the program is 25.9 % slower"),
    ],
)  # fmt: skip
def test_an_uncertain_whole_names_its_clock_and_what_it_may_be(
    cpu: float, quiet: float, said: str
) -> None:
    verdict = RateVerdict("pass", -0.02, 0.01, slower=False, faster=False, detectable=0.02)
    _, head = programs([0.0] * 6)
    noise = around(0.0, 0.3)
    found = [PairDifference(0, 0, 0, None, None, cpu + each, quiet + each) for each in noise]
    reason = judge_whole(found, 4, verdict, head, TAU)
    assert reason is not None
    assert reason.message.startswith(said)
    certain = [replace(each, whole_quiet=0.3) for each in found]
    slower = judge_whole(certain, 4, verdict, head, TAU)
    assert slower is not None
    assert slower.code == "E_WHOLE_SLOWER"
    assert slower.message.startswith("By its quiet clock")


def test_an_uncertain_whole_passes_with_a_warning() -> None:
    found = judge_paired(*programs(around(0.4, 0.3)))
    (warning,) = found.warnings
    assert (found.verdict, warning.code) == ("pass", "W_WHOLE_UNCERTAIN")


def test_pairs_that_were_added_for_the_whole_decide_about_it_and_not_about_the_rate() -> None:
    longer = around(0.4, 0.2, 10)
    few_judged, judged = judge_paired(*programs(longer[:4])), judge_paired(*programs(longer))
    assert (few_judged.verdict, judged.verdict) == ("pass", "inconclusive")
    assert judged.pairs == few_judged.pairs
    assert "E_WHOLE_SLOWER" in {reason.code for reason in judged.reasons}


def test_attempts_that_pass_together_are_compared_as_a_whole() -> None:
    """Each alone is undecided, so that its whole was of no interest."""
    wide = around(0.0, 0.12, 28)
    wide[0] += 0.001
    base, head = programs(around(0.4, 0.01, 28), wide)
    alone = judge_paired(base, head)
    assert "E_NOISE" in {reason.code for reason in alone.reasons}
    earlier = Attempt("2026", "inconclusive", "inconclusive", tuple(wide) * 20, 1000.0)
    again = judge_paired(base, head, earlier=(earlier,))
    assert "E_WHOLE_SLOWER" in {reason.code for reason in again.reasons}


def test_another_attempt_does_not_answer_a_whole_that_was_slower() -> None:
    base, head = programs(around(0.4, 0.01))
    slower = attempt_of(judge_paired(base, head), base, head)
    assert slower.others_regressed
    again = judge_paired(*programs(around(0.0, 0.01)), earlier=(slower,))
    assert again.verdict == "inconclusive"
    assert "E_EARLIER_ATTEMPT" in {reason.code for reason in again.reasons}


@pytest.mark.parametrize(
    ("delayed", "difference", "verdict"),
    [(0.04, 0.0, "pass"), (0.04, 0.3, "regressed"), (0.06, 0.0, "inconclusive"),
     (0.06, 0.3, "inconclusive")],
)  # fmt: skip
def test_threads_that_wait_for_a_cpu_leave_it_open_how_they_share_their_work(
    delayed: float, difference: float, verdict: str
) -> None:
    base, head = sides(shifted(difference, 10))
    # The work of the base is done by two threads at a time, the head's by one.
    base = with_threads(base, 1.0 + difference, delayed)
    head = with_threads(head, 1.0, delayed)
    found = judge_paired(base, head)
    assert found.verdict == verdict
    assert found.pair_method == "one after the other"
    busy = [each for each in found.reasons if each.code == "E_CORES_BUSY"]
    assert bool(busy) == (verdict == "inconclusive")
    assert all(
        "waited for a CPU 6 % of the time, and with more than 5 %" in each.message for each in busy
    )
    assert ("free core" in headline(found)) == bool(busy)


@pytest.mark.parametrize(("threads", "is_busy"), [(1, False), (2, True), (8, True)])
def test_only_several_threads_need_their_cores_at_the_same_time(
    threads: int, *, is_busy: bool
) -> None:
    base, head = (with_threads(side, 1.0, 0.9) for side in sides(SPREAD))
    head = replace(head, workload={**head.workload, "threads": threads})
    found = find_busy_cores(base, head)
    assert [each.code for each in found] == ["E_CORES_BUSY"] * is_busy
    assert all(" 47 % of the time" in each.message for each in found)


@pytest.mark.parametrize(
    ("delayed", "certain"),
    [((0.06, 0.06, 0.06), True), ((0.04, 0.04, 0.04), False), ((0.2, 0.5, 0.3), False),
     ((0.2, 0.5, 0.3, 0.4, 0.4), True), ((0.5, 0.5, 0.5, 0.0, 0.0), False)],
)  # fmt: skip
def test_waiting_is_certain_if_the_lower_bound_over_pairs_is_above_the_limit(
    delayed: tuple[float, ...], certain: bool
) -> None:
    """Waiting time, in parts of the time that a pair would take alone."""
    pairs = [with_threads(side, 1.0, 0.0) for side in sides(shifted(0.0, len(delayed)))]

    def wait(run: Run) -> Run:
        part = delayed[run.pair or 0]
        return next(each for each in with_threads(replace(pairs[0], runs=(run,)), 1.0, part).runs)

    base, head = (replace(side, runs=tuple(map(wait, side.runs))) for side in pairs)
    assert are_cores_busy(base, head, certainly=True) == certain
    assert are_cores_busy(base, head) == (delayed != (0.04, 0.04, 0.04))


def test_an_open_answer_says_how_much_of_the_core_other_programs_had() -> None:
    def delayed(clock: Interval) -> Interval:
        return Interval(10 * clock.cpu_ns, clock.cpu_ns, 9 * clock.cpu_ns)

    values = [0.10, -0.08, 0.06, -0.08]
    base, head = (with_clocks(side, delayed, shares_core=True) for side in sides(values))
    assert others_pct(base, head) == pytest.approx(80.0)
    text = headline(judge_paired(base, head))
    assert "after 4 pairs; other programs had 80 % of the core; could have seen" in text
    assert "measure again when less runs beside it, or give it more time" in text
    assert others_pct(*sides(values)) is None


def test_phases_leave_out_the_time_of_the_other_side() -> None:
    """Half of head's wall time was the base's: its phases took no longer, only its wall clock."""

    def in_turn(block: Block) -> Block:
        wall_ns = block.interval.wall_ns
        return replace(
            block,
            interval=replace(block.interval, wall_ns=2 * wall_ns, run_delay_ns=wall_ns),
            sequences_ns=tuple(tuple(2 * gap for gap in gaps) for gaps in block.sequences_ns),
        )

    base, head = sides(shifted(0.0))
    (pair, *_) = pair_differences(base, with_blocks(head, in_turn, shares_core=True))
    assert (pair.quiet, pair.prefill, pair.decode) == pytest.approx((0.0, 0.0, 0.0), abs=0.01)
    assert pair.wall == pytest.approx(math.log(2.0), abs=0.01)


def test_work_hidden_from_the_quiet_clock_is_no_improvement() -> None:
    base, head = sides([each - 0.3 for each in SPREAD])

    def delayed(clock: Interval) -> Interval:
        return replace(clock, wall_ns=3 * clock.wall_ns, run_delay_ns=2 * clock.wall_ns)

    head = replace(head, runs=(*head.runs, made.run("profiled", 9)))
    found = judge_paired(base, with_clocks(head, delayed, shares_core=True, cpu=0))
    assert (found.verdict, found.reasons[0].code) == ("inconclusive", "E_CLOCK_CONFLICT")
    assert found.pair_method == "shared core"
    assert judge_paired(base, head).verdict == "improved"
