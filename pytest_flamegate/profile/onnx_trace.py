"""What onnxruntime writes with ``SessionOptions.enable_profiling``: the nodes of a graph.

A kernel is an operator on an execution provider; those of each provider are counted apart.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_flamegate.profile.chrome_trace import (
    Event,
    Kernels,
    complete_events,
    counts,
    loads,
    nested_profile,
)
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.profile.text import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.profile.model import Profile

SOURCE = "onnxruntime"
_NODE, _KERNEL = "Node", "_kernel_time"
_SESSION = "Session"
_START = re.compile(rb'\s*\[\s*\{\s*"cat"\s*:\s*"(?:Session|Node|Api|Kernel)"')
_PROVIDER = re.compile(r"([A-Za-z0-9]{1,60}?)(?:ExecutionProvider)?")


def is_onnx_trace(data: bytes) -> bool:
    """Return whether ``data`` begins as a profile of onnxruntime does."""
    return _START.match(data) is not None


def read_onnx_trace(data: bytes, roots: Sequence[str] = ()) -> Profile:  # noqa: ARG001
    """Return the self times of sessions and nodes, in nanoseconds.

    A node stands below its operator. Raises ``ReceiptError`` ``E_TRACE`` where it is
    malformed, ``UndecidedError`` ``E_NO_SAMPLES`` where nothing in it took any time.
    """
    events = onnx_events(data)
    return nested_profile(
        events,
        _frames,
        lambda _: (),
        SOURCE,
        [f"imported from a profile of {SOURCE}: its clock counts whole microseconds"],
    )


def onnx_kernels(data: bytes) -> tuple[Kernels, ...]:
    """Return how often each operator ran, those of each execution provider apart.

    Raises ``ReceiptError`` ``E_TRACE``.
    """
    by_provider: dict[str, list[str]] = {}
    for event in onnx_events(data):
        if event.category == _NODE:
            by_provider.setdefault(_provider(event), []).append(onnx_operator(event))
    return tuple(
        Kernels(f"{SOURCE}:{provider}" if provider else SOURCE, counts(operators))
        for provider, operators in sorted(by_provider.items())
    )


def onnx_events(data: bytes) -> list[Event]:
    """Return the parts of sessions, and the kernels. Raises ``ReceiptError`` ``E_TRACE``."""
    return [
        each
        for each in complete_events(loads(data))
        if each.category == _SESSION or (each.category == _NODE and each.name.endswith(_KERNEL))
    ]


def _frames(event: Event) -> tuple[Frame, ...]:
    if event.category == _SESSION:
        return (Frame(escape(event.name), SOURCE, "native"),)
    node = event.name.removesuffix(_KERNEL)
    return (
        Frame(escape(onnx_operator(event)), _provider(event) or SOURCE, "native"),
        Frame(escape(node), "node", "native"),
    )


def onnx_operator(event: Event) -> str:
    """Return the operator of a kernel, or what a part of a session is called."""
    named = event.args.get("op_name")
    return named if isinstance(named, str) and named else event.name.removesuffix(_KERNEL)


def _provider(event: Event) -> str:
    """Return the provider without the words that all of them end in; empty where none is told."""
    named = event.args.get("provider")
    found = _PROVIDER.fullmatch(named) if isinstance(named, str) else None
    return found[1] if found is not None else ""
