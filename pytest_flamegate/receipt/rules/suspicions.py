"""Suspicions: figures that are rarely seen in honest evidence, and prove nothing.

None of them refuses a receipt or lowers its grade. Each is a reason to look at it before
anything is gated on it. Two lower the grade: where a profiler saw next to nothing of the
runs, or token times tell of a small part of them, that is no observation of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.metrics import rate_of
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.rules.subject import Case


ENOUGH_GAPS = 20
ROUND_NS = 10_000
ROUND_BY_CHANCE = 1e-6
FEW_SAMPLES, NEXT_TO_NO_SAMPLES = 0.25, 0.03
SAMPLES_TO_JUDGE = 200
"""Fewer samples than this to expect, and how many there are says nothing."""
LARGER_THAN_CACHES_BYTES = 3 << 30
"""The largest caches of two sockets together hold some 2.3 GB."""
CORE_BYTES_PER_S, SYSTEM_BYTES_PER_S = 100e9, 4e12
"""What one core, and what all memory of a machine with stacked memory, has been seen to read."""
SPARSE = 4.0
"""A mixture of experts reads a part of its weights for each token."""
WORTH_READING_BYTES = 64 << 20
READ_AT_LEAST = 0.1
ACCOUNTED_AT_LEAST = 0.5
"""A starved observer of short blocks accounted for 0.74 of their time together, others for more."""
UNACCOUNTED_NS = 20_000_000

SUSPICIONS: Rulebook[Case] = Rulebook()
SHORTFALLS: Rulebook[Case] = Rulebook()

_LOOK = "Look at how the evidence came about, or measure again."


@SUSPICIONS.rule(
    "W_TOO_ROUND",
    "Times and shares are as uneven as what is measured.",
    remedy=_LOOK,
    protects=None,
    needs={"tokens_per_second"},
)
def _too_round(case: Case) -> Iterator[str]:
    # Constants that somebody typed; or a clock too coarse to gate on.
    blocks = [block for run in case.timed for block in run.blocks]
    gaps = [gap for block in blocks for gaps in block.sequences_ns for gap in gaps if gap]
    if len(gaps) >= ENOUGH_GAPS:
        if len(set(gaps)) == 1:
            yield f"All {len(gaps):,} token times are {gaps[0]:,} ns."
        elif not any(gap % ROUND_NS for gap in gaps):
            yield f"All {len(gaps):,} token times are multiples of {ROUND_NS:,} ns."
    same = sum(block.interval.cpu_ns == block.interval.wall_ns for block in blocks)
    if len(blocks) > 2 and same == len(blocks):
        yield f"CPU time is wall time to the nanosecond in all {same} blocks."
    rate, claimed = rate_of(case.evidence.runs), case.claim.tokens_per_second
    if rate is not None and claimed >= 1 and claimed == round(claimed) != rate.tokens_per_second:
        yield f"{claimed:.0f} tok/s is a whole number, and the token times give more digits."
    yield from _round_shares(case)


def _round_shares(case: Case) -> Iterator[str]:
    profile = case.evidence.profile
    if profile is None or profile.samples <= 100:
        return
    shares = [100 * spot.self_share for spot in profile.hotspots if spot.self_samples]
    by_chance = (100 / profile.samples) ** max(0, len(shares) - 1)
    if by_chance < ROUND_BY_CHANCE and all(abs(share - round(share)) < 1e-9 for share in shares):
        yield f"The shares of all {len(shares)} functions are whole percents."


@SUSPICIONS.rule(
    "W_FASTER_THAN_MEMORY",
    "A CPU reads a large model from memory no faster than memory is.",
    remedy="Fine for a mixture of many experts; else look at how the evidence came about.",
    protects=None,
    needs={"backend", "tokens_per_second"},
)
def _faster_than_memory(case: Case) -> Iterator[str]:
    # Each token takes one pass over the weights, and they fit into no cache.
    size = case.evidence.model.get("size_bytes")
    if case.claim.backend != "cpu" or not isinstance(size, int) or size < LARGER_THAN_CACHES_BYTES:
        return
    cores = case.evidence.machine.get("cpu_cores", "")
    known = int(cores) if cores.isascii() and cores.isdigit() and len(cores) < 7 else None
    most = min(SYSTEM_BYTES_PER_S, (known or 1_000_000) * CORE_BYTES_PER_S)
    read = size * case.claim.tokens_per_second
    if read > SPARSE * most:
        yield (
            f"{case.claim.tokens_per_second:.1f} tok/s of a model of {size / 1e9:.1f} GB would be "
            f"{read / 1e12:.1f} TB/s, and this machine reads {most / 1e12:.1f} at most."
        )


@SUSPICIONS.rule(
    "W_MODEL_NOT_READ",
    "The processes held or read what the model file holds.",
    remedy="Fine where another process serves the model; else look at what was run.",
    protects=None,
    needs={"backend"},
)
def _model_not_read(case: Case) -> Iterator[str]:
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
        yield (
            f"The model has {size / 1e6:,.0f} MB, and no process held and read more than "
            f"{max(held) / 1e6:,.0f} MB together."
        )


@SHORTFALLS.rule(
    "W_TIME_UNACCOUNTED",
    "Token times fill most of the time that blocks, or a program's decode, took.",
    remedy="See what the engine does after its last token: no figure by token counts it.",
    protects=Grade.OBSERVED,
)
def _time_unaccounted(case: Case) -> Iterator[str]:
    # Token times cut down, while clocks and costs were left as they were. A starved
    # observer reads late, some blocks as one piece: only together do they tell.
    blocks = [block for run in case.timed for block in run.blocks if block.sequences_ns]
    if case.evidence.clock_scope == "process":
        blocks = [block for block in blocks if block.decode is not None]
    told_ns = sum(
        sum(gaps[0 if block.decode is None else 1 :])
        for block in blocks
        for gaps in block.sequences_ns
    )
    wall_ns = sum(block.judged.wall_ns for block in blocks)
    if wall_ns - told_ns > UNACCOUNTED_NS and told_ns < ACCOUNTED_AT_LEAST * wall_ns:
        yield f"{told_ns / 1e6:,.1f} ms of token times stand in {wall_ns / 1e6:,.1f} ms of blocks."


@SUSPICIONS.rule(
    "W_FEW_SAMPLES",
    "A profiler saw most of the CPU time that it was to sample.",
    remedy="Sample at a lower rate, or with another profiler (flamegate doctor).",
    protects=None,
)
def _few_samples(case: Case) -> Iterator[str]:
    # What was missed may be spread unevenly.
    yield from _missing(case, NEXT_TO_NO_SAMPLES, FEW_SAMPLES)


@SHORTFALLS.rule(
    "W_SAMPLES_MISSING",
    "A profiler saw more than a trace of the CPU time that it was to sample.",
    remedy="Sample with another profiler (flamegate doctor).",
    protects=Grade.OBSERVED,
)
def _samples_missing(case: Case) -> Iterator[str]:
    # A profile of next to nothing shows no kernel at work.
    yield from _missing(case, 0.0, NEXT_TO_NO_SAMPLES)


def _missing(case: Case, least: float, below: float) -> Iterator[str]:
    profile = case.evidence.profile
    if profile is None or profile.rate_hz <= 0 or not profile.samples:
        return
    # One thread's worth at most: some samplers see the threads of Python alone.
    intervals = [
        block.decode if profile.covers == "decode" and block.decode is not None else block.interval
        for run in case.profiled
        for block in run.blocks
    ]
    seconds = sum(min(each.cpu_ns, each.wall_ns) for each in intervals) / 1e9
    expected = seconds * profile.rate_hz
    taken = profile.samples + profile.errors + profile.lost
    if expected >= SAMPLES_TO_JUDGE and least * expected <= taken < below * expected:
        yield (
            f"{taken:,} samples were taken or lost, and {seconds:.1f} s of CPU time at "
            f"{profile.rate_hz} a second are {expected:,.0f}."
        )
