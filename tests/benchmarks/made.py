"""Pairs made by hand."""

from benchmarks.streams import Pair, Process


def pair(
    base_s: float = 0.003,
    head_s: float = 0.003,
    *,
    effect_pct: float = 0.0,
    load: str = "quiet",
    took_s: float = 2.0,
    rounds: int = 4,
) -> Pair:
    """A pair whose clocks all agree: so many seconds per token."""
    sides = [Process(each, each, (each,) * rounds) for each in (base_s, head_s)]
    return Pair(effect_pct, load, 1000.0, took_s, *sides)


def pairs(*slowdowns_pct: float, effect_pct: float = 0.0) -> list[Pair]:
    """Pairs whose head took so many percent longer."""
    return [pair(head_s=0.003 * (1 + pct / 100), effect_pct=effect_pct) for pct in slowdowns_pct]
