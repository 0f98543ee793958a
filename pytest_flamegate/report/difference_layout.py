"""The merged tree of two profiles to rectangles, on one scale for both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.report.placing import Placed, place

if TYPE_CHECKING:
    from pytest_flamegate.profile.difference import Change, Difference, PathChange


@dataclass(frozen=True, slots=True)
class DifferenceLayout:
    """Boxes in the unit of the difference's measure; ``width`` is what all of them take.

    A path is as wide as all it calls and its own cost: the larger of the two sides' where
    it changed, their mean where it did not. So neither side is drawn narrower than it is,
    what vanished stays to be seen, and noise does not add up.
    """

    boxes: tuple[Placed[PathChange], ...]
    width: float
    depth: int
    left_out: int


def difference_layout(
    difference: Difference, *, least_part: float, calm_part: float
) -> DifferenceLayout:
    """Lay the merged tree out; boxes below ``least_part`` of the whole are left out.

    So are those below ``calm_part`` in which nothing changed: rows of slivers tell nothing.
    """
    heavy, moved = _weights(difference)
    stackless = _stackless_width(difference)
    width = sum(heavy[id(root)] for root in difference.roots) + stackless
    boxes, left_out = place(
        difference.roots,
        weight=lambda path: heavy[id(path)],
        children=lambda path, _: path.children,
        least=lambda path: width * (least_part if id(path) in moved else calm_part),
    )
    depth = max((box.depth + 1 for box in boxes), default=0)
    return DifferenceLayout(boxes, width, depth, left_out)


def own_change(difference: Difference, path: PathChange) -> Change:
    """Return what a path itself costs on both sides."""
    return difference.change(path.base_self, path.head_self)


def _own_width(difference: Difference, path: PathChange) -> float:
    change = own_change(difference, path)
    if path.state == "unchanged":
        return (change.base + change.head) / 2
    return max(change.base, change.head)


def _stackless_width(difference: Difference) -> float:
    """Return the width of the samples of which no frame is known."""
    total = difference.total
    old = total.base_samples - sum(root.base_samples for root in difference.roots)
    new = total.head_samples - sum(root.head_samples for root in difference.roots)
    change = difference.change(old, new)
    return (change.base + change.head) / 2


def _weights(difference: Difference) -> tuple[dict[int, float], set[int]]:
    """Return the width of every path, and the paths that changed or lead to one that did."""
    todo = list(difference.roots)
    entered: list[PathChange] = []
    while todo:
        path = todo.pop()
        entered.append(path)
        todo.extend(path.children)
    heavy: dict[int, float] = {}
    moved: set[int] = set()
    # Whoever was entered later stands below: so what is called comes before its callers.
    for path in reversed(entered):
        below = [id(each) for each in path.children]
        heavy[id(path)] = _own_width(difference, path) + sum(heavy[each] for each in below)
        if path.state != "unchanged" or not moved.isdisjoint(below):
            moved.add(id(path))
    return heavy, moved
