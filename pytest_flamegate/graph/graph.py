"""FNV-1a with 64 bits: the hash by which other tools name sources and check tensors."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard, get_args

from pytest_flamegate.core.errors import UndecidedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_flamegate.bricks.record import BrickCall


_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


def fnv1a(data: bytes) -> int:
    """Return the FNV-1a hash of ``data``, 64 bits. No one is hindered from making a collision."""
    found = _OFFSET
    for byte in data:
        found = ((found ^ byte) * _PRIME) & _MASK
    return found


Direction = Literal["H2D", "D2H", "D2D"]
"""From host to device, back, or from device to device."""
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
EdgeKind = Literal["Calls", "Contains", "Launches", "Sequence", "DependsOn", "Transfer"]
EDGE_KINDS: tuple[EdgeKind, ...] = get_args(EdgeKind)
Dimensions = tuple[int, int, int]
"""x, y and z, each at least 1."""
MAX_NAME = 1000
"""Characters of a name."""
_WHOLE = 1 << 63


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the model: the bricks in it. It takes no time of its own."""

    number: int
    start_ns: int | None = None
    end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Brick:
    """One call of a brick; ``lane`` numbers its thread or task."""

    name: str
    start_ns: int | None = None
    end_ns: int | None = None
    elements: int = 0
    bytes: int = 0
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch of a kernel; grid and block are None where nobody told them."""

    name: str
    grid: Dimensions | None = None
    block: Dimensions | None = None
    shared_memory_bytes: int = 0
    source_hash: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy of ``bytes``."""

    direction: Direction
    bytes: int
    start_ns: int | None = None
    end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """One call of a function; ``file`` and ``line`` (from 1) are empty and 0 where unknown."""

    name: str
    start_ns: int | None = None
    end_ns: int | None = None
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class AsyncTask:
    """One task that runs beside what started it."""

    name: str
    start_ns: int | None = None
    end_ns: int | None = None


Node = Layer | Brick | Kernel | Transfer | Function | AsyncTask
"""Times are nanoseconds of one clock, both of a node or neither."""
NODE_TYPES: tuple[type[Node], ...] = get_args(Node)


class Edge(NamedTuple):
    """From one node to another, by their numbers.

    ``Contains``, ``Calls`` and ``Launches`` lead to what stands, runs or is started within the
    source. ``Sequence``: the source ended before the target began. ``DependsOn``: the target
    ended before the source began. ``Transfer`` leads to a copy from what started it, or from a
    copy to what uses its data.
    """

    source: int
    target: int
    kind: EdgeKind


def get_node_name(node: Node) -> str:
    """Return what a node is called, as it was recorded."""
    if isinstance(node, Layer):
        return f"Layer {node.number}"
    return node.direction if isinstance(node, Transfer) else node.name


def check_node(node: Node) -> None:
    """Raise ``UsageError`` ``E_GRAPH_NODE`` for what is no node, or says what cannot be."""
    if type(node) not in NODE_TYPES:
        raise _bad(node, f"is no node but {type(node).__name__}")
    for name, holds in _CHECKED[type(node)]:
        if not holds(getattr(node, name)):
            raise _bad(node, f"has a wrong {name}")
    start_ns, end_ns = node.start_ns, node.end_ns
    if start_ns is None and end_ns is None:
        return
    if not (_is_count(start_ns) and _is_count(end_ns)):
        raise _bad(node, "has a wrong start_ns or end_ns, or one without the other")
    if end_ns < start_ns:
        raise _bad(node, "ends before it starts")


def _bad(node: Any, what: str) -> UsageError:
    return UsageError(
        "E_GRAPH_NODE",
        f"The node {repr(node)[:200]!a} {what}.",
        "Give each node the fields of its kind: names as text, figures as whole numbers from 0.",
    )


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _WHOLE


def _is_text(value: object) -> bool:
    if type(value) is not str or len(value) > MAX_NAME:
        return False
    # Half a surrogate pair has no place in JSON.
    return value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value)


def _is_name(value: object) -> bool:
    return value != "" and _is_text(value)


def _is_dimensions(value: object) -> bool:
    if value is None:
        return True
    return (
        type(value) is tuple and len(value) == 3 and all(_is_count(each) and each for each in value)
    )


def _is_hash(value: object) -> bool:
    return value is None or (type(value) is int and 0 <= value < 1 << 64)


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("number", "elements", "bytes", "lane", "line"), _is_count),
    "name": _is_name,
    "file": _is_text,
    "grid": _is_dimensions,
    "block": _is_dimensions,
    "shared_memory_bytes": _is_count,
    "source_hash": _is_hash,
    "direction": DIRECTIONS.__contains__,
}
"""What each field may hold, whatever kind of node it is of; times are looked at in pairs."""
_CHECKED = {
    each: [(field.name, _CHECKS[field.name]) for field in fields(each) if field.name in _CHECKS]
    for each in NODE_TYPES
}

MAX_NODES = 500_000
MAX_EDGES = 2_000_000
_NESTING = frozenset({"Contains", "Calls", "Launches"})
_NAMED = 8
"""Names of a cycle that are told."""


class ExecutionGraph:
    """What ran, within what, and after what. A node's number is its place in ``nodes``.

    A node stands in at most one other: the source of its edge ``Contains``, ``Calls`` or
    ``Launches``, else, for a copy, of its first edge ``Transfer``.
    """

    __slots__ = ("_children", "_edges", "_nodes", "_parents")

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._edges: list[Edge] = []
        self._parents: list[int | None] = []
        self._children: list[list[int]] = []

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes, in the order in which they were added."""
        return self._nodes

    @property
    def edges(self) -> Sequence[Edge]:
        """All edges, in the order in which they were added."""
        return self._edges

    def add_node(self, node: Node) -> int:
        """Add a node and return its number.

        Raises ``UsageError`` ``E_GRAPH_NODE`` for a malformed one, ``E_GRAPH_SIZE`` for one more
        than ``MAX_NODES``.
        """
        check_node(node)
        if len(self._nodes) >= MAX_NODES:
            raise _too_large("nodes", MAX_NODES)
        self._nodes.append(node)
        self._parents.append(None)
        self._children.append([])
        return len(self._nodes) - 1

    def add_edge(self, source: int, target: int, kind: EdgeKind) -> None:
        """Add an edge from one node to another, by their numbers.

        Raises ``UsageError`` ``E_GRAPH_EDGE`` where a node is missing, source and target are one,
        the kind is none or does not fit the nodes; ``E_GRAPH_PARENT`` where the target stands in
        another node already; ``E_GRAPH_SIZE`` for one more than ``MAX_EDGES``.
        """
        self._check_ends(source, target, kind)
        if len(self._edges) >= MAX_EDGES:
            raise _too_large("edges", MAX_EDGES)
        if kind in _NESTING:
            self._nest(source, target)
        elif kind == "Transfer":
            self._move(source, target)
        self._edges.append(Edge(source, target, kind))

    def parent(self, number: int) -> int | None:
        """Return the number of the node that a node stands in, None for none."""
        return self._parents[number]

    def is_nesting(self, edge: Edge) -> bool:
        """Whether ``edge`` says where its target stands, and not only what came before what."""
        return edge.kind in _NESTING or (
            edge.kind == "Transfer" and self._parents[edge.target] == edge.source
        )

    @property
    def children(self) -> Sequence[Sequence[int]]:
        """Return for each node the numbers of those that stand in it, in the order of edges."""
        return self._children

    def outside_in(self) -> list[int]:
        """Return all numbers as the tree has them: each node before those that stand in it.

        Raises ``UndecidedError`` ``E_GRAPH_CYCLE``, which names the nodes, where some stand in
        themselves.
        """
        order: list[int] = []
        left = [number for number, parent in enumerate(self._parents) if parent is None][::-1]
        while left:
            number = left.pop()
            order.append(number)
            left.extend(reversed(self._children[number]))
        if len(order) == len(self._nodes):
            return order
        raise self.circle(self._ring(set(order)))

    def circle(self, ring: Sequence[int]) -> UndecidedError:
        """Return the refusal of nodes that come before themselves: each before the next."""
        names = [repr(get_node_name(self._nodes[each])[:80]) for each in (*ring, ring[0])]
        if len(ring) > _NAMED:
            names[_NAMED:-1] = [f"{len(ring) - _NAMED:,} more"]
        return UndecidedError(
            "E_GRAPH_CYCLE",
            f"The graph goes in a circle: {' → '.join(names)}.",
            "Take out the edge that leads back: nothing comes before itself.",
        )

    def _ring(self, reached: set[int]) -> list[int]:
        """Return nodes each of which stands in the one before; all above those not reached do."""
        number = next(each for each in range(len(self._nodes)) if each not in reached)
        seen: dict[int, None] = {}
        while number not in seen:
            seen[number] = None
            parent = self._parents[number]
            assert parent is not None  # what stands in nothing was reached
            number = parent
        walked = list(seen)
        return walked[walked.index(number) :][::-1]

    def _check_ends(self, source: int, target: int, kind: EdgeKind) -> None:
        count = len(self._nodes)
        for number in (source, target):
            if type(number) is not int or not 0 <= number < count:
                raise _bad_edge(f"there is no node {str(number)[:40]!a}, only {count:,}")
        if source == target:
            raise _bad_edge(f"{get_node_name(self._nodes[source])[:80]!a} would lead to itself")
        if kind not in EDGE_KINDS:
            raise _bad_edge(f"{str(kind)[:40]!a} is none of {', '.join(EDGE_KINDS)}")

    def _nest(self, source: int, target: int) -> None:
        parent = self._parents[target]
        if parent is not None:
            inner, outer = (get_node_name(self._nodes[each])[:80] for each in (target, parent))
            raise UsageError(
                "E_GRAPH_PARENT",
                f"{inner!a} stands in {outer!a} already.",
                "Let each node stand in one other; say DependsOn or Sequence for what it waits on.",
            )
        self._stand(target, source)

    def _move(self, source: int, target: int) -> None:
        if isinstance(self._nodes[target], Transfer):
            if self._parents[target] is None:
                self._stand(target, source)
        elif not isinstance(self._nodes[source], Transfer):
            raise _bad_edge("a Transfer edge must lead to a copy or come from one")

    def _stand(self, inner: int, outer: int) -> None:
        self._parents[inner] = outer
        self._children[outer].append(inner)


def _bad_edge(what: str) -> UsageError:
    return UsageError(
        "E_GRAPH_EDGE",
        f"The edge cannot be added: {what}.",
        "Add both nodes first, and take one of the six kinds.",
    )


def _too_large(what: str, most: int) -> UsageError:
    return UsageError(
        "E_GRAPH_SIZE",
        f"The graph has more than the {most:,} {what} allowed.",
        "Record fewer tokens.",
    )


_NUMBER = r"([1-9][0-9]{0,9})"
_THREE = rf"\({_NUMBER},{_NUMBER},{_NUMBER}\)"
_LAUNCH = re.compile(
    rf"(?:{_NUMBER},{_NUMBER},{_NUMBER}|{_THREE},{_THREE})>>>(?:\s*smem=([0-9]{{1,12}})B)?"
)
_DIRECTIONS: Mapping[str, Direction] = {each: each for each in DIRECTIONS}


def build_graph(calls: Sequence[BrickCall]) -> ExecutionGraph:
    """Return the graph of recorded calls: layer → brick → kernel, and copies.

    A ``Layer`` stands for each layer number, within each call that it ran in, from the start of
    its first call to the end of its last. Calls within a call are its ``Calls``; its ``kernel``
    (a name, with its launch where told as the tree has it: ``gemv <<<32,256,1>>> smem=4096B``)
    is what it ``Launches``. A call named ``H2D``, ``D2H`` or ``D2D`` is a copy of its bytes.
    Calls of one lane within the same call come in ``Sequence``, whatever their layers.

    Raises ``UndecidedError`` ``E_NO_BRICKS`` for no call, ``E_BRICK_CALLS`` where a parent is
    missing or a call runs within itself, and what ``ExecutionGraph`` raises.
    """
    if not calls:
        raise UndecidedError(
            "E_NO_BRICKS",
            "No call of a brick was recorded.",
            "Mark the engine's bricks, and measure with --flamegate-bricks.",
        )
    within = _by_parent(calls)
    graph = ExecutionGraph()
    numbers: dict[int, int] = {}
    left: list[tuple[int | None, int | None]] = [(None, None)]
    while left:
        parent, layer = left.pop()
        group = within.get(parent, [])
        home = None if parent is None else numbers[parent]
        numbers.update(_placed(graph, calls, group, home, layer))
        for before, after in _in_sequence(calls, group):
            graph.add_edge(numbers[before], numbers[after], "Sequence")
        for index in reversed(group):
            if index in within:
                own = calls[index].layer
                left.append((index, layer if own is None else own))
    if len(numbers) < len(calls):
        lost = next(index for index in range(len(calls)) if index not in numbers)
        raise _bad_calls(f"{calls[lost].name[:80]!a} runs within itself")
    return graph


def _by_parent(calls: Sequence[BrickCall]) -> dict[int | None, list[int]]:
    """Return the calls within each call, and within none, as they began."""
    within: dict[int | None, list[int]] = defaultdict(list)
    for index, call in enumerate(calls):
        if call.parent is not None and not 0 <= call.parent < len(calls):
            raise _bad_calls(f"{call.name[:80]!a} runs within call {call.parent}, which is none")
        within[call.parent].append(index)
    for group in within.values():
        group.sort(key=lambda index: (calls[index].start_ns, calls[index].end_ns))
    return dict(within)


def _placed(
    graph: ExecutionGraph,
    calls: Sequence[BrickCall],
    group: Sequence[int],
    home: int | None,
    layer: int | None,
) -> Iterator[tuple[int, int]]:
    """Add the calls that ran within ``home``, a call of ``layer``; yield their numbers."""
    ends: dict[int, int] = {}
    for index in group:
        number = calls[index].layer
        if number is not None:
            ends[number] = max(ends.get(number, 0), calls[index].end_ns)
    layers: dict[int, int] = {}
    for index in group:
        call = calls[index]
        if call.layer is None or call.layer == layer:
            yield index, _added(graph, call, home)
            continue
        if call.layer not in layers:
            node = Layer(call.layer, call.start_ns, ends[call.layer])
            layers[call.layer] = graph.add_node(node)
            if home is not None:
                graph.add_edge(home, layers[call.layer], "Contains")
        yield index, _added(graph, call, layers[call.layer])


def _added(graph: ExecutionGraph, call: BrickCall, home: int | None) -> int:
    node: Node
    if call.name in _DIRECTIONS:
        node = Transfer(_DIRECTIONS[call.name], call.bytes, call.start_ns, call.end_ns)
    else:
        node = Brick(
            call.name, call.start_ns, call.end_ns, call.elements, call.bytes, lane=call.lane
        )
    number = graph.add_node(node)
    if home is not None:
        if isinstance(graph.nodes[home], Layer):
            graph.add_edge(home, number, "Contains")
        else:
            graph.add_edge(home, number, "Transfer" if isinstance(node, Transfer) else "Calls")
    if call.kernel:
        graph.add_edge(number, graph.add_node(parse_kernel(call.kernel)), "Launches")
    return number


def parse_kernel(text: str) -> Kernel:
    """Return the kernel that ``text`` names, with its launch where that is told too.

    ``gemv <<<grid x,block x,block y>>> smem=4096B``, or with all six numbers
    ``gemv <<<(32,4,1),(256,1,1)>>>``; any other text is a name and nothing else.
    """
    # Not one pattern for all of it: that would try each space of a name made of spaces.
    before, _, launch = text.rpartition("<<<")
    name, found = before.rstrip(), _LAUNCH.fullmatch(launch)
    if found is None or not name:
        return Kernel(text)
    *numbers, shared = found.groups()
    told = [int(each) for each in numbers if each is not None]
    if len(told) == 3:
        told = [told[0], 1, 1, told[1], told[2], 1]
    grid, block = (told[0], told[1], told[2]), (told[3], told[4], told[5])
    return Kernel(name, grid, block, int(shared or 0))


def _in_sequence(calls: Sequence[BrickCall], group: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield for each call of ``group`` the one of its lane that last ended before it began."""
    open_calls: dict[int, list[tuple[int, int]]] = defaultdict(list)
    ended: dict[int, int] = {}
    for index in group:
        call = calls[index]
        waiting = open_calls[call.lane]
        while waiting and waiting[0][0] <= call.start_ns:
            ended[call.lane] = heappop(waiting)[1]
        if call.lane in ended:
            yield ended[call.lane], index
        heappush(waiting, (call.end_ns, index))


def _bad_calls(what: str) -> UndecidedError:
    return UndecidedError(
        "E_BRICK_CALLS",
        f"The recorded calls contradict each other: {what}.",
        "Record them again; do not edit them by hand.",
    )


class SourceRegistry:
    """Kernel sources, found again by the hash that a ``Kernel`` of the graph carries."""

    __slots__ = ("_sources",)

    def __init__(self) -> None:
        self._sources: dict[int, str] = {}

    def register(self, source: str) -> int:
        """Keep ``source`` and return its hash; the same source again gives the same.

        Raises ``UsageError`` ``E_SOURCE_COLLISION`` where another source has that hash, and
        ``E_SOURCE_TEXT`` for what has no UTF-8.
        """
        try:
            key = fnv1a(source.encode())
        except UnicodeEncodeError:
            raise UsageError(
                "E_SOURCE_TEXT",
                "The kernel's source holds half a surrogate pair and has no UTF-8.",
                "Read the source as the UTF-8 that it is.",
            ) from None
        if self._sources.setdefault(key, source) != source:
            raise UsageError(
                "E_SOURCE_COLLISION",
                f"Two different kernel sources have the hash {key:016x}.",
                "Change one of them by a comment: a hash must lead to one source.",
            )
        return key

    def lookup(self, key: int) -> str | None:
        """Return the source that has the hash ``key``; None where none was registered."""
        return self._sources.get(key)

    def __len__(self) -> int:
        return len(self._sources)
