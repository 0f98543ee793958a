"""Two sides measured in pairs, made to measure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.gate.factory import PROFILE, block, evidence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.receipt.types import Evidence


SPREAD = (0.004, -0.006, 0.001, -0.003, 0.005, -0.001, 0.002, -0.004, 0.003, -0.002)
"""Differences of ten pairs of the same code, as natural logarithms."""
US = 1000.0


def sides(
    differences: Sequence[float],
    base_profile: Sequence[Mapping[str, int]] | None = PROFILE,
    head_profile: Sequence[Mapping[str, int]] | None = PROFILE,
    **head_changes: Any,
) -> tuple[Evidence, Evidence]:
    """Return base and head of pairs that differ by exactly ``differences`` in log time."""
    count = len(differences)
    base = evidence([US] * count, base_profile, nonce="base", first_pid=500, side="base")
    head = evidence([US] * count, head_profile, nonce="head", side="head")
    old, new = [], []
    for number, (before, after, difference) in enumerate(
        zip(base.runs, head.runs, differences, strict=True)
    ):
        # Each pair meets the machine at another speed; both of its sides alike.
        pace = US * (1.0 + 0.01 * number)
        old.append(replace(before, pair=number, blocks=_blocks(pace)))
        new.append(replace(after, pair=number, blocks=_blocks(pace * math.exp(difference))))
    return replace(base, runs=tuple(old)), replace(head, **{"runs": tuple(new), **head_changes})


def _blocks(quiet_us: float) -> tuple[Any, ...]:
    return tuple(block(quiet_us * factor, reference_us=None) for factor in (1.001, 0.999))


def shifted(by: float, count: int = 10) -> list[float]:
    """Return the differences of ``count`` pairs, ``by`` further apart in log time."""
    return [SPREAD[i % len(SPREAD)] + by for i in range(count)]
