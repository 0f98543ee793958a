"""Why an honest receipt is not usable as a baseline: suspicions, and too little observed.

A suspicion is measured data that honest runs rarely show; it proves nothing and rejects nothing. A
reason speaks against comparing with the receipt and not against its honesty. Two shortfalls lower
the grade: if the profiler or the token times cover only a small part of the runs, the runs were
not observed.
"""

import statistics
from collections.abc import Iterator
from itertools import chain

from pytest_flamegate.config import thresholds
from pytest_flamegate.core.text import Notice, quote
from pytest_flamegate.receipt.rules.rule import Rulebook, Submission
from pytest_flamegate.receipt.types import Grade

ENOUGH_GAPS = 20
ROUND_NS = 10_000
ROUND_BY_CHANCE = 1e-6
FEW_SAMPLES, NEXT_TO_NO_SAMPLES = 0.25, 0.03
SAMPLES_TO_JUDGE = 200
"""If fewer samples are expected, their number says nothing."""
LARGER_THAN_CACHES_BYTES = 3 << 30
"""The largest caches of two sockets together have some 2.3 GB."""
CORE_BYTES_PER_S, SYSTEM_BYTES_PER_S = 100e9, 4e12
"""The highest known read rates of one core, and of all memory of a machine with stacked memory."""
SPARSE = 4.0
"""A mixture of experts reads a part of its weights for each token."""
WORTH_READING_BYTES = 64 << 20
READ_AT_LEAST = 0.1
ACCOUNTED_AT_LEAST = 0.5
"""A starved observer of short blocks accounted for 0.74 of their time, others for more."""
UNACCOUNTED_NS = 20_000_000

SUSPICIONS: Rulebook[Submission] = Rulebook()
SHORTFALLS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)


@SUSPICIONS.rule("W_TOO_ROUND", "Times and shares are as irregular as measured ones.")
def _check_roundness(case: Submission) -> Iterator[str]:
    # Typed constants, or a clock too coarse for a gate.
    blocks = case.timed_blocks
    gaps = [*filter(None, chain(*[chain(*block.sequences_ns) for block in blocks]))]
    if len(gaps) >= ENOUGH_GAPS:
        if gaps.count(gaps[0]) == len(gaps):
            yield f"All {len(gaps):,} token times are {gaps[0]:,} ns."
        elif not any(gap % ROUND_NS for gap in gaps):
            yield f"All {len(gaps):,} token times are multiples of {ROUND_NS:,} ns."
    same = sum([block.interval.cpu_ns == block.interval.wall_ns for block in blocks])
    if len(blocks) > 2 and same == len(blocks):
        yield f"CPU time equals wall time to the nanosecond in all {same} blocks."
    rate, claimed = case.rate, case.claim.tokens_per_second
    if rate is not None and claimed >= 1 and claimed == round(claimed) != rate.tokens_per_second:
        yield f"{claimed:.0f} tok/s is a whole number; the token times give more digits."
    yield from _round_shares(case)


def _round_shares(case: Submission) -> Iterator[str]:
    profile = case.evidence.profile
    if profile is None or profile.samples <= 100:
        return
    shares = [100 * spot.self_share for spot in profile.hotspots if spot.self_samples]
    by_chance = (100 / profile.samples) ** max(0, len(shares) - 1)
    if by_chance < ROUND_BY_CHANCE and all(abs(share - round(share)) < 1e-9 for share in shares):
        yield f"The shares of all {len(shares)} functions are whole percents."


@SUSPICIONS.rule(
    "W_FASTER_THAN_MEMORY", "A CPU reads a large model no faster than its memory allows."
)
def _check_memory_rate(case: Submission) -> Iterator[str]:
    # Each token needs one pass over the weights, which fit into no cache.
    size = case.evidence.model.get("size_bytes")
    if case.claim.backend != "cpu" or not isinstance(size, int) or size < LARGER_THAN_CACHES_BYTES:
        return
    most = min(SYSTEM_BYTES_PER_S, (case.cores or 1_000_000) * CORE_BYTES_PER_S)
    read = size * case.claim.tokens_per_second
    if read > SPARSE * most:
        yield (
            f"{case.claim.tokens_per_second:.1f} tok/s with a model of {size / 1e9:.1f} GB would "
            f"read {read / 1e12:.1f} TB/s; this machine reads at most {most / 1e12:.1f}."
        )


@SUSPICIONS.rule("W_MODEL_NOT_READ", "The processes held or read as much as the model file has.")
def _check_model_read(case: Submission) -> Iterator[str]:
    # Mapped pages count as resident memory once they are read.
    size = case.evidence.model.get("size_bytes")
    if case.claim.backend != "cpu" or not isinstance(size, int) or size < WORTH_READING_BYTES:
        return
    held = [
        run.peak_rss_bytes + run.read_bytes
        for run in case.evidence.runs
        if run.peak_rss_bytes is not None and run.read_bytes is not None
    ]
    if held and max(held) < READ_AT_LEAST * size:
        yield f"The model has {size / 1e6:,.0f} MB; processes read {max(held) / 1e6:,.0f} MB."


@SHORTFALLS.rule(
    "W_TIME_UNACCOUNTED",
    "Token times cover most of the time of the blocks, or of a program's decode.",
)
def _check_accounted_time(case: Submission) -> Iterator[str]:
    # Shortened token times beside unchanged clocks. A starved observer reads some blocks late
    # and in one piece, so only their sum is compared.
    blocks = [block for block in case.timed_blocks if block.sequences_ns]
    if case.evidence.clock_scope == "process":
        blocks = [block for block in blocks if block.decode is not None]
    tokens_ns = sum([block.judged_tokens_ns for block in blocks])
    wall_ns = sum([block.judged.wall_ns for block in blocks])
    if wall_ns - tokens_ns > UNACCOUNTED_NS and tokens_ns < ACCOUNTED_AT_LEAST * wall_ns:
        yield f"Token times add up to {tokens_ns / 1e6:,.1f} ms of {wall_ns / 1e6:,.1f} ms."


@SUSPICIONS.rule(
    "W_FEW_SAMPLES",
    f"A profiler took {FEW_SAMPLES:.0%} of the samples that CPU time and rate allow.",
)
def _check_few_samples(case: Submission) -> Iterator[str]:
    # The missing samples may be distributed unevenly.
    yield from _missing(case, NEXT_TO_NO_SAMPLES, FEW_SAMPLES)


@SHORTFALLS.rule(
    "W_FEW_SAMPLES",
    f"A profiler took {NEXT_TO_NO_SAMPLES:.0%} of these samples; fewer show no kernel at work.",
)
def _check_missing_samples(case: Submission) -> Iterator[str]:
    yield from _missing(case, 0.0, NEXT_TO_NO_SAMPLES)


def _missing(case: Submission, least: float, below: float) -> Iterator[str]:
    profile = case.evidence.profile
    if profile is None or profile.rate_hz <= 0 or not profile.samples:
        return
    # At most one thread counts, because some samplers see only the threads of Python.
    intervals = [
        block.decode if profile.covers == "decode" and block.decode is not None else block.interval
        for run in case.profiled
        for block in run.blocks
    ]
    seconds = sum(min(each.cpu_ns, each.wall_ns) for each in intervals) / 1e9
    expected = seconds * profile.rate_hz
    taken = profile.samples + profile.errors + profile.lost
    if expected >= SAMPLES_TO_JUDGE and least * expected <= taken < below * expected:
        yield f"{taken:,} samples; {seconds:.1f} s at {profile.rate_hz} Hz allow {expected:,.0f}."


REASONS: Rulebook[Submission] = Rulebook()
"""Why an honest receipt with evidence is not usable as a baseline."""

NO_EVIDENCE = Notice(
    "F_NO_EVIDENCE", "Without evidence, no file shows how the figures were measured."
)


@REASONS.rule("F_NOT_DETERMINISTIC", "The same prompt gives the same tokens.")
def _check_determinism(case: Submission) -> Iterator[str]:
    evidence = case.evidence
    if not case.claim.deterministic:
        yield "The receipt states deterministic: false."
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
    if profile is not None and profile.degraded:
        yield f"The profile is degraded: {', '.join(map(quote, profile.degraded))}."
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
        yield f"{commit.uncommitted} file(s) differed from the commit."


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
