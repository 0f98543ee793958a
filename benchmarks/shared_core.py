"""Pairs that share a core: how far the same code differs, and how the gate decides on it.

    python -m benchmarks.shared_core [--markdown]

Nothing is measured: `pair_streams.py` kept the pairs in `data/shared-WORKLOAD-DATE.jsonl.gz`. A
gate stops after the 35 s that a comparison spends on pairs by default. "Slower by τ" is the same
code with head's times multiplied: computed, so it shows the decision on this noise, and not that
the clock sees a real change.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.ours import flamegate
from benchmarks.replay import Replay, replay
from benchmarks.streams import Pair, cells, read
from benchmarks.tables import Table, as_markdown, as_text, percent

DATA = Path(__file__).parent / "data"
ALLOWED_PCT = (5.0, 2.0, 1.0)
_ROBUST = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""


def streams() -> Iterator[tuple[str, str, list[Pair]]]:
    """Yield the workload, the load and the pairs of unchanged code of each."""
    for path in sorted(DATA.glob("shared-*.jsonl.gz")):
        for (load, effect_pct), pairs in cells(read([path])).items():
            if effect_pct == 0.0:
                yield path.name.split("-")[1], load, pairs


def noise() -> Table:
    """Return how far pairs of the same code differ."""
    rows = []
    for workload, load, pairs in streams():
        found = [100.0 * pair.difference for pair in pairs]
        middle = statistics.median(found)
        robust = _ROBUST * statistics.median(abs(each - middle) for each in found)
        rows.append(
            (
                f"{workload}, {load}",
                str(len(pairs)),
                f"{statistics.stdev(found):.2f}",
                f"{robust:.2f}",
                str(sum(abs(each) > 5.0 for each in found)),
                f"{statistics.fmean(pair.took_s for pair in pairs):.1f}",
            )
        )
    head = ("pairs of the same code", "pairs", "sd, %", "robust sd, %", "beyond 5 %", "s a pair")
    return Table("How far the same code differs", head, tuple(rows))


def decisions() -> Table:
    """Return what the gate answers: to unchanged code, and to code slower by the threshold."""
    rows = []
    for workload, load, pairs in streams():
        for drop_pct in ALLOWED_PCT:
            method = flamegate(drop_pct)
            factor = 1.0 / (1.0 - drop_pct / 100.0)
            same = replay(method, pairs)
            slower = replay(method, [pair.slowed(factor, drop_pct) for pair in pairs])
            rows.append(
                (
                    f"{workload}, {load}, τ = {drop_pct:g} %",
                    _gates(same),
                    percent(same.rate("regressed")),
                    percent(same.rate("inconclusive")),
                    f"{same.median_s:.0f}",
                    percent(slower.rate("pass", "improved")),
                    percent(slower.rate("inconclusive")),
                    f"{slower.median_s:.0f}",
                )
            )
    head = (
        "in % of the gates", "gates", "same: alarms", "same: open", "s",
        "slower by τ: passed", "slower by τ: open", "s",
    )  # fmt: skip
    return Table("What the gate answers", head, tuple(rows))


def _gates(found: Replay) -> str:
    return f"{len(found.outcomes)}{' drawn' if found.drawn else ''}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    show = as_markdown if parser.parse_args(argv).markdown else as_text
    print("\n\n".join(map(show, (noise(), decisions()))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
