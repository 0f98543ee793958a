"""A profile as the compact data that the interactive flame graph draws from.

Paths stand in preorder, each with its depth alone: that tells every parent, and three
small numbers a path keep the page of a hundred thousand stacks small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_flamegate.profile.model import Frame
from pytest_flamegate.report.difference_palette import STEPS, alone
from pytest_flamegate.report.difference_words import state_words, told_z
from pytest_flamegate.report.layout import ending, split
from pytest_flamegate.report.palette import tone
from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_flamegate.profile.difference import Difference, PathChange, State
    from pytest_flamegate.profile.model import Hotspot, Profile, Stack
    from pytest_flamegate.report.layout import Group

T = TypeVar("T")

PARTS = 20_000
"""Paths below one in so many of the whole are told together under their caller."""
REST = Frame("(paths too small to tell)", "", "native")
STATES: tuple[State, ...] = ("unchanged", "up", "down", "new", "vanished")


@dataclass(frozen=True, slots=True)
class Path:
    """One row of the data: a frame at a depth, with its own samples on either side.

    ``was``, ``state``, ``z`` and ``calm`` are of a difference, ``calm`` the class of its box
    where it did not change; ``together`` counts the paths that ``REST`` stands for.
    """

    depth: int
    frame: Frame
    own: int
    was: int = 0
    state: int = 0
    z: float = 0.0
    calm: str = "same"
    together: int = 0


def flame_data(
    profile: Profile,
    *,
    spots: Sequence[Hotspot],
    cpu_s_per_token: float | None,
    difference: Difference | None,
    categorise: Callable[[Frame], str],
) -> dict[str, object]:
    """Return JSON-ready data: names once, frames by name, paths by frame.

    ``spots`` are the hotspots of ``profile``, ``difference`` one whose head it is.
    Shown names are one line each, with nothing hidden in them.
    """
    paths = list(plain(profile) if difference is None else changed(difference))
    frames = _numbered(path.frame for path in paths)
    names = _numbered(frame.name for frame in frames)
    modules = _numbered(frame.module for frame in frames)
    kinds = {frame: categorise(frame) if frame is not REST else "" for frame in frames}
    categories = _numbered(kinds.values())
    by_name = {spot.name: spot for spot in spots}
    counted = [by_name.get(name) for name in names]
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
        "left": sum(path.together for path in paths),
    }
    if difference is not None:
        told["difference"] = _difference(difference, paths, list(names))
    return told


def _numbered(values: Iterable[T]) -> dict[T, int]:
    """Return a number for each distinct value, in the order in which they come."""
    return {value: index for index, value in enumerate(dict.fromkeys(values))}


def plain(profile: Profile) -> Iterator[Path]:
    """Yield the paths of one profile in preorder, siblings in the order of their names."""
    least = profile.samples / PARTS
    todo: list[tuple[int, Group] | Path] = []

    def enter(stacks: Sequence[tuple[Stack, int]], depth: int) -> None:
        groups = split(stacks, depth)
        small = [group for group in groups if group.samples < least]
        if small:
            own = sum(group.samples for group in small)
            todo.append(Path(depth, REST, own, together=len(small)))
        todo.extend((depth, group) for group in reversed(groups) if group.samples >= least)

    enter([each for each in profile.stacks.items() if each[1]], 0)
    # A list and not recursion: a stack may be deeper than Python's own.
    while todo:
        entry = todo.pop()
        if isinstance(entry, Path):
            yield entry
            continue
        depth, group = entry
        yield Path(depth, group.frame, ending(group.stacks, depth + 1))
        enter(group.stacks, depth + 1)


def changed(difference: Difference) -> Iterator[Path]:
    """Yield the paths of both sides together in preorder."""
    least = max(difference.base.profile.samples, difference.head.profile.samples) / PARTS
    todo: list[tuple[int, PathChange] | Path] = []

    def enter(paths: Sequence[PathChange], depth: int) -> None:
        small: list[PathChange] = []
        kept: list[PathChange] = []
        for path in paths:
            size = max(path.base_samples, path.head_samples)
            (small if size < least else kept).append(path)
        if small:
            now = sum(path.head_samples for path in small)
            was = sum(path.base_samples for path in small)
            todo.append(Path(depth, REST, now, was, together=len(small)))
        todo.extend((depth, path) for path in reversed(kept))

    enter(difference.roots, 0)
    while todo:
        entry = todo.pop()
        if isinstance(entry, Path):
            yield entry
            continue
        depth, path = entry
        z = told_z(difference.change(path.base_self, path.head_self).z)
        state = STATES.index(path.state)
        calm = alone(difference.one_sided(path))
        yield Path(depth, path.frame, path.head_self, path.base_self, state, z, calm)
        enter(path.children, depth + 1)


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
        "calm": {index: path.calm for index, path in enumerate(paths) if path.calm != "same"},
        "functions": {
            "own": [each.own.base_samples if each else 0 for each in known],
            "all": [each.inclusive.base_samples if each else 0 for each in known],
            "state": [STATES.index(each.state) if each else 0 for each in known],
            "z": [told_z(each.own.z) if each else 0.0 for each in known],
        },
    }
