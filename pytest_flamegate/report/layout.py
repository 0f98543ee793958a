"""Stacks to rectangles: equal prefixes merged, in the order of their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ReceiptError, UndecidedError
from pytest_flamegate.report.placing import MAX_BOXES, MAX_DEPTH, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.profile.model import Frame, Stack


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
    ``folded_branches`` the branches that they are in; they remain in the width of their
    callers. ``stackless`` counts the samples of which no frame is known.
    """

    boxes: tuple[Box, ...]
    samples: int
    depth: int
    folded_samples: int
    folded_branches: int
    stackless: int


@dataclass(slots=True)
class Group:
    """The stacks that share a path down to ``frame``."""

    frame: Frame
    samples: int
    stacks: list[tuple[Stack, int]]


def layout(
    stacks: Mapping[Stack, int],
    *,
    width: float,
    min_width: float = 0.5,
    max_depth: int = MAX_DEPTH,
    max_boxes: int = MAX_BOXES,
) -> Layout:
    """Lay ``stacks`` out on ``width`` units.

    Siblings stand in the order of (name, module, kind), so that equal profiles give
    equal pictures. A box narrower than ``min_width`` or deeper than ``max_depth`` rows
    is left out with everything above it and counted, and so are the narrowest beyond
    ``max_boxes``. Samples with an empty stack take room at the right and have no box.
    Raises ``UndecidedError`` where there is no sample and ``ReceiptError`` where a count
    is negative.
    """
    samples = sum(stacks.values())
    if any(each < 0 for each in stacks.values()):
        raise ReceiptError(
            "E_NEGATIVE_SAMPLES",
            f"A stack of the profile counts {min(stacks.values())} samples.",
            "Take the profile again; its file was changed after it was written.",
        )
    if not samples:
        raise UndecidedError(
            "E_NO_SAMPLES",
            "The profile holds no samples, so there is nothing to draw.",
            "Measure for longer (--flamegate-budget) or choose another profiler.",
        )
    # Only what is drawn is ever split by its next frame: of 100,000 stacks most are too
    # small to be seen, and a tree of all of them costs seconds.
    whole = [(stack, each) for stack, each in stacks.items() if each]
    unit = width / samples
    placed, left_out = place(
        split(whole, 0),
        weight=lambda group: group.samples,
        children=lambda group, depth: split(group.stacks, depth + 1),
        least=lambda _: min_width / unit,
        max_depth=max_depth,
        max_boxes=max_boxes,
    )
    boxes = tuple(
        Box(
            frame=each.item.frame,
            depth=each.depth,
            x=each.start * unit,
            width=each.weight * unit,
            samples=each.item.samples,
            self_samples=ending(each.item.stacks, each.depth + 1),
        )
        for each in placed
    )
    stackless = ending(whole, 0)
    return Layout(
        boxes=boxes,
        samples=samples,
        depth=max((box.depth + 1 for box in boxes), default=0),
        folded_samples=samples - stackless - sum(box.self_samples for box in boxes),
        folded_branches=left_out,
        stackless=stackless,
    )


def split(stacks: Sequence[tuple[Stack, int]], depth: int) -> list[Group]:
    """Return ``stacks`` by their frame at ``depth``, in the order of the frames."""
    groups: dict[Frame, Group] = {}
    for each in stacks:
        stack, samples = each
        if len(stack) <= depth:
            continue
        frame = stack[depth]
        group = groups.get(frame)
        if group is None:
            group = groups[frame] = Group(frame, 0, [])
        group.samples += samples
        group.stacks.append(each)
    return [groups[frame] for frame in sorted(groups)]


def ending(stacks: Sequence[tuple[Stack, int]], length: int) -> int:
    """Return the samples of the stacks that are ``length`` frames long."""
    return sum(samples for stack, samples in stacks if len(stack) == length)


def self_shares(stacks: Mapping[Stack, int]) -> dict[Frame, float]:
    """Return each leaf frame's share of all samples, 0 to 1, in the order of the names."""
    leaves: dict[Frame, int] = {}
    total = 0
    for stack, samples in stacks.items():
        total += max(samples, 0)
        if stack and samples > 0:
            leaves[stack[-1]] = leaves.get(stack[-1], 0) + samples
    return {frame: leaves[frame] / total for frame in sorted(leaves)}
