"""Conditions of honest measurements: waits, ticks, losses, odd stamps, early ends."""

from collections.abc import Callable
from datetime import timedelta
from random import Random

from pytest_flamegate.core.json import decode_plain, encode_plain
from pytest_flamegate.receipt.reported import engine_kernels
from pytest_flamegate.receipt.types import Evidence
from tests.receipt.forgeries.devices import see_gpu
from tests.receipt.forgeries.draft import Draft, blocks, hexadecimal, intervals, shift
from tests.receipt.forgeries.engines import one_server
from tests.receipt.forgeries.reports import report_all

TICK_NS = 10_000_000
Weather = Callable[[Draft, Random], None]


def preempted(draft: Draft, source: Random) -> None:
    """Other processes take the core for 10 to 100 ms, now and then."""
    for block in blocks(draft.timed):
        if source.random() < 0.5:
            wait_ns = round(source.uniform(10, 100) * 1e6)
            gaps = source.choice(block["sequences_ns"])
            gaps[-1] += wait_ns
            for interval in intervals(block):
                inside = interval is block["interval"] or len(gaps) > 1
                interval["wall_ns"] += wait_ns if inside else 0
                if inside and interval["run_delay_ns"] is not None:
                    interval["run_delay_ns"] += wait_ns


def observer_late(draft: Draft, source: Random) -> None:
    """The observer itself waits for a core: tokens pile up and are read at one moment."""
    for block in blocks(draft.timed):
        for gaps in block["sequences_ns"]:
            if len(gaps) > 2 and source.random() < 0.3:
                at = source.randrange(1, len(gaps))
                gaps[at - 1] += gaps[at]
                gaps[at] = 0


def no_run_delay(draft: Draft, source: Random) -> None:
    """The kernel does not report how long a process waited."""
    for block in blocks(draft.runs):
        for interval in intervals(block, reference=True):
            interval["run_delay_ns"] = None


def cpu_in_ticks(draft: Draft, source: Random) -> None:
    """CPU time comes in clock ticks of 10 ms, a tick early or late."""
    for block in blocks(draft.runs):
        for interval in intervals(block, reference=True):
            ticks = interval["cpu_ns"] / TICK_NS + source.random()
            interval["cpu_ns"] = int(ticks) * TICK_NS


def threaded(draft: Draft, source: Random) -> None:
    """Several threads compute at once, on a machine of many cores."""
    threads = source.randint(2, 64)
    draft.evidence["machine"]["cpu_cores"] = str(threads * source.choice([1, 2, 4]))
    for run in draft.runs:
        run["threads"] = source.choice([threads, threads + 1, None, max(1, threads // 2)])
        for block in run["blocks"]:
            for interval in intervals(block):
                # Never fewer than one core's worth: the samples were taken of as much.
                cores = source.uniform(1, threads)
                interval["cpu_ns"] = round(interval["cpu_ns"] * cores)


def one_thread_counted(draft: Draft, source: Random) -> None:
    """Threads are not counted, or only the one that was there at that moment."""
    for run in draft.runs:
        run["threads"] = source.choice([None, 1])


def single_token(draft: Draft, source: Random) -> None:
    """The model ends after one token; a program has no separate decode then."""
    draft.receipt["tokens_generated"] = 1
    draft.retoken(draft.evidence["tokens"][:1])
    for run in draft.runs:
        run["tokens_per_sequence"] = 1
        for block in run["blocks"]:
            block["sequences_ns"] = [
                [max(1, sum(gaps) if run["role"] == "timed" else 0)]
                for gaps in block["sequences_ns"]
            ]
            block["decode"] = block["decode_tokens"] = None


def ends_early(draft: Draft, source: Random) -> None:
    """The text ends before as many tokens as were asked for."""
    tokens = draft.evidence["tokens"]
    if len(tokens) < 3:
        return
    keep = source.randrange(2, len(tokens))
    draft.receipt["tokens_generated"] = keep
    draft.retoken(tokens[:keep])
    for run in draft.runs:
        run["tokens_per_sequence"] = keep
        for block in run["blocks"]:
            block["sequences_ns"] = [
                [*gaps[: keep - 1], sum(gaps[keep - 1 :])] for gaps in block["sequences_ns"]
            ]


def not_deterministic(draft: Draft, source: Random) -> None:
    """Sequences differ, and the receipt says so."""
    draft.receipt["deterministic"] = False
    at = source.randrange(len(draft.evidence["tokens"]))
    draft.evidence |= {"differs_at": at, "differs_to": source.choice([None, "other"])}
    for run in draft.runs:
        if source.random() < 0.4:
            run["token_digest"] = hexadecimal(source, 64)


def lossy(draft: Draft, source: Random) -> None:
    """The profiler failed now and then, lost samples, and says that it is degraded."""
    draft.profile.update(
        errors=source.randrange(1000),
        lost=source.randrange(10_000),
        completeness=source.random(),
        degraded=source.sample(["nonblocking", "lost samples", "no kernel frames"], 2),
    )
    draft.stacks = {path: max(1, round(n * 0.8)) for path, n in draft.stacks.items()}


def no_profile_overhead(draft: Draft, source: Random) -> None:
    """The profiler's own cost is not known."""
    draft.profile["overhead_pct"] = None


def unknown_starts(draft: Draft, source: Random) -> None:
    """The kernel or the profiler does not report when a process started."""
    for entry in (*draft.runs, *draft.profile["processes"]):
        if source.random() < 0.5:
            entry["started_ticks"] = None


def commits(draft: Draft, source: Random) -> None:
    """No commit, one without a tree, or files that differ from it."""
    commit = draft.evidence["commit"]
    draft.evidence["commit"] = source.choice(
        [None, commit | {"uncommitted": source.randint(1, 99)}, commit | {"tree": ""}]
    )


def clock_set(draft: Draft, source: Random) -> None:
    """The wall clock is set, by seconds, while the runs last."""
    by = timedelta(seconds=source.uniform(-30, 30))
    created = draft.created
    shift(draft, by)
    draft.evidence["created"] = created.isoformat().replace("+00:00", "Z")
    draft.receipt["timestamp"] = draft.evidence["created"]


def gpu_idle(draft: Draft, source: Random) -> None:
    """A GPU stands in the machine, and nothing of this ran on it."""
    for run in see_gpu(draft, source)["runs"]:
        run["on"] = []


def rounded(draft: Draft, source: Random) -> None:
    """The clock ticks in tenths of a microsecond, or in whole ones."""
    step = source.choice([100, 1000])
    for block in blocks(draft.runs):
        for gaps in block["sequences_ns"]:
            gaps[:] = [gap // step * step for gap in gaps]


def told_by_the_engine(draft: Draft, source: Random) -> None:
    """The engine reports on itself, by clocks and counts of its own, and names its kernels."""
    for report in report_all(draft, source):
        report["kernels"] = {"MUL_MAT": source.randint(1, 900), "ROPE": source.randint(0, 9)}
        if source.random() < 0.3:
            report["figures"]["spec_accept_pct"] = source.uniform(0, 100)
    told = engine_kernels(
        decode_plain(draft.evidence, Evidence).runs,
        {sighting["name"] for sighting in draft.evidence["kernels"]},
    )
    draft.evidence["kernels"] += map(encode_plain, told)


def one_running_server(draft: Draft, source: Random) -> None:
    """The engine is a server that ran before: every run is a window of it."""
    if draft.evidence["clock_scope"] == "sequence":
        one_server(draft)


WEATHER: tuple[Weather, ...] = (
    one_running_server,
    preempted, observer_late, no_run_delay, threaded, cpu_in_ticks, one_thread_counted,
    single_token, ends_early, not_deterministic, lossy, no_profile_overhead, unknown_starts,
    commits, clock_set, rounded, gpu_idle, told_by_the_engine,
)  # fmt: skip
