"""A profile as the compact data that the interactive flame graph draws from.

Paths are in preorder, each with its depth alone: that determines every parent, and three small
numbers a path keep the page of a hundred thousand stacks small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pytest_flamegate.profile.difference import PathChange, ProfileDifference, State
from pytest_flamegate.profile.model import Frame, Hotspot, Profile
from pytest_flamegate.report.difference import (
    STEPS,
    collapse_chains,
    finite_z,
    state_word,
    unchanged_shade,
)
from pytest_flamegate.report.flame import Colouring, Drawn, Group, enter, split
from pytest_flamegate.report.text import visible

T = TypeVar("T")

PARTS = 20_000
"""Paths below one in so many of the whole are one box under their caller."""
REST = Frame("(paths too small to show)", "", "native")
STATES: tuple[State, ...] = ("unchanged", "up", "down", "new", "vanished")


@dataclass(frozen=True, slots=True)
class Path:
    """One row of the data: a frame at a depth, with its own samples on either side.

    ``last`` is the frame whose kind colours a chain. ``own_before``, ``state``, ``z`` and
    ``shade`` are those of a difference, ``shade`` the class of an unchanged box; ``merged`` counts
    the paths in ``REST``.
    """

    depth: int
    frame: Frame
    last: Frame
    own: int
    own_before: int = 0
    state: int = 0
    z: float = 0.0
    shade: str = "same"
    merged: int = 0


def flame_data(drawn: Drawn, spots: Sequence[Hotspot], colouring: Colouring) -> dict[str, object]:
    """Return JSON-ready data: names once, frames by name, paths by frame.

    ``spots`` are the hotspots of the profile. Shown names are one line each, with nothing hidden
    in them.
    """
    profile, difference = drawn.profile, drawn.difference
    paths = list(_profile_paths(profile) if difference is None else _changed_paths(difference))
    frames = _numbered(path.frame for path in paths)
    names = _numbered(frame.name for frame in frames)
    modules = _numbered(frame.module for frame in frames)
    lasts = {path.frame: path.last for path in paths}
    kinds = {frame: colouring.kind(lasts[frame]) if frame is not REST else "" for frame in frames}
    categories = _numbered(kinds.values())
    tones = [colouring.tone(name) for name in categories]
    by_name = {spot.name: spot for spot in spots}
    counted = [by_name.get(name) for name in names]
    found: dict[str, object] = {
        "unit": profile.unit,
        "total": profile.samples,
        "cost": drawn.cpu_s_per_token,
        "categories": [
            [name, tone.name, tone.meaning] for name, tone in zip(categories, tones, strict=True)
        ],
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
        "left": sum(path.merged for path in paths),
    }
    if difference is not None:
        found["difference"] = _difference(difference, paths, list(names))
    return found


def _numbered(values: Iterable[T]) -> dict[T, int]:
    """Return a number for each distinct value, in the order in which they come."""
    return {value: index for index, value in enumerate(dict.fromkeys(values))}


def _walk(
    roots: Iterable[T],
    size: Callable[[T], tuple[int, int]],
    least: float,
    row: Callable[[T, int], tuple[Path, Iterable[T]]],
) -> Iterator[Path]:
    """Yield paths in preorder; siblings smaller than ``least`` on both sides are one path.

    Args:
        roots: The outermost callers.
        size: Returns the samples of an item now and before.
        least: A number of samples.
        row: Returns the path of an item at a depth, and the items below it.
    """
    todo: list[tuple[int, T] | Path] = []

    def push(items: Iterable[T], depth: int) -> None:
        small: list[T] = []
        large: list[T] = []
        for item in items:
            (small if max(size(item)) < least else large).append(item)
        if small:
            now, before = (sum(sizes) for sizes in zip(*map(size, small), strict=True))
            todo.append(Path(depth, REST, REST, now, before, merged=len(small)))
        todo.extend((depth, item) for item in reversed(large))

    push(roots, 0)
    # A list and not recursion: a stack may be deeper than Python's own.
    while todo:
        entry = todo.pop()
        if isinstance(entry, Path):
            yield entry
            continue
        depth, item = entry
        path, below = row(item, depth)
        yield path
        push(below, depth + 1)


def _profile_paths(profile: Profile) -> Iterator[Path]:
    """Return the paths of one profile, siblings in the order of their names."""

    def row(group: Group, depth: int) -> tuple[Path, list[Group]]:
        below = enter(group)
        return Path(depth, group.frame, group.frames[-1], group.self_samples), below

    roots = split([each for each in profile.stacks.items() if each[1]], 0)
    return _walk(roots, lambda group: (group.samples, 0), profile.samples / PARTS, row)


def _changed_paths(difference: ProfileDifference) -> Iterator[Path]:
    """Return the paths of both sides together."""

    def row(path: PathChange, depth: int) -> tuple[Path, tuple[PathChange, ...]]:
        change = difference.change(path.base_self, path.head_self)
        found = Path(
            depth,
            path.frame,
            path.frame,
            path.head_self,
            path.base_self,
            state=STATES.index(path.state),
            z=finite_z(change.z),
            shade=unchanged_shade(difference.one_sided_call(path)),
        )
        return found, path.children

    least = max(difference.base.profile.samples, difference.head.profile.samples) / PARTS
    roots = collapse_chains(difference).roots
    return _walk(roots, lambda path: (path.head_samples, path.base_samples), least, row)


def _difference(
    difference: ProfileDifference, paths: list[Path], names: list[str]
) -> dict[str, Any]:
    by_name = {each.frame.name: each for each in difference.functions}
    known = [by_name.get(name) for name in names]
    shades = {index: path.shade for index, path in enumerate(paths) if path.shade != "same"}
    return {
        "measure": difference.measure,
        "base": visible(difference.base.name),
        "head": visible(difference.head.name),
        "total": difference.base.profile.samples,
        "cost": difference.base.cpu_s_per_token,
        "now": difference.head.cpu_s_per_token,
        "certain": round(difference.certain_z, 2),
        "states": [state_word(difference, state) for state in STATES],
        "kinds": list(STATES),
        "steps": list(STEPS),
        "before": [path.own_before for path in paths],
        "state": [path.state for path in paths],
        "z": [path.z for path in paths],
        "shade": shades,
        "functions": {
            "own": [each.own.base_samples if each else 0 for each in known],
            "all": [each.inclusive.base_samples if each else 0 for each in known],
            "state": [STATES.index(each.state) if each else 0 for each in known],
            "z": [finite_z(each.own.z) if each else 0.0 for each in known],
        },
    }
