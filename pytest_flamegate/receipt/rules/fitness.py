"""Why an honest receipt is not usable as a baseline.

A reason speaks against comparing with the receipt and not against its honesty.
"""

import statistics
from collections.abc import Iterator

from pytest_flamegate.config import thresholds
from pytest_flamegate.core.text import Notice, quote
from pytest_flamegate.receipt.rules.claim import find_random_setting
from pytest_flamegate.receipt.rules.profile import check_degraded
from pytest_flamegate.receipt.rules.rule import Rulebook, Submission

REASONS: Rulebook[Submission] = Rulebook()
"""Why an honest receipt with evidence is not usable as a baseline."""

NO_EVIDENCE = Notice(
    "F_NO_EVIDENCE", "Without evidence, no file shows how the figures were measured."
)


@REASONS.rule("F_NOT_DETERMINISTIC", "The same prompt gives the same tokens.")
def _check_determinism(case: Submission) -> Iterator[str]:
    evidence = case.evidence
    if not case.claim.deterministic:
        name = find_random_setting(case.claim.environment)
        why = f", and {quote(name)} is {quote(case.claim.environment[name])}" if name else ""
        yield f"The receipt states deterministic: false{why}."
    others = sum(run.token_digest != evidence.expected_digest(run) for run in evidence.runs)
    if evidence.differs_at is not None:
        yield f"Sequences differ from token {evidence.differs_at} on."
    elif others:
        yield f"{others} of {len(evidence.runs)} runs generated other tokens."


@REASONS.rule("F_TOO_SHORT", "Enough processes were timed, and the profile has enough samples.")
def _check_length(case: Submission) -> Iterator[str]:
    timed, least = sum(run.tokens > 0 for run in case.timed), thresholds.MIN_PROCESSES
    if timed < least:
        yield f"{timed} process(es) were timed; the spread needs at least {least}."
    profile, least = case.evidence.profile, thresholds.SAMPLE_FLOOR
    if profile is not None and profile.rate_hz > 0 and 0 < profile.samples < least:
        yield f"{profile.samples} samples were taken; a hotspot needs {least}."


@REASONS.rule("F_ONE_PROCESS", "Each timed run was a process of its own.")
def _check_fresh_processes(case: Submission) -> Iterator[str]:
    # Effects that change from start to start, such as the memory layout, were not observed.
    if case.in_windows:
        yield "All runs asked one server that was already running."


@REASONS.rule("F_PROFILE", "A profile without compromise shows where the time of a kernel went.")
def _check_profile(case: Submission) -> Iterator[str]:
    profile, kernels = case.evidence.profile, case.evidence.kernels
    if kernels and not any(sighting.source == "profile" for sighting in kernels):
        yield "The kernels were reported by the engine alone."
    if profile is None or case.folded is None or not case.folded.samples:
        yield "Without a profile no hotspot can be gated."
    yield from check_degraded(case)
    least = thresholds.STACK_FLOOR
    if profile is not None and profile.call_graph != "none" and profile.completeness < least:
        yield f"{profile.completeness:.0%} complete stacks, not {least:.0%}."


@REASONS.rule("F_INJECTED", "No work was injected.")
def _check_injection(case: Submission) -> Iterator[str]:
    injection = case.evidence.workload.get("injection")
    if injection:
        yield f"{quote(injection)} was injected on purpose."


@REASONS.rule("F_SIDE_OF_COMPARISON", "The workload was measured alone.")
def _check_alone(case: Submission) -> Iterator[str]:
    # Runs of a pair are comparable with the other side alone.
    side = case.evidence.side
    if side is not None:
        yield f"It is the {side} of a comparison in pairs."


@REASONS.rule("F_NO_COMMIT", "A commit names the code.")
def _check_commit(case: Submission) -> Iterator[str]:
    commit = case.evidence.commit
    if commit is None:
        yield "No commit names the measured code."
    elif commit.uncommitted:
        files = "1 file" if commit.uncommitted == 1 else f"{commit.uncommitted} files"
        yield f"{files} differed from the commit."


@REASONS.rule("F_MACHINE_BUSY", "The machine had time for the runs.")
def _check_machine(case: Submission) -> Iterator[str]:
    timed = case.timed
    pressures = [run.cpu_pressure_pct for run in timed if run.cpu_pressure_pct is not None]
    if pressures and statistics.median(pressures) > thresholds.MAX_CPU_PRESSURE_PCT:
        yield f"Tasks waited for a CPU {statistics.median(pressures):.0f} % of the time."
    # Waits of several threads add up, and their wall time does not.
    waited, passed = 0, 0
    for run in timed:
        for block in run.blocks:
            waited += block.judged.run_delay_ns or 0
            passed += block.judged.wall_ns * max(1, run.threads or 1)
    if waited > thresholds.MAX_WAITING * passed:
        yield f"Timed processes waited for a CPU {waited / max(1, passed):.0%} of their time."


@REASONS.rule("F_WHOLE_PROCESS", "The figures cover generation alone.")
def _check_decode(case: Submission) -> Iterator[str]:
    # Start and load would outweigh the rest.
    blocks = case.timed_blocks
    if case.evidence.clock_scope == "process" and any(block.decode is None for block in blocks):
        yield "The clock includes the program's start and load."


@REASONS.rule("F_SUSPICIOUS", "Nothing is unlike measured data.")
def _check_suspicions(case: Submission) -> Iterator[str]:
    if case.suspicions:
        yield f"Raised: {', '.join(dict.fromkeys(case.suspicions))}."
