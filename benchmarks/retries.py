"""How often a check that is tried again gives a wrong answer, on pairs that share a core.

    python -m benchmarks.retries [--heads N] [--write]

Each head is measured once and tried again five times, whatever the answers are. Attempts are
drawn like the gates of `gate_power.py`, from the pairs that are kept in `data/`; nothing is
measured. "Alone" is what a check would answer that forgets earlier attempts, "pooled" is the
package's answer. ``--write`` puts the table into docs/gate-power.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.gate_power import Streams, stored_streams, write_tables
from benchmarks.ours import within_budget
from benchmarks.replay import Decision, drawn
from benchmarks.streams import Pair
from benchmarks.tables import Table, as_text, percent
from pytest_flamegate.config.options import compare_budget_s
from pytest_flamegate.gate.attempts import Attempt, decide_together
from pytest_flamegate.gate.rule import log_time_of_drop

RETRIES = 5
HEADS = 1000
THRESHOLDS_PCT = (5.0, 2.0, 1.0)
GREEN: frozenset[Decision] = frozenset({"pass", "improved"})


@dataclass(frozen=True, slots=True)
class Head:
    """The answers about one head after each of its attempts, alone and with those before."""

    alone: tuple[Decision, ...]
    pooled: tuple[Decision, ...]


def judge_head(attempts: Sequence[Attempt], drop_pct: float) -> Head:
    """Return the answers to attempts in the order in which they were made."""
    pooled = (
        decide_together(attempts[: count + 1], log_time_of_drop(drop_pct))[0]
        for count in range(len(attempts))
    )
    return Head(tuple(each.decision for each in attempts), tuple(pooled))


def try_heads(
    pairs: Sequence[Pair], drop_pct: float, slower_pct: float, count: int
) -> Iterator[Head]:
    """Yield ``count`` heads, slower by ``slower_pct`` %, each tried again ``RETRIES`` times."""
    method = within_budget(drop_pct, compare_budget_s(drop_pct))
    factor = 1.0 / (1.0 - slower_pct / 100.0)
    samples = drawn(pairs, method.most, count * (1 + RETRIES))
    for _ in range(count):
        attempts = []
        for number in range(1 + RETRIES):
            sample = [pair.slowed(factor, slower_pct) for pair in next(samples)]
            found = method.judge(sample)
            known = tuple(pair.difference for pair in sample[: found.pairs])
            attempts.append(Attempt(str(number), found.decision, found.decision, known))
        yield judge_head(attempts, drop_pct)


def tabulate(streams: Streams, count: int) -> Table:
    """Return how often retries turn an answer, by workload, load and threshold."""

    def part(found: Sequence[bool]) -> str:
        return percent(sum(found) / len(found))

    rows = []
    for (workload, load), pairs in streams.items():
        for drop_pct in THRESHOLDS_PCT:
            same = list(try_heads(pairs, drop_pct, 0.0, count))
            slower = list(try_heads(pairs, drop_pct, drop_pct, count))
            rows.append(
                (
                    f"{workload}, {load}, τ = {drop_pct:g} %",
                    part(["regressed" in head.alone for head in same]),
                    part(["regressed" in head.pooled for head in same]),
                    part([head.pooled[0] == "inconclusive" for head in same]),
                    part([head.pooled[-1] == "inconclusive" for head in same]),
                    part([turned_green(head.alone) for head in slower]),
                    part([turned_green(head.pooled) for head in slower]),
                    part([head.pooled[-1] == "inconclusive" for head in slower]),
                )
            )
    head = (
        f"in % of {count:,} heads, {RETRIES} retries", "same: ever red, alone", "pooled",
        "same: open at first", "at last", "slower by τ: turned green, alone", "pooled",
        "open at last",
    )  # fmt: skip
    return Table("What retries change", head, tuple(rows))


def turned_green(answers: Sequence[Decision]) -> bool:
    """Whether a head that did not pass at first passes after a retry."""
    return answers[0] not in GREEN and any(each in GREEN for each in answers)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, default=HEADS, metavar="N")
    parser.add_argument("--write", action="store_true", help="update docs/gate-power.md")
    asked = parser.parse_args(argv)
    table = tabulate(stored_streams(), asked.heads)
    if asked.write:
        write_tables([table])
    print(as_text(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
