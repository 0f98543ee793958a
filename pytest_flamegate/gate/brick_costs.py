"""What a brick costs in each process that was clocked for it: a call, and a token.

The unit of evidence is the process. A call's cost is its own time, without the bricks within
it, as it is when nothing is in its way: the mean over all calls, where whatever lies above the
lower quartile of its row (one layer, one phase) counts as much as that quartile. Durations are
inclusive, so where bricks run within a brick its own time is cut by the part that this cuts
its calls by.

Measured over two batches of 24 processes of the embedded engine on a busy machine of two
cores: fresh processes differ by 17 and 34 % (standard deviation, the middle one of nine bricks)
in plain own time, by 15 % in the median call, and by 8 and 7 % in this. What it does not see: a
change of fewer than three calls in four of a row shows in part or not at all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.bricks.durations import counts_of, middle_ns, quantile_ns
from pytest_flamegate.bricks.names import canonical
from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate.stats import mean
from pytest_flamegate.workload.floors import MIN_BRICK_PASSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.bricks.record import BrickPass, BrickTotals

Window = Literal["decode", "all"]
"""Which calls count: those of decode where every pass tells them apart, else all."""
CLIPPED_ABOVE = 0.25
"""The part of a row's calls whose duration none counts more than."""
RESOLUTION_SD = 1.0 / 64.0 / math.sqrt(12.0)
"""Of log time: all calls of a side may lie in one bucket of the histogram, which is so wide."""
NOT_MEASURED = frozenset({"derived", "ingested"})
"""Figures of this provenance are shown and never gated."""
_TOLERANCE = 1.01
_US = 1e-3
_MEASURE_AGAIN = "Measure again; if it stays, report it: the marks or their clock are at fault."


@dataclass(frozen=True, slots=True)
class BrickCost:
    """One brick on one side; one value for each process that shows it, in their order.

    ``call_us`` is the cost of a call, ``calls`` the calls a token, ``share`` the part of all
    bricks' own time, 0 to 1, over the side. ``layers_us`` holds
    each layer's number and cost per token.
    """

    name: str
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
        """The cost of a call: geometric mean over the processes; 0 where none took any time."""
        return _geometric(self.call_us)

    @property
    def token_us_mean(self) -> float:
        """The cost per token: geometric mean over the processes; 0 where none took any time."""
        return _geometric(self.token_us)

    @property
    def calls_mean(self) -> float:
        """Calls a token: mean over the processes."""
        return mean(self.calls)


def window_of(*sides: Sequence[BrickPass]) -> Window:
    """Return which calls can be told apart in every pass of every side."""
    tells = all(
        each.decode_tokens > 0 and any(row.phase == "decode" for row in each.totals)
        for side in sides
        for each in side
    )
    return "decode" if tells else "all"


def costs_of(passes: Sequence[BrickPass], window: Window) -> Mapping[str, BrickCost]:
    """Return the cost of every brick that any of the passes shows within ``window``."""
    by_name: dict[str, list[_Process]] = defaultdict(list)
    for each in passes:
        rows: dict[str, list[BrickTotals]] = defaultdict(list)
        for row in each.totals:
            if window == "all" or row.phase == "decode":
                rows[canonical(row.name)].append(row)
        tokens = each.decode_tokens if window == "decode" else each.tokens
        for name, found in rows.items():
            by_name[name].append(_Process(tuple(found), tokens))
    whole_us = math.fsum(process.self_us for found in by_name.values() for process in found)
    return {name: _cost(name, found, whole_us) for name, found in by_name.items()}


def checked(passes: Sequence[BrickPass], side: str) -> Sequence[BrickPass]:
    """Return the passes of a side, if they can be judged at all.

    Raises UndecidedError: ``E_NO_BRICKS`` where no pass ran or one clocked no call,
    ``E_FEW_BRICKS`` below five passes, ``E_NO_TOKENS``, ``E_BRICKS_CONTRADICT`` for times that
    cannot be, ``E_DUPLICATE_PROCESS`` and ``E_CONSTANT_SAMPLES`` where passes were copied.
    """
    again = "Accept a new one" if side == "baseline" else "Measure again"
    if not passes or not all(sum(row.calls for row in each.totals) for each in passes):
        what = "A pass of" if passes else "No pass over the bricks was run at"
        raise UndecidedError(
            "E_NO_BRICKS",
            f"{what} the {side}{' clocked no call of any brick' if passes else ''}, and a budget "
            "is declared.",
            f"{again}, with an engine that marks its bricks; or take the budget away.",
        )
    if len(passes) < MIN_BRICK_PASSES:
        raise UndecidedError(
            "E_FEW_BRICKS",
            f"The {side} has {len(passes)} pass(es) over the bricks, and judging needs "
            f"{MIN_BRICK_PASSES}.",
            f"{again}, with more time (--flamegate-budget sets the seconds).",
        )
    for each in passes:
        _check(each)
    if len({(each.pid, each.started_ticks) for each in passes}) < len(passes):
        raise UndecidedError(
            "E_DUPLICATE_PROCESS",
            f"The {side} counts one process's bricks more than once.",
            "Measure again: each pass has to be a fresh process.",
        )
    if len({(each.wall_ns, each.lanes) for each in passes}) < len(passes):
        raise UndecidedError(
            "E_CONSTANT_SAMPLES",
            f"Two passes of the {side} took exactly the same times.",
            "Measure again: real processes differ, so these were copied.",
        )
    return passes


@dataclass(frozen=True, slots=True)
class _Process:
    """The rows of one brick in one process, and the tokens that they served."""

    rows: tuple[BrickTotals, ...]
    tokens: int

    @property
    def calls(self) -> int:
        return sum(row.calls for row in self.rows)

    @property
    def self_us(self) -> float:
        return math.fsum(row.self_ns for row in self.rows) * _US

    @property
    def call_us(self) -> float:
        return math.fsum(map(_typical_us, self.rows)) / self.calls

    def by_layer(self) -> Mapping[int, float]:
        found: dict[int, float] = defaultdict(float)
        for row in self.rows:
            if row.layer is not None:
                found[row.layer] += _typical_us(row) / self.tokens
        return found


def _typical_us(row: BrickTotals) -> float:
    """Return the own time of all calls of a row, the longer ones cut to its lower quartile."""
    counts = counts_of(row.durations)
    took_ns = sum(middle_ns(number) * calls for number, calls in counts.items())
    if not took_ns or sum(counts.values()) != row.calls:
        return row.self_ns * _US
    most_ns = quantile_ns(counts, CLIPPED_ABOVE)
    clipped_ns = sum(min(middle_ns(number), most_ns) * calls for number, calls in counts.items())
    return row.self_ns * _US * clipped_ns / took_ns


def _cost(name: str, found: Sequence[_Process], whole_us: float) -> BrickCost:
    layers: dict[int, list[float]] = defaultdict(list)
    for process in found:
        for layer, cost_us in process.by_layer().items():
            layers[layer].append(cost_us)
    return BrickCost(
        name=name,
        call_us=tuple(process.call_us for process in found),
        calls=tuple(process.calls / process.tokens for process in found),
        share=math.fsum(process.self_us for process in found) / whole_us if whole_us else 0.0,
        layers_us=tuple(
            (layer, math.fsum(costs) / len(found)) for layer, costs in sorted(layers.items())
        ),
        measured=not any(row.provenance in NOT_MEASURED for each in found for row in each.rows),
    )


def _check(each: BrickPass) -> None:
    where = f"of process {each.pid}"
    if each.tokens <= 0:
        raise UndecidedError(
            "E_NO_TOKENS",
            f"The pass over the bricks {where} generated no token.",
            "Check that the engine generates with this prompt and token limit.",
        )
    left_ns: dict[str, int] = defaultdict(int)
    for row in each.totals:
        # Over all layers: a call within its own brick counts where the outermost stands.
        left_ns[row.name] += row.total_ns - row.self_ns
    for row in each.totals:
        if row.calls <= 0 or row.self_ns < 0 or left_ns[row.name] < 0:
            raise UndecidedError(
                "E_BRICKS_CONTRADICT",
                f"The brick {row.name} {where} has {row.calls} calls, {row.total_ns} ns in all "
                f"and {row.self_ns} ns of its own.",
                _MEASURE_AGAIN,
            )
        if len(counts_of(row.durations)) < len(row.durations):
            raise UndecidedError(
                "E_BRICKS_CONTRADICT",
                f"The calls of the brick {row.name} {where} have durations that there are not.",
                _MEASURE_AGAIN,
            )
    measured_ns = sum(row.self_ns for row in each.totals if row.provenance == "measured_wall")
    busiest_ns = max((lane.self_ns for lane in each.lanes), default=0)
    if each.wall_ns <= 0 or (
        max(busiest_ns, measured_ns / max(len(each.lanes), 1)) > each.wall_ns * _TOLERANCE
    ):
        raise UndecidedError(
            "E_BRICKS_CONTRADICT",
            f"The bricks {where} took longer on one thread than the process ran.",
            _MEASURE_AGAIN,
        )


def _geometric(values: Sequence[float]) -> float:
    return math.exp(mean([math.log(value) for value in values])) if min(values) > 0.0 else 0.0
