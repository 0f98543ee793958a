"""Whether an honest receipt is usable as a baseline.

A receipt is honest if its numbers are those that were observed. It is usable as a baseline if
enough was observed, of code that has a name, on a machine that had time for it. A reason below
speaks against comparing with the receipt and not against its honesty.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_flamegate.config.thresholds import (
    MAX_CPU_PRESSURE_PCT,
    MAX_WAITING,
    MIN_PROCESSES,
    SAMPLE_FLOOR,
    STACK_FLOOR,
)
from pytest_flamegate.core.text import Notice, quote
from pytest_flamegate.receipt.rules.claim import NOT_DETERMINISTIC
from pytest_flamegate.receipt.rules.rule import Rulebook
from pytest_flamegate.receipt.rules.subject import Submission


@dataclass(frozen=True, slots=True)
class Candidate:
    """An honest submission, and the codes of the suspicions that it raised."""

    case: Submission
    suspicions: tuple[str, ...] = ()


REASONS: Rulebook[Candidate] = Rulebook(remedy="Measure longer (--flamegate-budget).")
"""Why an honest receipt with evidence is not usable as a baseline."""

NO_EVIDENCE = Notice(
    "F_NO_EVIDENCE",
    "Without evidence, no file shows how the figures were measured.",
    "Keep evidence.json and profile.folded next to the receipt.",
)


@REASONS.rule(
    "F_NOT_DETERMINISTIC",
    "The same prompt gives the same tokens.",
    remedy=NOT_DETERMINISTIC,
)
def _check_determinism(candidate: Candidate) -> Iterator[str]:
    evidence = candidate.case.evidence
    if not candidate.case.claim.deterministic:
        yield "The receipt states deterministic: false."
    others = sum(run.token_digest != evidence.token_digest for run in evidence.runs)
    if evidence.differs_at is not None:
        yield f"Sequences differ from token {evidence.differs_at} on."
    elif others:
        yield f"{others} of {len(evidence.runs)} runs generated other tokens."


@REASONS.rule("F_FEW_PROCESSES", "Enough processes were timed.")
def _check_processes(candidate: Candidate) -> Iterator[str]:
    timed = sum(run.tokens > 0 for run in candidate.case.timed)
    if timed < MIN_PROCESSES:
        yield f"{timed} process(es) were timed; the spread needs at least {MIN_PROCESSES}."


@REASONS.rule(
    "F_ONE_PROCESS",
    "Each timed run was a process of its own.",
    remedy="Let flamegate start the server for each run: serve instead of url.",
)
def _check_fresh_processes(candidate: Candidate) -> Iterator[str]:
    # Effects that change from start to start, such as the memory layout, were not observed.
    if candidate.case.in_windows:
        yield "All runs asked one server that was already running."


@REASONS.rule("F_NO_PROFILE", "A profile shows where the time went.", remedy="Profile the runs.")
def _check_profile(candidate: Candidate) -> Iterator[str]:
    folded = candidate.case.folded
    if candidate.case.evidence.profile is None or folded is None or not folded.samples:
        yield "Without a profile no hotspot can be gated."


@REASONS.rule("F_FEW_SAMPLES", "The profile has enough samples.")
def _check_samples(candidate: Candidate) -> Iterator[str]:
    profile = candidate.case.evidence.profile
    if profile is not None and profile.rate_hz > 0 and 0 < profile.samples < SAMPLE_FLOOR:
        yield f"{profile.samples} samples were taken; a hotspot needs {SAMPLE_FLOOR}."


@REASONS.rule(
    "F_PROFILE_DEGRADED",
    "The profile was taken without compromise, and its stacks are complete.",
    remedy="Read what the profiler reports (flamegate doctor), or set call_graph.",
)
def _check_quality(candidate: Candidate) -> Iterator[str]:
    profile = candidate.case.evidence.profile
    if profile is None:
        return
    if profile.degraded:
        yield f"The profile is degraded: {', '.join(map(quote, profile.degraded))}."
    if profile.call_graph != "none" and profile.completeness < STACK_FLOOR:
        yield (
            f"{profile.completeness:.0%} of the stacks reach the start of the workload; "
            f"{STACK_FLOOR:.0%} are needed."
        )


@REASONS.rule(
    "F_KERNELS_FROM_ENGINE",
    "The profile shows a claimed kernel.",
    remedy="Profile with a profiler that sees native code.",
)
def _check_kernels(candidate: Candidate) -> Iterator[str]:
    kernels = candidate.case.evidence.kernels
    if kernels and not any(sighting.source == "profile" for sighting in kernels):
        yield "The kernels were reported by the engine alone."


@REASONS.rule("F_INJECTED", "No work was injected.", remedy="Measure without --flamegate-inject.")
def _check_injection(candidate: Candidate) -> Iterator[str]:
    injection = candidate.case.evidence.workload.get("injection")
    if injection:
        yield f"{quote(injection)} was injected on purpose."


@REASONS.rule(
    "F_SIDE_OF_COMPARISON",
    "The workload was measured alone.",
    remedy="Measure without --flamegate-against.",
)
def _check_alone(candidate: Candidate) -> Iterator[str]:
    # Runs that took turns with another side are comparable with that side alone.
    side = candidate.case.evidence.side
    if side is not None:
        yield f"It is the {side} of a comparison in pairs."


@REASONS.rule("F_NO_COMMIT", "A commit names the code.", remedy="Commit, then measure.")
def _check_commit(candidate: Candidate) -> Iterator[str]:
    commit = candidate.case.evidence.commit
    if commit is None:
        yield "No commit names the measured code."
    elif commit.uncommitted:
        yield f"{commit.uncommitted} file(s) differed from the commit."


@REASONS.rule(
    "F_MACHINE_BUSY",
    "The machine had time for the runs.",
    remedy="Measure on a quieter machine.",
)
def _check_machine(candidate: Candidate) -> Iterator[str]:
    timed = candidate.case.timed
    pressures = [run.cpu_pressure_pct for run in timed if run.cpu_pressure_pct is not None]
    if pressures and statistics.median(pressures) > MAX_CPU_PRESSURE_PCT:
        yield f"Tasks waited for a CPU {statistics.median(pressures):.0f} % of the time."
    # Waits of several threads add up, and their wall time does not.
    waited, passed = 0, 0
    for run in timed:
        for block in run.blocks:
            waited += block.judged.run_delay_ns or 0
            passed += block.judged.wall_ns * max(1, run.threads or 1)
    if waited > MAX_WAITING * passed:
        yield f"Timed processes waited for a CPU {waited / max(1, passed):.0%} of their time."


@REASONS.rule(
    "F_WHOLE_PROCESS",
    "The figures cover generation alone.",
    remedy="Make the program write each token as it is generated.",
)
def _check_decode(candidate: Candidate) -> Iterator[str]:
    # Start and load would outweigh the rest.
    blocks = candidate.case.timed_blocks
    if candidate.case.evidence.clock_scope == "process" and any(
        block.decode is None for block in blocks
    ):
        yield "The clock includes the program's start and load."


@REASONS.rule(
    "F_SUSPICIOUS",
    "Nothing is unlike measured data.",
    remedy="Read each suspicion.",
)
def _check_suspicions(candidate: Candidate) -> Iterator[str]:
    if candidate.suspicions:
        yield f"Raised: {', '.join(dict.fromkeys(candidate.suspicions))}."
