"""All benchmarks of bricks: their cost, and whether their figures are true.

    python -m benchmarks.bricks [SECTION ...] [--brief] [--markdown]

Sections: cost, graphs, shares; all of them without one. ``--brief`` shows in a minute that each
section works, and its figures are worth nothing. How fast memory is read is measured by
``benchmarks.roofline``; alarms of kernel benchmarks are counted by
``benchmarks.kernel_false_alarms``, which takes hours and goes on where it ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from benchmarks import brick_cost, brick_graphs, brick_shares, profiles
from benchmarks.tables import Table


def _cost(brief: bool) -> Iterator[Table]:
    rounds = 2 if brief else 60
    yield brick_cost.cost_table(rounds)
    yield brick_cost.memory_table()
    yield brick_cost.decode_table(rounds)


def _graphs(brief: bool) -> Iterator[Table]:
    counts, rounds = ([1000], 1) if brief else ([10_000, 100_000], 5)
    yield brick_graphs.table(counts, rounds)


SECTIONS: Mapping[str, Callable[[bool], Iterable[Table]]] = {
    "cost": _cost,
    "graphs": _graphs,
    "shares": brick_shares.tables,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print each table as soon as it is there; return the exit code."""
    return profiles.show_sections(SECTIONS, __doc__.splitlines()[0], argv)


if __name__ == "__main__":
    sys.exit(main())
