"""No honest receipt is rejected, and almost all reach OBSERVED, whatever the machine did.

Each is resampled from a measurement that flamegate made: its processes, blocks and sequences,
with fresh noise, waits, ticks and shapes, and written as flamegate writes it.
"""

import copy
import math
from collections.abc import Callable
from datetime import timedelta
from itertools import dropwhile
from random import Random
from typing import Any

import pytest

from pytest_flamegate.core.json import decode_plain, encode_plain
from pytest_flamegate.profile.stacks import WORKLOAD_ROOT
from pytest_flamegate.receipt import Grade, Verification
from pytest_flamegate.receipt.reported import engine_kernels
from pytest_flamegate.receipt.types import Evidence
from tests.receipt.forgeries.book import verify
from tests.receipt.forgeries.clocks import scale, scale_sequences
from tests.receipt.forgeries.devices import see_gpu
from tests.receipt.forgeries.draft import (
    NAMES,
    Draft,
    blocks,
    hexadecimal,
    intervals,
    load,
    map_gaps,
    shift,
    stamp,
)
from tests.receipt.forgeries.engines import one_server
from tests.receipt.forgeries.reports import report_all

WAKING_NS = 20_000
"""How much sooner or later the observer wakes up for a token."""

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


def coarse_clocks(draft: Draft, source: Random) -> None:
    """CPU time comes in ticks of 10 ms, early or late, and wall time in whole microseconds."""
    for block in blocks(draft.runs):
        for interval in intervals(block, reference=True):
            ticks = interval["cpu_ns"] / TICK_NS + source.random()
            interval["cpu_ns"] = int(ticks) * TICK_NS
        map_gaps(block, lambda gap: gap // 1000 * 1000)


def unreported(draft: Draft, source: Random) -> None:
    """The kernel and the profiler report no starts, no threads or no waits."""
    draft.profile["overhead_pct"] = None
    waits = source.choice([True, False])
    for entry in (*draft.runs, *draft.profile["processes"]):
        if source.random() < 0.5:
            entry["started_ticks"] = None
    for run in draft.runs:
        run["threads"] = source.choice([None, 1])
        for interval in (i for block in run["blocks"] for i in intervals(block, reference=True)):
            interval["run_delay_ns"] = interval["run_delay_ns"] if waits else None


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
    cut = source.sample(sorted(draft.stacks), len(draft.stacks) // 2)
    for path in cut:  # they have lost their callers
        leaf = path.rpartition(";")[2]
        draft.stacks[leaf] = draft.stacks.get(leaf, 0) + draft.stacks.pop(path)
    whole = sum(count for path, count in draft.stacks.items() if WORKLOAD_ROOT in path)
    draft.profile.update(
        errors=source.randrange(1000),
        lost=source.randrange(10_000),
        completeness=source.uniform(whole / sum(draft.stacks.values()), 1.0),
        degraded=source.sample(["nonblocking", "lost samples", "no kernel frames"], 2),
    )
    draft.stacks = {path: max(1, round(n * 0.8)) for path, n in draft.stacks.items()}


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
    *(one_running_server, preempted, observer_late, threaded, coarse_clocks, unreported),
    *(single_token, ends_early, not_deterministic, lossy, commits, clock_set, gpu_idle),
    told_by_the_engine,
)


def honest(number: int) -> tuple[Verification, tuple[str, ...]]:
    """Make the receipt ``number`` and verify it; return the answer and its weather."""
    source = Random(f"honest-{number}")
    draft = load(source.choice(NAMES))
    pace(draft, source)
    resample(draft, source)
    chosen = [weather for weather in WEATHER if source.random() < 0.25]
    for weather in chosen:
        weather(draft, source)
    for block in blocks(draft.runs):
        if block.get("decode") is not None:
            # The observer counts the tokens after its first look, at which several may have come.
            later = [dropwhile(lambda gap: not gap, gaps[1:]) for gaps in block["sequences_ns"]]
            block["decode_tokens"] = sum(1 for gaps in later for _ in gaps)
    shift(draft, timedelta(days=source.uniform(-900, 0)))
    draft.evidence["nonce"] = draft.profile["nonce"] = hexadecimal(source, 32)
    now = draft.created + timedelta(seconds=source.uniform(0, 1e6))
    answer = verify(draft.retime().recount().reseal().files(), now=now)
    return answer, tuple(weather.__name__ for weather in chosen)


def pace(draft: Draft, source: Random) -> None:
    """Let the engine be another one: a hundred times faster, or a hundred times slower."""
    factor = 10 ** source.choice([0.0, source.uniform(-2, 2)])
    for run in draft.runs:
        for block in run["blocks"]:
            scale_sequences(block, factor)
            for interval in intervals(block):
                scale(interval, factor)
    # As many samples in less time were taken at a higher rate, and in more at a lower one.
    draft.profile["rate_hz"] = math.ceil(draft.profile["rate_hz"] / factor)


def resample(draft: Draft, source: Random) -> None:
    """Draw processes from the timed ones, with fresh noise on every token and look."""
    timed = [copy.deepcopy(source.choice(draft.timed)) for _ in range(source.randint(2, 12))]
    pid = draft.runs[0]["pid"]
    for index, run in enumerate(timed):
        run["pid"] = pid + 2 * index
        run["blocks"] = [
            copy.deepcopy(source.choice(run["blocks"])) for _ in range(source.randint(1, 3))
        ]
        run["peak_rss_bytes"] = source.randint(10**6, 10**11)
    profiled = draft.profiled
    dealt = {process["pid"]: process for process in draft.profile["processes"]}
    for index, run in enumerate(profiled):
        if run["pid"] in dealt:
            dealt[run["pid"]]["pid"] = pid + 1000 + index
        run["pid"] = pid + 1000 + index
    draft.evidence["runs"] = [*timed, *profiled]
    for block in blocks(draft.timed):
        renoised(block, source)
    dated(draft, source)


def dated(draft: Draft, source: Random) -> None:
    """Let the runs follow one another, with time to start and to end, up to the writing."""
    at_s = 0.0
    starts_s = []
    for run in draft.runs:
        starts_s.append(at_s)
        spent = [i for block in run["blocks"] for i in intervals(block, reference=True)]
        at_s += sum(i["wall_ns"] for i in spent) / 1e9 + (run["load_ns"] or 0) / 1e9
        # Room for time that the weather adds to a block or that no interval covers.
        at_s += 0.3 + 0.1 * len(run["blocks"]) + source.random()
    first = draft.runs[0]["started_ticks"]
    dealt = {process["pid"]: process for process in draft.profile["processes"]}
    for run, start_s in zip(draft.runs, starts_s, strict=True):
        run["started_ticks"] = first + round(100 * start_s)
        run["started_at"] = stamp(draft.created - timedelta(seconds=at_s - start_s))
        if run["pid"] in dealt:
            dealt[run["pid"]]["started_ticks"] = run["started_ticks"]


def renoised(block: dict[str, Any], source: Random) -> None:
    """Draw every token's time anew around its old one, and the clocks around their sum."""
    before_ns = sum(map(sum, block["sequences_ns"]))
    rest_ns = max(0, block["interval"]["wall_ns"] - before_ns)
    spread = source.choice([0.002, 0.03, 0.3])
    map_gaps(
        block,
        lambda gap: round(gap * source.lognormvariate(0, spread)) + source.randrange(WAKING_NS),
    )
    longer_ns = sum(map(sum, block["sequences_ns"])) - before_ns
    decode = block.get("decode")
    for interval in intervals(block):
        busy = interval["cpu_ns"] / max(1, interval["wall_ns"])
        interval["wall_ns"] = max(1, interval["wall_ns"] + longer_ns)
        interval["cpu_ns"] = round(interval["wall_ns"] * min(1.0, busy))
        if interval["run_delay_ns"] is not None:
            spare_ns = interval["wall_ns"] - interval["cpu_ns"]
            interval["run_delay_ns"] = round(spare_ns * source.random())
    if decode is not None:
        decoded_ns = sum(sum(gaps[1:]) for gaps in block["sequences_ns"])
        decode["wall_ns"] = decoded_ns + source.randrange(100_000)
        decode["cpu_ns"] = min(decode["cpu_ns"], decode["wall_ns"])
        block["interval"]["wall_ns"] = max(
            block["interval"]["wall_ns"], rest_ns + sum(map(sum, block["sequences_ns"]))
        )


LOWERED = {"coarse_clocks", "observer_late", "single_token", "ends_early"}
WAITS_UNREPORTED = {"preempted", "unreported"}
"""Conditions that lower a grade if a run is too short to tell work from sleep: any, or both."""


@pytest.mark.parametrize(
    "numbers", [range(60), pytest.param(range(60, 10_000), marks=pytest.mark.nightly)]
)
def test_no_honest_receipt_is_rejected(numbers: range) -> None:
    tried: set[str] = set()
    for number in numbers:
        answer, weather = honest(number)
        assert answer.refusals == (), (number, weather)
        assert answer.grade > Grade.SELF_REPORTED
        if not (LOWERED & set(weather) or set(weather) >= WAITS_UNREPORTED):
            assert answer.grade is Grade.OBSERVED, (number, weather)
        tried.update(weather)
    assert tried == {each.__name__ for each in WEATHER}


def test_threads_may_wait_that_had_ended_when_threads_were_counted() -> None:
    draft = load("embedded-10tok")
    draft.evidence["machine"]["cpu_cores"] = "8"
    for run in draft.timed:
        run["threads"] = 1
    for block in blocks(draft.timed):
        for interval in intervals(block):
            interval |= {"cpu_ns": interval["wall_ns"] // 2, "run_delay_ns": interval["wall_ns"]}
    assert verify(draft.reseal().files(), now=draft.created).grade < Grade.OBSERVED
    # This block computed on several cores.
    draft.timed[0]["blocks"][0]["interval"]["cpu_ns"] *= 4
    answer = verify(draft.retime().recount().reseal().files(), now=draft.created)
    assert (answer.refusals, answer.grade) == ((), Grade.OBSERVED)
