"""The rule for pairs on machines of known truth: how often it is wrong, with fixed seeds.

Each trial is a whole sequential decision. The bounds hold for these seeds, and leave room
for what another machine's draws would give.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from random import Random

import pytest

from pytest_flamegate.gate import FIRST_ANALYSES
from pytest_flamegate.gate.pairs import interim_analyses, pair_rates
from pytest_flamegate.gate.signals import log_time_of_drop

TRIALS = 2000


@dataclass(frozen=True, slots=True)
class Machine:
    """How the differences of pairs of one code vary, in log time.

    ``tail_df`` makes them Student's t; ``misplaced`` is the chance that one of the two
    processes is 10 to 35 % slow all its life; ``memory`` is the correlation of a pair with
    the one before.
    """

    spread: float
    tail_df: int | None = None
    misplaced: float = 0.0
    memory: float = 0.0

    def differences(self, random: Random, count: int, slowdown: float) -> list[float]:
        """Return ``count`` consecutive pairs whose head is slower by ``slowdown`` in log time."""
        found, before = [], 0.0
        for _ in range(count):
            fresh = random.gauss(0.0, 1.0)
            if self.tail_df is not None:
                chi = sum(random.gauss(0.0, 1.0) ** 2 for _ in range(self.tail_df))
                fresh /= math.sqrt(chi / self.tail_df)
            before = self.memory * before + math.sqrt(1.0 - self.memory**2) * fresh
            placed = sum(
                sign * random.uniform(0.1, 0.35)
                for sign in (1, -1)
                if random.random() < self.misplaced
            )
            found.append(slowdown + self.spread * before + placed)
        return found


QUIET = Machine(0.012)
LOADED = Machine(0.03)
HEAVY = Machine(0.015, tail_df=3)
PLACED = Machine(0.015, misplaced=0.06)
WANDERING = Machine(0.015, memory=0.1)


@cache  # the same trials answer several questions
def outcomes(machine: Machine, drop_pct: float, slowdown: float, seed: int = 3) -> dict[str, float]:
    random = Random(seed)
    rates = pair_rates(FIRST_ANALYSES)
    threshold = log_time_of_drop(drop_pct)
    found: Counter[str] = Counter()
    for _ in range(TRIALS):
        values = machine.differences(random, FIRST_ANALYSES[-1], slowdown)
        look = interim_analyses(values, threshold, rates, FIRST_ANALYSES, ended=True)[-1]
        found[look.verdict.decision] += 1
    return {decision: count / TRIALS for decision, count in found.items()}


@pytest.mark.parametrize("machine", [QUIET, LOADED, HEAVY, PLACED, WANDERING], ids=repr)
@pytest.mark.parametrize("drop_pct", [5.0, 2.0])
def test_unchanged_code_is_hardly_ever_called_slower(machine: Machine, drop_pct: float) -> None:
    assert outcomes(machine, drop_pct, 0.0).get("regressed", 0.0) <= 0.01


@pytest.mark.parametrize("machine", [QUIET, LOADED, HEAVY, PLACED, WANDERING], ids=repr)
@pytest.mark.parametrize(("drop_pct", "bound"), [(5.0, 0.01), (2.0, 0.02)])
def test_a_drop_of_the_threshold_hardly_ever_passes(
    machine: Machine, drop_pct: float, bound: float
) -> None:
    assert outcomes(machine, drop_pct, log_time_of_drop(drop_pct)).get("pass", 0.0) <= bound


def test_strong_memory_costs_a_little_of_the_promise_and_no_more() -> None:
    # Pairs as dependent as this were never measured: each draws core, order and turns anew.
    dependent = Machine(0.015, memory=0.3)
    assert outcomes(dependent, 5.0, 0.0).get("regressed", 0.0) <= 0.01
    assert outcomes(dependent, 2.0, 0.0).get("regressed", 0.0) <= 0.04
    assert outcomes(dependent, 2.0, log_time_of_drop(2.0)).get("pass", 0.0) <= 0.06


@pytest.mark.parametrize("machine", [QUIET, HEAVY, WANDERING], ids=repr)
def test_a_steady_machine_decides(machine: Machine) -> None:
    for slowdown in (0.0, log_time_of_drop(5.0), log_time_of_drop(10.0)):
        assert outcomes(machine, 5.0, slowdown).get("inconclusive", 0.0) <= 0.005


def test_bad_placement_costs_time_and_no_answer() -> None:
    assert outcomes(PLACED, 5.0, 0.0).get("inconclusive", 0.0) <= 0.02
    assert outcomes(PLACED, 5.0, log_time_of_drop(10.0)).get("regressed", 0.0) >= 0.97


def test_what_it_cannot_tell_it_does_not_guess() -> None:
    # A spread of 15 % and a question of 2 %.
    found = outcomes(Machine(0.15), 2.0, log_time_of_drop(2.0))
    assert found.get("inconclusive", 0.0) >= 0.9
