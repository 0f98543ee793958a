"""The verdict: one of eight words, with its reasons and everything it was reached by."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.gate.comparability import COMPARABLE, TRANSIENT_CODES
from pytest_flamegate.gate.throughput import TOKENS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_flamegate.gate.bricks import BrickChange
    from pytest_flamegate.gate.comparability import Comparability
    from pytest_flamegate.gate.hotspots import CostChange, Hotspot
    from pytest_flamegate.gate.pairs import PhaseChange
    from pytest_flamegate.gate.signals import Helper, Reason, Signal


VerdictName = Literal[
    "pass",
    "improved",
    "regressed",
    "inconclusive",
    "not_comparable",
    "no_baseline",
    "dishonest",
    "error",
]

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
class Verdict:
    """The answer for one workload.

    ``reasons`` begin with the one that decided. ``false_alarm_rate`` is the chance of
    ``regressed`` where nothing changed, for tokens per second, for all shares together and
    for all bricks together each; ``error_rate_basis`` says what that figure rests on.
    ``attribution`` holds the cost of each function per token, largest change first.
    ``baseline_processes`` and ``current_processes`` count the timed ones. ``miss_rate`` is the
    chance of `pass` where tokens per second fell by the threshold or more.
    ``explained_by`` are the fewest frames that explain four fifths of a certain change.
    Measured in pairs, ``pairs`` counts those that decided, ``looks`` are the numbers of pairs
    at which an answer was allowed, and ``against`` is the commit of the base.
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
    hotspots: tuple[Hotspot, ...] = ()
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

    def signal(self, name: str = TOKENS_PER_SECOND) -> Signal | None:
        """Return the signal of that name, None where there is none."""
        return next((signal for signal in self.signals if signal.name == name), None)


@dataclass(frozen=True, slots=True)
class MoreProcesses:
    """What would help an undecided verdict: more processes of which kind, if of any."""

    timed: bool = False
    profiled: bool = False
    bricks: bool = False

    def __bool__(self) -> bool:
        return self.timed or self.profiled or self.bricks


def needs_more(verdict: Verdict) -> MoreProcesses:
    """Say which processes could settle the verdict; false where it stands or nothing helps."""
    if verdict.verdict == "inconclusive":
        helped = verdict.helped_by
        return MoreProcesses("timed" in helped, "profiled" in helped, "bricks" in helped)
    if verdict.verdict == "not_comparable":
        codes = {difference.code for difference in verdict.comparability.differences}
        return MoreProcesses(timed=bool(codes) and codes <= TRANSIENT_CODES)
    return MoreProcesses()


def refused(
    verdict: Literal["dishonest", "error", "inconclusive", "no_baseline"],
    reasons: Iterable[Reason],
    *,
    grade: str,
) -> Verdict:
    """Return the verdict on something that never came to be judged.

    ValueError without a reason: a refusal always says why.
    """
    given = tuple(reasons)
    if not given:
        raise ValueError("a refusal needs a reason")
    return Verdict(verdict=verdict, reasons=given, grade=grade)


def exit_code(verdict: Verdict) -> int:
    """Return the exit code of the command line for this verdict."""
    return EXIT_CODES[verdict.verdict]


def fails_test(verdict: Verdict, *, ci: bool, strict: bool) -> bool:
    """Say whether the test fails: undecided verdicts do so under CI and where strict is set."""
    if verdict.verdict in _GREEN:
        return False
    return verdict.verdict in _RED or ci or strict
