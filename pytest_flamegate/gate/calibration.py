"""What a machine can tell apart: the whole decision rule, replayed on its own A/A pairs.

The bounds of the replayed rates say how exact so many replays are. They do not say how
well a pool of a few dozen pairs stands for all that the machine will ever do: that is
what the ledger of A/A gates is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate.against import pair_rates
from pytest_flamegate.gate.binomial import Count
from pytest_flamegate.gate.pool import streams
from pytest_flamegate.gate.rule import decide
from pytest_flamegate.gate.signals import log_time_of_drop

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_flamegate.gate.pool import Pool, Stream
    from pytest_flamegate.gate.rule import RateDecision

DRAWS = 2000
SEED = 20_011
LADDER = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0)
"""Drops in percent that are tried, smallest first."""
MAX_FALSE_ALARMS, MAX_MISSES, MAX_INCONCLUSIVE = 0.01, 0.02, 0.05
"""A threshold holds where its rates are at most these."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The looks that are planned, and how many pairs there is time for."""

    looks: tuple[int, ...]
    pairs: int

    @property
    def due(self) -> tuple[int, ...]:
        """The numbers of pairs at which a look is taken, the last of them because time is over."""
        due = tuple(pairs for pairs in self.looks if pairs <= self.pairs)
        if self.looks[0] <= self.pairs < self.looks[-1] and self.pairs not in due:
            due = (*due, self.pairs)
        return due

    @classmethod
    def whole(cls, looks: Sequence[int]) -> Plan:
        """Return the plan with time for every look."""
        return cls(tuple(looks), looks[-1])


@dataclass(frozen=True, slots=True)
class Rates:
    """How often the rule errs or stays open, each as a count of replays.

    ``miss`` is a pass (or an improvement) at a true drop of exactly the threshold,
    ``missed_twice`` at twice as much log time; ``inconclusive_…`` are those left open.
    ``median_pairs`` and ``p95_pairs`` are what a decision on unchanged code takes.
    """

    false_alarm: Count
    miss: Count
    missed_twice: Count
    inconclusive_unchanged: Count
    inconclusive_at_threshold: Count
    inconclusive_twice: Count
    median_pairs: int
    p95_pairs: int

    @property
    def counts(self) -> dict[str, Count]:
        """All counts by name."""
        return {
            "false_alarm": self.false_alarm,
            "miss": self.miss,
            "missed_twice": self.missed_twice,
            "inconclusive_unchanged": self.inconclusive_unchanged,
            "inconclusive_at_threshold": self.inconclusive_at_threshold,
            "inconclusive_twice": self.inconclusive_twice,
        }

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
class Replayed:
    """Sequences drawn once from a pool, for any number of questions about the rule."""

    streams: tuple[Stream, ...]

    @classmethod
    def of(cls, pool: Pool, pairs: int, *, draws: int = DRAWS, seed: int = SEED) -> Replayed:
        """Draw them, each long enough for plans of up to ``pairs`` pairs."""
        return cls(streams(pool, pairs, draws=draws, seed=seed))

    def rates(self, drop_pct: float, plan: Plan) -> Rates:
        """Return the rates of the whole rule at the threshold ``drop_pct``."""
        threshold = log_time_of_drop(drop_pct)
        unchanged, at, twice = (
            [decided(stream, shift, threshold, plan) for stream in self.streams]
            for shift in (0.0, threshold, 2.0 * threshold)
        )
        pairs = sorted(taken for taken, _ in unchanged)
        return Rates(
            false_alarm=_count(unchanged, "regressed"),
            miss=_count(at, "pass", "improved"),
            missed_twice=_count(twice, "pass", "improved"),
            inconclusive_unchanged=_count(unchanged, "inconclusive"),
            inconclusive_at_threshold=_count(at, "inconclusive"),
            inconclusive_twice=_count(twice, "inconclusive"),
            median_pairs=pairs[len(pairs) // 2],
            p95_pairs=pairs[len(pairs) * 95 // 100],
        )

    def smallest(self, plan: Plan, ladder: Iterable[float] = LADDER) -> tuple[float, Rates] | None:
        """Return the smallest drop of the ladder that holds, with its rates; None if none does."""
        for drop_pct in ladder:
            if self._hopeless(drop_pct, plan):
                continue
            rates = self.rates(drop_pct, plan)
            if rates.holds:
                return drop_pct, rates
        return None

    def _hopeless(self, drop_pct: float, plan: Plan) -> bool:
        """Whether so many replays of unchanged code stay open that nothing else matters."""
        threshold = log_time_of_drop(drop_pct)
        allowed = MAX_INCONCLUSIVE * len(self.streams)
        left_open = 0
        for stream in self.streams:
            left_open += decided(stream, 0.0, threshold, plan)[1] == "inconclusive"
            if left_open > allowed:
                return True
        return False


def replay(
    pool: Pool, drop_pct: float, looks: Sequence[int], *, draws: int = DRAWS, seed: int = SEED
) -> Rates:
    """Replay the whole rule with the threshold ``drop_pct`` on pairs drawn from ``pool``."""
    plan = Plan.whole(looks)
    return Replayed.of(pool, plan.pairs, draws=draws, seed=seed).rates(drop_pct, plan)


def smallest_threshold(
    pool: Pool,
    looks: Sequence[int],
    *,
    pairs: int | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
) -> float | None:
    """Return the smallest drop in percent that the pool's machine holds; None if it holds none.

    ``pairs`` is for how many there is time, where that is less than for all looks.
    """
    plan = Plan(tuple(looks), looks[-1] if pairs is None else min(pairs, looks[-1]))
    found = Replayed.of(pool, plan.pairs, draws=draws, seed=seed).smallest(plan)
    return found[0] if found else None


def decided(stream: Stream, shift: float, threshold: float, plan: Plan) -> tuple[int, RateDecision]:
    """Return at which look of ``plan`` a stream is decided, and as what.

    This is `looks_at`, which a test holds it to; here what the looks saw is kept for all
    thresholds and shifts.
    """
    rates = pair_rates(plan.looks)
    taken = 0
    decision: RateDecision = "inconclusive"
    for pairs in plan.due:
        taken = pairs
        decision = decide(stream.estimate(pairs, shift), threshold, rates).decision
        if decision != "inconclusive":
            break
    return taken, decision


def _count(outcomes: Sequence[tuple[int, RateDecision]], *decisions: RateDecision) -> Count:
    return Count(sum(decision in decisions for _, decision in outcomes), len(outcomes))
