"""The smallest changes that a machine can detect: the whole rule, replayed on its own A/A pairs.

A/A pairs measure the same code twice. The bounds of the replayed rates say how exact so many
replays are. They do not say how well a pool of a few dozen pairs represents all that the machine
will ever do.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from pytest_flamegate.config.options import compare_budget_s
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.analyses import analyse, pair_rates, plan_pair_counts
from pytest_flamegate.gate.measurement import impossible_figure_error, repeated_samples_error
from pytest_flamegate.gate.rule import (
    FAVOURABLE,
    RateDecision,
    ReportedRates,
    log_time_of_drop,
    nominal_rates,
)
from pytest_flamegate.gate.statistics import Count, Estimate, trimmed_mean


@dataclass(frozen=True, slots=True)
class AnalysisPlan:
    """The planned analyses, and the number of pairs that there is time for."""

    analyses: tuple[int, ...]
    pairs: int


# --- the pool of A/A pairs -----------------------------------------------------------------

MIN_POOL = 10
"""Fewer pairs show no spread that anything could be replayed from."""
FEW_POOL = 30
"""Fewer pairs seldom hold a bad spell of the machine, and rates drawn from them flatter it."""
BLOCK = 3
"""Neighbouring pairs are drawn together: a bad spell lasts longer than one."""
_INDEX_BYTES = 4


def check_pool(differences: Sequence[float]) -> tuple[float, ...]:
    """Return the differences of A/A pairs (log time per token) if rates can be replayed from them.

    Raises:
        UndecidedError: ``E_FEW_PROCESSES``, ``E_IMPOSSIBLE_FIGURE`` or ``E_REPEATED_SAMPLES``.
    """
    if len(differences) < MIN_POOL:
        raise UndecidedError(
            "E_FEW_PROCESSES",
            f"{len(differences)} A/A pair(s) were measured; a calibration needs {MIN_POOL}.",
        )
    for value in differences:
        if not math.isfinite(value):
            raise impossible_figure_error(value, "difference of an A/A pair")
    if len(set(differences)) == 1:
        raise repeated_samples_error(
            f"All {len(differences)} A/A pairs differ by exactly the same."
        )
    return tuple(differences)


@dataclass(slots=True)
class Stream:
    """One drawn sequence of pairs, and the estimates from its first so many pairs."""

    differences: tuple[float, ...]
    _known: dict[int, Estimate] = field(default_factory=dict)

    def estimate(self, pairs: int, shift: float) -> Estimate:
        """Return the estimate after ``pairs`` pairs of code that became slower by ``shift``."""
        unchanged = self._known.get(pairs)
        if unchanged is None:
            unchanged = self._known[pairs] = trimmed_mean(self.differences[:pairs])
        return Estimate(unchanged.mean_diff + shift, unchanged.standard_error, unchanged.df)


def _draw_stream(differences: Sequence[float], pairs: int, seed: str) -> Stream:
    """Draw ``pairs`` pairs of unchanged code with replacement, the same for the same seed.

    Neighbours are drawn together, so that bad spells stay spells. Each difference gets a random
    sign: which side of an A/A pair is which is a mere name.
    """
    count = len(differences)
    # The pool is a ring, so that its ends are drawn as often as its middle.
    ring = (*differences, *differences[: BLOCK - 1])
    blocks = -(-pairs // BLOCK)
    noise = hashlib.shake_256(seed.encode()).digest(blocks * _INDEX_BYTES)
    drawn: list[float] = []
    for at in range(0, len(noise), _INDEX_BYTES):
        number = int.from_bytes(noise[at : at + _INDEX_BYTES], "little")
        start = (number >> BLOCK) % count
        block = ring[start : start + BLOCK]
        drawn += [-value if number >> bit & 1 else value for bit, value in enumerate(block)]
    return Stream(tuple(drawn[:pairs]))


# --- the rule, replayed --------------------------------------------------------------------

DRAWS = 2000
SEED = 20_011
LADDER = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0)
"""Drops in percent that are tried, smallest first."""
MAX_FALSE_ALARMS, MAX_MISSES, MAX_INCONCLUSIVE = 0.01, 0.02, 0.05
"""A threshold holds if its rates are at most these."""


@dataclass(frozen=True, slots=True)
class ReplayedRates:
    """How often the rule errs or stays open, each as a count of replays.

    ``miss`` is a pass (or an improvement) at a true drop of exactly the threshold,
    ``missed_twice`` at twice as much log time; ``inconclusive_…`` are those left open.
    ``median_pairs`` are the pairs that a decision on unchanged code takes.
    """

    false_alarm: Count
    miss: Count
    missed_twice: Count
    inconclusive_unchanged: Count
    inconclusive_at_threshold: Count
    inconclusive_twice: Count
    median_pairs: int

    @property
    def holds(self) -> bool:
        """Whether a gate with this threshold keeps its promises here."""
        return (
            self.false_alarm.rate <= MAX_FALSE_ALARMS
            and max(self.miss.rate, self.missed_twice.rate) <= MAX_MISSES
            and max(self.inconclusive_unchanged.rate, self.inconclusive_twice.rate)
            <= MAX_INCONCLUSIVE
        )


@dataclass(frozen=True, slots=True)
class ResampledPairs:
    """Sequences drawn once from a pool, for any number of questions about the rule."""

    streams: tuple[Stream, ...]

    @classmethod
    def draw(cls, pool: Sequence[float], pairs: int) -> ResampledPairs:
        """Draw sequences of ``pairs`` pairs of unchanged code, long enough for such plans."""
        return cls(tuple(_draw_stream(pool, pairs, f"{SEED}:{number}") for number in range(DRAWS)))

    def rates(self, drop_pct: float, plan: AnalysisPlan) -> ReplayedRates:
        """Return the rates of the whole rule at the threshold ``drop_pct``."""
        threshold = log_time_of_drop(drop_pct)
        unchanged, at, twice = (
            [_decide(stream, shift, threshold, plan) for stream in self.streams]
            for shift in (0.0, threshold, 2.0 * threshold)
        )
        pairs = sorted(taken for taken, _ in unchanged)
        return ReplayedRates(
            false_alarm=_count(unchanged, "regressed"),
            miss=_count(at, *FAVOURABLE),
            missed_twice=_count(twice, *FAVOURABLE),
            inconclusive_unchanged=_count(unchanged, "inconclusive"),
            inconclusive_at_threshold=_count(at, "inconclusive"),
            inconclusive_twice=_count(twice, "inconclusive"),
            median_pairs=pairs[len(pairs) // 2],
        )

    def find_smallest(self, plan: AnalysisPlan) -> tuple[float, ReplayedRates] | None:
        """Return the smallest drop of the ladder that holds, with its rates; None if none does."""
        for drop_pct in LADDER:
            rates = self.rates(drop_pct, plan)
            if rates.holds:
                return drop_pct, rates
        return None


def _decide(
    stream: Stream, shift: float, threshold: float, plan: AnalysisPlan
) -> tuple[int, RateDecision]:
    """Return after how many pairs of ``plan`` a stream is decided, and the decision."""
    estimate = partial(stream.estimate, shift=shift)
    found = analyse(estimate, plan.pairs, threshold, plan.analyses, ended=True)
    return (found.pairs, found.verdict.decision) if found else (0, "inconclusive")


def _count(outcomes: Sequence[tuple[int, RateDecision]], *decisions: RateDecision) -> Count:
    return Count(sum(decision in decisions for _, decision in outcomes), len(outcomes))


# --- error rates without a calibration -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredReplays:
    """The rule within the default budget, replayed on pairs that the project keeps.

    ``pairs`` and ``dates`` name the data; ``errors`` holds, for each threshold in percent, the
    false alarms and the misses among ``DRAWS`` replays, the more of them if there are pairs of
    several loads.
    """

    workload: str
    pairs: int
    dates: str
    errors: Mapping[float, tuple[int, int]]


_DATES = "2026-11-28"
STORED_REPLAYS: Mapping[str, StoredReplays] = MappingProxyType(
    {
        "embedded": StoredReplays(
            "the embedded model",
            721,
            f"{_DATES} to 2026-11-29",
            {5.0: (0, 10), 2.0: (3, 22), 1.0: (2, 32)},
        ),
        "command": StoredReplays(
            "a C program", 337, _DATES, {5.0: (0, 4), 2.0: (0, 13), 1.0: (0, 19)}
        ),
        "openai": StoredReplays(
            "a server of SmolLM2", 337, _DATES, {5.0: (0, 4), 2.0: (0, 12), 1.0: (2, 14)}
        ),
        "llama-cpp": StoredReplays(
            "SmolLM2 in xllamacpp", 337, _DATES, {5.0: (0, 9), 2.0: (0, 23), 1.0: (1, 29)}
        ),
    }
)
"""By engine; ``python -m benchmarks.gate_power --rates`` prints it, and a test recomputes it."""


def rates_without_calibration(
    workload: Mapping[str, object],
    threshold_pct: float,
    analyses: Sequence[int],
    *,
    shares_core: bool,
) -> ReportedRates:
    """Return the error rates of a comparison in pairs that no calibration covers.

    ``workload`` is the recipe in the evidence. The rates are known if the rule was replayed on
    pairs of the same engine that shared a core, at this threshold and within the default budget.
    """
    stored = STORED_REPLAYS.get(str(workload.get("engine")))
    errors = stored.errors.get(threshold_pct) if stored is not None else None
    is_usual = tuple(analyses) == plan_pair_counts(compare_budget_s(threshold_pct))
    if stored is None or errors is None or not shares_core or not is_usual:
        basis = "not yet measured for such a comparison (flamegate calibrate does)"
        return nominal_rates(pair_rates(analyses), basis)
    alarm, miss = (Count(each, DRAWS) for each in errors)
    return ReportedRates(
        alarm.upper,
        miss.upper,
        "not calibrated here (flamegate calibrate). "
        f"On {stored.pairs} pairs of {stored.workload} that share a core ({stored.dates}): "
        f"{alarm.words} false alarms and {miss.words} misses in {DRAWS:,} replays within the "
        "default budget",
    )
