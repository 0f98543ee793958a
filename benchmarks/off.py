"""The plugin's cost when installed and off: pytest start-up, in pairs.

    python benchmarks/off.py [--pairs 20]

Each pair runs `pytest --collect-only` on one trivial test twice, in random order: with
the plugin registered, and with `-p no:flamegate`. Other plugins are measured too, each
against its own `-p no:`, with the others off. The paired differences of CPU time are
printed in ms, and the difference between the cheapest run of either side: noise only
ever adds. Wall time is shown beside them.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLUGINS = ("flamegate", "benchmark", "xdist", "hypothesispytest")


def cost_ms(directory: Path, off: list[str]) -> tuple[float, float]:
    """Return CPU and wall time of one start-up with the plugins ``off`` turned off, in ms."""
    argv = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    argv += [word for name in off for word in ("-p", f"no:{name}")]
    began = time.perf_counter()
    child = subprocess.Popen(argv, cwd=directory, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - began
    if child.returncode:
        raise SystemExit(f"{argv} ended with status {child.returncode}")
    return 1e3 * (usage.ru_utime + usage.ru_stime), 1e3 * wall_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    pairs = parser.parse_args().pairs
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "test_one.py").write_text("def test_one():\n    pass\n")
        cost_ms(directory, [])
        print(f"cost of being installed and off, in ms ({pairs} pairs)")
        print(
            f"{'plugin':<20} {'CPU: median (quartiles)':>28} {'cheapest':>9} {'wall: median':>13}"
        )
        for plugin in PLUGINS:
            others = [each for each in PLUGINS if each != plugin]
            sides: list[list[tuple[float, float]]] = [[], []]
            for _ in range(pairs):
                for side in rng.sample(range(2), 2):
                    off = others if side == 0 else [*others, plugin]
                    sides[side].append(cost_ms(directory, off))
            print(_row(plugin, *sides))


def _row(plugin: str, on: list[tuple[float, float]], off: list[tuple[float, float]]) -> str:
    cpu, wall = (
        [one[clock] - other[clock] for one, other in zip(on, off, strict=True)] for clock in (0, 1)
    )
    low, middle, high = statistics.quantiles(cpu, n=4)
    cheapest = min(on)[0] - min(off)[0]
    spread = f"{middle:.1f} ({low:.1f} … {high:.1f})"
    return f"{plugin:<20} {spread:>28} {cheapest:>9.1f} {statistics.median(wall):>8.1f}"


if __name__ == "__main__":
    main()
