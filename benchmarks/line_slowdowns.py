"""Lines that got slower: is the right one named first, and never a changed one that did not?

    python -m benchmarks.line_slowdowns [--only NAME ...]
    python -m benchmarks.line_slowdowns --held-out     # ten others, see `held_out_edits.py`
    python -m benchmarks.line_slowdowns --keep FILE    # append one JSON line a run
    python -m benchmarks.line_slowdowns --read FILE    # the table of such lines; measures nothing

Each of the slowdowns of `line_edits.py` becomes a commit of a small repository, together with
harmless changes: an import that shifts every line, comments, and renamed variables in other hot
lines and in the loop that calls everything. ``flamegate run --against HEAD~1`` judges it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.held_out_edits import HELD_OUT
from benchmarks.honest_changes import GIT, LIMIT_S, commit
from benchmarks.line_edits import SLOWDOWNS, Slowdown, files_of, right_lines
from benchmarks.tables import Table, as_markdown, as_text
from pytest_flamegate.core.json import decode_json


@dataclass(frozen=True, slots=True)
class Named:
    """A line that a verdict names."""

    place: str
    is_changed: bool
    change_us: float
    explains_pct: float


@dataclass(frozen=True, slots=True)
class Run:
    """One judged slowdown: by how much it is slower, the lines named, and the right ones."""

    slowdown: str
    verdict: str
    change_pct: float | None
    named: list[Named]
    right: list[str]
    exit_code: int
    took_s: float
    output: str

    @property
    def is_right(self) -> bool:
        """Whether the first line named is a right one."""
        return bool(self.named) and _covers(self.named[0].place, self.right)

    @property
    def wrong(self) -> list[str]:
        """The changed lines named that are none of the right ones."""
        return [
            each.place
            for each in self.named
            if each.is_changed and each.change_us > 0 and not _covers(each.place, self.right)
        ]


def _covers(place: str, lines: Sequence[str]) -> bool:
    file, _, numbers = place.rpartition(":")
    first, _, last = numbers.partition("-")
    return any(f"{file}:{line}" in lines for line in range(int(first), int(last or first) + 1))


def judge(slowdown: Slowdown, budget_s: float | None = None) -> Run:
    """Judge a slowdown once in a fresh repository."""
    base, head = files_of(slowdown)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        subprocess.run([*GIT, "init", "-q", "-b", "main"], cwd=directory, check=True)
        commit(directory, base, "base")
        commit(directory, head, slowdown.name)
        began_s = time.monotonic()
        argv = [sys.executable, "-m", "pytest_flamegate", "run", "--against", "HEAD~1"]
        argv += [] if budget_s is None else ["--budget", f"{budget_s:g}"]
        ended = subprocess.run(
            argv, cwd=directory, capture_output=True, text=True, timeout=LIMIT_S, env=os.environ
        )
        took_s = time.monotonic() - began_s
        verdict: dict[str, Any] = {}
        for path in directory.glob(".flamegate/latest/*/verdict.json"):
            verdict = json.loads(path.read_text())
    rates = [each for each in verdict.get("signals", []) if each["name"] == "tokens_per_second"]
    named = [
        Named(
            _place(each["place"]),
            each["place"]["is_changed"],
            each["cost"]["change_us_per_token"],
            100.0 * (each["cost"]["explains"] or 0.0),
        )
        for each in verdict.get("lines", [])
    ]
    return Run(
        slowdown.name,
        str(verdict.get("verdict")),
        rates[0].get("change_pct") if rates else None,
        named,
        right_lines(slowdown, head),
        ended.returncode,
        took_s,
        ended.stdout + ended.stderr,
    )


def _place(place: dict[str, Any]) -> str:
    lines = f"{place['first']}-{place['last']}" if place["last"] != place["first"] else ""
    return f"{place['file']}:{lines or place['first']}"


def table(runs: Sequence[Run]) -> Table:
    """Return a row for each run, and their sum."""
    rows = []
    for run in runs:
        first = run.named[0] if run.named else None
        rows.append(
            (
                run.slowdown,
                "–" if run.change_pct is None else f"{run.change_pct:+.0f} %",
                "none" if first is None else first.place,
                "" if first is None else f"{first.explains_pct:.0f} %",
                "yes" if run.is_right else "no",
                ", ".join(run.wrong) or "none",
            )
        )
    right, wrong = sum(run.is_right for run in runs), sum(bool(run.wrong) for run in runs)
    rows.append((f"{len(runs)} runs", "", "", "", f"{right} right", f"{wrong} wrong"))
    head = ("slowdown", "speed", "named first", "explains", "right", "wrong lines named")
    return Table("Lines that got slower", head, tuple(rows))


def main() -> int:
    """Judge every slowdown; return 1 if a line is missing or wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="slowdowns whose names contain this")
    parser.add_argument("--held-out", action="store_true", help="the slowdowns of held_out_edits")
    parser.add_argument("--budget", type=float, help="seconds for a comparison")
    parser.add_argument("--keep", type=Path, help="append one JSON line a run")
    parser.add_argument("--read", type=Path, help="print the table of such a file")
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    asked = parser.parse_args()
    runs = []
    if asked.read is not None:
        runs = [decode_json(line, Run) for line in asked.read.read_bytes().splitlines()]
    slowdowns = HELD_OUT if asked.held_out else SLOWDOWNS
    for slowdown in slowdowns if asked.read is None else ():
        if asked.only and not any(word in slowdown.name for word in asked.only):
            continue
        run = judge(slowdown, asked.budget)
        runs.append(run)
        mark = "right" if run.is_right else "NOT RIGHT"
        print(mark, run.slowdown, run.verdict, run.named[:4], run.right, f"{run.took_s:.0f} s",
              file=sys.stderr, flush=True)  # fmt: skip
        if asked.keep is not None:
            with asked.keep.open("a") as file:
                file.write(json.dumps(asdict(run)) + "\n")
    print((as_markdown if asked.markdown else as_text)(table(runs)))
    return int(any(run.wrong or not run.is_right for run in runs))


if __name__ == "__main__":
    raise SystemExit(main())
