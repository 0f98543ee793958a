"""Stacks to rectangles: equal prefixes merged, in the order of their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.profile.tree import tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.profile.model import Frame, Stack
    from pytest_flamegate.profile.tree import Node


@dataclass(frozen=True, slots=True)
class Box:
    """One rectangle: a frame as called through one path.

    ``x`` and ``width`` are in the units of the picture, ``depth`` counts from 0 at the
    root. ``samples`` is inclusive, ``self_samples`` is what the frame spent itself.
    """

    frame: Frame
    depth: int
    x: float
    width: float
    samples: int
    self_samples: int


@dataclass(frozen=True, slots=True)
class Layout:
    """All boxes, parents before children, and what was too small to draw.

    ``folded_samples`` counts the samples that end in a frame which is not drawn, and
    ``folded_boxes`` those frames; they remain in the width of their callers.
    ``stackless`` counts the samples of which no frame is known.
    """

    boxes: tuple[Box, ...]
    samples: int
    depth: int
    folded_samples: int
    folded_boxes: int
    stackless: int


def _boxes_from(node: Node) -> int:
    todo, boxes = [node], 0
    while todo:
        boxes += 1
        todo.extend(todo.pop().children.values())
    return boxes


def _below(node: Node, depth: int, start: int) -> list[tuple[Frame, Node, int, int]]:
    """Return the children of ``node``, each with the sample it starts at, last name first."""
    placed = []
    for frame in sorted(node.children):
        child = node.children[frame]
        placed.append((frame, child, depth, start))
        start += child.samples
    return placed[::-1]


def layout(
    stacks: Mapping[Stack, int],
    *,
    width: float,
    min_width: float = 0.25,
    max_depth: int = 200,
) -> Layout:
    """Lay ``stacks`` out on ``width`` units.

    Siblings stand in the order of (name, module, kind), so that equal profiles give
    equal pictures. A box narrower than ``min_width`` or deeper than ``max_depth`` rows
    is left out with everything above it and counted. Samples with an empty stack take
    room at the right and have no box. Raises ``UndecidedError`` where there is no
    sample and ``ReceiptError`` where a count is negative.
    """
    root = tree(stacks)
    if not root.samples:
        raise UndecidedError(
            "E_NO_SAMPLES",
            "The profile holds no samples, so there is nothing to draw.",
            "Measure for longer (--flamegate-budget) or choose another profiler.",
        )
    unit = width / root.samples
    boxes: list[Box] = []
    folded_samples = folded_boxes = 0
    # A list and not recursion: a stack may be deeper than Python's own. It is taken
    # from the end, so children are put on it last name first.
    todo = _below(root, 0, 0)
    while todo:
        frame, node, depth, start = todo.pop()
        wide = node.samples * unit
        if wide < min_width or depth >= max_depth:
            folded_samples += node.samples
            folded_boxes += _boxes_from(node)
            continue
        boxes.append(Box(frame, depth, start * unit, wide, node.samples, node.self_samples))
        todo.extend(_below(node, depth + 1, start))
    depth = max((box.depth + 1 for box in boxes), default=0)
    return Layout(
        tuple(boxes), root.samples, depth, folded_samples, folded_boxes, root.self_samples
    )


def self_shares(stacks: Mapping[Stack, int]) -> dict[Frame, float]:
    """Return each leaf frame's share of all samples, 0 to 1, in the order of the names."""
    leaves: dict[Frame, int] = {}
    for stack, samples in stacks.items():
        if stack and samples > 0:
            leaves[stack[-1]] = leaves.get(stack[-1], 0) + samples
    total = sum(samples for samples in stacks.values() if samples > 0)
    return {frame: leaves[frame] / total for frame in sorted(leaves)}
