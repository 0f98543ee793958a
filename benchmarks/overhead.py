"""The cost of profiling to the profiled process, by profiler, rate and call graph.

Each pair runs the embedded passage in one and the same process, with the profiler attached
and without it, in random order: two processes differ by more than a profiler costs, one
process hardly at all. The settings take turns, so that load meets all of them alike.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.passage import passage
from benchmarks.tables import Table
from pytest_flamegate.core.clocks import Interval, sum_intervals
from pytest_flamegate.observe.engine_process import EngineProcess
from pytest_flamegate.profile.profilers import PROFILERS
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup
from pytest_flamegate.profile.profilers.tools import try_profiler

PAIRS = 24
PAIRS_IN_A_PROCESS = 4
SEQUENCES = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """A profiler as it is set."""

    profiler: str
    rate_hz: int
    call_graph: str | None = None

    def __str__(self) -> str:
        graph = f", {self.call_graph}" if self.call_graph else ""
        return f"{self.profiler} {self.rate_hz} Hz{graph}"

    def made(self) -> Profiler:
        """Return the profiler."""
        return PROFILERS[self.profiler](Setup(rate_hz=self.rate_hz, call_graph=self.call_graph))


SETTINGS = (
    *(Setting("py-spy", rate) for rate in (50, 100, 200, 500)),
    *(
        Setting("perf", rate, graph)
        for graph in ("fp", "dwarf,32768")
        for rate in (49, 99, 199, 499)
    ),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Profiled over untouched, of one pair: CPU and wall time."""

    cpu: float
    wall: float


def tables(brief: bool) -> Iterator[Table]:
    """Yield the one table."""
    unusable = {
        name: try_profiler(PROFILERS[name](Setup())) for name in {s.profiler for s in SETTINGS}
    }
    unusable = {name: probe for name, probe in unusable.items() if not probe.usable}
    costs: dict[Setting, list[Cost]] = {
        each: [] for each in SETTINGS if each.profiler not in unusable
    }
    rng = random.Random(0)
    for _ in range(1 if brief else PAIRS // PAIRS_IN_A_PROCESS):
        for setting, found in costs.items():
            found += in_a_process(setting.made(), rng)
    yield table(costs, unusable)


def in_a_process(profiler: Profiler, rng: random.Random) -> list[Cost]:
    """Return the cost of each pair in one process."""
    costs = []
    with passage(profiler.python_flags) as served:
        for _ in range(PAIRS_IN_A_PROCESS):
            sides: list[Profiler | None] = [profiler, None]
            rng.shuffle(sides)
            took = {side is not None: spent(served, side) for side in sides}
            costs.append(cost(took[True], took[False]))
    return costs


def spent(served: EngineProcess, profiler: Profiler | None) -> Interval:
    """Return the times of some sequences, with ``profiler`` attached if there is one."""
    if profiler is None:
        return sum_intervals([served.profile_block(1).interval for _ in range(SEQUENCES)])
    with tempfile.TemporaryDirectory() as name:
        recording = profiler.attach(served.pid, Path(name))
        try:
            return sum_intervals([served.profile_block(1).interval for _ in range(SEQUENCES)])
        finally:
            recording.stop()
            recording.close()


def cost(profiled: Interval, untouched: Interval) -> Cost:
    """Return the cost that profiling adds to the same work."""
    return Cost(profiled.cpu_ns / untouched.cpu_ns, profiled.wall_ns / untouched.wall_ns)


def table(costs: Mapping[Setting, Sequence[Cost]], unusable: Mapping[str, Probe]) -> Table:
    """Return medians over the pairs, and quartiles."""
    rows = [
        (
            str(setting),
            quartiles([pair.cpu for pair in found]),
            quartiles([pair.wall for pair in found]),
            str(len(found)),
        )
        for setting, found in costs.items()
    ]
    rows += [(name, f"not usable: {probe.reason}", "–", "0") for name, probe in unusable.items()]
    return Table(
        "Cost of profiling the embedded passage, in % of the unprofiled: median (quartiles)",
        ("profiler", "CPU time", "wall time", "pairs"),
        tuple(rows),
    )


def quartiles(ratios: Sequence[float]) -> str:
    """Return the added cost, in percent: the median, and the quartiles in brackets."""
    low, middle, high = (100.0 * (each - 1.0) for each in statistics.quantiles(ratios, n=4))
    return f"{middle:+.1f} ({low:+.1f} … {high:+.1f})"
