"""How fast and how large a flame graph is: ours and others', of the same folded stacks."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import folders
from benchmarks.folding import MILLION, OURS
from benchmarks.passage import profiled
from benchmarks.tables import Table
from benchmarks.timed import alternating, table
from pytest_flamegate.profile.frames import fold_profile
from pytest_flamegate.profile.model import Profile

ROUNDS = 5
DISTINCT = 100_000
FUNCTIONS = 2000
DEPTH = 20
RATE_HZ = 499
PROFILED_S = 60.0


def tables(brief: bool) -> Iterator[Table]:
    """Yield a table for each file of folded stacks."""
    scale = 100 if brief else 1
    rounds = 2 if brief else ROUNDS
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        folded = directory / "distinct.folded"
        folded.write_text(distinct_stacks(DISTINCT // scale))
        yield drawn(
            f"{DISTINCT // scale:,} distinct stacks of about {DEPTH} frames", folded, rounds
        )
        for profiler in ("py-spy", "perf"):
            real = profiled(profiler, PROFILED_S / scale, RATE_HZ)
            folded = directory / f"real-{profiler}.folded"
            folded.write_text(fold_profile(grown(real, MILLION)), encoding="utf-8")
            what = f"{MILLION:,} samples of the passage, {profiler}, {len(real.stacks):,} stacks"
            yield drawn(what, folded, rounds)


def grown(profile: Profile, samples: int) -> Profile:
    """Return the profile with about so many samples in the same stacks."""
    times = samples / profile.samples
    return replace(profile, stacks={s: round(times * n) for s, n in profile.stacks.items()})


def distinct_stacks(count: int) -> str:
    """Return ``count`` different folded stacks: a tree that branches everywhere."""
    rng = random.Random(0)
    stacks: set[str] = set()
    while len(stacks) < count:
        node, path = 0, []
        for depth in range(rng.randrange(DEPTH // 2, DEPTH * 3 // 2)):
            node = (31 * node + 1 + rng.randrange(3 if depth > 2 else 2)) % FUNCTIONS
            path.append(f"function_{node} [library_{node % 40}.so]")
        stacks.add(";".join(path))
    return "".join(f"{stack} {rng.randrange(1, 20)}\n" for stack in sorted(stacks))


def drawn(what: str, folded: Path, rounds: int) -> Table:
    """Draw one file by every program in turn."""
    pictures = folded.parent / "ours.svg", folded.parent / "theirs.svg"
    programs: dict[str, list[str] | None] = {
        OURS: [sys.executable, "-m", "benchmarks.draw_folded", str(folded), str(pictures[0])],
        **folders.drawing(folded, pictures[1]),
    }
    installed = {name: argv for name, argv in programs.items() if argv}
    sizes: dict[str, int] = {}
    for name, argv in installed.items():  # each once for its size: peers write the same file
        alternating({name: argv}, 1, dict(os.environ))
        sizes[name] = pictures[name != OURS].stat().st_size
    took = alternating(installed, rounds, dict(os.environ))
    units = {name: f"{size / 1e3:,.0f}" for name, size in sizes.items()}
    return table(f"Drawing {what}", "SVG kB", units, list(programs), took)
