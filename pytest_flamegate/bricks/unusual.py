"""What a mark seldom meets: calls that tell more, and ends that are not the innermost call's."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from pytest_flamegate.bricks.marks import Scope
from pytest_flamegate.bricks.names import CATEGORIES, KNOWN, LONGEST_NAME, canonical, is_name
from pytest_flamegate.bricks.record import MOST
from pytest_flamegate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.bricks.cells import Cell
    from pytest_flamegate.bricks.kept import Kept
    from pytest_flamegate.bricks.lanes import LaneClock
    from pytest_flamegate.bricks.names import Category


class Categories:
    """The category of each brick: a known one's own, another's as it was declared."""

    def __init__(self) -> None:
        self.declared: dict[str, Category] = dict(KNOWN)

    def declare(self, name: str, category: Category) -> None:
        """Note the category of a brick; ``UsageError`` ``E_BRICK_CATEGORY``."""
        if category not in CATEGORIES:
            raise UsageError(
                "E_BRICK_CATEGORY",
                f"The brick {name!r} has the category {category!r}, which does not exist.",
                f"Take one of {', '.join(CATEGORIES)}.",
            )
        known = self.declared.setdefault(canonical(name), category)
        if known != category:
            raise UsageError(
                "E_BRICK_CATEGORY",
                f"The brick {name!r} has the category {known!r}, and {category!r} elsewhere.",
                "Give it one category, or two names.",
            )
        # By its other name too, which is asked for at the next call.
        self.declared[name] = category

    def of(self, name: str) -> Category:
        """Return the category of a brick; ``Other`` where none was declared."""
        return self.declared.get(name, "Other")


def check_counts(name: str, elements: int, size: int, flops: int) -> None:
    """Raise ``UsageError`` ``E_BRICK_COUNT`` unless all counts can be."""
    try:
        counts = [operator.index(each) for each in (elements, size, flops)]
    except TypeError:
        raise uncounted(name) from None
    if min(counts) < 0 or max(counts) > MOST:
        raise uncounted(name)


def uncounted(name: str) -> UsageError:
    """Return the refusal of a count that is none."""
    return UsageError(
        "E_BRICK_COUNT",
        f"The brick {name!r} told a count that is no whole number from 0 to 2**63 - 1.",
        "Give elements, bytes and flops as integers, as what they are.",
    )


def check_kernel(name: str, kernel: str) -> None:
    """Raise ``UsageError`` ``E_BRICK_KERNEL`` unless ``kernel`` can be kept."""
    if kernel != "" and not is_name(kernel):
        raise UsageError(
            "E_BRICK_KERNEL",
            f"The brick {name!r} names a kernel that is no text of at most {LONGEST_NAME} "
            "characters.",
            "Give the kernel's name and launch as a short text, or leave it out.",
        )


def told(
    lane: LaneClock, size: int, flops: int, kernel: str, kept: Kept | None
) -> tuple[Any, ...] | None:
    """Return what a call says beyond its elements, as ``Scope.told``."""
    if kept is None:
        return (size, flops) if size or flops else None
    within = lane.top.told if lane.top is not None else None
    return size, flops, kernel, next(kept.serials), within[3] if within else 0


def begin(
    scope: Scope,
    lane: LaneClock,
    cell: Cell,
    clock: Callable[[], int],
    elements: int,
    more: tuple[Any, ...] | None,
) -> Scope:
    """Begin a call as ``brick`` does, and return it."""
    scope.cell = cell
    scope.elements = elements
    scope.told = more
    scope.child = 0
    scope.parent = lane.top
    lane.top = scope
    scope.start = clock()
    return scope


# The parent of calls that were open when one around them ended.
_ABANDONED = Scope()


def end(scope: Scope, lane: LaneClock, error: object) -> bool:
    """Say whether a call that is not the innermost of ``lane``, where it ends, counts.

    It does where it is open in this lane: then the calls open within it never ended, and stand
    in no figure, and those that ended within them were within this one. Else ``UsageError``
    ``E_BRICK_LANE``, ``E_BRICK_ORDER`` or ``E_BRICK_ENDED``, unless the engine itself raised.
    """
    within: list[Scope] = []
    at = lane.top
    while at is not None and at is not scope:
        within.append(at)
        at = at.parent
    if at is None:
        if scope.cell.lane.closed or error is not None:
            return False
        raise _refusal(scope, lane)
    for each in within:
        scope.child += each.child
        each.child = 0
        each.parent = _ABANDONED
    lane.unended += len(within)
    lane.top = scope
    return True


def _refusal(scope: Scope, lane: LaneClock) -> UsageError:
    name = scope.cell.name
    if scope.parent is _ABANDONED:
        return UsageError(
            "E_BRICK_ORDER",
            f"The brick {name!r} ended after the one around it.",
            "End what began last first; do not leave a generator while a brick in it is open.",
        )
    if scope.cell.lane is not lane and scope.cell.lane.holds(scope):
        return UsageError(
            "E_BRICK_LANE",
            f"The brick {name!r} began in {scope.cell.lane.name!r} and ended in {lane.name!r}.",
            "End a brick in the thread and task in which it began.",
        )
    return UsageError(
        "E_BRICK_ENDED",
        f"The brick {name!r} was ended twice.",
        "Call brick() or start() for each call, and end it once.",
    )
