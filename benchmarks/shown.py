"""The tables of a replay: the measured pairs, each method's answers, and the cost of power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from benchmarks.claims import Replays
from benchmarks.peers import Missing
from benchmarks.streams import Cell, Pair
from benchmarks.tables import Table, percent, span
from benchmarks.time_to_power import Needed
from pytest_flamegate.gate.pairs import trimmed_mean


def loads(found: Mapping[Cell, object]) -> list[str]:
    """Return the loads that were measured, in the order of measurement."""
    return list(dict.fromkeys(load for load, _ in found))


def measured(found: Mapping[Cell, Sequence[Pair]]) -> Table:
    """Return how many pairs there are of each effect, and the effect they show."""
    effects = sorted({effect for _, effect in found})

    def cell(pairs: Sequence[Pair] | None) -> str:
        if pairs is None or len(pairs) < 2:
            return "–"
        estimate = trimmed_mean([pair.difference for pair in pairs])
        shown, error = 100.0 * estimate.mean_diff, 100.0 * estimate.standard_error
        return f"{shown:+.1f} ± {error:.1f} ({len(pairs)})"

    return Table(
        "Measured: 100 · ln(head / base) ± its standard error (pairs), by injected work",
        ("load", *(f"{effect:g} %" for effect in effects), "s a pair"),
        tuple(
            (
                load,
                *(cell(found.get((load, effect))) for effect in effects),
                f"{fmean(p.took_s for (at, _), ps in found.items() if at == load for p in ps):.1f}",
            )
            for load in loads(found)
        ),
    )


def said(load: str, replays: Mapping[str, Replays], absent: Sequence[Missing]) -> Table:
    """Return each method's answers to each effect under one load."""
    effects = sorted({effect for each in replays.values() for at, effect in each if at == load})

    def row(name: str, of: Replays) -> tuple[str, ...]:
        mine = {effect: of[load, effect] for effect in effects}
        return (
            name,
            *(percent(each.rate("regressed")) for each in mine.values()),
            span([percent(each.rate("inconclusive")) for each in mine.values()]),
            span([f"{each.median_s:.0f}" for each in mine.values()]),
        )

    return Table(
        f"Called a regression, in % of the gates, by injected work: {load}",
        ("method", *(f"{e:g} %" if e else "0 (false)" for e in effects), "inconclusive", "s"),
        (
            *(row(name, of) for name, of in replays.items()),
            *((each.name, *["–"] * len(effects), "not installed", "–") for each in absent),
        ),
    )


def in_detail(name: str, replays: Replays) -> Table:
    """Return all that one method said."""
    return Table(
        f"{name}: what it said, in % of the gates, and how soon",
        (
            "load, injected work",
            *("regressed", "pass", "improved", "inconclusive"),
            *("median pairs", "median s", "95 % within s", "gates"),
        ),
        tuple(
            (
                f"{load}, {effect:g} %",
                percent(each.rate("regressed")),
                percent(each.rate("pass")),
                percent(each.rate("improved")),
                percent(each.rate("inconclusive")),
                f"{each.median_pairs:g}",
                f"{each.median_s:.1f}",
                f"{each.quantile_s(0.95):.1f}",
                f"{len(each.outcomes)} {'drawn' if each.drawn else 'in order'}",
            )
            for (load, effect), each in sorted(replays.items(), key=lambda item: item[0])
        ),
    )


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
