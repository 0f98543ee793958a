"""The cost of each brick in each process of one side, and whether its runs can be judged.

A brick is a marked region of the engine. Its times come from runs of their own, in which nothing
else is measured; the unit of evidence is the process.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_flamegate.bricks.record import (
    BrickRun,
    BrickTotals,
    cut_own_time_ns,
    parse_durations,
    resolve_alias,
)
from pytest_flamegate.config.thresholds import MIN_BRICK_COVERAGE, MIN_BRICK_PASSES
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.measurement import (
    impossible_figure_error,
    no_tokens_error,
    repeated_samples_error,
)
from pytest_flamegate.gate.statistics import mean
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.receipt.types import Evidence

Window = Literal["decode", "all"]
"""The calls that count: those of decode if every run separates them, else all."""
CLEAN_BELOW_US = 1000.0
"""Longer calls may all contain a slice of the other side, if that ran on the same core."""
NOT_MEASURED = frozenset({"derived", "ingested"})
"""Figures of this provenance are shown and never gated."""
MOST = 0.5
"""The part of a growth from which on it is attributed to one layer."""
_TOLERANCE = 1.01
_US_PER_NS = 1e-3


@dataclass(frozen=True, slots=True)
class BrickCost:
    """One brick on one side; each tuple holds one value per process that shows it, in order.

    ``call_us`` is the cost of a call, ``calls`` the calls per token, ``share`` the part (0 to 1)
    of all bricks' own time over the side. ``layers_us`` holds each layer's number and cost per
    token. ``measured`` is False if any time was derived or ingested.
    """

    call_us: tuple[float, ...]
    calls: tuple[float, ...]
    share: float
    layers_us: tuple[tuple[int, float], ...]
    measured: bool

    @property
    def token_us(self) -> tuple[float, ...]:
        """The cost per token in each process."""
        return tuple(cost * calls for cost, calls in zip(self.call_us, self.calls, strict=True))

    @property
    def call_us_mean(self) -> float:
        """The cost of a call: geometric mean over the processes, 0 if one took no time."""
        return _geometric_mean(self.call_us)

    @property
    def token_us_mean(self) -> float:
        """The cost per token: geometric mean over the processes, 0 if one took no time."""
        return _geometric_mean(self.token_us)

    @property
    def calls_mean(self) -> float:
        """Calls per token: mean over the processes."""
        return mean(self.calls)


def common_window(*sides: Sequence[BrickRun]) -> Window:
    """Return the calls that can be separated in every run of every side."""
    separated = all(
        run.decode_tokens > 0 and any(row.phase == "decode" for row in run.totals)
        for side in sides
        for run in side
    )
    return "decode" if separated else "all"


def core_parts(evidence: Evidence) -> Mapping[int | None, float]:
    """Return the part of its wall time that each brick run had of a shared core, by its pair.

    Empty if any run had a core to itself. The order is that of the brick runs.
    """

    def wall_ns(run: Run) -> int:
        return max(1, sum(block.interval.wall_ns for block in run.blocks))

    runs = [run for run in evidence.runs if run.role == "bricks"]
    parts = {run.pair: wall_ns(run.own) / wall_ns(run) for run in runs if run.shares_core}
    return parts if len(parts) == len(runs) == len(evidence.bricks) else {}


def costs_of_sides(
    sides: Sequence[tuple[Sequence[BrickRun], Sequence[float]]], window: Window
) -> list[Mapping[str, BrickCost]]:
    """Return the costs of the bricks of each side: its runs, and their parts of a shared core.

    Slices last some milliseconds. A short call that was interrupted is recognised by its length; of
    bricks with longer calls on any side, the other side's part of all their time is left out.
    """
    short = [brick_costs(runs, window) for runs, _ in sides]
    scaled = [
        brick_costs([_scale(run, part) for run, part in zip(runs, parts, strict=True)], window)
        if parts
        else costs
        for (runs, parts), costs in zip(sides, short, strict=True)
    ]
    long_names = {
        name
        for costs in short
        for name, cost in costs.items()
        if cost.call_us_mean > CLEAN_BELOW_US
    }
    return [
        {name: (long if name in long_names else costs)[name] for name in costs}
        for costs, long in zip(short, scaled, strict=True)
    ]


def _scale(run: BrickRun, part: float) -> BrickRun:
    """Return the run with ``part`` of its own times, and nothing about single calls."""
    totals = (
        replace(row, self_ns=round(part * row.self_ns), durations={}, typical_ns=None)
        for row in run.totals
    )
    return replace(run, totals=tuple(totals))


def brick_costs(runs: Sequence[BrickRun], window: Window) -> Mapping[str, BrickCost]:
    """Return the cost of every brick that any of the runs shows within ``window``."""
    by_name: dict[str, list[tuple[list[BrickTotals], int]]] = defaultdict(list)
    for run in runs:
        rows: dict[str, list[BrickTotals]] = defaultdict(list)
        for row in run.totals:
            if window == "all" or row.phase == "decode":
                rows[resolve_alias(row.name)].append(row)
        tokens = run.decode_tokens if window == "decode" else run.tokens
        for name, rows_of_name in rows.items():
            by_name[name].append((rows_of_name, tokens))
    own_ns = {
        name: sum(row.self_ns for rows, _ in processes for row in rows)
        for name, processes in by_name.items()
    }
    whole_ns = sum(own_ns.values())
    return {
        name: _cost(processes, own_ns[name] / whole_ns if whole_ns else 0.0)
        for name, processes in by_name.items()
    }


def _cost(processes: Sequence[tuple[Sequence[BrickTotals], int]], share: float) -> BrickCost:
    """Return the cost of one brick; each process gives its rows and the tokens they served."""
    call_us, calls = [], []
    layers: dict[int, float] = defaultdict(float)
    for rows, tokens in processes:
        costs_us = [_typical_us(row) for row in rows]
        count = sum(row.calls for row in rows)
        call_us.append(math.fsum(costs_us) / count)
        calls.append(count / tokens)
        for row, cost_us in zip(rows, costs_us, strict=True):
            if row.layer is not None:
                layers[row.layer] += cost_us / tokens
    layer_runs = Counter(
        layer for rows, _ in processes for layer in {row.layer for row in rows} - {None}
    )
    return BrickCost(
        call_us=tuple(call_us),
        calls=tuple(calls),
        share=share,
        layers_us=tuple((layer, us / layer_runs[layer]) for layer, us in sorted(layers.items())),
        measured=not any(row.provenance in NOT_MEASURED for rows, _ in processes for row in rows),
    )


def _typical_us(row: BrickTotals) -> float:
    """Return the own time of all calls of a row, cut, or as it is without a histogram of all."""
    if row.typical_ns is not None:
        return row.typical_ns * _US_PER_NS
    counts = parse_durations(row.durations)
    has_all = sum(counts.values()) == row.calls
    return (cut_own_time_ns(counts, row.self_ns) if has_all else row.self_ns) * _US_PER_NS


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(mean([math.log(value) for value in values])) if min(values) > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class LayerGrowth:
    """The layer that makes up most of a brick's growth, and its cost per token in µs."""

    layer: int
    baseline_us: float
    current_us: float


def find_grown_layer(old: BrickCost, new: BrickCost) -> LayerGrowth | None:
    """Return the one layer that explains most of a brick's growth; None if no layer does."""
    before, after = dict(old.layers_us), dict(new.layers_us)
    layers = sorted(before.keys() & after.keys())
    growth = {layer: after[layer] - before[layer] for layer in layers}
    whole = math.fsum(growth.values())
    if len(layers) < 2 or whole <= 0.0:
        return None
    first = max(layers, key=lambda layer: growth[layer])
    if growth[first] < MOST * whole:
        return None
    return LayerGrowth(first, before[first], after[first])


def check_brick_runs(runs: Sequence[BrickRun], side: str) -> None:
    """Check that the brick runs of a side can be judged at all.

    Raises:
        UndecidedError: ``E_NO_BRICKS`` if no brick run exists or one recorded no call,
            ``E_FEW_PROCESSES`` below five runs, ``E_NO_TOKENS``, ``E_IMPOSSIBLE_FIGURE`` for times
            that cannot be, ``E_REPEATED_SAMPLES`` if runs were copied.
    """
    again = "Accept a new baseline" if side == "baseline" else "Measure again"
    if not runs or not all(sum(row.calls for row in run.totals) for run in runs):
        problem = f"There is no brick run of the {side}"
        if runs:
            problem = f"A brick run of the {side} recorded no call of any brick"
        raise UndecidedError(
            "E_NO_BRICKS",
            f"{problem}, and a budget is declared.",
            f"{again}, with an engine that marks its bricks; or remove the budget.",
        )
    if len(runs) < MIN_BRICK_PASSES:
        raise UndecidedError(
            "E_FEW_PROCESSES",
            f"The {side} has {len(runs)} brick run(s), and judging needs {MIN_BRICK_PASSES}.",
            f"{again}, with more time (--flamegate-budget sets the seconds).",
        )
    for run in runs:
        _check_run(run)
    if len({(run.pid, run.started_ticks) for run in runs}) < len(runs):
        raise repeated_samples_error(f"The {side} counts the bricks of one process more than once.")
    if len({(run.wall_ns, run.lanes) for run in runs}) < len(runs):
        raise repeated_samples_error(f"Two brick runs of the {side} took exactly the same times.")


def _check_run(run: BrickRun) -> None:
    place = f"process {run.pid}"
    if run.tokens <= 0:
        raise no_tokens_error(f"The brick run of {place} generated no token.")
    measured_ns = sum(row.self_ns for row in run.totals if row.provenance == "measured_wall")
    busiest_ns = max((thread.self_ns for thread in run.lanes), default=0)
    longest_ns = max(busiest_ns, measured_ns / max(len(run.lanes), 1))
    if run.wall_ns <= 0 or longest_ns > run.wall_ns * _TOLERANCE:
        in_bricks = f"time (ns) in bricks on one thread of {place}"
        raise impossible_figure_error(longest_ns, in_bricks, run.wall_ns)


def check_alike(old: Sequence[BrickRun], new: Sequence[BrickRun]) -> None:
    """Raise if costs per token of the two sides do not mean the same."""
    if len({run.sync for run in (*old, *new)}) > 1:
        raise UndecidedError(
            "E_BRICKS_UNLIKE", "Not all brick runs waited for the device in the same way."
        )
    for side, runs in (("baseline", old), ("current side", new)):
        coverage = min(run.coverage for run in runs)
        if coverage < MIN_BRICK_COVERAGE:
            raise UndecidedError(
                "E_BRICKS_COVERAGE",
                f"The bricks of the {side} cover {100 * coverage:.0f} % of the time; judging a "
                f"cost per token needs {100 * MIN_BRICK_COVERAGE:.0f} %.",
            )
