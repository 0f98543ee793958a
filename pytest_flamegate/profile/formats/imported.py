"""Limits, whole counts and honest gaps: the common part of every reader of foreign profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.profile.model import Profile, Stack, Unit

MAX_DEPTH = 2048
"""Frames of one stack; Python itself ends recursion at about a thousand."""
MAX_FRAMES = 20_000_000
"""Frames of all different stacks together."""
MAX_COUNT = 10**15 - 1
"""The largest count that a line of folded text holds."""
UNKNOWN_TEXT = "unknown"
_NOTABLE_ROUNDING = 1e-6
_MOST_ROUNDING = 0.01


@dataclass(slots=True)
class WeightedStacks:
    """Weights by stack, as they come out of a file; ``code`` is that of its errors."""

    code: str
    weights: dict[Stack, float] = field(default_factory=dict)
    frames: int = 0

    def add(self, stack: Stack, weight: float) -> None:
        """Add ``weight`` (finite, 0 or more) to ``stack``.

        Raises ``ReceiptError`` if a stack, or all stacks together, hold too many frames.
        """
        present = self.weights.get(stack)
        if present is not None:
            self.weights[stack] = present + weight
            return
        self.frames += len(stack)
        if len(stack) > MAX_DEPTH or self.frames > MAX_FRAMES:
            raise ReceiptError(
                self.code,
                f"A stack is deeper than {MAX_DEPTH:,} frames, or all stacks together hold more "
                f"than {MAX_FRAMES:,}.",
                "Record a shorter time, or cut stacks where the tool records them.",
            )
        self.weights[stack] = weight

    def to_counts(self) -> tuple[dict[Stack, int], tuple[str, ...]]:
        """Return whole counts, and a note if they were rounded.

        Raises:
            ReceiptError: If rounding would change shares, or a count is too large.
            UndecidedError: ``E_NO_SAMPLES`` if all weights are zero.
        """
        weights = {stack: weight for stack, weight in self.weights.items() if weight}
        if not weights:
            raise UndecidedError(
                "E_NO_SAMPLES", "The file holds no samples.", "Record for a longer time."
            )
        if not all(value <= MAX_COUNT for value in weights.values()):
            raise ReceiptError(
                self.code,
                f"A stack counts more than {MAX_COUNT:,}.",
                "Write the counts in a larger unit.",
            )
        whole = {stack: round(value) for stack, value in weights.items()}
        moved = math.fsum(abs(value - whole[stack]) for stack, value in weights.items())
        share = moved / math.fsum(weights.values())
        if share > _MOST_ROUNDING:
            raise ReceiptError(
                self.code,
                "Its counts are fractions, and rounded ones would be other shares.",
                "Write whole counts, or the weights in a smaller unit.",
            )
        notes = ("counts rounded to whole ones",) if share > _NOTABLE_ROUNDING else ()
        return {stack: count for stack, count in whole.items() if count}, notes


def make_foreign_profile(
    stacks: dict[Stack, int],
    notes: Sequence[str],
    *,
    profiler: str = UNKNOWN_TEXT,
    profiler_version: str = "",
    rate_hz: int = 0,
    unit: Unit = "samples",
    duration_ns: int = 0,
) -> Profile:
    """Return the profile of a file that states nothing but this."""
    return Profile(
        profiler=profiler,
        profiler_version=profiler_version,
        event=UNKNOWN_TEXT,
        rate_hz=rate_hz,
        call_graph=UNKNOWN_TEXT,
        stacks=stacks,
        complete=sum(stacks.values()),
        duration_ns=duration_ns,
        degraded=tuple(notes),
        covers="process",
        unit=unit,
    )
