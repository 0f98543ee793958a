"""What the plugin costs where it is installed and off: pytest start-up, in pairs.

    python benchmarks/off.py [--pairs 20]

Each pair runs `pytest --collect-only` on one trivial test twice, in random order: with
the plugin registered, and with `-p no:flamegate`. Neighbours stand beside it, each
against its own `-p no:`. Medians of the paired differences are printed, in ms.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLUGINS = ("flamegate", "benchmark", "xdist", "hypothesispytest")


def seconds(directory: Path, *options: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--collect-only",
            "-p",
            "no:cacheprovider",
            *options,
        ],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    pairs = parser.parse_args().pairs
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "test_one.py").write_text("def test_one():\n    pass\n")
        seconds(directory)
        print(
            f"{'plugin':<20} {'cost of being installed, ms':>28} {'quartiles':>16}  ({pairs} pairs)"
        )
        for plugin in PLUGINS:
            found = []
            for _ in range(pairs):
                sides = [(), ("-p", f"no:{plugin}")]
                order = rng.sample(range(2), 2)
                took = {side: seconds(directory, *sides[side]) for side in order}
                found.append(1e3 * (took[0] - took[1]))
            low, middle, high = statistics.quantiles(found, n=4)
            print(f"{plugin:<20} {middle:>28.1f} {low:>7.1f} … {high:<6.1f}")


if __name__ == "__main__":
    main()
