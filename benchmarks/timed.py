"""Time, CPU time and memory of a program and its children."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.tables import Table

# A child begins with the memory of who started it, and that counts: this one is small.
_STARTER = """
import json, os, sys, time
began = time.perf_counter()
pid = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
took_s = time.perf_counter() - began
user_s, peak_bytes = usage.ru_utime, usage.ru_maxrss * 1024
print(json.dumps([os.waitstatus_to_exitcode(status), took_s, user_s, peak_bytes]), file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class Took:
    """Wall time, CPU time in user mode, and the largest process."""

    wall_s: float
    user_s: float
    peak_bytes: int


def timed(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Took:
    """Run a program to its end. Raises ``SystemExit`` if it fails."""
    ended = subprocess.run(
        [sys.executable, "-IS", "-c", _STARTER, *argv],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    status, *figures = json.loads(ended.stderr.splitlines()[-1])
    if status:
        said = ended.stderr.decode("utf-8", "replace")[-2000:]
        raise SystemExit(f"{argv} ended with status {status}: {said}")
    return Took(*figures)


def alternating(
    programs: Mapping[str, Sequence[str]], rounds: int, environment: Mapping[str, str]
) -> dict[str, list[Took]]:
    """Run every program once a round, in random order: load meets all of them alike."""
    rng = random.Random(0)
    took: dict[str, list[Took]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name in rng.sample(list(programs), len(programs)):
            took[name].append(timed(programs[name], environment))
    return took


def median(took: Sequence[Took]) -> Took:
    """Return the median of each figure."""
    return Took(
        statistics.median(each.wall_s for each in took),
        statistics.median(each.user_s for each in took),
        round(statistics.median(each.peak_bytes for each in took)),
    )


def times_slower(theirs: Sequence[Took], ours: Sequence[Took]) -> float:
    """Return the median over the rounds of their wall time over ours."""
    pairs = zip(theirs, ours, strict=True)
    return statistics.median(one.wall_s / other.wall_s for one, other in pairs)


def table(
    title: str,
    column: str,
    units: Mapping[str, str],
    names: Sequence[str],
    took: Mapping[str, Sequence[Took]],
) -> Table:
    """Return medians over the rounds, ``unit`` of each in ``column``, and times over the first.

    ``names`` without a figure are not installed.
    """

    def row(name: str) -> tuple[str, ...]:
        if name not in took:
            return (name, "not installed", *["–"] * 4)
        middle = median(took[name])
        return (
            name,
            units[name],
            f"{middle.wall_s:.2f}",
            f"{middle.user_s:.2f}",
            f"{middle.peak_bytes / 2**20:,.0f}",
            f"{times_slower(took[name], took[names[0]]):.2f}",
        )

    head = ("program", column, "wall s", "user s", "peak MiB", "× our wall time")
    return Table(f"{title} ({len(took[names[0]])} rounds)", head, tuple(map(row, names)))
