"""How much a method must measure until it finds a slowdown 95 times in 100."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Literal

from benchmarks.ours import flamegate_up_to
from benchmarks.peers import Missing, inference_doctor
from benchmarks.replay import Method, Replay, clopper_pearson_lower, replay
from benchmarks.streams import Pair
from benchmarks.tables import Table, percent
from benchmarks.textbook import (
    mann_whitney_fixed,
    mann_whitney_peeking,
    welch_fixed,
    welch_peeking,
)

POWER = 0.95
ALLOWED = 0.01
"""False alarms that a gate may give."""
SIZES = (
    *(3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 57, 68, 80, 95, 113),
    *(135, 160, 190, 226, 269, 320),
)
"""Pairs, or processes a side, that are tried: each about 19 % more than the one before."""
DRAWS = 400

Kind = Literal["ours", "peer", "lent"]
"""``lent``: a peer's arithmetic on our pairs, which it could not have measured."""


@dataclass(frozen=True, slots=True)
class Growing:
    """A method that may be given more to measure: ``at(n)`` is it with at most n pairs."""

    name: str
    kind: Kind
    at: Callable[[int], Method | Missing]
    least: int = SIZES[0]
    draws: int = DRAWS


@dataclass(frozen=True, slots=True)
class Needed:
    """The cost of 95 % power: ``size`` and ``seconds``; None if no tried size suffices.

    A size counts pairs, or processes a side. ``found`` and ``alarms`` (0 to 1) are power and
    false alarms with ``most`` pairs, which take ``most_s`` seconds. ``honest``: its
    false alarms may be 1 % or less, for all that so many draws can say.
    """

    name: str
    kind: Kind
    size: int | None
    seconds: float | None
    most: int
    most_s: float
    found: float
    alarms: float
    honest: bool


def growing(drop_pct: float) -> tuple[Growing, ...]:
    """Return all methods that find more the more they measure.

    inference-doctor fails a change only if it is certainly as slow as its threshold, so it
    is asked at ``drop_pct``, and at the half from which our rule, too, may call a regression.
    """

    def doctor(pct: float, clock: str) -> Growing:
        name = f"inference-doctor {pct:g} %{', CPU time' if clock == 'cpu' else ''}"
        return Growing(name, "peer", lambda n: inference_doctor(pct, n, clock=clock), draws=200)

    ours = f"flamegate, τ = {drop_pct:g} %"
    return (
        Growing(ours, "ours", lambda n: flamegate_up_to(drop_pct, n), least=28),
        Growing("Welch t", "peer", welch_fixed),
        Growing("Mann–Whitney", "peer", mann_whitney_fixed),
        doctor(drop_pct, "wall"),
        doctor(drop_pct / 2.0, "wall"),
        doctor(drop_pct / 2.0, "cpu"),
        Growing("Welch t of our pairs", "lent", partial(welch_fixed, paired=True)),
        Growing("Mann–Whitney of our pairs", "lent", partial(mann_whitney_fixed, paired=True)),
        Growing("Welch t, peeking", "peer", welch_peeking),
        Growing("Mann–Whitney, peeking", "peer", mann_whitney_peeking),
    )


def needed(method: Growing, same: Sequence[Pair], slower: Sequence[Pair]) -> Needed | Missing:
    """Return the cost at which ``method`` finds the slowdown of ``slower``.

    ``same`` are pairs of unchanged code under the same load, for the false alarms.
    """
    sizes = [size for size in SIZES if size >= method.least]
    found: dict[int, Replay] = {}
    low, high = 0, len(sizes)  # the least size that suffices lies at low … high
    while low < high:
        middle = (low + high) // 2 if found else len(sizes) - 1
        at = method.at(sizes[middle])
        if isinstance(at, Missing):
            return Missing(method.name)
        found[middle] = replay(replace(at, draws=method.draws), slower)
        if found[middle].rate("regressed") >= POWER:
            high = middle
        else:
            low = middle + 1
    most = sizes[min(high, len(sizes) - 1)]
    last = found[min(high, len(sizes) - 1)]
    at = method.at(most)
    assert isinstance(at, Method)
    alarms = replay(replace(at, draws=method.draws), same)
    count = sum(each.decision == "regressed" for each in alarms.outcomes)
    used = pairs_to_power(last)
    size = None if used is None else round(at.part * used)
    pair_s = fmean(pair.took_s for pair in slower)
    return Needed(
        name=method.name,
        kind=method.kind,
        size=size,
        seconds=None if size is None else size * pair_s,
        most=most,
        most_s=most * pair_s,
        found=last.rate("regressed"),
        alarms=alarms.rate("regressed"),
        honest=clopper_pearson_lower(count, method.draws) <= ALLOWED,
    )


def pairs_to_power(found: Replay) -> int | None:
    """Return within how many pairs 95 % of all gates had called it regressed; None: never."""
    alarmed = sorted(each.pairs for each in found.outcomes if each.decision == "regressed")
    nth = -(-len(found.outcomes) * round(100 * POWER) // 100)
    return alarmed[nth - 1] if len(alarmed) >= nth else None


FASTER = 10.0
"""How many times sooner than the best peer the gate shall find a slowdown."""


def sooner(needs: Sequence[Needed]) -> str:
    """Say if ours takes at most a tenth of the best peer with ≤ 1 % false alarms."""
    honest = [need for need in needs if need.honest]
    mine_s = _least([need for need in honest if need.kind == "ours"])[0]
    if mine_s is None:
        return "MISSED (ours does not reach it with ≤ 1 % false alarms)"
    peers = [need for need in honest if need.kind == "peer"]
    best_s, name = _least(peers)
    if best_s is not None:
        word = "met" if best_s >= FASTER * mine_s else "MISSED"
        return f"{word} ({mine_s:.0f} s against {best_s:.0f} s of {name}: 1/{best_s / mine_s:.1f})"
    if not peers:
        return f"not compared ({mine_s:.0f} s; no peer keeps to 1 % false alarms)"
    tried_s = min(need.most_s for need in peers)
    word = "met" if tried_s >= FASTER * mine_s else "MISSED"
    return f"{word} ({mine_s:.0f} s; no peer with ≤ 1 % false alarms does in {tried_s:.0f} s)"


def _least(needs: Sequence[Needed]) -> tuple[float | None, str]:
    """Return the fewest seconds to 95 % power, and whose they are."""
    reached = [(need.seconds, need.name) for need in needs if need.seconds is not None]
    return min(reached) if reached else (None, "")


def to_power(name: str, effect_pct: float, needs: Sequence[Needed | Missing]) -> Table:
    """Return the pairs that each method needs to find a slowdown 95 times in 100."""

    def row(need: Needed | Missing) -> tuple[str, ...]:
        if isinstance(need, Missing):
            return (need.name, "not installed", "–", "–", "–")
        alarms = f"{percent(need.alarms)}{'' if need.honest else ' (!)'}"
        size, seconds = f"> {need.most}", f"> {need.most_s:.0f}"
        if need.size is not None and need.seconds is not None:
            size, seconds = str(need.size), f"{need.seconds:.0f}"
        return (need.name, size, seconds, percent(need.found), alarms)

    return Table(
        f"To 95 % power at {effect_pct:g} %: {name}",
        ("method", "pairs, or processes a side", "s", "found %", "false alarms %"),
        tuple(map(row, needs)),
    )
