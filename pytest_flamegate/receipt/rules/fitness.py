"""Fit to gate on: an honest receipt may still be a poor thing to hold others against.

Honesty asks whether the numbers are what was seen; fitness whether enough was seen, of
code that can be named, on a machine that had time for it. Each reason below speaks
against gating, and none of them against the receipt.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.config.workload import (
    MAX_CPU_PRESSURE_PCT,
    MAX_WAITING,
    MIN_PROCESSES,
    SAMPLE_FLOOR,
    STACK_FLOOR,
)
from pytest_flamegate.core.text import Notice, quote
from pytest_flamegate.observe.observation import of_one_process
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.rules.subject import Case


_MORE = "Measure longer (--flamegate-budget)."
_COMMIT = "Commit, then measure."


@dataclass(frozen=True, slots=True)
class Candidate:
    """A case whose receipt is honest, and the codes of the suspicions that it raised."""

    case: Case
    suspicions: tuple[str, ...] = ()


REASONS: Rulebook[Candidate] = Rulebook()
"""Why an honest receipt with evidence is not fit to gate on."""

NO_EVIDENCE = Notice(
    "F_NO_EVIDENCE",
    "Without evidence nothing says how the figures came about.",
    "Keep evidence.json and profile.folded beside the receipt.",
)


@REASONS.rule(
    "F_NOT_DETERMINISTIC",
    "The same prompt gives the same tokens.",
    remedy="Make the engine deterministic (seed, threads): other tokens are other work.",
    protects=None,
)
def _not_deterministic(candidate: Candidate) -> Iterator[str]:
    evidence = candidate.case.evidence
    if not candidate.case.claim.deterministic:
        yield "The receipt claims no determinism."
    others = sum(run.token_digest != evidence.token_digest for run in evidence.runs)
    if evidence.differs_at is not None:
        yield f"Sequences differ from token {evidence.differs_at} on."
    elif others:
        yield f"{others} of {len(evidence.runs)} runs ended in other tokens."


@REASONS.rule("F_FEW_PROCESSES", "Enough processes were timed.", remedy=_MORE, protects=None)
def _few_processes(candidate: Candidate) -> Iterator[str]:
    timed = sum(run.tokens > 0 for run in candidate.case.timed)
    if timed < MIN_PROCESSES:
        yield f"{timed} process(es) were timed, and a spread needs {MIN_PROCESSES}."


@REASONS.rule(
    "F_ONE_PROCESS",
    "Each timed run was a process of its own.",
    remedy="Have the server started for each run: serve instead of url.",
    protects=None,
)
def _one_process(candidate: Candidate) -> Iterator[str]:
    # What differs from one start to the next, such as where its memory lies, was not seen.
    if of_one_process(candidate.case.evidence.workload):
        yield "The runs are windows of one server, which ran before and went on."


@REASONS.rule(
    "F_NO_PROFILE", "A profile shows where the time went.", remedy="Profile it.", protects=None
)
def _no_profile(candidate: Candidate) -> Iterator[str]:
    folded = candidate.case.folded
    if candidate.case.evidence.profile is None or folded is None or not folded.samples:
        yield "Without a profile no hotspot can be gated."


@REASONS.rule("F_FEW_SAMPLES", "The profile has enough samples.", remedy=_MORE, protects=None)
def _few_samples(candidate: Candidate) -> Iterator[str]:
    profile = candidate.case.evidence.profile
    if profile is not None and profile.rate_hz > 0 and 0 < profile.samples < SAMPLE_FLOOR:
        yield f"{profile.samples} samples were taken, and {SAMPLE_FLOOR} name a hotspot."


@REASONS.rule(
    "F_STACKS_CUT",
    "Most stacks of the profile reach the start of the workload.",
    remedy="Walk stacks in another way ([workloads.NAME.profile], call_graph).",
    protects=None,
)
def _stacks_cut(candidate: Candidate) -> Iterator[str]:
    profile = candidate.case.evidence.profile
    if profile is None or profile.call_graph == "none":
        return
    if profile.completeness < STACK_FLOOR:
        yield f"{profile.completeness:.0%} of the stacks do, and {STACK_FLOOR:.0%} are needed."


@REASONS.rule(
    "F_PROFILE_DEGRADED",
    "The profile was taken without compromise.",
    remedy="See what the profiler reported (flamegate doctor).",
    protects=None,
)
def _profile_degraded(candidate: Candidate) -> Iterator[str]:
    profile = candidate.case.evidence.profile
    if profile is not None and profile.degraded:
        yield f"The profile is degraded: {', '.join(map(quote, profile.degraded))}."


@REASONS.rule(
    "F_KERNELS_FROM_ENGINE",
    "A claimed kernel was seen in the profile.",
    remedy="Profile with a profiler that sees native code.",
    protects=None,
)
def _kernels_from_engine(candidate: Candidate) -> Iterator[str]:
    kernels = candidate.case.evidence.kernels
    if kernels and not any(sighting.source == "profile" for sighting in kernels):
        yield "The kernels were reported by the engine alone."


@REASONS.rule(
    "F_INJECTED", "No work was injected.", remedy="Measure without an injection.", protects=None
)
def _injected(candidate: Candidate) -> Iterator[str]:
    injection = candidate.case.evidence.workload.get("injection")
    if injection:
        yield f"{quote(injection)} was injected on purpose."


@REASONS.rule(
    "F_SIDE_OF_COMPARISON",
    "The workload was measured alone.",
    remedy="Measure without --flamegate-against.",
    protects=None,
)
def _side_of_comparison(candidate: Candidate) -> Iterator[str]:
    # What ran beside another side in turns is to be held against that side alone.
    side = candidate.case.evidence.side
    if side is not None:
        yield f"It is the {side} of a comparison in pairs."


@REASONS.rule("F_NO_COMMIT", "The code has a name.", remedy=_COMMIT, protects=None)
def _no_commit(candidate: Candidate) -> Iterator[str]:
    if candidate.case.evidence.commit is None:
        yield "No commit says which code this was."


@REASONS.rule("F_UNCOMMITTED", "The code is that of its commit.", remedy=_COMMIT, protects=None)
def _uncommitted(candidate: Candidate) -> Iterator[str]:
    commit = candidate.case.evidence.commit
    if commit is not None and commit.uncommitted:
        yield f"{commit.uncommitted} file(s) differed from the commit."


@REASONS.rule(
    "F_MACHINE_BUSY",
    "The machine had time for the runs.",
    remedy="Measure on a quieter machine.",
    protects=None,
)
def _machine_busy(candidate: Candidate) -> Iterator[str]:
    timed = candidate.case.timed
    pressures = [run.cpu_pressure_pct for run in timed if run.cpu_pressure_pct is not None]
    if pressures and statistics.median(pressures) > MAX_CPU_PRESSURE_PCT:
        yield f"Tasks waited for a CPU {statistics.median(pressures):.0f} % of the time."
    # Waits of threads add up, while their wall time does not.
    waited, passed = 0, 0
    for run in timed:
        for block in run.blocks:
            waited += block.judged.run_delay_ns or 0
            passed += block.judged.wall_ns * max(1, run.threads or 1)
    if waited > MAX_WAITING * passed:
        yield f"Timed processes waited for a CPU for {waited / max(1, passed):.0%} of their time."


@REASONS.rule(
    "F_WHOLE_PROCESS",
    "The figures are of generation alone.",
    remedy="Let the program write each token as it is generated.",
    protects=None,
)
def _whole_process(candidate: Candidate) -> Iterator[str]:
    # Start and load drown the rest.
    evidence = candidate.case.evidence
    blocks = [block for run in candidate.case.timed for block in run.blocks]
    if evidence.clock_scope == "process" and any(block.decode is None for block in blocks):
        yield "The clock covers the program's start and load as well."


@REASONS.rule(
    "F_SUSPICIOUS",
    "Nothing looks unlike what is measured.",
    remedy="Look at each suspicion.",
    protects=None,
)
def _suspicious(candidate: Candidate) -> Iterator[str]:
    if candidate.suspicions:
        yield f"Raised: {', '.join(dict.fromkeys(candidate.suspicions))}."
