"""No honest receipt is rejected, and almost all reach OBSERVED, whatever the machine did.

Each is resampled from a measurement that flamegate made: its processes, blocks and sequences,
with fresh noise, waits, ticks and shapes, and written as flamegate writes it.
"""

import copy
import math
from datetime import timedelta
from itertools import dropwhile
from random import Random
from typing import Any

import pytest

from pytest_flamegate.receipt import Grade, Verification
from tests.receipt.forgeries.book import verify
from tests.receipt.forgeries.draft import (
    NAMES,
    Draft,
    blocks,
    hexadecimal,
    intervals,
    load,
    shift,
    stamp,
)
from tests.receipt.weather import WEATHER

WAKING_NS = 20_000
"""How much sooner or later the observer wakes up for a token."""


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
            block["sequences_ns"] = [
                [round(gap * factor) for gap in gaps] for gaps in block["sequences_ns"]
            ]
            for interval in intervals(block):
                for name, spent in interval.items():
                    interval[name] = None if spent is None else round(spent * factor)
    # As many samples in less time were taken at a higher rate, and in more at a lower one.
    draft.profile["rate_hz"] = math.ceil(draft.profile["rate_hz"] / factor)


def resample(draft: Draft, source: Random) -> None:
    """Draw processes from the timed ones, with fresh noise on every token and look."""
    timed = [copy.deepcopy(source.choice(draft.timed)) for _ in range(source.randint(2, 12))]
    first = draft.runs[0]
    pid, ticks = first["pid"], first["started_ticks"]
    for index, run in enumerate(timed):
        run |= {"pid": pid + 2 * index, "started_ticks": ticks + 60 * index}
        run["blocks"] = [
            copy.deepcopy(source.choice(run["blocks"])) for _ in range(source.randint(1, 3))
        ]
        run["peak_rss_bytes"] = source.randint(10**6, 10**11)
    profiled = draft.profiled
    dealt = {process["pid"]: process for process in draft.profile["processes"]}
    for index, run in enumerate(profiled):
        fresh = {"pid": pid + 1000 + index, "started_ticks": ticks + 60 * len(timed) + 90 * index}
        if run["pid"] in dealt:
            dealt[run["pid"]] |= fresh
        run |= fresh
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
    block["sequences_ns"] = [
        [
            max(0, round(gap * source.lognormvariate(0, spread))) + source.randrange(WAKING_NS)
            for gap in gaps
        ]
        for gaps in block["sequences_ns"]
    ]
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


LOWERED = {"cpu_in_ticks", "rounded", "observer_late", "single_token", "ends_early"}
"""Conditions that lower a grade if a run is too short to tell work from sleep."""


@pytest.mark.parametrize(
    "numbers", [range(60), pytest.param(range(60, 1500), marks=pytest.mark.nightly)]
)
def test_no_honest_receipt_is_rejected(numbers: range) -> None:
    tried: set[str] = set()
    for number in numbers:
        answer, weather = honest(number)
        assert answer.refusals == (), (number, weather)
        assert answer.grade > Grade.SELF_REPORTED
        if not LOWERED & set(weather):
            assert answer.grade is Grade.OBSERVED, (number, weather)
        tried.update(weather)
    assert tried == {each.__name__ for each in WEATHER}


def test_a_number_gives_the_same_receipt_each_time() -> None:
    assert honest(3) == honest(3)


def test_threads_may_wait_that_had_ended_when_threads_were_counted() -> None:
    answer, weather = honest(1252)
    assert "one_thread_counted" in weather
    assert answer.grade is Grade.OBSERVED
