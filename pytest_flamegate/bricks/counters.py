"""How often the second-level cache answered, as the CPU's own counters say; absent without them.

``perf stat`` counts a run of a program. Which events there are depends on the CPU, and a virtual
machine has often none: then there is no rate, and never a 0. A counter that was on for a part of
the time alone, for it had to share, gives an estimate, and none is made of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.profile import perf_tool, programs
from pytest_flamegate.workload import process

if TYPE_CHECKING:
    from collections.abc import Sequence

L2_EVENTS = (
    ("l2_rqsts.references", "l2_rqsts.miss"),
    ("all_l2_cache_accesses", "all_l2_cache_misses"),
    ("l2_request_g1.all_no_prefetch", "l2_cache_req_stat.ic_dc_miss_in_l2"),
    ("l2d_cache", "l2d_cache_refill"),
)
"""Pairs of events, looked up and missed: Intel's, two generations of AMD's, Arm's."""
_COUNT = re.compile(r"([0-9]{1,18}|<not supported>|<not counted>)")
_TODO = "Install perf of this kernel's version."


@dataclass(frozen=True, slots=True)
class Counter:
    """One event and how often it was counted; None where it could not be.

    ``running_pct`` is for how much of the time the counter was on.
    """

    event: str
    count: int | None
    running_pct: float


@dataclass(frozen=True, slots=True)
class HitRate:
    """The part of look-ups that found their line, 0 to 1, and the events it was counted by."""

    rate: float
    lookups: int
    misses: int
    lookup_event: str
    miss_event: str


def read_perf_stat(text: str) -> tuple[Counter, ...]:
    """Read what ``perf stat -x,`` writes: count, unit, event, time on, part of the time on.

    Lines that are no counter's, as what the program itself wrote, are passed over.
    """
    found = []
    for line in text.splitlines():
        count, *fields = line.split(",")
        if len(fields) < 4 or not _COUNT.fullmatch(count) or not fields[1]:
            continue
        try:
            running_pct = float(fields[3])
        except ValueError:
            continue
        if 0 <= running_pct <= 100:
            known = int(count) if count.isdecimal() else None
            found.append(Counter(fields[1], known, running_pct))
    return tuple(found)


def l2_hit_rate(counters: Sequence[Counter]) -> HitRate | None:
    """Return the rate of the first pair of events that was counted all the time."""
    # An unprivileged perf counts user mode alone, and says so.
    counts = {
        each.event.removesuffix(":u"): each.count for each in counters if each.running_pct == 100
    }
    for lookup_event, miss_event in L2_EVENTS:
        lookups, misses = counts.get(lookup_event), counts.get(miss_event)
        if lookups and misses is not None and misses <= lookups:
            return HitRate(1 - misses / lookups, lookups, misses, lookup_event, miss_event)
    return None


def count_l2(argv: Sequence[str], *, timeout_s: float) -> HitRate | None:
    """Run a program once for each pair of events until one counts it; None where none does.

    A program that fails has no rate. Raises ``ProfilerError`` E_PROFILER_ABSENT without perf.
    """
    perf = programs.find("perf", _TODO)
    for pair in L2_EVENTS:
        command = [perf, "stat", "-x,", "-e", ",".join(pair), "--", *argv]
        done = process.run(command, timeout_s=timeout_s, env=perf_tool.environment())
        counted = read_perf_stat(done.stderr.decode("utf-8", "replace"))
        if not done.returncode and (rate := l2_hit_rate(counted)) is not None:
            return rate
    return None
