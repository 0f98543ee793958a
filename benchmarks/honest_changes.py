"""What the gate answers to changes that make nothing slower: none of them may be red.

    python -m benchmarks.honest_changes [--times 5] [--busy] [--only NAME ...]
    python -m benchmarks.honest_changes --engine python --busy --budget 20    # 10 minutes
    python -m benchmarks.honest_changes --keep FILE    # append one JSON line a run
    python -m benchmarks.honest_changes --read FILE    # the table of such lines; measures nothing

Each of the changes of `honest_edits.py` becomes a commit of a small repository with an engine in
C and one in Python, and ``pytest --flamegate --flamegate-against=HEAD~1`` judges it, with profiles,
as in CI: there an inconclusive verdict fails. A run is red if pytest does not end with 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.honest_edits import CHANGES, Change, Files, files_of
from benchmarks.pair_streams import beside, bursts, copier
from benchmarks.tables import Table, as_markdown, as_text
from pytest_flamegate.core.json import decode_json

GIT = ("git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org")
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest: the verdict of each workload with its codes, and seconds in all.

    ``output`` is what pytest printed if the run is red.
    """

    change: str
    verdicts: dict[str, str]
    codes: dict[str, list[str]]
    exit_code: int
    took_s: float
    load: float
    busy: bool
    output: str

    @property
    def is_red(self) -> bool:
        return self.exit_code != 0


def write_files(directory: Path, files: Files) -> None:
    """Make the work tree hold these files and no other tracked one."""
    for path in subprocess.run(
        [*GIT, "ls-files"], cwd=directory, check=True, capture_output=True, text=True
    ).stdout.splitlines():
        (directory / path).unlink()
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)


def commit(directory: Path, files: Files, message: str) -> None:
    """Commit these files."""
    write_files(directory, files)
    subprocess.run([*GIT, "add", "-A"], cwd=directory, check=True)
    subprocess.run([*GIT, "commit", "-q", "-m", message], cwd=directory, check=True)


@contextmanager
def repository(change: Change, engine: str | None = None) -> Iterator[Path]:
    """Make a repository of two commits: the base, and the change."""
    base, head = files_of(change, engine)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        subprocess.run([*GIT, "init", "-q", "-b", "main"], cwd=directory, check=True)
        commit(directory, base, "base")
        commit(directory, head, change.name)
        yield directory


def judge(
    change: Change, options: Sequence[str] = (), engine: str | None = None, *, busy: bool = False
) -> Run:
    """Judge the change once in a fresh repository, with CI set."""
    with repository(change, engine) as directory:
        argv = [sys.executable, "-m", "pytest", "-q", "--flamegate", "--flamegate-against=HEAD~1"]
        argv += options
        environment = {**os.environ, "CI": "1"}
        began_s = time.monotonic()
        ended = subprocess.run(
            argv, cwd=directory, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
        took_s = time.monotonic() - began_s
        verdicts, codes = {}, {}
        for path in sorted(directory.glob(".flamegate/latest/*/verdict.json")):
            verdict = json.loads(path.read_text())
            verdicts[path.parent.name] = verdict["verdict"]
            codes[path.parent.name] = [each["code"] for each in verdict["reasons"]]
        load = os.getloadavg()[0]
        output = ended.stdout + ended.stderr if ended.returncode else ""
        return Run(change.name, verdicts, codes, ended.returncode, took_s, load, busy, output)


@contextmanager
def load_on_both_cores() -> Iterator[None]:
    """Let one process on each core compute in bursts, and another copy memory on one of them."""
    first, *_, last = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        stack.enter_context(beside(bursts, first))
        stack.enter_context(beside(bursts, last))
        stack.enter_context(beside(copier, last))
        yield


def counted(values: Sequence[str]) -> str:
    """Return how often each value occurs: ``5 pass, 1 inconclusive``."""
    return ", ".join(f"{count} {value}" for value, count in Counter(values).most_common())


def row(change: str, runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the runs of one change as a row."""
    names = sorted({name for run in runs for name in run.verdicts})
    verdicts = [
        f"{name}: {counted([run.verdicts[name] for run in runs if name in run.verdicts])}"
        for name in names
    ]
    seconds = [run.took_s for run in runs]
    return (
        change,
        "; ".join(verdicts) or "none",
        counted([str(run.exit_code) for run in runs]).replace(" ", " × "),
        str(sum(run.is_red for run in runs)),
        f"{statistics.median(seconds):.0f}",
        f"{max(seconds):.0f}",
    )


def read_runs(path: Path) -> list[Run]:
    """Return the runs in a file of ``--keep``."""
    return [decode_json(line, Run) for line in path.read_bytes().splitlines()]


def table(runs: Sequence[Run]) -> Table:
    """Return all runs by change, and their sum."""
    names = list(dict.fromkeys(run.change for run in runs))
    rows = [row(name, [run for run in runs if run.change == name]) for name in names]
    red, seconds = sum(run.is_red for run in runs), [run.took_s for run in runs]
    whole = f"{statistics.median(seconds):.0f}", f"{max(seconds):.0f}"
    rows.append(("all", f"{len(runs)} runs", "", str(red), *whole))
    loads = sorted(run.load for run in runs)
    where = "beside a load on both cores" if runs[0].busy else "no load added"
    title = f"Honest changes, {where} (load average {loads[0]:.0f} to {loads[-1]:.0f})"
    head = ("change", "verdicts", "exit codes", "red", "s, median", "s, most")
    return Table(title, head, tuple(rows))


def main() -> int:
    """Judge every change so many times, in rounds; return 1 if any run is red."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--busy", action="store_true", help="beside a load on both cores")
    parser.add_argument("--only", nargs="*", default=[], help="changes whose names contain this")
    parser.add_argument("--keep", type=Path, help="append one JSON line a run")
    parser.add_argument("--engine", choices=("native", "python"), help="judge only one of the two")
    parser.add_argument("--budget", type=float, help="seconds for a comparison")
    parser.add_argument("--pytest", default="", help="further options of pytest, as one word")
    parser.add_argument("--read", type=Path, help="print the table of such a file")
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    asked = parser.parse_args()
    changes = [
        each for each in CHANGES if not asked.only or any(word in each.name for word in asked.only)
    ]
    options = shlex.split(asked.pytest)
    if asked.budget:
        options.append(f"--flamegate-budget={asked.budget:g}")
    runs = [] if asked.read is None else read_runs(asked.read)
    with ExitStack() as stack:
        if asked.busy and asked.read is None:
            stack.enter_context(load_on_both_cores())
        for change in changes * asked.times if asked.read is None else ():
            run = judge(change, options, asked.engine, busy=asked.busy)
            runs.append(run)
            mark = "RED" if run.is_red else "ok"
            line = f"{mark} {change.name}: {run.verdicts} {run.codes} {run.took_s:.0f} s"
            print(line, f"load {run.load:.1f}", file=sys.stderr, flush=True)
            if asked.keep is not None:
                with asked.keep.open("a") as file:
                    file.write(json.dumps(asdict(run)) + "\n")
    print((as_markdown if asked.markdown else as_text)(table(runs)))
    return int(any(run.is_red for run in runs))


if __name__ == "__main__":
    raise SystemExit(main())
