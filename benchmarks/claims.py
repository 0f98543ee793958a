"""The promised figures, and the replay's result for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.replay import Method, Replay, clopper_pearson_upper, in_order
from benchmarks.streams import Cell, Pair
from benchmarks.tables import percent
from benchmarks.time_to_power import Needed

Replays = Mapping[Cell, Replay]

QUIET, MIXED = "quiet", "mixed"
GATES = 300
"""Gates of unchanged code that a bound of 1 % takes."""
FASTER = 5.0
"""How many times sooner than the best peer."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A promise, whether it is kept (None: not measured), and the figure."""

    text: str
    met: bool | None
    figure: str

    def __str__(self) -> str:
        word = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        return f"{self.text}: {word} ({self.figure})"


@dataclass(frozen=True, slots=True)
class Gates:
    """Gates of unchanged code, none sharing a pair with another."""

    gates: int
    alarms: int

    @property
    def bound(self) -> float:
        """Upper bound (0 to 1) of the false-alarm rate, with 95 % confidence."""
        return clopper_pearson_upper(self.alarms, self.gates) if self.gates else 1.0

    def __str__(self) -> str:
        return f"{self.alarms} of {self.gates} gates in order, so ≤ {percent(self.bound)} %"


def unchanged(method: Method, cells: Mapping[Cell, Sequence[Pair]]) -> Gates:
    """Return the gates of ``method`` in order through each load's pairs of unchanged code."""
    outcomes = [
        outcome
        for (_, effect_pct), pairs in cells.items()
        if effect_pct == 0.0
        for outcome in in_order(method, pairs)
    ]
    return Gates(len(outcomes), sum(each.decision == "regressed" for each in outcomes))


def alarms_proven(name: str, gates: Gates) -> Claim:
    """At most 1 % false alarms, proven by enough gates."""
    return Claim(
        f"{name}: false alarms ≤ 1 %, proven by ≥ {GATES} gates of unchanged code",
        gates.gates >= GATES and gates.bound <= 0.01 if gates.gates else None,
        str(gates),
    )


def alarms_seen(name: str, replays: Replays, gates: Gates) -> Claim:
    """At most 1 % false alarms under every load."""
    met, figure = _worst(
        replays, lambda _, effect: effect == 0.0, lambda replay: replay.rate("regressed"), 0.01
    )
    return Claim(f"{name}: false alarms ≤ 1 %", met, f"{figure}; {gates}")


def misses(name: str, replays: Replays, low: float, high: float, most: float) -> Claim:
    """At most ``most`` (0 to 1) of the changes of ``low`` … ``high`` % pass."""
    met, figure = _worst(
        replays,
        lambda _, effect: low <= effect <= high,
        lambda replay: replay.rate("pass", "improved"),
        most,
    )
    return Claim(f"{name}: misses ≤ {percent(most)} % at a true {low:g}…{high:g} %", met, figure)


def median_time(
    name: str, replays: Replays, load: str | None, effects: Sequence[float], most_s: float
) -> Claim:
    """The median gate at each of ``effects`` ends within ``most_s``, under one load or all."""
    worst = {
        cell: replay.median_s
        for cell, replay in replays.items()
        if cell[1] in effects and load in (None, cell[0])
    }
    text = f"{name}: median ≤ {most_s:g} s, {load or 'every load'}"
    if not worst:
        return Claim(text, None, "no such pairs")
    cell = max(worst, key=lambda each: worst[each])
    figure = f"at most {worst[cell]:.0f} s, at {cell[1]:g} %"
    return Claim(text, worst[cell] <= most_s, f"{figure}{'' if load else f', {cell[0]}'}")


def sooner(load: str, effect_pct: float, needs: Sequence[Needed]) -> Claim:
    """95 % power in at most a fifth of the processes that the best peer with ≤ 1 % alarms needs."""
    text = f"{effect_pct:g} %, {load}: time to 95 % power ≤ 1/{FASTER:g} of the best peer's"
    if not needs:
        return Claim(text, None, "no such pairs")
    honest = [need for need in needs if need.honest]
    mine_s = _least([need for need in honest if need.kind == "ours"])[0]
    if mine_s is None:
        return Claim(text, False, "ours does not reach it with ≤ 1 % false alarms")
    peers = [need for need in honest if need.kind == "peer"]
    best_s, name = _least(peers)
    lent_s, its = _least([need for need in honest if need.kind == "lent"])
    lent = "" if lent_s is None else f"; {lent_s:.0f} s of {its}: 1/{lent_s / mine_s:.1f}"
    if best_s is not None:
        figure = f"{mine_s:.0f} s against {best_s:.0f} s of {name}: 1/{best_s / mine_s:.1f}{lent}"
        return Claim(text, best_s >= FASTER * mine_s, figure)
    if not peers:
        return Claim(text, None, f"{mine_s:.0f} s; no peer keeps to 1 % false alarms{lent}")
    tried_s = min(need.most_s for need in peers)
    figure = f"{mine_s:.0f} s; no peer with ≤ 1 % false alarms reaches it in {tried_s:.0f} s{lent}"
    return Claim(text, tried_s >= FASTER * mine_s, figure)


def _least(needs: Sequence[Needed]) -> tuple[float | None, str]:
    """Return the fewest seconds to 95 % power, and whose they are."""
    reached = [(need.seconds, need.name) for need in needs if need.seconds is not None]
    return min(reached) if reached else (None, "")


def _worst(
    replays: Replays,
    wanted: Callable[[str, float], bool],
    value: Callable[[Replay], float],
    most: float,
) -> tuple[bool | None, str]:
    """Return whether all wanted cells keep to ``most``, and the worst of them in words."""
    found = {cell: value(replay) for cell, replay in replays.items() if wanted(*cell)}
    if not found:
        return None, "no such pairs"
    cell = max(found, key=lambda each: found[each])
    at = f" at {cell[1]:g} %" if cell[1] else ""
    return found[cell] <= most, f"at most {percent(found[cell])} %, {cell[0]}{at}"
