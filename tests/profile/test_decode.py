"""Decode alone: what is left of long sequences when short ones are taken away, and its error."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from statistics import mean, stdev

import pytest

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.decode import (
    NO_STACK,
    PHI,
    DecodeCost,
    DecodeProfile,
    SequenceProfile,
    subtract_prefill,
)
from pytest_flamegate.profile.folded import fold_profile, parse_folded
from pytest_flamegate.profile.model import Frame, Stack
from tests.profile.profiles import profile, python

MAIN, PREFILL, DECODE, GEMV = (python(name) for name in ("main", "prefill", "decode", "gemv"))
IN_PREFILL: Stack = (MAIN, PREFILL, GEMV)
IN_DECODE: Stack = (MAIN, DECODE, GEMV)
ITSELF: Stack = (MAIN, DECODE)


def sequences(
    stacks: dict[Stack, int], tokens: int, cpu_s: float, error_s: float = 0.0
) -> SequenceProfile:
    return SequenceProfile(profile(stacks), tokens, cpu_s, error_s, 5)


# A prefill of 0.6 s, and 11 tokens of 0.04 s, a quarter of them outside of gemv.
LONG = sequences({IN_PREFILL: 6000, IN_DECODE: 3300, ITSELF: 1100}, 11, 1.04)
SHORT = sequences({IN_PREFILL: 600, IN_DECODE: 30, ITSELF: 10}, 1, 0.64)


def row(of: DecodeProfile, name: str) -> DecodeCost:
    (found,) = [each for each in of.rows if each.name == name]
    return found


def test_what_both_begin_with_is_gone() -> None:
    found = subtract_prefill(LONG, SHORT)
    assert found.cpu_s_per_token == pytest.approx(0.04)
    assert row(found, "gemv").self_s == pytest.approx(0.03)
    assert row(found, "decode").self_s == pytest.approx(0.01)
    assert row(found, "decode").inclusive_s == pytest.approx(0.04)
    assert row(found, "main").inclusive_s == pytest.approx(0.04)
    assert row(found, "prefill").inclusive_s == pytest.approx(0.0, abs=1e-12)
    assert [each.name for each in found.rows[:2]] == ["gemv", "decode"]
    assert found.prefill_share == pytest.approx(0.64 / 1.04)
    assert (found.tokens, found.samples) == ((11, 1), (10_400, 640))


def test_shares_before_and_after() -> None:
    gemv = row(subtract_prefill(LONG, SHORT), "gemv")
    assert gemv.sampled_share == pytest.approx(9300 / 10_400)
    assert gemv.decode_share == pytest.approx(0.75)


def test_rows_add_up_to_decode_whatever_was_sampled() -> None:
    random = Random(4)
    for _ in range(50):
        stacks: list[dict[Stack, int]] = [
            {
                (): random.randrange(5),
                **{
                    tuple(python(random.choice("abcdef")) for _ in range(3)): random.randrange(40)
                    for _ in range(12)
                },
                (MAIN,): 1,
            }
            for _ in range(2)
        ]
        found = subtract_prefill(sequences(stacks[0], 9, 2.0), sequences(stacks[1], 2, 0.5))
        assert sum(each.self_s for each in found.rows) == pytest.approx(1.5 / 7, rel=1e-12)
        assert sum(each.decode_share for each in found.rows) == pytest.approx(1.0)


def test_the_picture_has_no_negative_width_and_says_what_it_left_out() -> None:
    new = (MAIN, Frame("late", "engine.py", "python"))
    long = sequences({**LONG.profile.stacks, IN_PREFILL: 5900, new: 100}, 11, 1.04)
    found = subtract_prefill(long, SHORT)
    stacks = found.profile.stacks
    # Prefill came out a little too small: 0.59 - 0.6 s over 10 tokens.
    assert IN_PREFILL not in stacks
    assert found.clipped_s_per_token == pytest.approx(0.001)
    assert stacks[new] == 1_000_000
    assert stacks[IN_DECODE] == 30_000_000
    drawn_s = sum(stacks.values()) / 1e9
    assert drawn_s == pytest.approx(found.cpu_s_per_token + found.clipped_s_per_token, abs=1e-8)
    assert (found.profile.unit, found.profile.covers) == ("nanoseconds", "decode")
    assert found.profile.completeness == pytest.approx(long.profile.completeness)
    assert parse_folded(fold_profile(found.profile)) == stacks


def test_samples_without_a_stack_are_a_row() -> None:
    long = sequences({**LONG.profile.stacks, (): 100}, 11, 1.05)
    assert row(subtract_prefill(long, SHORT), NO_STACK).self_s == pytest.approx(0.001)


def sampled(random: Random, of: SequenceProfile, error_s: float) -> SequenceProfile:
    """The same sequences, sampled and timed again."""
    stacks = list(of.profile.stacks)
    drawn = random.choices(stacks, list(of.profile.stacks.values()), k=of.profile.samples)
    counts = {stack: drawn.count(stack) for stack in stacks}
    return replace(
        of, profile=profile(counts), cpu_s=random.gauss(of.cpu_s, error_s), cpu_error_s=error_s
    )


def test_the_standard_errors_are_what_repetition_shows() -> None:
    random = Random(7)
    found = [
        subtract_prefill(sampled(random, LONG, 0.01), sampled(random, SHORT, 0.008), phi=1.0)
        for _ in range(150)
    ]
    for name in ("gemv", "decode", "prefill"):
        rows = [row(each, name) for each in found]
        for value, error in (("self_s", "self_error_s"), ("inclusive_s", "inclusive_error_s")):
            seen = stdev(getattr(each, value) for each in rows)
            told = mean(getattr(each, error) for each in rows)
            if seen:  # prefill itself is never sampled, and its error is of the samples it lacks
                assert 0.8 < seen / told < 1.25, (name, value)
    totals = [each.cpu_s_per_token for each in found]
    assert 0.8 < stdev(totals) / mean(each.cpu_error_s_per_token for each in found) < 1.25


def test_errors_grow_with_what_processes_differ_by() -> None:
    plain, spread = subtract_prefill(LONG, SHORT, phi=1.0), subtract_prefill(LONG, SHORT, phi=4.0)
    assert row(spread, "gemv").self_error_s == pytest.approx(2 * row(plain, "gemv").self_error_s)
    assert subtract_prefill(LONG, SHORT).phi == PHI > 1
    assert subtract_prefill(LONG, SHORT, phi=0.2) == plain


def test_what_slows_both_is_no_error_of_the_difference() -> None:
    long, short = replace(LONG, cpu_error_s=0.05), replace(SHORT, cpu_error_s=0.05)
    apart = subtract_prefill(long, short)
    assert apart.cpu_error_s_per_token == pytest.approx(math.hypot(0.05, 0.05) / 10)
    together = subtract_prefill(long, short, covariance_s2=0.05**2)
    assert together.cpu_error_s_per_token == 0.0
    assert row(together, "gemv").self_error_s < row(apart, "gemv").self_error_s


@pytest.mark.parametrize(
    ("long", "short", "code"),
    [
        (replace(LONG, cpu_s=0.64), SHORT, "E_NO_DECODE"),
        (replace(LONG, cpu_s=0.5), SHORT, "E_NO_DECODE"),
        (replace(LONG, cpu_error_s=0.2), SHORT, "E_NO_DECODE"),
        (replace(LONG, cpu_s=math.nan), SHORT, "E_NO_DECODE"),
        (replace(LONG, cpu_s=math.inf), SHORT, "E_NO_DECODE"),
        (LONG, replace(SHORT, profile=profile({})), "E_NO_SAMPLES"),
        (replace(LONG, profile=profile({})), SHORT, "E_NO_SAMPLES"),
        (
            LONG,
            replace(SHORT, profile=replace(SHORT.profile, profiler="py-spy")),
            "E_PROFILES_DIFFER",
        ),
        (
            LONG,
            replace(SHORT, profile=replace(SHORT.profile, covers="process")),
            "E_PROFILES_DIFFER",
        ),
    ],
)
def test_what_cannot_be_subtracted(
    long: SequenceProfile, short: SequenceProfile, code: str
) -> None:
    with pytest.raises(FlamegateError) as refused:
        subtract_prefill(long, short)
    assert refused.value.code == code


def test_the_longer_one_comes_first() -> None:
    with pytest.raises(ValueError, match="1 tokens are no more than 11"):
        subtract_prefill(SHORT, LONG)
