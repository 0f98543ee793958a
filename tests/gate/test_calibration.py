"""The rule replayed on pools of known truth. Seeded: each figure here is reproducible."""

import math
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from pytest_flamegate.gate import calibration
from pytest_flamegate.gate.analyses import FIRST_ANALYSES
from pytest_flamegate.gate.statistics import Count
from tests.gate.factory import undecided

Differences = tuple[float, ...]
PLAN = calibration.AnalysisPlan(FIRST_ANALYSES, 28)


def pool(sd: float) -> Differences:
    random = Random(1)
    return calibration.check_pool([random.gauss(0.0, sd) for _ in range(40)])


QUIET, MIXED = pool(0.008), pool(0.02)


# --- the pool ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([0.01, -0.01] * 4 + [0.0], "E_FEW_PROCESSES"),
        ([0.01, -0.01] * 10 + [math.nan], "E_IMPOSSIBLE_FIGURE"),
        ([0.01, -0.01] * 10 + [-math.inf], "E_IMPOSSIBLE_FIGURE"),
        ([0.01] * 40, "E_REPEATED_SAMPLES"),
    ],
)
def test_invalid_pools(values: list[float], code: str) -> None:
    with undecided(code):
        calibration.check_pool(values)
    assert len(calibration.check_pool([0.01, -0.01] * 5)) == 10


def test_streams_hold_neighbours_of_the_pool_with_either_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calibration, "DRAWS", 200)
    numbered = [float(value) for value in range(1, 21)]
    ring = [*numbered, *numbered]
    neighbours = {tuple(ring[at : at + calibration.BLOCK]) for at in range(20)}
    # Stored rates are those of these sequences.
    first = calibration.ResampledPairs.draw(numbered, 7).streams[0]
    assert first.differences == (11.0, 12.0, 13.0, -8.0, -9.0, 10.0, -10.0)
    drawn: set[float] = set()
    for stream in calibration.ResampledPairs.draw(numbered, 30).streams:
        assert len(stream.differences) == 30
        for at in range(0, 30, calibration.BLOCK):
            assert tuple(map(abs, stream.differences[at : at + calibration.BLOCK])) in neighbours
        drawn |= set(stream.differences)
    assert drawn == {sign * value for sign in (1, -1) for value in numbered}


def test_streams_are_balanced_and_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "DRAWS", 500)
    drawn, again = (calibration.ResampledPairs.draw(QUIET, 28).streams for _ in range(2))
    assert drawn == again
    monkeypatch.setattr(calibration, "SEED", 10)
    other = calibration.ResampledPairs.draw(QUIET, 28).streams
    assert len({drawn[0].differences, drawn[1].differences, other[0].differences}) == 3
    slower = sum(value > 0 for stream in drawn for value in stream.differences)
    assert abs(slower / (500 * 28) - 0.5) < 0.02


# --- the rule ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "holds"),
    [
        ({}, True),
        ({"false_alarm": 1}, True),
        ({"false_alarm": 2}, False),
        ({"miss": 2, "missed_twice": 2}, True),
        ({"miss": 3}, False),
        ({"missed_twice": 3}, False),
        ({"inconclusive_unchanged": 5, "inconclusive_twice": 5}, True),
        ({"inconclusive_unchanged": 6}, False),
        ({"inconclusive_twice": 6}, False),
    ],
)
def test_a_threshold_holds_up_to_its_limits(failures: dict[str, int], *, holds: bool) -> None:
    count: Any = Count(0, 100)
    none = calibration.ReplayedRates(count, count, count, count, count, count, median_pairs=5)
    counts: dict[str, Any] = {name: Count(number, 100) for name, number in failures.items()}
    rates = replace(none, **counts)
    assert rates.holds is holds


def test_rates_count_each_decision_of_the_streams() -> None:
    quiet = calibration.Stream(tuple(1e-4 * (-1) ** i for i in range(28)))
    loud = calibration.Stream(tuple(2.0 * (-1) ** i for i in range(28)))
    slower, faster, little, more = (
        calibration.Stream(tuple(d + by for d in quiet.differences))
        for by in (0.2, -0.2, -0.04, -0.08)
    )
    streams = *[quiet] * 18, loud, slower, little, more, *[faster] * 20
    rates = calibration.ResampledPairs(streams).rates(5.0, PLAN)
    found = {each.name: getattr(rates, each.name) for each in fields(rates)}
    counts = {name: each.failures for name, each in found.items() if isinstance(each, Count)}
    assert counts == {
        "false_alarm": 1,
        "miss": 22,  # those that are faster by more than the drop, or by most of it
        "missed_twice": 21,
        "inconclusive_unchanged": 1,
        "inconclusive_at_threshold": 1,
        "inconclusive_twice": 1,
    }
    assert rates.median_pairs == 4


# --- thresholds ----------------------------------------------------------------------------


def test_a_threshold_is_the_first_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "DRAWS", 400)
    replayed = calibration.ResampledPairs.draw(MIXED, PLAN.pairs)
    found = replayed.find_smallest(PLAN)
    assert found is not None
    assert list(calibration.LADDER) == sorted(set(calibration.LADDER))
    smaller = [drop for drop in calibration.LADDER if drop < found[0]]
    assert smaller
    assert not any(replayed.rates(drop, PLAN).holds for drop in smaller)
    assert found[1] == replayed.rates(found[0], PLAN)
    assert found[1].holds


def test_a_loud_machine_and_too_few_pairs_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "DRAWS", 200)
    for differences, pairs in ((pool(2.0), FIRST_ANALYSES[-1]), (QUIET, 2)):
        plan = calibration.AnalysisPlan(FIRST_ANALYSES, pairs)
        assert calibration.ResampledPairs.draw(differences, pairs).find_smallest(plan) is None


# --- without a calibration -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "drop_pct", "analyses", "shares_core"),
    [
        ("python", 5.0, FIRST_ANALYSES, True),
        ("embedded", 3.0, FIRST_ANALYSES, True),
        ("embedded", 5.0, (*FIRST_ANALYSES[:-1], 30), True),
        ("embedded", 1.0, FIRST_ANALYSES, True),  # planned for more time
        ("embedded", 5.0, FIRST_ANALYSES, False),
    ],
)
def test_rates_of_other_pairs_are_not_known(
    engine: str, drop_pct: float, analyses: tuple[int, ...], *, shares_core: bool
) -> None:
    found = calibration.rates_without_calibration(
        {"engine": engine}, drop_pct, analyses, shares_core=shares_core
    )
    assert (found.false_alarm, found.miss) == (None, None)
    assert found.basis == (
        "not yet measured for such a comparison (flamegate calibrate does). The rule allows 1 % "
        "false alarms for tokens per second, as many for all shares together, and 1.5 % misses, "
        "spent over 7 analyses"
    )


@pytest.mark.parametrize(
    ("drop_pct", "analyses"), [(5.0, FIRST_ANALYSES), (1.0, (*FIRST_ANALYSES, 40, 57))]
)
def test_rates_of_an_engine_whose_pairs_are_kept(
    drop_pct: float, analyses: tuple[int, ...]
) -> None:
    found = calibration.rates_without_calibration(
        {"engine": "command"}, drop_pct, analyses, shares_core=True
    )
    stored = calibration.STORED_REPLAYS["command"]
    alarm, miss = (Count(each, calibration.DRAWS) for each in stored.errors[drop_pct])
    assert (found.false_alarm, found.miss) == (alarm.upper, miss.upper)
    assert found.basis == (
        f"not calibrated here (flamegate calibrate). On {stored.pairs} pairs of a C program that "
        f"share a core ({stored.dates}): {alarm.words} false alarms and {miss.words} misses in "
        "2,000 replays within the default budget"
    )
