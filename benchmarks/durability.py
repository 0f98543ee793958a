"""Durability: kills and errors at every system call, crowds of writers, hung trees.

``python -m benchmarks.durability [SECTION...]``, all sections by default; ``--part 0.1``
takes a seeded tenth of the points of a section. ``kills`` and ``errors`` need strace and the
right to trace; without it they report why they do not run.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from benchmarks.tables import Table, as_text
from tests.core import trees
from tests.core.test_process import hang
from tests.receipt import crowd, operations, points
from tests.receipt.operations import Operation
from tests.receipt.points import Tally

T = TypeVar("T")
_SEED = 20_260_301
_SHOWN = 20


def kills(part: float, place: Path) -> Table:
    """Kill each operation at each of its system calls."""
    rows, faults, total = [], [], Tally()
    for operation in operations.OPERATIONS:
        tally = Tally()
        for state, call, number in _points(operation, part, place, all_calls=True):
            tally.add(points.stop(operation, state, call, number, place))
        rows.append(_row(operation.name, tally))
        total.add(tally)
        faults += tally.faults
    _tell(faults)
    return Table("SIGKILL at every system call", _HEAD, (*rows, _row("all", total)))


def errors(part: float, place: Path) -> Table:
    """Let each call that writes fail, with each error."""
    rows, faults, total = [], [], Tally()
    for operation in operations.OPERATIONS:
        tally = Tally()
        for state, call, number in _points(operation, part, place, all_calls=False):
            for error in points.ERRORS:
                tally.add(points.stop(operation, state, call, number, place, error))
        rows.append(_row(operation.name, tally))
        total.add(tally)
        faults += tally.faults
    _tell(faults)
    title = f"{', '.join(points.ERRORS)} at every call that writes"
    return Table(title, _HEAD, (*rows, _row("all", total)))


def writers(part: float, place: Path) -> Table:
    """Let 32 processes write 3,000 updates each to one place; two CI jobs share another."""
    rows = []
    for kind in crowd.KINDS:
        count = 2 if kind == "jobs" else 32
        came = crowd.run(kind, place / kind, count, max(1, round(3000 * part)))
        rows.append(
            (
                f"{kind}, {count} writers",
                f"{came.updates:,}",
                str(came.lost),
                str(came.corrupt),
                str(came.failed),
                f"{came.updates / came.seconds:,.0f}",
            )
        )
    head = ("one place", "updates", "lost", "corrupt", "failed", "updates/s")
    return Table("Concurrent writers", head, tuple(rows))


def hung_trees(part: float, place: Path) -> Table:
    """Start and end 1,000 trees that hang, of all shapes in turn."""
    place.mkdir()
    shapes = list(trees.SHAPES)
    ended = [hang(shapes[n % len(shapes)], place) for n in range(max(9, round(1000 * part)))]
    rows = []
    for shape in (*shapes, "all"):
        these = [each for each in ended if shape in (each.shape, "all")]
        took = sorted(1000 * each.seconds for each in these)
        rows.append(
            (
                shape,
                str(len(these)),
                str(sum(each.members for each in these)),
                str(sum(each.survivors for each in these)),
                str(max(each.zombies for each in these)),
                f"{statistics.median(took):.0f}",
                f"{took[-1]:.0f}",
            )
        )
    head = ("tree", "ended", "processes", "survivors", "zombies", "median ms", "longest ms")
    return Table("Trees that hang", head, tuple(rows))


def _traces(_: Path) -> str | None:
    return points.why_not()


def _always(_: Path) -> str | None:
    return None


_Section = tuple[Callable[[float, Path], Table], Callable[[Path], "str | None"]]
SECTIONS: dict[str, _Section] = {
    "kills": (kills, _traces),
    "errors": (errors, _traces),
    "writers": (writers, _always),
    "trees": (hung_trees, _always),
}
_HEAD = ("operation", "points", "killed", "acknowledged", "refused", "corrupt or lost")


def _row(name: str, tally: Tally) -> tuple[str, ...]:
    counts = (tally.points, tally.killed, tally.acknowledged, tally.refused, len(tally.faults))
    return (name, *(f"{count:,}" for count in counts))


def _points(
    operation: Operation, part: float, place: Path, *, all_calls: bool
) -> Iterator[tuple[str, str, int]]:
    for state in operation.states:
        calls = points.calls_of(operation, state, place)
        yield from _sample(
            [
                (state, call, number)
                for call, count in sorted(calls.items())
                if all_calls or call in points.WRITING
                for number in range(1, count + 1)
            ],
            part,
        )


def _sample(all_of_them: list[T], part: float) -> list[T]:
    if part >= 1.0:
        return all_of_them
    return random.Random(_SEED).sample(all_of_them, max(1, round(part * len(all_of_them))))


def _tell(faults: list[str]) -> None:
    for fault in faults[:_SHOWN]:
        print(fault, file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--part", type=float, default=1.0, help="the part of the points to take")
    parser.add_argument("--dir", help="where to work; default: the temporary directory")
    asked = parser.parse_args()
    for name in asked.sections or SECTIONS:
        measure, why_not = SECTIONS[name]
        with tempfile.TemporaryDirectory(dir=asked.dir) as scratch:
            reason = why_not(Path(scratch))
            if reason is not None:
                print(f"{name}: not run, {reason}\n")
                continue
            began = time.monotonic()
            table = measure(asked.part, Path(scratch) / "place")
            print(f"{as_text(table)}\n\n{time.monotonic() - began:.0f} s\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
