"""The layout and the colours of flame graphs.

Frames are coloured by the kind of work. If most of a profile is of no known kind, they are
coloured by module. A chain of callers that do no work themselves is one box.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from types import MappingProxyType
from typing import Generic, TypeVar

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.profile.difference import ProfileDifference
from pytest_flamegate.profile.hotspots import categorize_frame, no_samples_error, rank_hotspots
from pytest_flamegate.profile.model import Frame, Hotspot, Profile, Stack
from pytest_flamegate.report.svg import FLOOR, UNKNOWN, Shade, read_shades


@dataclass(frozen=True, slots=True)
class Drawn:
    """A flame graph for a page, and the difference whose head its profile is, if any.

    ``cpu_s_per_token`` is the CPU time of one token in seconds. A page ``opens_compared`` if the
    reader will look for the difference first.
    """

    title: str
    profile: Profile
    cpu_s_per_token: float | None = None
    difference: ProfileDifference | None = None
    opens_compared: bool = False


PALETTE: Mapping[str, Shade] = MappingProxyType(read_shades("categories"))
_MODULES = MappingProxyType(read_shades("modules"))
"""The colours of modules, the one with the largest self share first."""
_GENERIC = frozenset({"python", "native"})
"""Categories that name no kind of work."""


def shades() -> dict[str, Shade]:
    """Return the colours of every class of box in a flame graph."""
    return {**PALETTE, "unknown": UNKNOWN, **_MODULES, "floor": FLOOR}


@dataclass(frozen=True, slots=True)
class Colouring:
    """The kind of each frame in one picture: its category, or the name of its module.

    ``modules`` are the tones of the modules with the largest self shares; empty if the picture
    is coloured by category alone.
    """

    modules: Mapping[str, Shade]

    def kind(self, frame: Frame) -> str:
        """Return the kind of a frame, as the legend names it."""
        category, module = categorize_frame(frame), _file_name(frame.module)
        return module if category in _GENERIC and module in self.modules else category

    def tone(self, kind: str) -> Shade:
        """Return the colours of a kind; those of ``UNKNOWN`` if it is in no palette."""
        return self.modules.get(kind) or PALETTE.get(kind, UNKNOWN)


def choose_colours(spots: Sequence[Hotspot]) -> Colouring:
    """Return the colouring of the picture of a profile with these functions."""
    generic = [spot for spot in spots if spot.self_samples and spot.category in _GENERIC]
    by_module: Counter[str] = Counter()
    for spot in generic:
        by_module[_file_name(spot.module)] += spot.self_samples
    by_module.pop("", None)
    # One module alone would have one colour: then its category says more.
    is_known = 2 * sum(spot.self_samples for spot in generic) <= sum(s.self_samples for s in spots)
    if is_known or len(by_module) < 2:
        return Colouring({})
    ranked = sorted(by_module, key=lambda name: (-by_module[name], name))
    tones = {
        name: replace(shade, meaning=f"the module {name}")
        for name, shade in zip(ranked, _MODULES.values(), strict=False)
    }
    return Colouring(tones)


def _file_name(module: str) -> str:
    return module.rpartition("/")[2]


def colour_hotspots(drawn: Drawn) -> tuple[Colouring, list[Hotspot]]:
    """Return the colouring of a picture, and its functions, each of the kind that colours it.

    Raises ``E_NO_SAMPLES`` for an empty profile, ``E_IMPOSSIBLE_FIGURE`` for an impossible cost.
    """
    profile, cost_s = drawn.profile, drawn.cpu_s_per_token
    if cost_s is not None and not 0 < cost_s < math.inf:
        raise ReceiptError(
            "E_IMPOSSIBLE_FIGURE",
            f"The CPU time for each token is {cost_s!r} s.",
            "Measure again; a run that used no CPU time generated nothing.",
        )
    if not profile.samples:
        raise no_samples_error(profile.profiler, profile.errors, profile.lost)
    spots = rank_hotspots(profile, cost_s)
    colouring = choose_colours(spots)
    return colouring, [
        replace(spot, category=colouring.kind(Frame(spot.name, spot.module, spot.kind)))
        for spot in spots
    ]


def category_shares(spots: Sequence[Hotspot]) -> dict[str, float]:
    """Return the self share of each category in ``spots``, 0 to 1, largest first."""
    shares: dict[str, float] = {}
    for spot in spots:
        if spot.self_samples:
            shares[spot.category] = shares.get(spot.category, 0.0) + spot.self_share
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


# Layout


T = TypeVar("T")

MAX_BOXES = 5000
"""More than a reader separates; keeps the largest picture near a megabyte."""
MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """An item and its place: ``start`` and ``weight`` are in the same unit."""

    item: T
    depth: int
    start: float
    weight: float


@dataclass(frozen=True, slots=True)
class Layout(Generic[T]):
    """The boxes from left to right, callers before callees; rows, and branches left out."""

    boxes: tuple[Placed[T], ...]
    depth: int
    left_out: int


def place(
    roots: Iterable[T],
    *,
    weight: Callable[[T], float],
    children: Callable[[T], Iterable[T]],
    least: Callable[[T], float],
) -> Layout[T]:
    """Return the boxes of ``roots`` and of all below them.

    Of more than ``MAX_BOXES`` the heaviest are drawn; a box below its ``least`` weight or
    ``MAX_DEPTH`` deep is not. ``children`` is called only for drawn items, so small ones cost
    nothing.
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
        if -negative < least(item) or depth >= MAX_DEPTH or len(drawn) >= MAX_BOXES:
            left_out += 1
            continue
        drawn.append(Placed(item, depth, start, -negative))
        offer(children(item), depth + 1, start)
    drawn.sort(key=lambda box: (box.start, box.depth))
    return Layout(tuple(drawn), max((box.depth + 1 for box in drawn), default=0), left_out)


SHORTEST_CHAIN = 3
"""Callers in a row that do no work themselves and become one box."""
_MOST_NAMES = 12


def chain_frame(frames: Sequence[Frame]) -> Frame:
    """Return one frame for a chain: ``main › run › step``, ``loop ×40``; module of the last."""
    names = []
    for name, same in groupby(frame.name for frame in frames):
        times = len(list(same))
        names.append(name if times == 1 else f"{name} ×{times:,}")
    if len(names) > _MOST_NAMES:
        names = [*names[:8], f"… {len(names) - 11:,} more …", *names[-3:]]
    return Frame(" › ".join(names), frames[-1].module, frames[-1].kind)


@dataclass(slots=True)
class Group:
    """The stacks that share a path of ``length`` frames; ``frames`` are drawn as one box."""

    frames: list[Frame]
    samples: int
    stacks: list[tuple[Stack, int]]
    length: int

    @property
    def frame(self) -> Frame:
        """The frame of the box, joined if it is a chain."""
        return self.frames[0] if len(self.frames) == 1 else chain_frame(self.frames)

    @property
    def self_samples(self) -> int:
        """The samples that end in this path."""
        return sum(samples for stack, samples in self.stacks if len(stack) == self.length)


def group_by_frame(stacks: Iterable[tuple[Stack, int]], depth: int) -> list[Group]:
    """Return ``stacks`` by their frame at ``depth``, in the order of (name, module, kind)."""
    groups: dict[Frame, Group] = {}
    for each in stacks:
        stack, samples = each
        if len(stack) <= depth or not samples:
            continue
        frame = stack[depth]
        group = groups.get(frame)
        if group is None:
            group = groups[frame] = Group([frame], 0, [], depth + 1)
        group.samples += samples
        group.stacks.append(each)
    return [groups[frame] for frame in sorted(groups)]


def child_groups(group: Group) -> list[Group]:
    """Return the groups below ``group``, which takes in a chain of callers that do no work."""
    below = group_by_frame(group.stacks, group.length)
    idle: list[Group] = []
    current, inner = group, below
    while len(inner) == 1 and inner[0].samples == current.samples:
        idle.append(current)
        current = inner[0]
        inner = group_by_frame(current.stacks, current.length)
    if len(idle) < SHORTEST_CHAIN:
        return below
    group.frames = [each.frames[0] for each in idle]
    group.length = idle[-1].length
    return [current]


def layout(profile: Profile, *, least_part: float) -> Layout[Group]:
    """Lay the stacks of a profile out; weights are samples.

    A box of less than ``least_part`` of all samples is left out with everything above it, and its
    samples remain in the width of its caller. Samples with an empty stack have no box.
    """
    # Only drawn groups are split by their next frame: of 100,000 stacks most are too small to
    # be visible, and a tree of all of them costs seconds.
    least = profile.samples * least_part
    return place(
        group_by_frame(profile.stacks.items(), 0),
        weight=lambda group: group.samples,
        children=child_groups,
        least=lambda _: least,
    )
