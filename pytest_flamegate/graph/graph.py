"""The execution graph: layers, bricks, kernels and copies, nested in each other and in order."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.core.errors import UndecidedError

Direction = Literal["H2D", "D2H", "D2D"]
"""From host to device, back, or from device to device."""
EdgeKind = Literal["Calls", "Contains", "Launches", "Sequence", "Transfer"]
Dimensions = tuple[int, int, int]
"""x, y and z, each at least 1."""


class _Node(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag=True):
    """A node of a document has its class name as ``kind`` and no fields that hold a default."""


class Layer(_Node, frozen=True):
    """A layer of the model, which contains bricks. It has no self time."""

    number: int
    start_ns: int
    end_ns: int


class Brick(_Node, frozen=True):
    """One call of a brick; ``lane`` is the number of its thread or task."""

    name: str
    start_ns: int
    end_ns: int
    elements: int = 0
    bytes: int = 0
    lane: int = 0


class Kernel(_Node, frozen=True):
    """One launch of a kernel, without times; grid and block are None if they are not known."""

    name: str
    grid: Dimensions | None = None
    block: Dimensions | None = None
    shared_memory_bytes: int = 0


class Transfer(_Node, frozen=True):
    """One copy of ``bytes``."""

    direction: Direction
    bytes: int
    start_ns: int
    end_ns: int


Node = Layer | Brick | Kernel | Transfer
"""Times are nanoseconds of one clock."""


class Edge(NamedTuple):
    """An edge between two nodes, by their numbers.

    ``Sequence``: the source ended before the target began. By any other kind the target is nested
    in the source; by ``Transfer`` it is a copy.
    """

    source: int
    target: int
    kind: EdgeKind


def get_node_name(node: Node) -> str:
    """Return the name of a node as it was recorded; a copy is named by its direction."""
    if isinstance(node, Layer):
        return f"Layer {node.number}"
    return node.direction if isinstance(node, Transfer) else node.name


class ExecutionGraph:
    """Nodes, numbered by their index in ``nodes``, and edges between them.

    A node is nested in at most one other: ``parents`` holds its number for each node, None for a
    root, and ``children`` the numbers of the nodes within each node, in the order of edges.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.children: list[list[int]] = []
        self.parents: list[int | None] = []

    def add_node(self, node: Node) -> int:
        """Append a node that nothing contains yet; return its index in ``nodes``."""
        self.nodes.append(node)
        self.parents.append(None)
        self.children.append([])
        return len(self.nodes) - 1

    def add_edge(self, source: int, target: int, kind: EdgeKind) -> None:
        """Add an edge from one node to another, by their numbers."""
        if kind != "Sequence":
            self.parents[target] = source
            self.children[source].append(target)
        self.edges.append(Edge(source, target, kind))

    def sort_as_tree(self) -> list[int]:
        """Return all numbers in the order of a drawn tree: each node before those nested in it."""
        order: list[int] = []
        left = [number for number, parent in enumerate(self.parents) if parent is None][::-1]
        while left:
            number = left.pop()
            order.append(number)
            left.extend(reversed(self.children[number]))
        return order


# The graph of recorded calls


_NUMBER = r"([1-9][0-9]{0,9})"
_THREE = rf"\({_NUMBER},{_NUMBER},{_NUMBER}\)"
_LAUNCH = re.compile(
    rf"(?:{_NUMBER},{_NUMBER},{_NUMBER}|{_THREE},{_THREE})>>>(?:\s*smem=([0-9]{{1,12}})B)?"
)
_DIRECTIONS: Mapping[str, Direction] = {direction: direction for direction in get_args(Direction)}


def build_graph(calls: Sequence[BrickCall]) -> ExecutionGraph:
    """Return the graph of recorded calls: layer → brick → kernel, and copies.

    Calls within a call are nested in it by ``Calls`` edges. Those of one layer are nested in a
    ``Layer``, from the start of the first to the end of the last. A call's ``kernel`` is a node
    that it ``Launches``; a call named ``H2D``, ``D2H`` or ``D2D`` is a copy. Calls of one thread
    within the same call are linked by ``Sequence`` edges, whatever their layers.

    Raises:
        UndecidedError: ``E_NO_BRICKS`` if there is no call; ``E_BRICK_CALLS`` if a parent does
            not exist, or a call runs within itself, ends before it starts, or starts
            before the call around it.
    """
    if not calls:
        raise UndecidedError("E_NO_BRICKS", "No call of a brick was recorded.")
    calls_within = _group_by_parent(calls)
    graph = ExecutionGraph()
    numbers: dict[int, int] = {}
    left: list[tuple[int | None, int | None]] = [(None, None)]
    while left:
        parent, layer = left.pop()
        group = calls_within.get(parent, [])
        outer = None if parent is None else numbers[parent]
        numbers.update(_add_group(graph, calls, group, outer, layer))
        for before, after in _iter_sequences(calls, group):
            graph.add_edge(numbers[before], numbers[after], "Sequence")
        for index in reversed(group):
            if index in calls_within:
                own = calls[index].layer
                left.append((index, layer if own is None else own))
    if len(numbers) < len(calls):
        lost = next(index for index in range(len(calls)) if index not in numbers)
        raise _calls_error(f"{calls[lost].name[:80]!a} runs within itself")
    return graph


def _group_by_parent(calls: Sequence[BrickCall]) -> dict[int | None, list[int]]:
    """Return the calls within each call, and under None the outermost, by their start."""
    groups: dict[int | None, list[int]] = defaultdict(list)
    for index, call in enumerate(calls):
        if call.parent is not None and not 0 <= call.parent < len(calls):
            name = call.name[:80]
            raise _calls_error(f"{name!a} runs within call {call.parent} of {len(calls):,}")
        if call.end_ns < call.start_ns:
            raise _calls_error(f"{call.name[:80]!a} ends before it starts")
        if call.parent is not None and call.start_ns < calls[call.parent].start_ns:
            raise _calls_error(f"{call.name[:80]!a} starts before the call around it")
        groups[call.parent].append(index)
    for group in groups.values():
        group.sort(key=lambda index: (calls[index].start_ns, calls[index].end_ns))
    return dict(groups)


def _add_group(
    graph: ExecutionGraph,
    calls: Sequence[BrickCall],
    group: Sequence[int],
    outer: int | None,
    layer: int | None,
) -> Iterator[tuple[int, int]]:
    """Add the calls within node ``outer``, a call of ``layer``; yield index and node of each."""
    ends_ns: dict[int, int] = {}
    for index in group:
        number = calls[index].layer
        if number is not None:
            ends_ns[number] = max(ends_ns.get(number, 0), calls[index].end_ns)
    layers: dict[int, int] = {}
    for index in group:
        call = calls[index]
        if call.layer is None or call.layer == layer:
            yield index, _add_call(graph, call, outer)
            continue
        if call.layer not in layers:
            node = Layer(call.layer, call.start_ns, ends_ns[call.layer])
            layers[call.layer] = graph.add_node(node)
            if outer is not None:
                graph.add_edge(outer, layers[call.layer], "Contains")
        yield index, _add_call(graph, call, layers[call.layer])


def _add_call(graph: ExecutionGraph, call: BrickCall, outer: int | None) -> int:
    node: Brick | Transfer
    if call.name in _DIRECTIONS:
        node = Transfer(_DIRECTIONS[call.name], call.bytes, call.start_ns, call.end_ns)
    else:
        node = Brick(
            call.name, call.start_ns, call.end_ns, call.elements, call.bytes, lane=call.lane
        )
    number = graph.add_node(node)
    if outer is not None:
        if isinstance(graph.nodes[outer], Layer):
            graph.add_edge(outer, number, "Contains")
        else:
            graph.add_edge(outer, number, "Transfer" if isinstance(node, Transfer) else "Calls")
    if call.kernel:
        graph.add_edge(number, graph.add_node(parse_kernel(call.kernel)), "Launches")
    return number


def parse_kernel(text: str) -> Kernel:
    """Return the kernel that ``text`` names, with its launch if the text ends in one.

    A launch is ``gemv <<<grid x,block x,block y>>> smem=4096B``, or with all six numbers
    ``gemv <<<(32,4,1),(256,1,1)>>>``. Any other text is the name alone.
    """
    # Not one pattern for the whole: it would try each space of a name made of spaces.
    before, _, launch = text.rpartition("<<<")
    name, match = before.rstrip(), _LAUNCH.fullmatch(launch)
    if match is None or not name:
        return Kernel(text)
    *shape, shared = match.groups()
    numbers = [int(each) for each in shape if each is not None]
    if len(numbers) == 3:
        numbers = [numbers[0], 1, 1, numbers[1], numbers[2], 1]
    grid, block = (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5])
    return Kernel(name, grid, block, int(shared or 0))


def _iter_sequences(calls: Sequence[BrickCall], group: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield, for each call of a group, the call of its thread that last ended before it began."""
    open_calls: dict[int, list[tuple[int, int]]] = defaultdict(list)
    last_ended: dict[int, int] = {}
    for index in group:
        call = calls[index]
        running = open_calls[call.lane]
        while running and running[0][0] <= call.start_ns:
            last_ended[call.lane] = heappop(running)[1]
        if call.lane in last_ended:
            yield last_ended[call.lane], index
        heappush(running, (call.end_ns, index))


def _calls_error(what: str) -> UndecidedError:
    return UndecidedError("E_BRICK_CALLS", f"The recorded calls contradict each other: {what}.")


def to_document(graph: ExecutionGraph) -> dict[str, Any]:
    """Return the graph as dicts, lists and scalars. An edge is a list of source, target, kind."""
    return {
        "kind": "execution-graph",
        "schema_version": "1.0.0",
        "nodes": msgspec.to_builtins(graph.nodes),
        "edges": msgspec.to_builtins(graph.edges),
    }
