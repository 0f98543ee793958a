"""Textbook tests on fresh processes of both sides: Welch's t and Mann–Whitney, on CPU time.

Each process gives one number, its CPU seconds per token, and the two sides alternate, a
process at a time. ("Of our pairs": the processes of our pairs are used instead, which isolates
the effect of the test.) The tests ask at 1 %, one-sided, whether head is
slower: yes fails the change, no passes it. They know no threshold and no third answer.
In common use, the test is repeated after each further process until the first
yes ("peeking"), at the same 1 % each time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist

from benchmarks.replay import Method, Outcome
from benchmarks.streams import Pair, apart
from pytest_flamegate.gate.statistics import student_t_sf, welch

ALPHA = 0.01
FIRST = 3
"""Processes a side before the first test."""
EXACT_UP_TO = 20
"""Processes a side up to which the ranks' distribution is counted out, not approximated."""

_Z = NormalDist().inv_cdf(1.0 - ALPHA)


def welch_says_slower(base: Sequence[float], head: Sequence[float]) -> bool:
    """Return whether Welch's t-test finds the mean of ``head`` above that of ``base``."""
    estimate = welch(base, head)
    if estimate.standard_error == 0.0:
        return estimate.mean_diff > 0.0
    return _t_is_beyond(estimate.mean_diff / estimate.standard_error, estimate.df)


def mann_whitney_says_slower(base: Sequence[float], head: Sequence[float]) -> bool:
    """Return whether the ranks of ``head`` are above those of as many of ``base``.

    Counted out exactly for up to 20 a side, else by the normal approximation with its
    correction for continuity. A tie counts half. ValueError for sides of different size.
    """
    if len(base) != len(head):
        raise ValueError(f"both sides need as many values, got {len(base)} and {len(head)}")
    ordered = sorted(base)
    return _u_is_beyond(sum(_below(ordered, value) for value in head), len(head))


def welch_fixed(processes: int, *, paired: bool = False) -> Method:
    """Return Welch's test at so many processes a side, looked at once."""
    return _fixed("Welch t", processes, welch_says_slower, paired)


def mann_whitney_fixed(processes: int, *, paired: bool = False) -> Method:
    """Return Mann–Whitney's test at so many processes a side, looked at once."""
    return _fixed("Mann–Whitney", processes, mann_whitney_says_slower, paired)


def welch_peeking(most: int) -> Method:
    """Return Welch's test, looked at after each process up to ``most`` a side."""
    return _peeking("Welch t", most, _welch_after_each)


def mann_whitney_peeking(most: int) -> Method:
    """Return Mann–Whitney's test, looked at after each process up to ``most`` a side."""
    return _peeking("Mann–Whitney", most, _mann_whitney_after_each)


def _fixed(
    name: str,
    processes: int,
    slower: Callable[[Sequence[float], Sequence[float]], bool],
    paired: bool,
) -> Method:
    part = 1.0 if paired else 0.5

    def judge(pairs: Sequence[Pair]) -> Outcome:
        if paired:
            base, head = [pair.base for pair in pairs], [pair.head for pair in pairs]
        else:
            base, head = apart(pairs)
        found = slower([process.cpu_s for process in base], [process.cpu_s for process in head])
        took_s = part * sum(pair.took_s for pair in pairs)
        return Outcome("regressed" if found else "pass", len(pairs), took_s)

    of = " of our pairs" if paired else ""
    return Method(f"{name}, {processes} a side{of}", round(processes / part), judge, part=part)


def _peeking(
    name: str, most: int, looks: Callable[[Sequence[tuple[float, float]]], Iterator[bool]]
) -> Method:
    def judge(pairs: Sequence[Pair]) -> Outcome:
        sides = zip(*apart(pairs), strict=True)
        found = looks([(base.cpu_s, head.cpu_s) for base, head in sides])
        first = next((number for number, slower in enumerate(found, 1) if slower), None)
        used = pairs[: 2 * (first or most)]
        took_s = 0.5 * sum(pair.took_s for pair in used)
        return Outcome("regressed" if first else "pass", len(used), took_s)

    return Method(f"{name}, peeking, ≤ {most} a side", 2 * most, judge, part=0.5)


def _welch_after_each(values: Sequence[tuple[float, float]]) -> Iterator[bool]:
    """Yield the test's answer after each pair of processes, from running sums."""
    means, squares = [0.0, 0.0], [0.0, 0.0]
    for count, sides in enumerate(values, 1):
        for side, value in enumerate(sides):
            off = value - means[side]
            means[side] += off / count
            squares[side] += off * (value - means[side])
        if count < FIRST:
            yield False
            continue
        old, new = (each / (count - 1) / count for each in squares)
        if old + new == 0.0:
            yield means[1] > means[0]
            continue
        df = (count - 1) * (old + new) ** 2 / (old * old + new * new)
        yield _t_is_beyond((means[1] - means[0]) / math.sqrt(old + new), df)


def _mann_whitney_after_each(values: Sequence[tuple[float, float]]) -> Iterator[bool]:
    """Yield the test's answer after each pair of processes, the ranks kept up to date."""
    old: list[float] = []
    new: list[float] = []
    u = 0.0
    for count, (before, after) in enumerate(values, 1):
        u += len(new) - _below(new, before)
        insort(old, before)
        u += _below(old, after)
        insort(new, after)
        yield count >= FIRST and _u_is_beyond(u, count)


def _below(ordered: Sequence[float], value: float) -> float:
    """Return how many of ``ordered`` are below ``value``, a tie counting half."""
    return 0.5 * (bisect_left(ordered, value) + bisect_right(ordered, value))


def _t_is_beyond(t: float, df: float) -> bool:
    # The normal bound is the least of all: most looks need no more than it.
    return t > _Z and student_t_sf(t, df) <= ALPHA


def _u_is_beyond(u: float, count: int) -> bool:
    if count <= EXACT_UP_TO:
        return u >= _least_u(count)
    spread = math.sqrt(count * count * (2 * count + 1) / 12.0)
    return (u - 0.5 - 0.5 * count * count) / spread >= _Z


@lru_cache(maxsize=EXACT_UP_TO + 1)
def _least_u(count: int) -> float:
    """Return the least U of two sides of ``count`` that chance exceeds or meets in ≤ 1 %.

    The number of orders that give U = u is the coefficient of q^u in the Gaussian binomial
    of (2 count) over count. Infinite if no U is as rare as that.
    """
    ways = [1] + [0] * (count * count)
    for i in range(1, count + 1):
        for u in range(len(ways) - 1, count + i - 1, -1):  # times 1 - q^(count + i)
            ways[u] -= ways[u - count - i]
        for u in range(i, len(ways)):  # over 1 - q^i
            ways[u] += ways[u - i]
    tail, allowed = 0, ALPHA * math.comb(2 * count, count)
    for u in range(count * count, -1, -1):
        tail += ways[u]
        if tail > allowed:
            return u + 1.0 if u < count * count else math.inf
    return 0.0
