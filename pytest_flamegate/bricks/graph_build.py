"""From the calls that a profiler recorded to the execution graph."""

from __future__ import annotations

import re
from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.execution_graph import ExecutionGraph
from pytest_flamegate.bricks.graph_nodes import DIRECTIONS, Brick, Kernel, Layer, Transfer
from pytest_flamegate.errors import UndecidedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flamegate.bricks.graph_nodes import Direction, Node
    from pytest_flamegate.bricks.record import BrickCall

_NUMBER = r"([1-9][0-9]{0,9})"
_THREE = rf"\({_NUMBER},{_NUMBER},{_NUMBER}\)"
_LAUNCH = re.compile(
    rf"(?:{_NUMBER},{_NUMBER},{_NUMBER}|{_THREE},{_THREE})>>>(?:\s*smem=([0-9]{{1,12}})B)?"
)
_DIRECTIONS: Mapping[str, Direction] = {each: each for each in DIRECTIONS}


def graph_of(calls: Sequence[BrickCall]) -> ExecutionGraph:
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
        graph.add_edge(number, graph.add_node(kernel_of(call.kernel)), "Launches")
    return number


def kernel_of(text: str) -> Kernel:
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
