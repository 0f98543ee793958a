"""Brick runs, made to measure: each process's cost of a call, in µs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pytest_flamegate.bricks.record import BrickRun, BrickTotals, Phase
from pytest_flamegate.config.thresholds import BrickBudget, Thresholds
from tests.bricks.factory import make_run, make_totals

TOKENS, CALLS = 101, 400
"""Tokens of a run, a hundred of them in decode, and calls of each row: four a token."""
SPREAD = (1.0, 1.012, 0.99, 1.004, 0.996)
"""Five processes that differ by 0.8 %."""


def row(
    name: str,
    call_us: float,
    *,
    layer: int | None = None,
    phase: Phase = "decode",
    calls: int = CALLS,
    slow: int = 0,
    slow_us: float = 0.0,
    **changes: Any,
) -> BrickTotals:
    """All calls took ``call_us``, ``slow`` further ones ``slow_us``."""
    calls_ns = [round(call_us * 1e3)] * calls + [round(slow_us * 1e3)] * slow
    return replace(make_totals(name, calls_ns, layer=layer, phase=phase), **changes)


def make_brick_run(
    rows: Sequence[BrickTotals], *, pid: int = 1, coverage: float = 0.95, **changes: Any
) -> BrickRun:
    """One process's run, whose only thread spent ``coverage`` of the wall time in its bricks."""
    wall_ns = round(sum(each.self_ns for each in rows) / coverage) + pid
    run = make_run(*rows, wall_ns=wall_ns, tokens=TOKENS, decode_tokens=TOKENS - 1, pid=pid)
    return replace(run, **changes)


def brick_runs(
    costs_us: Mapping[str, float],
    factors: Sequence[float] = SPREAD,
    *,
    first_pid: int = 700,
    **options: Any,
) -> tuple[BrickRun, ...]:
    """One process for each factor; each brick costs its time times that."""
    return tuple(
        make_brick_run(
            [row(name, cost * factor, **options) for name, cost in costs_us.items()],
            pid=first_pid + number,
        )
        for number, factor in enumerate(factors)
    )


def drawn(random: Any, spread: float, count: int = 5, by: float = 1.0) -> tuple[float, ...]:
    """Factors of ``count`` fresh processes, log-normal."""
    return tuple(by * math.exp(random.gauss(0.0, spread)) for _ in range(count))


def allowing(**budgets: tuple[float | None, float | None]) -> Thresholds:
    """Budgets as (µs per call, growth in percent); ``every`` stands for ``*``."""
    named = {
        "*" if name == "every" else name: BrickBudget(*budget) for name, budget in budgets.items()
    }
    return Thresholds(bricks=MappingProxyType(named))
