"""Try kinds many times and count what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from tests.receipt.forgeries.book import Kind, Outcome


@dataclass
class Tally:
    """What came of one kind's variations; ``seeds`` are those of variations not stopped right."""

    kind: Kind
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    seeds: list[str] = field(default_factory=list)


def source_of(kind: Kind, variation: int) -> Random:
    """Return the source of one variation: the same kind and number give the same files."""
    return Random(f"{kind.name}-{variation}")


def trial(kind: Kind, variations: Iterable[int]) -> Tally:
    """Forge the numbered ``variations`` of a kind and have each of them verified."""
    tally = Tally(kind)
    for variation in variations:
        attempt = kind.attempt(source_of(kind, variation))
        outcome = kind.outcome(attempt)
        tally.outcomes[outcome] += 1
        tally.codes.update(attempt.codes)
        if outcome != "right":
            tally.seeds.append(f"{variation}: {' '.join(sorted(attempt.codes)) or 'nothing'}")
    return tally
