"""What profiling costs the profiled process, in pairs.

    python benchmarks/overhead.py [--pairs 12]

Each pair runs the embedded passage in one and the same process, with the profiler
attached and without it, in random order: two processes differ by more than a profiler
costs, one process hardly at all. Printed are the extra CPU and wall time per token at
the profiler's default rate: medians over the pairs, and quartiles.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from pathlib import Path

from pytest_flamegate.embedded.workloads import embedded_workloads
from pytest_flamegate.profile import Profiler, Setup, jitdump, profilers
from pytest_flamegate.workload import determinism
from pytest_flamegate.workload.engines import engine
from pytest_flamegate.workload.engines.base import Served
from pytest_flamegate.workload.observation import Interval, total
from pytest_flamegate.workload.served import ServedProcess

PAIRS_IN_A_PROCESS = 4
SEQUENCES = 2


def cost(served: ServedProcess, profiler: Profiler | None) -> Interval:
    """Return what some sequences took, with ``profiler`` attached if there is one."""
    if profiler is None:
        return total([served.untold_block(1).interval for _ in range(SEQUENCES)])
    with tempfile.TemporaryDirectory() as name:
        recording = profiler.attach(served.pid, Path(name))
        try:
            return total([served.untold_block(1).interval for _ in range(SEQUENCES)])
        finally:
            recording.stop()
            recording.close()


def ratios(profiler: Profiler, pairs: int, rng: random.Random) -> list[tuple[float, float]]:
    """Return profiled over untouched, CPU and wall time, of each pair."""
    workload = next(each for each in embedded_workloads(Path()) if each.name == "passage")
    kind = engine(workload.engine)
    plan = kind.plan(workload, kind.model(workload))
    assert isinstance(plan, Served)
    environment = determinism.environment(workload)
    found: list[tuple[float, float]] = []
    while len(found) < pairs:
        with ServedProcess(
            plan, workload, environment, lambda _: None, profiler.python_flags
        ) as served:
            served.warm_up(workload.max_tokens)
            for _ in range(PAIRS_IN_A_PROCESS):
                sides: list[Profiler | None] = [profiler, None]
                rng.shuffle(sides)
                took = {side is not None: cost(served, side) for side in sides}
                found.append(
                    (
                        took[True].cpu_ns / took[False].cpu_ns,
                        took[True].wall_ns / took[False].wall_ns,
                    )
                )
        jitdump.clean(served.pid)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12)
    pairs = parser.parse_args().pairs
    rng = random.Random(0)
    print(f"{'profiler':<16} {'CPU per token':>28} {'wall per token':>28}   ({pairs} pairs)")
    for name, profiler in profilers(Setup()).items():
        if name == "none":
            continue
        probe = profiler.probe()
        if not probe.usable:
            print(f"{name:<16} not usable here: {probe.reason}")
            continue
        cells = []
        for column in zip(*ratios(profiler, pairs, rng), strict=True):
            low, middle, high = (100 * (q - 1) for q in statistics.quantiles(column, n=4))
            cells.append(f"{middle:+.1f} % ({low:+.1f} … {high:+.1f})")
        print(f"{name:<16} {cells[0]:>28} {cells[1]:>28}")


if __name__ == "__main__":
    main()
