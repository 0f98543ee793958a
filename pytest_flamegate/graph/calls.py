"""The execution graph of recorded calls."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.graph.graph import (
    DIRECTIONS,
    Brick,
    Direction,
    ExecutionGraph,
    Kernel,
    Layer,
    Transfer,
)

_NUMBER = r"([1-9][0-9]{0,9})"
_THREE = rf"\({_NUMBER},{_NUMBER},{_NUMBER}\)"
_LAUNCH = re.compile(
    rf"(?:{_NUMBER},{_NUMBER},{_NUMBER}|{_THREE},{_THREE})>>>(?:\s*smem=([0-9]{{1,12}})B)?"
)
_DIRECTIONS: Mapping[str, Direction] = {direction: direction for direction in DIRECTIONS}


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
