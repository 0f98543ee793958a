"""What a recording's totals sum to: by category, each moment counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.bricks.names import CATEGORIES
from pytest_flamegate.errors import UndecidedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.bricks.names import Category
    from pytest_flamegate.bricks.record import BrickTotals


def self_ns_by_category(totals: Sequence[BrickTotals]) -> Mapping[Category, int]:
    """Return the self time of each category in nanoseconds: all categories, in their order.

    They sum to the self time of all bricks, for a call's self time stands in one of them alone.
    ``UndecidedError`` ``E_NO_BRICKS`` where no call was recorded.
    """
    if not any(total.calls for total in totals):
        raise UndecidedError(
            "E_NO_BRICKS",
            "No brick was recorded, so there are no figures.",
            "Mark the engine's parts with brick(), and run it while the profiler is on.",
        )
    return {
        category: sum(total.self_ns for total in totals if total.category == category)
        for category in CATEGORIES
    }
