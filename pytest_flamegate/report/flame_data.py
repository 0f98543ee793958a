"""A profile as the compact data that the interactive flame graph draws from.

Paths stand in preorder, each with its depth alone: that tells every parent, and three
small numbers a path keep the page of a hundred thousand stacks small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.profile.hotspots import hotspots
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.profile.tree import tree
from pytest_flamegate.report.difference_palette import STEPS
from pytest_flamegate.report.difference_words import state_words
from pytest_flamegate.report.palette import tone
from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_flamegate.profile.difference import Difference, PathChange, State
    from pytest_flamegate.profile.model import Profile
    from pytest_flamegate.profile.tree import Node

T = TypeVar("T")

MOST_PATHS = 300_000
"""Paths at most; what is smaller than so many others is told together, under its caller."""
REST = Frame("(paths too small to tell)", "", "native")
STATES: tuple[State, ...] = ("unchanged", "up", "down", "new", "vanished")
_MOST_Z = 999.0


@dataclass(frozen=True, slots=True)
class Path:
    """One row of the data: a frame at a depth, with its own samples on either side.

    ``size`` is the larger side's inclusive samples. ``was`` and ``z`` are of a difference.
    """

    depth: int
    frame: Frame
    own: int
    size: int
    was: int = 0
    state: int = 0
    z: float = 0.0


def flame_data(
    profile: Profile,
    *,
    cpu_s_per_token: float | None,
    difference: Difference | None,
    categorise: Callable[[Frame], str],
) -> dict[str, object]:
    """Return JSON-ready data: names once, frames by name, paths by frame.

    Shown names are one line each, with nothing hidden in them.
    """
    every = list(_changed(difference) if difference is not None else _plain(profile))
    paths = fewer(every, MOST_PATHS)
    frames = _numbered(path.frame for path in paths)
    names = _numbered(frame.name for frame in frames)
    modules = _numbered(frame.module for frame in frames)
    kinds = {frame: categorise(frame) if frame is not REST else "" for frame in frames}
    categories = _numbered(kinds.values())
    spots = {spot.name: spot for spot in hotspots(profile)}
    counted = [spots.get(name) for name in names]
    told: dict[str, object] = {
        "unit": profile.unit,
        "total": profile.samples,
        "cost": cpu_s_per_token,
        "categories": [[name, tone(name).name, tone(name).meaning] for name in categories],
        "names": [visible(name) for name in names],
        "modules": [visible(module) for module in modules],
        "functions": {
            "own": [spot.self_samples if spot else 0 for spot in counted],
            "all": [spot.inclusive_samples if spot else 0 for spot in counted],
        },
        "frames": {
            "name": [names[frame.name] for frame in frames],
            "module": [modules[frame.module] for frame in frames],
            "category": [categories[kinds[frame]] for frame in frames],
        },
        "paths": {
            "depth": [path.depth for path in paths],
            "frame": [frames[path.frame] for path in paths],
            "own": [path.own for path in paths],
        },
        "left": len(every) - len(paths),
    }
    if difference is not None:
        told["difference"] = _difference(difference, paths, list(names))
    return told


def _numbered(values: Iterable[T]) -> dict[T, int]:
    """Return a number for each distinct value, in the order in which they come."""
    return {value: index for index, value in enumerate(dict.fromkeys(values))}


def _plain(profile: Profile) -> Iterator[Path]:
    """Yield the paths of one profile, siblings in the order of their names."""
    todo: list[tuple[int, Frame, Node]] = []

    def enter(node: Node, depth: int) -> None:
        below = [(depth, frame, node.children[frame]) for frame in sorted(node.children)]
        todo.extend(reversed(below))

    enter(tree(profile.stacks), 0)
    # A list and not recursion: a stack may be deeper than Python's own.
    while todo:
        depth, frame, node = todo.pop()
        yield Path(depth, frame, node.self_samples, node.samples)
        enter(node, depth + 1)


def _changed(difference: Difference) -> Iterator[Path]:
    """Yield the paths of both sides together."""
    todo: list[tuple[int, PathChange]] = [(0, each) for each in reversed(difference.roots)]
    while todo:
        depth, path = todo.pop()
        yield Path(
            depth=depth,
            frame=path.frame,
            own=path.head_self,
            size=max(path.base_samples, path.head_samples),
            was=path.base_self,
            state=STATES.index(path.state),
            z=_told_z(difference.change(path.base_self, path.head_self).z),
        )
        todo.extend((depth + 1, each) for each in reversed(path.children))


def _told_z(z: float) -> float:
    return round(max(-_MOST_Z, min(_MOST_Z, z)), 1)


def fewer(paths: list[Path], most: int) -> list[Path]:
    """Return at most about ``most`` paths: the smallest are told together under their caller."""
    if len(paths) <= most:
        return paths
    floor = sorted((path.size for path in paths), reverse=True)[most]
    kept: list[Path] = []
    rest: dict[int, int] = {}
    skipped: int | None = None
    for path in paths:
        if skipped is not None and path.depth > skipped:
            # Its samples are among those of the path that stands for it.
            kept[rest[skipped]] = _joined(kept[rest[skipped]], path)
        elif path.size > floor:
            skipped = None
            rest.pop(path.depth + 1, None)
            kept.append(path)
        else:
            skipped = path.depth
            if path.depth in rest:
                kept[rest[path.depth]] = _joined(kept[rest[path.depth]], path)
            else:
                rest[path.depth] = len(kept)
                kept.append(replace(path, frame=REST, state=0, z=0.0))
    return kept


def _joined(rest: Path, path: Path) -> Path:
    return replace(rest, own=rest.own + path.own, was=rest.was + path.was)


def _difference(difference: Difference, paths: list[Path], names: list[str]) -> dict[str, Any]:
    by_name = {each.frame.name: each for each in difference.functions}
    known = [by_name.get(name) for name in names]
    return {
        "measure": difference.measure,
        "base": visible(difference.base.name),
        "head": visible(difference.head.name),
        "total": difference.base.profile.samples,
        "cost": difference.base.cpu_s_per_token,
        "now": difference.head.cpu_s_per_token,
        "certain": round(difference.certain_z, 2),
        "states": [state_words(difference, state) for state in STATES],
        "kinds": list(STATES),
        "steps": list(STEPS),
        "was": [path.was for path in paths],
        "state": [path.state for path in paths],
        "z": [path.z for path in paths],
        "functions": {
            "own": [each.own.base_samples if each else 0 for each in known],
            "all": [each.inclusive.base_samples if each else 0 for each in known],
            "state": [STATES.index(each.state) if each else 0 for each in known],
            "z": [_told_z(each.own.z) if each else 0.0 for each in known],
        },
    }


def require_cost(cpu_s_per_token: float | None) -> None:
    """Refuse a cost that no token can have: ``ReceiptError`` ``E_BAD_FIGURE``."""
    if cpu_s_per_token is None or (math.isfinite(cpu_s_per_token) and cpu_s_per_token > 0):
        return
    raise ReceiptError(
        "E_BAD_FIGURE",
        f"The CPU time for each token is {cpu_s_per_token!r} s.",
        "Measure again; a run that used no CPU time generated nothing.",
    )
