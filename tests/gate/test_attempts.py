"""Several attempts at one comparison: their e-values, and the answer that they give together."""

import math
from dataclasses import replace
from random import Random

import pytest

from pytest_flamegate.gate.analyses import pair_rates
from pytest_flamegate.gate.attempts import (
    LATER_ERROR_RATE,
    Attempt,
    attempt_of,
    decide_together,
    find_open_attempts,
    log_e_value,
    pool_attempts,
)
from pytest_flamegate.gate.rule import RateDecision, log_time_of_drop
from pytest_flamegate.gate.statistics import Estimate, trimmed_mean
from pytest_flamegate.gate.verdict import Verdict
from tests.gate.factory import PROFILE, codes, judge_paired, moved, shifted, sides, with_threads

THRESHOLD = log_time_of_drop(5.0)
RATES = pair_rates((3, 5, 7))
NOISE = (-0.004, 0.003, 0.001, -0.002, 0.002)


def attempt(number: int, decision: RateDecision, slower: float, count: int = 5) -> Attempt:
    pairs = tuple(slower + NOISE[each % 5] + each / 1e5 for each in range(count))
    return Attempt(f"2026-11-23T09:0{number}:00.000Z", decision, decision, pairs)


RED = ("regressed", 0.06)
GREEN = ("pass", 0.0)
OPEN = ("inconclusive", 0.03)


@pytest.mark.parametrize(
    ("found", "decision"),
    [
        ((RED, GREEN), "regressed"),
        ((GREEN, RED), "pass"),
        ((RED, GREEN, GREEN, GREEN, GREEN), "pass"),
        ((GREEN, RED, RED, RED, RED), "regressed"),
        ((OPEN, GREEN, GREEN), "pass"),
        ((OPEN, RED), "regressed"),
        ((("inconclusive", -0.06), ("improved", -0.06)), "improved"),
        ((("inconclusive", 0.0), ("improved", -0.08)), "pass"),
        ((("improved", -0.08), GREEN), "pass"),
        # The first alone would pass by its e-value, but it did not, and both together do not.
        ((("inconclusive", 0.0), ("regressed", 0.052)), "inconclusive"),
        # 3 % slower, of 5 % that are allowed: certainly a change, and certainly a small one.
        ((("inconclusive", 0.03), ("pass", 0.03), ("pass", 0.03)), "pass"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(each[0] for each in value),
)
def test_the_first_answer_stands_until_all_attempts_contradict_it(
    found: tuple[tuple[RateDecision, float], ...], decision: str
) -> None:
    attempts = [attempt(number, *each) for number, each in enumerate(found)]
    pooled = pool_attempts(attempts, THRESHOLD, RATES)
    assert pooled is not None
    assert pooled.verdict.decision == decision
    assert f"{len(found)} attempts" in pooled.reason.message
    assert pooled.pairs == 5 * len(found)
    # The bounds agree with the decision: slower than nothing, or less than the threshold.
    low, high = pooled.verdict.low, pooled.verdict.high
    assert low < pooled.change < high
    assert {
        "pass": high < THRESHOLD,
        "improved": high < 0.0 and low < -THRESHOLD,
        "regressed": low > 0.0,
        "inconclusive": low < 0.0 and high > THRESHOLD,
    }[pooled.verdict.decision]
    assert (pooled.verdict.slower, pooled.verdict.faster) == (low > 0.0, high < 0.0)
    # Their own dates mean nothing: they are part of the upload.
    dated = [replace(each, created=f"{9 - at}") for at, each in enumerate(attempts)]
    assert pool_attempts(dated, THRESHOLD, RATES) == pooled


def test_little_evidence_settles_nothing() -> None:
    few = [attempt(number, "inconclusive", 0.03, count=2) for number in range(2)]
    pooled = pool_attempts(few, THRESHOLD, RATES)
    assert pooled is not None
    assert pooled.verdict.decision == "inconclusive"
    assert "do not settle it yet" in pooled.reason.message
    wide = [replace(each, differences=(-1.0, 1.0)) for each in few]
    pooled = pool_attempts(wide, THRESHOLD, RATES)
    assert pooled is not None
    # A factor of 20 either way is as good as unknown.
    assert (pooled.verdict.low, pooled.verdict.high) == pytest.approx((-3.0, 3.0))
    assert pool_attempts([few[0], Attempt("2026", "error")], THRESHOLD, RATES) is None


def test_a_product_of_a_thousand_contradicts_an_answer() -> None:
    found = set()
    first = Attempt("1", "inconclusive", "inconclusive", tuple(0.03 + 3 * each for each in NOISE))
    for number in range(-400, 1000):
        pairs = tuple(number * 1e-4 + 3 * each for each in NOISE)
        attempts = [first, Attempt("2", "improved", "improved", pairs)]
        changes = [trimmed_mean(each.differences) for each in attempts]
        mirrored = [replace(each, mean_diff=THRESHOLD - each.mean_diff) for each in changes]
        slower, allowed = (sum(map(log_e_value, each)) for each in (changes, mirrored))
        expected: RateDecision = "inconclusive"
        if max(slower, allowed) >= math.log(1000.0):
            expected = "pass" if allowed >= math.log(1000.0) else "regressed"
        assert decide_together(attempts, THRESHOLD) == (expected, 2)
        answered = [replace(first, decision="improved"), attempts[1]]
        contradicted = ("improved", 1) if expected == "inconclusive" else (expected, 2)
        assert decide_together(answered, THRESHOLD) == contradicted
        found.add(expected)
    assert found == {"pass", "inconclusive", "regressed"}


def test_every_pair_of_several_attempts_counts_alike() -> None:
    few = replace(attempt(0, "inconclusive", 0.03, count=2), base_rate=1000.0)
    many = replace(attempt(1, "inconclusive", 0.03, count=3), base_rate=2000.0)
    pooled = pool_attempts([few, many], THRESHOLD, RATES)
    assert pooled is not None
    assert pooled.base_rate == pytest.approx(1000.0 * 2.0 ** (3 / 5))
    assert (pooled.pairs, pooled.verdict.decision) == (5, "inconclusive")
    # As wide as the interval, because that of all pairs together is narrower.
    assert pooled.verdict.detectable == pytest.approx(pooled.verdict.high - pooled.change)


def test_an_e_value_is_the_mean_of_three_bayes_factors() -> None:
    """Five pairs with t = 2, by the formula of the t test with effects of these variances."""
    wider = [1.0 + 5.0 * variance for variance in (1.0, 5.0, 25.0)]
    factors = [math.sqrt((2.0 / (1.0 + 1.0 / each)) ** 5 / each) for each in wider]
    assert log_e_value(Estimate(2.0, 1.0, 4.0)) == pytest.approx(math.log(sum(factors) / 3))


def test_an_e_value_is_at_most_one_on_average_and_grows_with_the_evidence() -> None:
    random = Random(7)
    for count in (3, 7, 28):
        drawn = [[random.gauss(0.0, 1.0) for _ in range(count)] for _ in range(5_000)]
        values = [math.exp(log_e_value(trimmed_mean(each))) for each in drawn]
        assert sum(values) / len(values) < 1.1
        assert sum(value >= 20.0 for value in values) / len(values) < 1 / 20
    means = [log_e_value(Estimate(each, 1.0, 9.0)) for each in (-3.0, 0.0, 1.0, 3.0, 9.0)]
    assert means[0] == means[1] < means[2] < 0.0 < means[3] < means[4]
    assert log_e_value(Estimate(1.0, 0.0, 2.0)) == pytest.approx(math.log(33.0), abs=0.3)
    assert log_e_value(Estimate(0.0, 0.0, 2.0)) == log_e_value(Estimate(-1.0, 0.0, 2.0)) < 0.0
    assert math.isfinite(log_e_value(Estimate(1.0, 1e-300, 400.0)))


def test_attempts_that_stop_when_they_like_the_answer_gain_nothing() -> None:
    """800 unchanged heads with six attempts each, which stop once they look slow.

    At most 0.1 % of such heads may ever be called slower; a slow head that looks unchanged is the
    same case with the other sign.
    """
    random, wrong = Random(11), 0
    for _ in range(800):
        total = 0.0
        for _ in range(6):
            values: list[float] = []
            while len(values) < 3 or (len(values) < 10 and trimmed_mean(values).mean_diff < 0.02):
                values.append(random.gauss(0.0, 0.03))
            total += log_e_value(trimmed_mean(values))
            wrong += total >= -math.log(LATER_ERROR_RATE)
    assert wrong == 0


def test_the_figures_are_those_of_the_attempts_that_decide() -> None:
    base, head = sides(shifted(0.08, 6))
    red = replace(attempt_of(judge_paired(base, head), base, head), base_rate=2000.0)
    assert (red.verdict, red.decision, len(red.differences)) == ("regressed", "regressed", 4)
    base, head = sides(shifted(0.0))
    green = attempt_of(judge_paired(base, head), base, head)
    assert green.decision == "pass"
    doubtful = replace(judge_paired(base, head), pairs=None)
    assert attempt_of(doubtful, base, head).differences == ()
    both = judge_paired(base, head, earlier=(red,))
    rate, message = both.signal(), find_message(both, "I_ATTEMPTS")
    assert rate is not None
    assert both.verdict == rate.decision == "regressed"
    assert rate.baseline == pytest.approx(2000.0)
    assert both.pairs == 8
    assert rate.ci_high_pct is not None
    assert rate.change_pct is not None
    assert -8.5 < rate.change_pct < -7.0 < rate.ci_high_pct < 0.0
    assert rate.current == pytest.approx(2000.0 * (1.0 + rate.change_pct / 100.0))
    assert "the answer of the first stands" in message
    assert "% slower …" in message
    assert "those of the first attempt" in message
    # Its functions are explained by its own pairs, which show no change.
    assert both.explained_by == ()
    assert not any(each.explains for each in both.attribution)
    many = [replace(green, created=f"2026-11-23T09:0{each}:00.000Z") for each in range(5)]
    passed = judge_paired(base, head, earlier=(replace(red, created="2026"), *many))
    rate = passed.signal()
    assert rate is not None
    assert passed.verdict == "pass"
    assert rate.baseline is not None
    assert 1000.0 < rate.baseline < 2000.0
    assert rate.ci_low_pct is not None
    assert -5.0 < rate.ci_low_pct < (rate.change_pct or 0.0) < 1.0
    assert "7 attempts together" in find_message(passed, "I_ATTEMPTS")


def find_message(verdict: Verdict, code: str) -> str:
    return next(each.message for each in verdict.reasons if each.code == code)


def test_pairs_whose_clock_is_in_doubt_are_pooled_with_no_others() -> None:
    base, head = (with_threads(side, 1.0, delayed=0.06) for side in sides(shifted(0.0)))
    assert codes(judge_paired(base, head))[0] == "E_CORES_BUSY"
    green = attempt(1, "pass", 0.0)
    once = judge_paired(base, head, earlier=(green,))
    assert once.verdict == "inconclusive"
    assert "I_ATTEMPTS" not in codes(once)
    twice = judge_paired(base, head, earlier=(green, attempt(2, "pass", 0.0)))
    assert (twice.verdict, twice.pairs) == ("inconclusive", 2 * 5)
    assert "by itself: pass, pass, inconclusive;" in find_message(twice, "I_ATTEMPTS")


def test_an_attempt_that_regressed_in_shares_is_answered_by_no_other() -> None:
    hot = moved(PROFILE, "attention", 120, "gemv")
    base, head = sides(shifted(0.08), head_profile=hot)
    # Red in its rate and in a share.
    red = attempt_of(judge_paired(base, head, share_drift="strict"), base, head)
    assert (red.decision, red.others_regressed) == ("regressed", True)
    base, head = sides(shifted(0.0))
    assert not attempt_of(judge_paired(base, head), base, head).others_regressed
    pairs = tuple(shifted(0.0, 5))
    greens = [Attempt(f"2026-01-0{each}", "pass", "pass", pairs) for each in range(1, 7)]
    earlier = (replace(red, created="2026-01-01T00:00:00.000Z"), *greens)
    verdict = judge_paired(base, head, earlier=earlier)
    assert (verdict.verdict, verdict.reasons[0].code) == ("inconclusive", "E_EARLIER_ATTEMPT")
    assert find_open_attempts([attempt(0, "regressed", 0.06), attempt(1, "pass", 0.0)]) == ()
    unread = [Attempt("2026", "error", problem=problem) for problem in ("", "cut off", "forged")]
    (reason,) = find_open_attempts(unread)
    assert reason.message.endswith(" may have regressed: cut off")
    only = replace(red, verdict="regressed", decision="inconclusive", differences=())
    base, head = sides(shifted(0.08))
    assert judge_paired(base, head, earlier=(only,)).verdict == "regressed"
