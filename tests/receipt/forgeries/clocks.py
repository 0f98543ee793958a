"""Forged clocks: token times, wall time, CPU time and waiting, some of them or all."""

from random import Random
from typing import Any

from tests.receipt.forgeries.book import LONG, PROGRAM, SERVED, Book
from tests.receipt.forgeries.draft import Draft, blocks, intervals, map_gaps

BOOK = Book("clocks")
WORKING = ("embedded-10tok", "program")
"""Material whose timed runs are long enough to separate work from sleep."""


def scale_sequences(block: dict[str, Any], factor: float) -> None:
    """Multiply the token times of a block."""
    map_gaps(block, lambda gap: round(gap * factor))


def scale(interval: dict[str, Any], factor: float, *names: str) -> None:
    """Multiply the clocks ``names`` of an interval, all without a name."""
    for name in names or ("wall_ns", "cpu_ns", "run_delay_ns"):
        if interval[name] is not None:
            interval[name] = round(interval[name] * factor)


def scale_intervals(draft: Draft, factor: float, *names: str) -> None:
    """Multiply the clocks ``names`` of the timed runs, all without a name."""
    for block in blocks(draft.timed):
        for interval in intervals(block):
            scale(interval, factor, *names)


@BOOK.lowered("W_TIME_UNACCOUNTED", then="recompute")
def token_times_shrunk(draft: Draft, source: Random) -> None:
    """Shrinks the token times and leaves the blocks as long as they were."""
    factor = source.uniform(0.05, 0.45)
    for block in blocks(draft.timed):
        scale_sequences(block, factor)


@BOOK.refused("E_CLOCK_CONTRADICTION", then="recompute")
def blocks_shrunk(draft: Draft, source: Random) -> None:
    """Shrinks the blocks, which the quiet clock is made of, and leaves the token times."""
    scale_intervals(draft, source.uniform(0.1, 0.8))


@BOOK.refused("E_CLOCK_CONTRADICTION", of=PROGRAM, then="recompute")
def decode_longer_than_the_program(draft: Draft, source: Random) -> None:
    """Shortens the program and leaves its decode: the start seems to cost nothing."""
    for block in blocks(draft.timed):
        block["interval"]["wall_ns"] = round(block["decode"]["wall_ns"] * source.uniform(0.5, 0.85))
        scale(block["interval"], 0.5, "cpu_ns")
        block["sequences_ns"] = [[1, *gaps[1:]] for gaps in block["sequences_ns"]]


@BOOK.refused("E_CLOCK_CONTRADICTION", of=WORKING, then="recompute")
def wall_shrunk_alone(draft: Draft, source: Random) -> None:
    """Shrinks wall and token times together and forgets the CPU time."""
    shrink_wall(draft, source.uniform(0.02, 0.18))


@BOOK.refused("E_CLOCK_CONTRADICTION", of=("callable", "embedded-1tok"), then="recompute")
def wall_of_short_blocks_shrunk(draft: Draft, source: Random) -> None:
    """Does the same where each block is shorter than the slack of two clock ticks."""
    shrink_wall(draft, source.uniform(0.02, 0.05))


def shrink_wall(draft: Draft, factor: float) -> None:
    """Shrink the wall and token times of the timed runs."""
    for block in blocks(draft.timed):
        scale_sequences(block, factor)
    scale_intervals(draft, factor, "wall_ns", "run_delay_ns")


@BOOK.refused("E_CLOCK_CONTRADICTION", then="recompute")
def busy_mock(draft: Draft, source: Random) -> None:
    """Writes much CPU time beside a mock, so that it seems to compute."""
    for block in blocks(draft.timed):
        for interval in intervals(block):
            interval["cpu_ns"] = round(interval["wall_ns"] * source.uniform(3, 60)) + 30_000_000


@BOOK.refused("E_CLOCK_CONTRADICTION", of=SERVED, then="recompute")
def reference_made_slow(draft: Draft, source: Random) -> None:
    """Lets the reference kernel seem slow, so that the machine does and the engine does not."""
    for block in blocks(draft.timed):
        scale(block["reference"], source.uniform(100, 1000), "cpu_ns")
        block["reference"]["cpu_ns"] += 3 * block["reference"]["wall_ns"] + 30_000_000


@BOOK.lowered("W_ASLEEP", of=WORKING, then="recompute")
def sleeping_mock(draft: Draft, source: Random) -> None:
    """Replays stored tokens with a sleep between them: the times are real, the work is not."""
    for block in blocks(draft.runs):
        for interval in intervals(block):
            interval["cpu_ns"] = round(interval["wall_ns"] * source.uniform(1e-5, 1e-2))
            interval["run_delay_ns"] = 0


@BOOK.lowered("W_FEW_RUNS", of=SERVED)
def times_left_out(draft: Draft, source: Random) -> None:
    """Leaves the token times out, so that nothing contradicts the rate."""
    draft.receipt["tokens_per_second"] *= source.uniform(1.5, 20)
    keep = source.choice([0, 1])
    for block in blocks(draft.timed):
        block["sequences_ns"] = [[0] * len(gaps) for gaps in block["sequences_ns"]] * keep


@BOOK.lowered("W_FEW_RUNS")
def profiled_runs_alone(draft: Draft, source: Random) -> None:
    """Keeps the profiled runs alone, whose times give no rate."""
    draft.evidence["runs"] = draft.profiled
    draft.receipt["tokens_per_second"] *= source.uniform(1.5, 20)


@BOOK.refused("E_EVIDENCE_SCHEMA")
def time_that_is_none(draft: Draft, source: Random) -> None:
    """Puts time below zero, a fraction or text among the nanoseconds."""
    block = source.choice(blocks(draft.timed))
    wrong = source.choice([-source.randint(1, 10**9), source.random(), "1000", None, True])
    if source.random() < 0.5:
        block["interval"]["wall_ns"] = wrong
    else:
        source.choice(block["sequences_ns"])[0] = wrong


@BOOK.lowered("W_WAITS_EXCEED_WALL", of=SERVED, then="recompute")
def waits_invented(draft: Draft, source: Random) -> None:
    """Writes more waiting than there was time, so that the quiet clock shows CPU time alone."""
    for block in blocks(draft.timed):
        interval = block["interval"]
        interval["run_delay_ns"] = round(interval["wall_ns"] * source.uniform(1.2, 3))
        scale(interval, 0.5, "cpu_ns")


@BOOK.suspected("W_TOO_ROUND", of=LONG, then="recompute")
def times_typed(draft: Draft, source: Random) -> None:
    """Types the times in by hand: every gap is a whole number of milliseconds, or the same."""
    step_ns = source.choice([1, 2, 5, 10]) * 1_000_000
    for block in blocks(draft.timed):
        map_gaps(block, lambda _: step_ns)
        wall_ns = sum(map(sum, block["sequences_ns"])) + source.randint(1, 9) * 1000
        block["interval"] = {"wall_ns": wall_ns, "cpu_ns": wall_ns, "run_delay_ns": 0}


@BOOK.passes(
    "Replay, or a run that CI starts: the same workload takes its time there.", then="recompute"
)
def everything_scaled(draft: Draft, source: Random) -> None:
    """Scales token times, wall time, CPU time and waiting of every run alike."""
    factor = source.uniform(0.2, 0.9)
    for block in blocks(draft.runs):
        scale_sequences(block, factor)
        for interval in intervals(block, reference=True):
            scale(interval, factor)
    draft.stacks = {path: max(1, round(n * factor)) for path, n in draft.stacks.items()}


@BOOK.passes("Replay, or a run that CI starts, of which no run can be chosen.", then="recompute")
def slow_runs_dropped(draft: Draft, source: Random) -> None:
    """Drops the slowest timed runs and keeps the lucky ones."""
    for _ in range(source.randint(1, len(draft.timed) - 2)):
        slowest = max(draft.timed, key=lambda run: int(run["blocks"][0]["interval"]["wall_ns"]))
        draft.evidence["runs"].remove(slowest)


@BOOK.passes(
    "An observer that counts the CPU time of the whole machine; a run that CI starts.",
    then="recompute",
)
def work_moved_out(draft: Draft, source: Random) -> None:
    """Lets a process that is not observed do half of the work."""
    scale_intervals(draft, source.uniform(0.1, 0.9), "cpu_ns")


@BOOK.passes(
    "Replay: the first token comes sooner there, and the others later.", of=LONG, then="recompute"
)
def time_moved_to_the_first_token(draft: Draft, source: Random) -> None:
    """Moves time from every token to the first one: decode seems fast, the whole is as long."""
    part = source.uniform(0.2, 0.8)
    for block in blocks(draft.timed):
        moved = []
        for first, *rest in block["sequences_ns"]:
            kept_ns = [round(gap * part) for gap in rest]
            moved.append([first + sum(rest) - sum(kept_ns), *kept_ns])
        block["sequences_ns"] = moved


@BOOK.refused("E_CLOCK_CONTRADICTION")
def dates_reversed(draft: Draft, source: Random) -> None:
    """Dates the runs in reverse, so that the first ones seem to be the last."""
    dates = [run["started_at"] for run in draft.runs]
    for run in draft.runs:
        run["started_at"] = dates.pop()


@BOOK.refused("E_CLOCK_CONTRADICTION", of=("embedded-10tok",), then="recompute")
def threads_beyond_the_cores(draft: Draft, source: Random) -> None:
    """Claims more threads than the machine has cores, and CPU time for all of them."""
    draft.evidence["machine"]["cpu_cores"] = "2"
    for run in draft.timed:
        run["threads"] = 64
        for block in run["blocks"]:
            block["interval"]["cpu_ns"] = block["interval"]["wall_ns"] * source.randint(3, 60)


@BOOK.refused("E_ORIGIN_MISMATCH", then="recompute")
def core_shared_with_nobody(draft: Draft, source: Random) -> None:
    """Says that another side shared the core, so that its time is left out of the rate."""
    for run in draft.timed:
        run["shares_core"] = True


@BOOK.refused("E_EVIDENCE_SCHEMA")
def no_memory_used(draft: Draft, source: Random) -> None:
    """States that a process held no memory at all."""
    source.choice(draft.timed)["peak_rss_bytes"] = 0
