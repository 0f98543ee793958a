"""Whether two profiles of the same program differ by sampling noise and nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from benchmarks.passage import profiled
from benchmarks.tables import Table
from pytest_flamegate.profile.model import Frame, Profile
from pytest_flamegate.profile.profilers import PROFILERS
from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.profile.profilers.tools import try_profiler

PAIRS = 20
PROFILED_S = 10.0
PROFILED_BRIEFLY_S = 2.0
EXPECTED = 10.0
"""Fewest expected samples on the smaller side: below it a normal deviate is none."""
BEYOND = (2.0, 3.0)


class Counted(NamedTuple):
    """Samples of each frame, and of the whole profile."""

    frames: Mapping[Frame, int]
    samples: int


def tables(brief: bool) -> Iterator[Table]:
    """Yield the one table: each usable profiler, pairs of processes in turn."""
    pairs, seconds = (2, PROFILED_BRIEFLY_S) if brief else (PAIRS, PROFILED_S)
    rows: list[tuple[str, ...]] = []
    for name in ("py-spy", "perf"):
        probe = try_profiler(PROFILERS[name](Setup()))
        if not probe.usable:
            rows.append((name, f"not usable: {probe.reason}", *["–"] * 6))
            continue
        profiles = [(profiled(name, seconds), profiled(name, seconds)) for _ in range(pairs)]
        rows += [row(f"{name}, {kind}", profiles, count) for kind, count in COUNTS.items()]
    beyond = ("|z| > 2, %", "|z| > 3, %", "in theory, %")
    head = ("profiler, share", "pairs", "samples", "frames", *beyond, "variance of z")
    yield Table("Two profiles of the same program, every frame compared", head, tuple(rows))


def itself(profile: Profile) -> Counted:
    """Count the samples that end in each frame."""
    counts: Counter[Frame] = Counter()
    for stack, samples in profile.stacks.items():
        counts.update(dict.fromkeys(stack[-1:], samples))
    return Counted(counts, profile.samples)


def inclusive(profile: Profile) -> Counted:
    """Count the samples in each frame or its callees, once if it calls itself."""
    counts: Counter[Frame] = Counter()
    for stack, samples in profile.stacks.items():
        counts.update(dict.fromkeys(stack, samples))
    return Counted(counts, profile.samples)


COUNTS: dict[str, Callable[[Profile], Counted]] = {"self": itself, "inclusive": inclusive}


def deviates(one: Counted, other: Counted) -> list[float]:
    """Return, of each frame with samples enough, the difference in standard errors.

    The error is that of two binomial shares with the same expectation. A frame in all
    samples of both sides has none, and cannot differ.
    """
    found = []
    for frame in {**one.frames, **other.frames}:
        mine, theirs = one.frames.get(frame, 0), other.frames.get(frame, 0)
        share = (mine + theirs) / (one.samples + other.samples)
        if share * min(one.samples, other.samples) < EXPECTED or share == 1.0:
            continue
        error = math.sqrt(share * (1.0 - share) * (1.0 / one.samples + 1.0 / other.samples))
        found.append((mine / one.samples - theirs / other.samples) / error)
    return found


def allowed(errors: float) -> float:
    """Return how much of a normal distribution lies beyond ``errors``, both sides, 0 to 1."""
    return math.erfc(errors / math.sqrt(2.0))


def row(
    name: str, pairs: Sequence[tuple[Profile, Profile]], count: Callable[[Profile], Counted]
) -> tuple[str, ...]:
    """Return the measured rates, and the rates that theory allows if frames are independent."""
    found = [z for one, other in pairs for z in deviates(count(one), count(other))]
    samples = fmean(profile.samples for pair in pairs for profile in pair)
    if not found:
        return (name, str(len(pairs)), f"{samples:,.0f}", "0", *["–"] * 4)
    shares = [sum(abs(z) > errors for z in found) / len(found) for errors in BEYOND]
    return (
        name,
        str(len(pairs)),
        f"{samples:,.0f}",
        str(len(found)),
        *(f"{100.0 * share:.2f}" for share in shares),
        " and ".join(f"{100.0 * allowed(errors):.2f}" for errors in BEYOND),
        f"{fmean(z * z for z in found):.2f}",
    )
