"""A tree to rectangles: every child above its parent, the widest boxes drawn first."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

MAX_BOXES = 5000
"""More than anybody tells apart, and what keeps the largest picture near a megabyte."""
MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """An item and where it stands: ``start`` and ``weight`` are in the same unit."""

    item: T
    depth: int
    start: float
    weight: float


def place(
    roots: Iterable[T],
    *,
    weight: Callable[[T], float],
    children: Callable[[T, int], Iterable[T]],
    least: Callable[[T], float],
    max_depth: int = MAX_DEPTH,
    max_boxes: int = MAX_BOXES,
) -> tuple[tuple[Placed[T], ...], int]:
    """Return the boxes from left to right, callers before what they call, and what is left out.

    ``children`` is asked for an item and its depth only where the item is drawn, so what is
    too small costs nothing. At most ``max_boxes`` are drawn, the heaviest; those lighter than
    their ``least`` or ``max_depth`` deep are not. What is left out is counted in branches.
    """
    order = count()
    heap: list[tuple[float, float, int, int, T]] = []
    drawn: list[Placed[T]] = []
    left_out = 0

    def offer(items: Iterable[T], depth: int, start: float) -> None:
        for item in items:
            heavy = weight(item)
            heapq.heappush(heap, (-heavy, start, depth, next(order), item))
            start += heavy

    offer(roots, 0, 0)
    while heap:
        negative, start, depth, _, item = heapq.heappop(heap)
        if -negative < least(item) or depth >= max_depth or len(drawn) >= max_boxes:
            left_out += 1
            continue
        drawn.append(Placed(item, depth, start, -negative))
        offer(children(item, depth), depth + 1, start)
    drawn.sort(key=lambda box: (box.start, box.depth))
    return tuple(drawn), left_out
