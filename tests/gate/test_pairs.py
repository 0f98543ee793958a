from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate import FIRST_ANALYSES, decide, plan_analyses
from pytest_flamegate.gate.pairs import (
    TRIMMED,
    interim_analyses,
    pair_differences,
    pair_rates,
    trimmed_mean,
)
from pytest_flamegate.gate.signals import log_time_of_drop
from pytest_flamegate.gate.statistics import student_t_sf
from tests.gate.paired import SPREAD, shifted, sides

TAU = log_time_of_drop(5.0)
RATES = pair_rates(FIRST_ANALYSES)

differences = st.lists(
    st.floats(-0.3, 0.3).map(lambda value: round(value, 6)), min_size=5, max_size=40, unique=True
)


def decisions(values: list[float], threshold: float = TAU, *, ended: bool = False) -> list[str]:
    taken = interim_analyses(values, threshold, RATES, FIRST_ANALYSES, ended=ended)
    return [look.verdict.decision for look in taken]


def test_a_pair_differs_by_the_mean_over_its_blocks() -> None:
    found = pair_differences(*sides(SPREAD))
    assert [pair.quiet for pair in found] == pytest.approx(SPREAD, abs=1e-6)
    assert [pair.cpu for pair in found] == pytest.approx(SPREAD, abs=1e-6)
    assert [pair.wall for pair in found] == pytest.approx(SPREAD, abs=1e-5)
    assert [pair.decode for pair in found] == pytest.approx(SPREAD, abs=1e-5)


def test_a_program_has_no_phases() -> None:
    base, head = sides(SPREAD)
    found = pair_differences(
        replace(base, clock_scope="process"), replace(head, clock_scope="process")
    )
    assert {pair.prefill for pair in found} == {pair.decode for pair in found} == {None}


def test_sides_that_do_not_belong_together_are_refused() -> None:
    base, head = sides(SPREAD)
    for broken in (
        replace(head, runs=head.runs[:-1]),
        replace(head, runs=(*head.runs[:-1], replace(head.runs[-1], pair=None))),
        replace(head, runs=(*head.runs[:-1], replace(head.runs[-1], blocks=()))),
        replace(head, runs=(*head.runs[:-1], replace(head.runs[-1], pair=99))),
    ):
        with pytest.raises(UndecidedError) as refusal:
            pair_differences(base, broken)
        assert refusal.value.code == "E_UNPAIRED"


@pytest.mark.parametrize(("most", "last"), [(1, 28), (28, 28), (39, 28), (40, 40), (84, 81)])
def test_looks_are_planned_for_the_most_pairs(most: int, last: int) -> None:
    looks = plan_analyses(most)
    assert looks[:6] == FIRST_ANALYSES
    assert looks[-1] == last
    assert all(later > earlier for earlier, later in pairwise(looks))


def test_few_pairs_are_not_trimmed_and_many_are() -> None:
    plain = trimmed_mean(SPREAD[:5])
    assert plain.mean_diff == pytest.approx(sum(SPREAD[:5]) / 5)
    assert plain.df == 4.0
    wild = [*SPREAD, 0.4, -0.01]
    trimmed = trimmed_mean(wild)
    cut = int(TRIMMED * len(wild))
    assert cut == 1
    assert trimmed.mean_diff == pytest.approx(sum(sorted(wild)[cut:-cut]) / (len(wild) - 2 * cut))
    assert trimmed.df == len(wild) - 2 * cut - 1
    # Neither its size nor its weight depends on how wild the one pair was.
    assert trimmed_mean([*SPREAD, 4.0, -0.01]) == trimmed


def test_the_error_of_the_trimmed_mean_is_that_of_repeated_sampling() -> None:
    random = Random(5)
    inside, trials = 0, 3000
    for _ in range(trials):
        estimate = trimmed_mean([random.gauss(0.0, 1.0) for _ in range(14)])
        inside += student_t_sf(estimate.mean_diff / estimate.standard_error, estimate.df) > 0.05
    assert 0.935 < inside / trials < 0.965


def test_looks_end_at_the_first_decision() -> None:
    assert decisions(shifted(0.0, 28)) == ["pass"]
    assert decisions(shifted(0.06, 28)) == ["regressed"]
    assert decisions(shifted(-0.06, 28)) == ["improved"]
    noisy = [0.2 * (-1) ** i + SPREAD[i % 10] for i in range(28)]
    assert decisions(noisy) == ["inconclusive"] * 6


def test_nothing_is_looked_at_between_the_planned_looks_unless_it_is_the_end() -> None:
    noisy = [0.2 * (-1) ** i + SPREAD[i % 10] for i in range(28)]
    assert decisions(noisy[:4]) == decisions(noisy[:4], ended=True) == []
    assert len(decisions(noisy[:6])) == 1
    assert len(decisions(noisy[:6], ended=True)) == 2
    assert len(decisions(noisy[:7], ended=True)) == 2
    assert len(decisions(noisy, ended=True)) == 6
    assert len(decisions([*noisy, 0.0], ended=True)) == 6


@given(differences, st.lists(st.floats(-1.0, 1.0), max_size=20))
def test_more_pairs_never_undo_a_look(values: list[float], more: list[float]) -> None:
    before = interim_analyses(values, TAU, RATES, FIRST_ANALYSES, ended=False)
    after = interim_analyses([*values, *more], TAU, RATES, FIRST_ANALYSES, ended=False)
    assert after[: len(before)] == before


@given(differences)
def test_swapping_the_sides_mirrors_the_verdict(values: list[float]) -> None:
    mirrored = {"regressed": "improved", "improved": "regressed"}
    estimates = [trimmed_mean(values), trimmed_mean([-value for value in values])]
    assert estimates[0].mean_diff == pytest.approx(-estimates[1].mean_diff, abs=1e-12)

    one, other = (decide(estimate, TAU, RATES).decision for estimate in estimates)
    if one in mirrored:
        assert other == mirrored[one]
    if other in mirrored:
        assert one == mirrored[other]


@given(st.floats(0.01, 100.0))
def test_units_change_nothing(scale: float) -> None:
    base, head = sides(SPREAD)

    def scaled(side: object) -> object:
        runs = tuple(
            replace(
                run,
                blocks=tuple(
                    replace(
                        block,
                        interval=replace(
                            block.interval,
                            wall_ns=block.interval.wall_ns * scale,
                            cpu_ns=block.interval.cpu_ns * scale,
                            run_delay_ns=(block.interval.run_delay_ns or 0) * scale,
                        ),
                    )
                    for block in run.blocks
                ),
            )
            for run in side.runs  # type: ignore[attr-defined]
        )
        return replace(side, runs=runs)  # type: ignore[type-var]

    before = [pair.quiet for pair in pair_differences(base, head)]
    after = [pair.quiet for pair in pair_differences(scaled(base), scaled(head))]  # type: ignore[arg-type]
    assert after == pytest.approx(before, abs=1e-9)


def test_a_slowdown_of_the_threshold_is_log_time() -> None:
    assert pytest.approx(1 / 0.95) == math.exp(TAU)
