"""How often the kernel benchmarks raise an alarm if nothing changed.

``python -m benchmarks.kernel_false_alarms FILE --runs 20`` clones this repository, commits
nothing on top, and gates ``benchmarks/kernels`` against the parent, whose code is the same. Each
run is one line of FILE, so that a trial which was cut off goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import Table, as_text

Record = dict[str, Any]

ROOT = Path(__file__).parents[1]
BUDGET_S = 10.0
UNDECIDED = ("inconclusive", "not_comparable", "no_baseline")
GIT = ("git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost")


def clone(directory: Path) -> Path:
    """Return a clone of the committed files, with an empty commit on top."""
    repository = directory / "repository"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(repository)], check=True)
    nothing = ("commit", "-q", "--allow-empty", "-m", "Nothing")
    subprocess.run([*GIT, *nothing], cwd=repository, check=True)
    return repository


def run(repository: Path, budget_s: float) -> Record:
    """Gate the kernels once; return the verdict of each, and how busy the machine was."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment["PYTHONPATH"] = str(repository)
    options = ("--flamegate", "--flamegate-against=HEAD~1", "--flamegate-profiler=none")
    quick = (f"--flamegate-budget={budget_s:g}", "--benchmark-disable", "-q")
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "benchmarks/kernels", *options, *quick],
        cwd=repository,
        env=environment,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    found = sorted((repository / ".flamegate" / "latest").glob("*/verdict.json"))
    return {
        "load": round(os.getloadavg()[0], 2),
        "seconds": round(time.monotonic() - began_s, 1),
        "exit_status": done.returncode,
        "budget_s": budget_s,
        "kernels": {path.parent.name: _summary(json.loads(path.read_text())) for path in found},
    }


def _summary(verdict: Record) -> Record:
    rates = [each for each in verdict["signals"] if each["name"] == "tokens_per_second"]
    words = {"verdict": verdict["verdict"], "code": verdict["reasons"][0]["code"]}
    return {**words, **{key: rates[0][key] for key in ("change_pct", "ci_low_pct") if rates}}


def records(path: Path) -> list[Record]:
    """Return the runs that are kept in ``path``; a last line that was cut off is none."""
    if not path.exists():
        return []
    whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole]


def table(runs: Sequence[Record]) -> Table:
    """Return the verdicts by kernel, and how far the estimates lay from nothing."""
    names = sorted({name for each in runs for name in each["kernels"]})
    rows = [_row(name.rpartition(".")[2], [_kernel(each, name) for each in runs]) for name in names]
    every = [verdict for each in runs for verdict in each["kernels"].values()]
    rows.append(_row("all", every))
    minutes = sum(each["seconds"] for each in runs) / 60.0
    head = ("kernel", "gates", "pass", "improved", "regressed", "undecided", "error", "±% at most")
    return Table(
        f"The same code on both sides: {len(runs)} runs, {minutes:.0f} minutes", head, tuple(rows)
    )


def _kernel(run: Record, name: str) -> Record:
    verdict: Record = run["kernels"].get(name, {"verdict": "error"})
    return verdict


def _row(name: str, verdicts: Sequence[Record]) -> tuple[str, ...]:
    counted = Counter(each["verdict"] for each in verdicts)
    undecided = sum(counted.pop(each, 0) for each in UNDECIDED)
    known = [counted.pop(each, 0) for each in ("pass", "improved", "regressed")]
    changes = [abs(each["change_pct"]) for each in verdicts if each.get("change_pct") is not None]
    furthest = f"{max(changes):.1f}" if changes else "–"
    counts = (len(verdicts), *known, undecided, sum(counted.values()))
    return (name, *map(str, counts), furthest)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", type=Path, help="where the runs are kept, one JSON a line")
    parser.add_argument("--runs", type=int, default=20, help="runs in all, those kept included")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for each kernel")
    asked = parser.parse_args(arguments)
    done = records(asked.file)
    asked.file.write_text("".join(json.dumps(each) + "\n" for each in done))
    with tempfile.TemporaryDirectory(prefix="flamegate-alarms-") as directory:
        repository = clone(Path(directory)) if len(done) < asked.runs else None
        while repository is not None and len(done) < asked.runs:
            done.append(run(repository, asked.budget))
            with asked.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(done[-1]) + "\n")
    print(as_text(table(done)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
