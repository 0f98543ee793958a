"""Whether figures are like measured ones: suspicions, and too little observed.

A suspicion is measured data that honest runs rarely show; it proves nothing and rejects nothing.
Two shortfalls lower the grade: if the profiler or the token times cover only a small part of the
runs, the runs were not observed.
"""

from collections.abc import Iterator
from itertools import chain

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
