"""Splices: parts of two measurements of one workload, or one part more than once."""

import copy
from collections.abc import Iterator
from functools import partial
from operator import add
from random import Random
from typing import Any

from tests.receipt.forgeries.book import LONG, ONE, PAIR, SERVED, Book
from tests.receipt.forgeries.clocks import scale, scale_sequences
from tests.receipt.forgeries.draft import Draft, blocks, intervals, load, map_gaps

BOOK = Book("splicing")
AGAIN = "embedded-10tok-again"


def replace_run(draft: Draft, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Put ``new`` in the place of ``old``, under the identity of ``old``."""
    own = {name: old[name] for name in ("pid", "started_ticks", "started_at", "pair", "cpu")}
    draft.evidence["runs"][draft.runs.index(old)] = {**copy.deepcopy(new), **own}


@BOOK.refused("E_COPIED_RUNS", then="recompute")
def best_run_copied(draft: Draft, source: Random) -> None:
    """Puts the best run in the place of a bad one, as a process of its own."""
    best, worst = source.sample(draft.timed, 2)
    replace_run(draft, worst, best)


@BOOK.refused("E_COPIED_RUNS", then="recompute")
def one_run_many_times(draft: Draft, source: Random) -> None:
    """Makes many processes of one, so that the interval becomes narrow."""
    run, last = source.choice(draft.timed), draft.runs[-1]
    for number in range(1, source.randint(2, 7)):
        ticks = last["started_ticks"] + 300 * number
        own = {"pid": 10**6 + number, "started_ticks": ticks, "started_at": last["started_at"]}
        draft.evidence["runs"].append(copy.deepcopy(run) | own)


@BOOK.refused("E_COPIED_RUNS")
def process_listed_twice(draft: Draft, source: Random) -> None:
    """Lists a process twice, the second time with times of another."""
    first, second = source.sample(draft.timed, 2)
    second |= {"pid": first["pid"], "started_ticks": first["started_ticks"]}


@BOOK.refused("E_COPIED_RUNS", then="recompute")
def block_repeated(draft: Draft, source: Random) -> None:
    """Repeats the best block within its run."""
    run = source.choice(draft.timed)
    run["blocks"].append(copy.deepcopy(source.choice(run["blocks"])))


@BOOK.refused("E_COPIED_RUNS", of=LONG, then="recompute")
def sequences_repeated(draft: Draft, source: Random) -> None:
    """Fills the runs with copies of good sequences, each block with its own wall time."""
    good = source.choice(blocks(draft.timed))["sequences_ns"]
    for block in blocks(draft.timed):
        block["sequences_ns"] = [list(source.choice(good)) for _ in block["sequences_ns"]]
        wall_ns = sum(map(sum, block["sequences_ns"])) + source.randrange(10**6)
        block["interval"] |= {"wall_ns": wall_ns, "cpu_ns": round(wall_ns * 0.97)}


def copy_first(draft: Draft) -> Iterator[dict[str, Any]]:
    """Put a copy of the first timed run, which may be changed, in the place of each other one."""
    first, *rest = draft.timed
    for run in rest:
        made = copy.deepcopy(first)
        yield made
        replace_run(draft, run, made)


@BOOK.refused("E_COPIED_RUNS", of=LONG, then="recompute")
def run_copied_and_scaled(draft: Draft, source: Random) -> None:
    """Makes the other runs from one by factors near 1, as noise would."""
    for made in copy_first(draft):
        factor = source.uniform(0.98, 1.02)
        for block in made["blocks"]:
            scale_sequences(block, factor)
            for interval in intervals(block):
                scale(interval, factor)


def lengthen(interval: dict[str, Any], more_ns: int) -> None:
    interval["wall_ns"] += more_ns
    interval["cpu_ns"] += more_ns


@BOOK.refused("E_COPIED_RUNS", of=LONG, then="recompute")
def run_copied_and_shifted(draft: Draft, source: Random) -> None:
    """Makes the other runs from one by a few nanoseconds more in each gap."""
    for made in copy_first(draft):
        more = source.randint(1, 2000)
        for block in made["blocks"]:
            map_gaps(block, partial(add, more))
            for interval in intervals(block):
                lengthen(interval, more * sum(map(len, block["sequences_ns"])))


@BOOK.passes(
    "Replay, or a run that CI starts: the noise looks like that of a real run.",
    of=LONG,
    then="recompute",
)
def run_copied_with_noise(draft: Draft, source: Random) -> None:
    """Makes the other runs from one and adds a random time to each gap."""
    for made in copy_first(draft):
        for block in made["blocks"]:
            map_gaps(block, lambda gap: gap + source.randint(1, 2000))
            for interval in intervals(block, reference=True):
                lengthen(interval, source.randint(50_000, 100_000))
        made["load_ns"] = (made["load_ns"] or 0) + source.randint(1, 10**6)


@BOOK.refused("E_PROFILE_CONTRADICTION", of=ONE, then="recount")
def profile_of_the_other_run(draft: Draft, source: Random) -> None:
    """Puts the profile of a second measurement into the first, with its record and its seal."""
    take_profile(draft)


def take_profile(draft: Draft) -> None:
    other = load(AGAIN)
    draft.stacks = other.stacks
    draft.evidence |= {name: other.evidence[name] for name in ("profile", "kernels")}
    draft.receipt["kernels"] = other.receipt["kernels"]


@BOOK.refused("E_PROFILE_CONTRADICTION", of=ONE, then="recompute")
def profile_under_other_processes(draft: Draft, source: Random) -> None:
    """Relabels the processes of a second measurement's profile as the runs of the first."""
    adopt_profile(draft)
    draft.profile["nonce"] = load(AGAIN).evidence["nonce"]


def adopt_profile(draft: Draft) -> None:
    """Take the profile of the second measurement, as if of the first one's runs."""
    take_profile(draft)
    for process, run in zip(draft.profile["processes"], draft.profiled, strict=True):
        process |= {"pid": run["pid"], "started_ticks": run["started_ticks"]}


@BOOK.passes(
    "A signature of the observer; replay with a profiler of one's own.", of=ONE, then="recompute"
)
def profile_under_another_nonce(draft: Draft, source: Random) -> None:
    """Relabels the nonce as well: the profile of another measurement fits entirely."""
    adopt_profile(draft)
    draft.profile["nonce"] = draft.evidence["nonce"]


@BOOK.refused("E_PROFILE_CONTRADICTION", of=ONE)
def stacks_of_the_other_run(draft: Draft, source: Random) -> None:
    """Puts the stacks of a second measurement beside the record of the first."""
    draft.stacks = load(AGAIN).stacks


@BOOK.refused("E_TOKEN_CONTRADICTION", "E_TPS_MISMATCH", of=ONE)
def evidence_of_another_workload(draft: Draft, source: Random) -> None:
    """Seals the evidence of an honest short workload under the receipt of a long one."""
    other = load(source.choice(["embedded-1tok", "callable"]))
    draft.evidence, draft.stacks = other.evidence, other.stacks


@BOOK.refused("E_PROFILE_CONTRADICTION", then="recompute")
def profiled_run_as_timed(draft: Draft, source: Random) -> None:
    """Counts a profiled run among the timed ones, and keeps its profile."""
    run = source.choice(draft.profiled)
    times = source.choice(draft.timed)["blocks"]
    run |= {"role": "timed", "blocks": copy.deepcopy(times)}
    for block in run["blocks"]:
        scale_sequences(block, 0.999)
        for interval in intervals(block):
            interval["wall_ns"] += 1


@BOOK.passes("A ledger of nonces beside the store; a run that CI starts.", of=ONE, then="recompute")
def best_of_two_measurements(draft: Draft, source: Random) -> None:
    """Takes the timed runs of a second, luckier measurement of the same workload."""
    other = load(AGAIN)
    # Dated as if the first one's profiled runs had come when the second one's did.
    dates = [(each["started_ticks"], each["started_at"]) for each in other.profiled]
    dealt = {process["pid"]: process for process in draft.profile["processes"]}
    for run, (ticks, at) in zip(draft.profiled, dates, strict=True):
        run |= {"started_ticks": ticks, "started_at": at}
        if run["pid"] in dealt:
            dealt[run["pid"]]["started_ticks"] = ticks
    draft.profile["nonce"] = other.evidence["nonce"]
    draft.evidence["runs"] = [*other.timed, *draft.profiled]
    for name in ("created", "nonce"):
        draft.evidence[name] = other.evidence[name]
    draft.receipt["timestamp"] = other.receipt["timestamp"]


@BOOK.passes("Nothing in one file: the other side's evidence, which CI keeps.", of=PAIR)
def sides_swapped(draft: Draft, source: Random) -> None:
    """Hands in the base's side of a comparison as that of the change."""
    draft.evidence["side"] = "base"


@BOOK.passes(
    "Replay, or a run that CI starts: nothing in here ever ran.", of=SERVED, then="recompute"
)
def fabricated_whole(draft: Draft, source: Random) -> None:
    """Draws every time from a distribution and fits everything else to it."""
    pace_ns = source.uniform(2e5, 5e6)
    for block in blocks(draft.timed):
        map_gaps(block, lambda _: round(source.lognormvariate(0, 0.08) * pace_ns))
        wall_ns = sum(map(sum, block["sequences_ns"])) + source.randint(20_000, 60_000)
        cpu_ns = round(wall_ns * source.uniform(0.95, 0.995))
        waited_ns = (wall_ns - cpu_ns) // 2
        block["interval"] = {"wall_ns": wall_ns, "cpu_ns": cpu_ns, "run_delay_ns": waited_ns}
    for run, process in zip(draft.profiled, draft.profile["processes"], strict=True):
        run["pid"] = process["pid"] = run["pid"] + 1000
