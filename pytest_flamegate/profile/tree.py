"""Stacks as a tree: equal prefixes merged, counts inclusive and of each path itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ReceiptError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.profile.model import Frame, Stack


@dataclass(slots=True)
class Node:
    """A frame as called through one path; ``samples`` is inclusive.

    The root stands for the whole profile: its ``self_samples`` have no stack at all.
    """

    samples: int = 0
    self_samples: int = 0
    children: dict[Frame, Node] = field(default_factory=dict)


def tree(stacks: Mapping[Stack, int]) -> Node:
    """Return the root. ``ReceiptError`` ``E_NEGATIVE_SAMPLES`` where a count is negative."""
    root = Node()
    for stack, samples in stacks.items():
        if samples < 0:
            raise ReceiptError(
                "E_NEGATIVE_SAMPLES",
                f"A stack of the profile counts {samples} samples.",
                "Take the profile again; its file was changed after it was written.",
            )
        if not samples:
            continue
        root.samples += samples
        node = root
        for frame in stack:
            child = node.children.get(frame)
            if child is None:
                child = node.children[frame] = Node()
            child.samples += samples
            node = child
        node.self_samples += samples
    return root
