"""How often gates are wrong and how long they take: ours and its neighbours, on the same pairs.

    python -m benchmarks.gate_power [FILE ...] [--centred] [--markdown]

FILE holds pairs kept by `pair_streams.py`, packed or not; without one, those beside this
program are taken. Nothing is measured: the same files give the same tables, in about a minute.
With few pairs a cell, the measured effect of the injected work is off by chance, and so are all
figures drawn from it: `--centred` removes that error, and leaves the spread.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import claims
from benchmarks.claims import Claim, Replays
from benchmarks.ours import PAIRS_BUDGET_S, flamegate
from benchmarks.peers import (
    SLOW_DRAWS,
    Missing,
    inference_doctor,
    installed,
    perfguard,
    pytest_benchmark,
    versions,
)
from benchmarks.replay import CONFIDENCE, DRAWS, ENOUGH, Method, replay
from benchmarks.shown import in_detail, loads, measured, said, to_power
from benchmarks.streams import Cell, Pair, cells, centred, read
from benchmarks.tables import as_markdown, as_text, bullets, percent
from benchmarks.textbook import mann_whitney_fixed, mann_whitney_peeking, welch_fixed, welch_peeking
from benchmarks.time_to_power import DRAWS as POWER_DRAWS
from benchmarks.time_to_power import SIZES, Needed, growing, needed
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.gate import FIRST_ANALYSES

DATA = Path(__file__).parent / "data"
OURS = (5.0, 2.0)
"""Thresholds that promises were made for, in percent."""
POWER_AT = 3.0
"""The slowdown, in percent, by which the time to 95 % power is compared."""
TEXTBOOK = 10
"""Processes a side of the tests without interim analyses: benchstat's minimum."""


def methods() -> tuple[list[Method], list[Missing]]:
    """Return the replayed methods, ours first, and which peers are not installed."""
    return installed(
        *map(flamegate, OURS),
        pytest_benchmark("mean:5%"),
        pytest_benchmark("min:5%"),
        perfguard(),
        inference_doctor(5.0),
        welch_fixed(TEXTBOOK),
        welch_peeking(FIRST_ANALYSES[-1]),
        mann_whitney_fixed(TEXTBOOK),
        mann_whitney_peeking(FIRST_ANALYSES[-1]),
    )


def power_streams(
    found: Mapping[Cell, Sequence[Pair]],
) -> Iterator[tuple[str, Sequence[Pair], Sequence[Pair]]]:
    """Yield the cells of the comparison: the name, unchanged pairs, and pairs slowed by 3 %.

    Last come the most pairs of unchanged code, followed without a break, with head's times
    multiplied: not real work, but nearest to processes that are started one after the other.
    """
    for load in loads(found):
        same, slower = found.get((load, 0.0)), found.get((load, POWER_AT))
        if same and slower:
            yield load, same, slower
    load, same = max(
        ((load, pairs) for (load, effect), pairs in found.items() if effect == 0.0),
        key=lambda item: len(item[1]),
        default=("", []),
    )
    if len(same) >= ENOUGH:
        yield (
            f"{load}, multiplied",
            same,
            [pair.slowed(1.0 + POWER_AT / 100.0, POWER_AT) for pair in same],
        )


def promised(
    found: Mapping[Cell, Sequence[Pair]],
    replays: Mapping[str, Replays],
    needs: Mapping[str, Sequence[Needed | Missing]],
) -> list[Claim]:
    """Return every promise with its result."""
    five, two = map(flamegate, OURS)
    wide, narrow = replays[five.name], replays[two.name]
    above = [effect for _, effect in found if effect >= 2.0]
    return [
        claims.alarms_proven("τ = 5 %", claims.unchanged(five, found)),
        claims.misses("τ = 5 %", wide, 5.0, 10.0, 0.01),
        claims.median_time("τ = 5 %", wide, claims.MIXED, (0.0, 5.0, 10.0), 30.0),
        claims.median_time("τ = 5 %", wide, claims.QUIET, (0.0, 5.0, 10.0), 15.0),
        claims.alarms_seen("τ = 2 %", narrow, claims.unchanged(two, found)),
        claims.misses("τ = 2 %", narrow, 2.0, max(above, default=2.0), 0.02),
        claims.median_time("τ = 2 %", narrow, None, [e for _, e in found], 60.0),
        *(
            claims.sooner(load, POWER_AT, [n for n in of if isinstance(n, Needed)])
            for load, of in needs.items()
        ),
    ]


def notes(pairs: Sequence[Pair], *, moved: bool) -> list[str]:
    """Return the date, machine and method of the measurement."""
    first, last = (
        datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        for at_s in (min(p.at_s for p in pairs), max(p.at_s for p in pairs))
    )
    return [
        f"{len(pairs)} pairs of the embedded passage, measured {first} to {last}.",
        f"Replayed on {cpu()}, {os.cpu_count()} cores, Python {platform.python_version()}.",
        f"Peers decide by their own code: {', '.join(versions())}.",
        f"A cell's gates share no pair where it gives {ENOUGH} of them; else {DRAWS} gates are "
        f"drawn from it in blocks of pairs ({SLOW_DRAWS} for pytest-perfguard and "
        "inference-doctor), and for unchanged code the sides are exchanged at random.",
        "Each cell's mean was moved to the work injected (head's times multiplied)."
        if moved
        else "The pairs are as measured: a cell's mean is off by chance, see its standard error.",
        f"flamegate stops after {PAIRS_BUDGET_S:g} s of pairs, as it does by default if it also "
        "profiles; the others have no limit.",
        "Seconds are those that the processes took, start and warm-up included; a stored base "
        "costs none. The spans are over all injected work.",
        "The textbook tests and inference-doctor get the base of one pair and the head of the "
        "next: processes that alternate. Pairs of one cell were measured in turn with those of "
        "all others, so what drifts over minutes is in their spread; “multiplied” is without it.",
        "pytest-benchmark gets the base of the pair just before, not one of another day.",
        f"To 95 % power: {POWER_DRAWS} gates are drawn (or fewer, where one takes long), and at "
        f"most {SIZES[-1]} pairs, or processes a side, were tried. (!): more than 1 % false "
        f"alarms, with {percent(CONFIDENCE)} % confidence. “Of our pairs” is a test's arithmetic "
        "on processes that took turns; it is shown, and is no peer.",
    ]


def cpu() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def main(argv: Sequence[str] | None = None) -> int:
    """Print all tables; return 2 if the files cannot be replayed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    parser.add_argument(
        "--centred",
        action="store_true",
        help="multiply head's times so that the mean of each cell shows the work injected",
    )
    asked = parser.parse_args(argv)
    try:
        pairs = read(asked.files or sorted(DATA.glob("pairs-*.jsonl*")))
    except FlamegateError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    shown = found = cells(pairs)
    if asked.centred:
        found = {cell: centred(of) if cell[1] and len(of) > 1 else of for cell, of in found.items()}
    have, absent = methods()
    replays = {
        method.name: {cell: replay(method, of) for cell, of in found.items()} for method in have
    }
    needs = {
        name: [needed(method, same, slower) for method in growing(OURS[1])]
        for name, same, slower in power_streams(found)
    }
    show = as_markdown if asked.markdown else as_text
    ours = [flamegate(drop_pct).name for drop_pct in OURS]
    parts = [
        bullets(notes(pairs, moved=asked.centred)),
        bullets([str(claim) for claim in promised(found, replays, needs)]),
        show(measured(shown)),
        *(show(said(load, replays, absent)) for load in loads(found)),
        *(show(to_power(name, POWER_AT, of)) for name, of in needs.items()),
        *(show(in_detail(name, replays[name])) for name in ours),
    ]
    print("\n\n".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
