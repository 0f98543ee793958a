"""The layout and the colours of flame graphs.

Frames are coloured by the kind of work. If most of a profile is of no known kind, they are
coloured by module. A chain of callers that do no work themselves is one box.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, groupby
from types import MappingProxyType
from typing import Generic, TypeVar

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.profile.difference import PathChange, ProfileDifference
from pytest_flamegate.profile.hotspots import categorize_frame, no_samples_error, rank_hotspots
from pytest_flamegate.profile.model import Frame, Hotspot, Profile, Stack
from pytest_flamegate.report.markup import FLOOR, UNKNOWN, Shade, read_shades


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
_BY_MODULE = _GENERIC | {"system"}
"""Categories that a picture coloured by module does without, so that its legend names modules."""

_MODULE = " (module)"


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
        category, module = categorize_frame(frame), _name_module(frame.module)
        return module if category in _BY_MODULE and module in self.modules else category

    def tone(self, kind: str) -> Shade:
        """Return the colours of a kind; those of ``UNKNOWN`` if it is in no palette."""
        return self.modules.get(kind) or PALETTE.get(kind, UNKNOWN)


def choose_colours(spots: Sequence[Hotspot]) -> Colouring:
    """Return the colouring of the picture of a profile with these functions."""
    generic = [spot for spot in spots if spot.self_samples and spot.category in _GENERIC]
    by_module: Counter[str] = Counter()
    for spot in spots:
        if spot.self_samples and spot.category in _BY_MODULE:
            by_module[_name_module(spot.module)] += spot.self_samples
    by_module.pop("", None)
    # One module alone would have one colour: then its category says more.
    is_known = 2 * sum(spot.self_samples for spot in generic) <= sum(s.self_samples for s in spots)
    if is_known or len(by_module) < 2:
        return Colouring({})
    ranked = sorted(by_module, key=lambda name: (-by_module[name], name))
    tones = {
        name: replace(shade, meaning=f"the module {name.removesuffix(_MODULE)}")
        for name, shade in zip(ranked, _MODULES.values(), strict=False)
    }
    return Colouring(tones)


def _name_module(module: str) -> str:
    """Return the file name; a program that is called ``norm`` is not the category of that name."""
    name = module.rpartition("/")[2]
    return name + _MODULE if name in PALETTE else name


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


P = TypeVar("P", "CallPath", PathChange)
"""A path of calls in a picture: of one profile, or of two that are compared."""

MAX_BOXES = 5000
"""More than a reader separates; keeps the largest picture near a megabyte."""
MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Placed(Generic[P]):
    """A box, which is named by ``frame``; ``start`` and ``weight`` are in the same unit.

    ``path`` is the one that it is drawn for, the last of a chain.
    """

    frame: Frame
    path: P
    depth: int
    start: float
    weight: float


@dataclass(frozen=True, slots=True)
class Layout(Generic[P]):
    """The boxes from left to right, callers before callees; rows, and branches left out."""

    boxes: tuple[Placed[P], ...]
    depth: int
    left_out: int


def place(
    roots: Iterable[P], *, weight: Callable[[P], float], least: Callable[[P], float]
) -> Layout[P]:
    """Return the boxes of ``roots`` and of all below them.

    Of more than ``MAX_BOXES`` the heaviest are drawn; a box below its ``least`` weight or
    ``MAX_DEPTH`` deep is not. Only drawn paths are asked for their children.
    """
    order = count()
    heap: list[tuple[float, float, int, int, P]] = []
    drawn: list[Placed[P]] = []
    left_out = 0

    def offer(paths: Iterable[P], depth: int, start: float) -> None:
        for path in paths:
            heavy = weight(path)
            heapq.heappush(heap, (-heavy, start, depth, next(order), path))
            start += heavy

    offer(roots, 0, 0)
    while heap:
        negative, start, depth, _, path = heapq.heappop(heap)
        if -negative < least(path) or depth >= MAX_DEPTH or len(drawn) >= MAX_BOXES:
            left_out += 1
            continue
        frame, last = join_chain(path)
        drawn.append(Placed(frame, last, depth, start, -negative))
        offer(last.children, depth + 1, start)
    drawn.sort(key=lambda box: (box.start, box.depth))
    return Layout(tuple(drawn), max((box.depth + 1 for box in drawn), default=0), left_out)


SHORTEST_CHAIN = 3
"""Callers in a row that do no work themselves and become one box."""
_MOST_NAMES = 12


def join_chain(path: P) -> tuple[Frame, P]:
    """Return the last of the chain of callers that begins with ``path``, and a frame for all.

    The frame is ``main › run › step`` or ``loop ×40``, with the module of the last caller. A path
    that begins no chain comes back with its own frame.
    """
    idle: list[P] = []
    last = path
    while last.is_idle:
        idle.append(last)
        last = last.children[0]
    if len(idle) < SHORTEST_CHAIN:
        return path.frame, path
    names: list[str] = []
    for name, same in groupby(each.frame.name for each in idle):
        times = len(list(same))
        names.append(name if times == 1 else f"{name} ×{times:,}")
    if len(names) > _MOST_NAMES:
        names = [*names[:8], f"… {len(names) - 11:,} more …", *names[-3:]]
    return idle[-1].frame._replace(name=" › ".join(names)), idle[-1]


@dataclass(eq=False)
class CallPath:
    """The stacks that begin with the same ``depth`` calls, of which ``frame`` is the last."""

    frame: Frame
    depth: int
    samples: int = 0
    stacks: list[tuple[Stack, int]] = field(default_factory=list)

    @cached_property
    def children(self) -> list["CallPath"]:
        """The paths that go one call deeper, in the order of their frames."""
        return split_stacks(self.stacks, self.depth)

    @property
    def self_samples(self) -> int:
        """The samples that end in this path."""
        return self.samples - sum(path.samples for path in self.children)

    @property
    def is_idle(self) -> bool:
        """Whether it did no work itself and called one function alone."""
        return len(self.children) == 1 and not self.self_samples


def split_stacks(stacks: Iterable[tuple[Stack, int]], depth: int = 0) -> list[CallPath]:
    """Return ``stacks`` by their frame at ``depth``, in the order of (name, module, kind).

    A path is split further when its ``children`` are first asked for. Of 100,000 stacks most are
    too small to be drawn, and a tree of all of them costs seconds.
    """
    paths: dict[Frame, CallPath] = {}
    for each in stacks:
        stack, samples = each
        if len(stack) > depth and samples:
            path = paths.get(stack[depth])
            if path is None:
                path = paths[stack[depth]] = CallPath(stack[depth], depth + 1)
            path.samples += samples
            path.stacks.append(each)
    return [paths[frame] for frame in sorted(paths)]


def layout(profile: Profile, *, least_part: float, least_row: float = 0.0) -> Layout[CallPath]:
    """Lay the stacks of a profile out; weights are samples.

    A box of less than ``least_part`` of all samples is left out with everything above it, and its
    samples remain in the width of its caller. So are rows whose boxes together have less than
    ``least_row`` of them: a narrow tower would leave most of the picture white. Samples with an
    empty stack have no box.
    """
    least = profile.samples * least_part
    roots = split_stacks(profile.stacks.items())
    laid = place(roots, weight=lambda path: path.samples, least=lambda _: least)
    rows = Counter[int]()
    for box in laid.boxes:
        rows[box.depth] += box.path.samples
    depth = sum(samples >= profile.samples * least_row for samples in rows.values())
    boxes = tuple(box for box in laid.boxes if box.depth < depth)
    cut = sum(box.depth == depth for box in laid.boxes)
    return Layout(boxes, depth, laid.left_out + cut)
