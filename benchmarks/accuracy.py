"""Whether profilers read a split that is known: 60, 30 and 10 % of the CPU time.

Three functions do the same work, six, three and one times, in turns of milliseconds. Each
profiler samples at its default rate, from the start of the program to its end.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks.known_split import PARTS, c_program, parts, python_program
from benchmarks.tables import Table
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.profile.profilers import PROFILERS, callgrind
from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.profile.profilers.tools import parse_wrapped, try_profiler

ALLOWED_PP = 2.0
RUNS = 5
PYTHON_TURNS, C_TURNS, COUNTED_TURNS = 13_000, 39_000, 26
"""Turns take some milliseconds. Counting needs few."""
TIMEOUT_S = 600.0


class Reading(NamedTuple):
    """One reading: the total that was sampled or counted, and each function's part of it."""

    total: int
    parts: dict[str, float]


def tables(brief: bool) -> Iterator[Table]:
    """Yield the one table."""
    runs = 1 if brief else RUNS
    with tempfile.TemporaryDirectory() as name:
        readers = readings(Path(name), 10 if brief else 1)
        rows = [row(what, runs, read) for what, read in readers.items()]
    head = ("profiler, program", "samples", *PARTS, "worst error, pp", "of all runs, pp", "≤ 2 pp")
    yield Table(f"A known split of 60, 30 and 10 %: mean of {runs} runs", head, tuple(rows))


def readings(directory: Path, scale: int) -> dict[str, Callable[[], Reading]]:
    """Return functions that read the split once, by profiler and program; shorter by ``scale``."""
    python, native = python_program(directory), c_program(directory)
    found: dict[str, Callable[[], Reading]] = {
        f"{name}, Python": partial(
            sampled, name, python, PYTHON_TURNS // scale, directory, python=True
        )
        for name in ("py-spy", "perf")
    }
    if native is not None:
        turns = C_TURNS // scale
        found["perf, C"] = partial(sampled, "perf", native, turns, directory, python=False)
        found["callgrind, C (instructions)"] = partial(counted, native)
    return found


def sampled(
    name: str, program: Sequence[str], turns: int, directory: Path, *, python: bool
) -> Reading:
    """Sample a whole run. Raises ``ToolError`` if the profiler cannot see the functions."""
    profiler = PROFILERS[name](Setup(python_engine=python))
    probe = try_profiler(profiler)
    if not probe.usable:
        raise ToolError(probe.code, probe.reason, probe.remedy)
    if python and not probe.sees_python:
        raise ToolError("E_PROFILER_BLIND", "it does not see Python functions here", "Use another.")
    argv = [program[0], *profiler.python_flags, *program[1:], str(turns)]
    wrapped = profiler.wrap(argv, directory)
    ended = subprocess.run(wrapped.argv, capture_output=True, check=False)
    profile = parse_wrapped(profiler, wrapped.recording, ended.stderr)
    return Reading(profile.samples, parts(profile.stacks))


def counted(program: Sequence[str]) -> Reading:
    """Count a whole run's instructions. Raises ``ToolError``."""
    found = callgrind.count_program(
        [*program, str(COUNTED_TURNS)],
        env=dict(os.environ),
        cwd=None,
        timeout_s=TIMEOUT_S,
    )
    return Reading(sum(found.by_stack.values()), parts(found.by_stack))


def row(what: str, runs: int, read: Callable[[], Reading]) -> tuple[str, ...]:
    """Return the means over the runs, the error of the means, and that of the worst run."""
    try:
        found = [read() for _ in range(runs)]
    except FlamegateError as error:
        return (what, f"not usable: {error.code}", *["–"] * (len(PARTS) + 3))
    means = {name: fmean(each.parts[name] for each in found) for name in PARTS}
    worst = error_pp(means)
    of_all = max(error_pp(each.parts) for each in found)
    return (
        what,
        f"{fmean(each.total for each in found):,.0f}",
        *(f"{100.0 * means[name]:.2f}" for name in PARTS),
        f"{worst:.2f}",
        f"{of_all:.2f}",
        "yes" if of_all <= ALLOWED_PP else "NO",
    )


def error_pp(read: dict[str, float]) -> float:
    """Return how far the worst of the parts is off, in percentage points."""
    return max(abs(100.0 * (read[name] - part)) for name, part in PARTS.items())
