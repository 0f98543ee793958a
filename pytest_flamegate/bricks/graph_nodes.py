"""What an execution graph is made of: six kinds of nodes, six kinds of edges."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard, get_args

from pytest_flamegate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


def name_of(node: Node) -> str:
    """Return what a node is called, as it was recorded."""
    if isinstance(node, Layer):
        return f"Layer {node.number}"
    return node.direction if isinstance(node, Transfer) else node.name


def check(node: Node) -> None:
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
