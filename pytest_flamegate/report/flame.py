"""The boxes of a picture and the words on them, grouped by class to be short.

The words stand apart from the boxes and let the pointer through, so that each box needs
nothing but itself and its ``<title>``.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.report.svg import FLOOR, MONO, TEXT, Shade, attributes, number, room, xml_text
from pytest_flamegate.report.text import cells, clip, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_flamegate.profile.model import Frame, Stack


ROW = 20.0
_TALL = number(ROW - 1)
_AS_WIDE_AS_LETTERS = str.maketrans("", "", "…·µ→−–±")


@dataclass(slots=True)
class Boxes:
    """Boxes and words by their class, as they are added."""

    shapes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    marks: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    words: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self, kind: str, x: float, y: float, width: float, told: Sequence[str], words: Words
    ) -> None:
        """Add a box of the class ``kind``; ``told`` are the lines of its title."""
        # A hair between neighbours, except where the hair would be all that is left.
        wide = width - 0.75 if width > 2 else width
        title = "\n".join(map(xml_text, told))
        self.shapes[kind].append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(wide)}" height="{_TALL}">'
            f"<title>{title}</title></rect>"
        )
        label = words.within(wide - 7)
        if label:
            self.words[kind].append(_placed(label, x, y, wide))
        elif words.short and room(wide - 1, TEXT) >= cells(words.short):
            middle = attributes(x=x + wide / 2, y=y + 14, text_anchor="middle")
            self.words[kind].append(f"<text{middle}>{xml_text(words.short)}</text>")

    def mark(self, kind: str, x: float, y: float, width: float) -> None:
        """Mark a part of a box with the class ``kind``; the box's title still shows there."""
        inset = 0.5
        place = attributes(
            x=x + inset,
            y=y + inset,
            width=max(width - 0.75 - 2 * inset, 0.5),
            height=ROW - 1 - 2 * inset,
        )
        self.marks[kind].append(f"<rect{place}/>")

    def drawn(self, shades: Mapping[str, Shade]) -> str:
        """Return all of them; a class stands in the style sheet as it does in ``shades``."""
        groups = [
            f"<g{_coloured(kind, shades[kind])}{more}>{''.join(shapes)}</g>"
            for drawn, more in ((self.shapes, ""), (self.marks, ' pointer-events="none"'))
            for kind, shapes in drawn.items()
        ]
        font = attributes(font_family=MONO, font_size=TEXT, pointer_events="none")
        words = [
            f"<g{attributes(class_=f'on-{kind}', fill=shades[kind].light_ink)}>{''.join(texts)}</g>"
            for kind, texts in self.words.items()
        ]
        return "\n".join([*groups, f"<g{font}>", *words, "</g>"])


@dataclass(frozen=True, slots=True)
class Words:
    """What stands on a box: a name, and after it whatever there is room for, in this order.

    ``short`` stands there alone where there is no room for the name.
    """

    name: str
    more: Sequence[str] = ()
    short: str = ""

    def within(self, width: float) -> list[str]:
        """Return the words that fit into ``width``, none where not even three letters do."""
        fits = room(width, TEXT)
        if fits < 3:
            return []
        shown = [clip(_shown_name(self.name, fits), fits)]
        left = fits - cells(shown[0])
        for text in map(visible, self.more):
            left -= cells(text) + 2
            if left < 0 or not text:
                break
            shown.append(text)
        return shown


def _coloured(kind: str, shade: Shade) -> str:
    stroke = {"stroke": shade.edge[0]} if shade.edge else {}
    return attributes(class_=kind, fill=shade.light, **stroke)


def _placed(label: Sequence[str], x: float, y: float, wide: float) -> str:
    name, *more = map(xml_text, label)
    text = name + "".join(f'<tspan dx="10">{each}</tspan>' for each in more)
    if "".join(label).translate(_AS_WIDE_AS_LETTERS).isascii():
        return f'<text x="{number(x + 5)}" y="{number(y + 14)}">{text}</text>'
    # Of letters whose width no rule tells: a nested svg clips what it holds, so that no
    # face can push a name over its neighbour.
    place = attributes(x=x, y=y, width=wide, height=ROW - 1)
    return f'<svg{place}><text x="5" y="14">{text}</text></svg>'


def _shown_name(name: str, fits: int) -> str:
    """Return ``name``, without its class or namespace where only that makes it fit."""
    shown = visible(name)
    if cells(shown) <= fits:
        return shown
    bare = shown.replace("::", ".").rpartition(".")[2]
    return bare if bare.isidentifier() else shown


_DARK = "#14171A"
_WHITE = "#FFFFFF"


@dataclass(frozen=True, slots=True)
class Tone:
    """A category's colours, and what belongs to it in a few words; ``name`` is its class."""

    name: str
    shade: Shade
    meaning: str

    @property
    def fill(self) -> str:
        """The fill on light paper."""
        return self.shade.light

    @property
    def ink(self) -> str:
        """The ink that reads on it."""
        return self.shade.light_ink


def _same(name: str, fill: str, meaning: str, ink: str = _DARK) -> Tone:
    return Tone(name, Shade(fill, fill, ink, ink), meaning)


_TONES = (
    _same("matmul", "#E8971A", "matrix multiplication: gemm, gemv, dot products"),
    _same("quantisation", "#DC6239", "packing, unpacking and scaling quantised values"),
    _same("attention", "#69C6FA", "attention, softmax, rotary embedding, KV cache"),
    _same("norm", "#349874", "RMS norm and layer norm"),
    _same("memory", "#5348D0", "allocating, copying and moving memory", _WHITE),
    _same("system", "#FFE66A", "the operating system's kernel"),
    Tone("python", Shade("#E4ECF0", "#3A444D", _DARK, _WHITE), "Python code and the interpreter"),
    _same("native", "#AEABBE", "other compiled code"),
)
PALETTE: Mapping[str, Tone] = MappingProxyType({each.name: each for each in _TONES})

UNKNOWN = Tone(
    "unknown",
    Shade("#F7F7F7", "#161B22", _DARK, _WHITE),
    "a category that this version does not know",
)


def tone(category: str) -> Tone:
    """Return the tone of ``category``; one that is not in the palette gets ``UNKNOWN``."""
    return PALETTE.get(category, UNKNOWN)


def shades() -> dict[str, Shade]:
    """Return the colours of every class of box in a flame graph."""
    return {each.name: each.shade for each in (*_TONES, UNKNOWN)} | {"floor": FLOOR}


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
