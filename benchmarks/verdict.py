"""How long the main job takes, from installed to verdicts, and that repeats agree.

    python benchmarks/verdict.py [--repeats 3]

Runs `pytest --flamegate` in an empty directory: once to accept, then to gate. Prints the
wall time of each run and the verdict of each workload.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def run(directory: Path, *options: str) -> tuple[float, dict[str, str]]:
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pytest", "--flamegate", "-q", *options],
        cwd=directory,
        env=environment,
        check=False,
        capture_output=True,
    )
    elapsed = time.perf_counter() - began
    found = sorted(directory.glob(".flamegate/latest/*/verdict.json"))
    return elapsed, {p.parent.name: json.loads(p.read_text())["verdict"] for p in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name:
        for options in [("--flamegate-update",), *[()] * repeats]:
            elapsed, verdicts = run(Path(name), *options)
            told = "  ".join(f"{w}: {v}" for w, v in verdicts.items())
            print(f"{' '.join(options) or 'gated':<20} {elapsed:6.1f} s   {told}")


if __name__ == "__main__":
    main()
