"""The cost that flamegate adds to an engine's own loop: sequences of one process in random order.

Two processes of one engine differ by more than this cost, so both loops run in the
same one (``paired_loops.py``). Flamegate clocks the whole block: the command, each
token reported, and the end. The quiet clock is compared: wall time less the time in which the
process could have run and got no core.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.paired_loops import order
from benchmarks.tables import Table
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from pytest_flamegate.observe.engine_process import RunPlace
from pytest_flamegate.observe.observer import Observer

WARM = 4
PROCESSES = 4
_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Pair:
    """One sequence through flamegate, one in the engine's own loop, and the tokens of each."""

    reported: Interval
    bare: Interval
    tokens: int


def cost(workload: Workload, pairs: int) -> list[Pair]:
    """Return ``pairs`` of sequences at least, of ``PROCESSES`` processes on one core each."""
    cpus = sorted(os.sched_getaffinity(0))
    each = -(-pairs // PROCESSES)
    return [
        pair for n in range(PROCESSES) for pair in _of_one(workload, each, n, cpus[n % len(cpus)])
    ]


def _of_one(workload: Workload, pairs: int, seed: int, cpu: int) -> list[Pair]:
    chosen = engine(workload.engine)
    plan = chosen.plan(workload, chosen.model(workload))
    assert isinstance(plan, Served)
    load = {
        "factory": "benchmarks.paired_loops:load_engine",
        "inner": plan.load,
        "seed": seed,
        "warm": WARM,
        "pairs": pairs,
    }
    workload = replace(workload, env={**workload.env, "PYTHONPATH": str(_ROOT)})
    observer = Observer(workload, replace(plan, load=load))
    with observer.serve(RunPlace(cpu=cpu)) as process:
        for _ in range(WARM):
            process.block(1)
        seen: dict[bool, list[Interval]] = {True: [], False: []}
        tokens = 0
        for reported in order(seed, pairs):
            block = process.block(1)
            tokens = block.tokens
            if reported:
                seen[True].append(block.interval)
            else:
                said = process.reports()[-1].figures
                seen[False].append(
                    Interval(*(int(said[name]) for name in ("wall_ns", "cpu_ns", "delay_ns")))
                )
    return [Pair(a, b, tokens) for a, b in zip(seen[True], seen[False], strict=True)]


CLOCKS: dict[str, Callable[[Interval], int]] = {
    "judged (quiet)": lambda clocked: clocked.quiet_ns,
    "CPU": lambda clocked: clocked.cpu_ns,
    "wall": lambda clocked: clocked.wall_ns,
}


def row(name: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Return medians of one engine: tokens a second on both sides, and flamegate's cost."""
    tokens = pairs[0].tokens
    rates = (
        f"{tokens / (statistics.median(side) / 1e9):,.1f}"
        for side in ([p.reported.quiet_ns for p in pairs], [p.bare.quiet_ns for p in pairs])
    )
    added = [added_pct([of(p.reported) / of(p.bare) for p in pairs]) for of in CLOCKS.values()]
    us = statistics.median((p.reported.quiet_ns - p.bare.quiet_ns) / tokens / 1e3 for p in pairs)
    return (name, *rates, *added, f"{us:+.1f}", str(len(pairs)))


def added_pct(ratios: Sequence[float]) -> str:
    """Return the added cost in percent: the median, and a 95 % interval of it by order."""
    ordered = sorted(ratios)
    half = 0.98 * len(ordered) ** 0.5
    low = ordered[max(0, int(len(ordered) / 2 - half))]
    high = ordered[min(len(ordered) - 1, int(len(ordered) / 2 + half))]
    middle, low, high = (100.0 * (each - 1.0) for each in (statistics.median(ratios), low, high))
    return f"{middle:+.2f} ({low:+.2f} … {high:+.2f})"


def table(workloads: Iterable[Workload], pairs: int) -> Table:
    """Return flamegate's cost for each installed engine."""
    return Table(
        "Tokens a second (quiet clock) through flamegate and in the engine's own loop; added, %",
        ("engine", "flamegate", "own loop", *CLOCKS, "µs a token", "pairs"),
        tuple(row(each.name, cost(each, pairs)) for each in workloads),
    )
