"""The verdict: one of eight words, with its reasons and every figure it was reached by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pytest_flamegate.gate.bricks import BrickChange
from pytest_flamegate.gate.costs import CostChange
from pytest_flamegate.gate.hotspots import HotspotChange
from pytest_flamegate.gate.pairs import PhaseChange
from pytest_flamegate.gate.signals import (
    COMPARABLE,
    TOKENS_PER_SECOND,
    Comparability,
    Helper,
    Reason,
    Signal,
)
from pytest_flamegate.receipt.types import VerdictName

EXIT_CODES: Mapping[VerdictName, int] = MappingProxyType(
    {
        "pass": 0,
        "improved": 0,
        "regressed": 1,
        "dishonest": 3,
        "inconclusive": 4,
        "not_comparable": 4,
        "no_baseline": 4,
        "error": 5,
    }
)
_GREEN = frozenset({"pass", "improved"})
_RED = frozenset({"regressed", "dishonest", "error"})


@dataclass(frozen=True, slots=True)
class MoreProcesses:
    """The kinds of process of which more could settle an open verdict; false if none could."""

    timed: bool = False
    profiled: bool = False
    bricks: bool = False

    def __bool__(self) -> bool:
        return self.timed or self.profiled or self.bricks


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one workload. It is complete when made: nothing is added later.

    Attributes:
        verdict: The word.
        reasons: Why; those that decided come first, notes on the run last.
        grade: The grade of the receipt.
        signals: Every figure that was compared or is shown next to those.
        smallest_detectable_pct: The smallest drop that would have been seen with 95 % probability.
        false_alarm_rate: The known probability of `regressed` if nothing changed, 0 to 1, for
            tokens per second; None if it is not known.
        miss_rate: The known probability of `pass` if tokens per second fell by the threshold.
        error_rate_basis: How the two rates are known, or that they are not.
        comparability: Whether the two sides could be compared.
        hotspots: Every judged function.
        attribution: The cost of each function per token, largest change first.
        explained_by: The fewest functions that explain four fifths of a certain change.
        phases: The change of prefill and decode, measured in pairs.
        pairs: The number of pairs that decided; None with a stored baseline.
        looks: The numbers of pairs at which a decision was allowed.
        against: The commit of the base of a comparison in pairs.
        helped_by: The kinds of process of which more could settle an open question.
        baseline_processes: The number of timed processes of the baseline or base.
        current_processes: The number of timed processes of the run.
        cpu_pressure_pct: Median CPU pressure of the run's timed processes.
        bricks: Every judged brick.
    """

    verdict: VerdictName
    reasons: tuple[Reason, ...]
    grade: str
    signals: tuple[Signal, ...] = ()
    smallest_detectable_pct: float | None = None
    false_alarm_rate: float | None = None
    miss_rate: float | None = None
    error_rate_basis: str = ""
    comparability: Comparability = COMPARABLE
    hotspots: tuple[HotspotChange, ...] = ()
    attribution: tuple[CostChange, ...] = ()
    explained_by: tuple[str, ...] = ()
    phases: tuple[PhaseChange, ...] = ()
    pairs: int | None = None
    looks: tuple[int, ...] = ()
    against: str | None = None
    helped_by: tuple[Helper, ...] = ()
    baseline_processes: int = 0
    current_processes: int = 0
    cpu_pressure_pct: float | None = None
    bricks: tuple[BrickChange, ...] = ()

    @classmethod
    def unjudged(
        cls,
        name: Literal["dishonest", "error", "inconclusive", "no_baseline"],
        reasons: Iterable[Reason],
        *,
        grade: str,
    ) -> Verdict:
        """Return the verdict on a run that was not judged.

        Raises:
            ValueError: There is no reason.
        """
        given = tuple(reasons)
        if not given:
            raise ValueError("a verdict needs a reason")
        return cls(verdict=name, reasons=given, grade=grade)

    def signal(self, name: str = TOKENS_PER_SECOND) -> Signal | None:
        """Return the signal of that name, None if there is none."""
        return next((signal for signal in self.signals if signal.name == name), None)

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        return EXIT_CODES[self.verdict]

    def fails_test(self, *, ci: bool, strict: bool) -> bool:
        """Say whether the test fails: an undecided verdict does under CI and if strict is set."""
        if self.verdict in _GREEN:
            return False
        return self.verdict in _RED or ci or strict

    @property
    def warnings(self) -> tuple[Reason, ...]:
        """The reasons that warn about how the run was observed."""
        return tuple(reason for reason in self.reasons if reason.code.startswith("W_"))

    @property
    def more_processes(self) -> MoreProcesses:
        """The processes that could settle the verdict; false if it is settled or none could."""
        if self.verdict == "inconclusive":
            helped = self.helped_by
            return MoreProcesses("timed" in helped, "profiled" in helped, "bricks" in helped)
        if self.verdict == "not_comparable":
            return MoreProcesses(timed=self.comparability.is_transient)
        return MoreProcesses()

    @property
    def is_suspicious(self) -> bool:
        """Whether a comparison in pairs with the baseline's commit would say more."""
        if self.verdict == "not_comparable":
            return self.comparability.is_transient
        return self.verdict in ("regressed", "inconclusive") and bool(self.signals)
