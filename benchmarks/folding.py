"""The speed of folding the output of ``perf script``: ours and others', from file to file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import folders, grown, timed
from benchmarks.grown import Frames
from benchmarks.tables import Table
from benchmarks.timed import Took, alternating, median
from pytest_flamegate.core.errors import ToolError

OURS = "flamegate"
ROUNDS = 3
MILLION = 10**6


class Input(NamedTuple):
    """A file to fold."""

    name: str
    samples: Sequence[Frames]
    wanted: int
    peers: bool = True


def tables(brief: bool) -> Iterator[Table]:
    """Yield a table for each file."""
    scale = 100 if brief else 1
    for each in inputs(scale):
        with tempfile.TemporaryDirectory() as name:
            yield compared(each, Path(name), 2 if brief else ROUNDS)


def inputs(scale: int) -> Iterator[Input]:
    """Yield the inputs, recorded on the spot, smaller by ``scale``."""
    shallow = grown.recorded("fp")
    million = MILLION // scale
    yield Input("frame pointers", shallow, million)
    yield Input("frame pointers, 4 to 12 deep", grown.near_depth(shallow, 4, 12), million)
    yield Input("frame pointers, ten times as much", shallow, 10 * million, peers=False)
    deep = grown.recorded("dwarf,32768")
    yield Input("dwarf", grown.near_depth(deep, 30, 60), million)


def compared(given: Input, directory: Path, rounds: int) -> Table:
    """Fold one file by every program in turn."""
    ours, theirs = directory / "ours.txt", directory / "theirs.txt"
    grown.write(ours, given.samples, given.wanted)
    folded = directory / "ours.folded"
    programs: dict[str, list[str] | None] = {
        OURS: [sys.executable, "-m", "benchmarks.fold_script", str(ours), str(folded)]
    }
    if given.peers:
        grown.write(theirs, given.samples, given.wanted, command=True)
        programs |= folders.folding(theirs, directory / "theirs.folded")
    took = alternating(
        {name: argv for name, argv in programs.items() if argv}, rounds, dict(os.environ)
    )
    for path in directory.glob("*.folded"):
        require_all(path, given.wanted)
    title = f"Folding {given.wanted:,} samples: {given.name}, {grown.depths(given.samples)}"
    return table(title, given.wanted, list(programs), took)


def require_all(folded: Path, count: int) -> None:
    """Raise ``ToolError`` if folded stacks do not hold ``count`` samples: no one may skip."""
    with folded.open(encoding="utf-8", errors="surrogateescape") as lines:
        held = sum(int(line.rpartition(" ")[2]) for line in lines)
    if held != count:
        raise ToolError(
            "E_SAMPLES_LOST", f"{folded.name} holds {held:,} of {count:,} samples.", "Report this."
        )


def table(
    title: str, count: int, names: Sequence[str], took: Mapping[str, Sequence[Took]]
) -> Table:
    """Return how fast each folds ``count`` samples."""
    rates = {name: f"{count / median(each).wall_s / 1e3:,.0f}" for name, each in took.items()}
    return timed.table(title, "1,000 samples/s", rates, names, took)
