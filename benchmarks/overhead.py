"""What profiling costs the embedded engine, by profiler: CPU and wall time per token, in pairs.

    python benchmarks/overhead.py [--pairs 10]

Each pair decodes the passage in two fresh processes, in random order: one untouched, one
profiled at the default rate. Ratios of the pairs are printed, median and quartiles.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from functools import partial
from pathlib import Path

from pytest_flamegate.embedded.workloads import embedded_workloads
from pytest_flamegate.profile import Profiler, Recording, Setup, profilers
from pytest_flamegate.workload.engines import engine
from pytest_flamegate.workload.observation import Run
from pytest_flamegate.workload.observer import Observer

SECONDS = 1.5


class Untouched:
    """A window through which nobody looks."""

    def stop(self) -> None:
        return None

    def close(self) -> None:
        return None


def _attach(profiler: Profiler, directory: Path, pid: int) -> Recording:
    return profiler.attach(pid, directory)


def per_token(run: Run) -> tuple[float, float]:
    cpu = sum(block.interval.cpu_ns for block in run.blocks) / run.tokens
    wall = sum(block.interval.wall_ns for block in run.blocks) / run.tokens
    return cpu, wall


def pair(profiler: Profiler, watcher: Observer, order: list[bool]) -> tuple[float, float]:
    """Return profiled over untouched: CPU and wall time per token."""
    cost = {}
    for profiled in order:
        if profiled:
            with tempfile.TemporaryDirectory() as name:
                attach = partial(_attach, profiler, Path(name))
                run, _ = watcher.profiled(SECONDS, attach)
        else:
            run, _ = watcher.profiled(SECONDS, lambda _: Untouched())
        cost[profiled] = per_token(run)
    return cost[True][0] / cost[False][0], cost[True][1] / cost[False][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    pairs = parser.parse_args().pairs
    rng = random.Random(0)
    workload = next(each for each in embedded_workloads(Path()) if each.name == "passage")
    kind = engine(workload.engine)
    print(f"{'profiler':<10} {'CPU per token':>30} {'wall per token':>30}   ({pairs} pairs)")
    for name, profiler in profilers(Setup()).items():
        if name == "none":
            continue
        probe = profiler.probe()
        if not probe.usable:
            print(f"{name:<10} not usable here: {probe.reason}")
            continue
        watcher = Observer(
            workload, kind.plan(workload, kind.model(workload)), profiler.python_flags
        )
        ratios = [pair(profiler, watcher, rng.sample([True, False], 2)) for _ in range(pairs)]
        cells = []
        for column in zip(*ratios, strict=True):
            low, middle, high = (100 * (q - 1) for q in statistics.quantiles(column, n=4))
            cells.append(f"{middle:+.1f} % ({low:+.1f} … {high:+.1f})")
        print(f"{name:<10} {cells[0]:>30} {cells[1]:>30}")


if __name__ == "__main__":
    main()
