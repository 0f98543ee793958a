"""The L2 hit rate of a program, from the CPU's own counters through ``perf stat``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core import process
from pytest_flamegate.profile.profilers.perf_data import perf_environment
from pytest_flamegate.profile.profilers.tools import find_program, install_hint

if TYPE_CHECKING:
    from collections.abc import Sequence


L2_EVENTS = (
    ("l2_rqsts.references", "l2_rqsts.miss"),
    ("all_l2_cache_accesses", "all_l2_cache_misses"),
    ("l2_request_g1.all_no_prefetch", "l2_cache_req_stat.ic_dc_miss_in_l2"),
    ("l2d_cache", "l2d_cache_refill"),
)
"""Look-ups and misses by their names in perf: Intel's, two generations of AMD's, Arm's."""
# Count, unit, event (":u" if only user mode was counted), nanoseconds, percent of the time on.
_LINE = re.compile(r"(?m)^(\d{1,18}),[^,\n]*,([^,\n]+?)(?::u)?,\d+,100\.00,")


@dataclass(frozen=True, slots=True)
class HitRate:
    """The part of look-ups that hit, 0 to 1, with the events that it was counted by."""

    rate: float
    lookups: int
    misses: int
    lookup_event: str
    miss_event: str


def parse_l2_hit_rate(text: str) -> HitRate | None:
    """Parse the output of ``perf stat -x,``; None unless a pair was counted all the time."""
    counts = {event: int(count) for count, event in _LINE.findall(text)}
    for lookup_event, miss_event in L2_EVENTS:
        lookups, misses = counts.get(lookup_event), counts.get(miss_event)
        if lookups and misses is not None and misses <= lookups:
            return HitRate(1 - misses / lookups, lookups, misses, lookup_event, miss_event)
    return None


def count_l2(argv: Sequence[str], *, timeout_s: float) -> HitRate | None:
    """Run a program once for each pair of events until one is counted; None if none is.

    A program that fails has no rate.

    Raises:
        ProfilerError: ``E_PROFILER_ABSENT`` without perf.
    """
    perf = find_program("perf", install_hint("perf"))
    for pair in L2_EVENTS:
        command = [perf, "stat", "-x,", "-e", ",".join(pair), "--", *argv]
        done = process.run(command, timeout_s=timeout_s, env=perf_environment())
        rate = parse_l2_hit_rate(done.stderr.decode("utf-8", "replace"))
        if not done.returncode and rate is not None:
            return rate
    return None
