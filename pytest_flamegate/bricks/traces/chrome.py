"""Traces as Chrome reads them: of torch.profiler with its kernels, and of any other tool."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_flamegate.bricks.traces.nesting import Span, brick_name, nested
from pytest_flamegate.profile.chrome_trace import TraceError, complete_events, loads
from pytest_flamegate.profile.text import escape
from pytest_flamegate.profile.torch_trace import (
    ON_GPU,
    SOURCE,
    is_torch_trace,
    torch_events,
    torch_frame,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.bricks.traces.ingested import Ingested
    from pytest_flamegate.profile.chrome_trace import Event

_MARK = re.compile(rb'\s*(?:\[\s*\{.*"ph"\s*:|\{.*"traceEvents"\s*:)', re.DOTALL)
_LOOKED_AT = 1 << 16
_COPY = re.compile(r"(?i)memcpy\s*(?P<from>[hd])to(?P<to>[hd])")
_MOST = 10**15
_MOST_THREADS = 2**32


def is_chrome_trace(data: bytes) -> bool:
    """Return whether ``data`` looks like events as Chrome reads them."""
    return is_torch_trace(data) or _MARK.match(data[:_LOOKED_AT]) is not None


def read_chrome(data: bytes) -> Ingested:
    """Return the events of each thread and stream. Raises what ``nested`` raises."""
    if is_torch_trace(data):
        return _torch(torch_events(data))
    document = loads(data)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    found = complete_events(events)
    return nested([_span(each, each.name, _thread(each)) for each in found], "chrome")


def _torch(events: Sequence[Event]) -> Ingested:
    launched = _launches(events)
    spans: list[Span] = []
    for each in events:
        if each.category in ON_GPU:
            spans.append(_on_gpu(each))
            continue
        frame = torch_frame(each)
        name = f"{frame.name} ({frame.module})" if each.category == "python_function" else ""
        kernel = launched.get(_correlation(each) or 0, "")
        spans.append(_span(each, name or frame.name, _thread(each), kernel))
    notes = ["each event of torch.profiler costs time that the model does not"]
    return nested(spans, SOURCE, notes)


def _on_gpu(event: Event) -> Span:
    """Return a kernel, or a copy under the name of its direction, in the lane of its stream."""
    stream = event.args.get("stream")
    lane = f"GPU {event.track[0]} stream {stream if type(stream) is int else event.track[1]}"
    copied = _COPY.match(event.name)
    if event.category != "gpu_memcpy" or copied is None:
        return _span(event, torch_frame(event).name, lane)
    return _span(event, f"{copied['from']}2{copied['to']}".upper(), lane)


def _launches(events: Sequence[Event]) -> Mapping[int, str]:
    """Return what was launched, by the number that torch writes to both sides."""
    found: dict[int, str] = {}
    for each in events:
        number = _correlation(each)
        if each.category == "kernel" and number is not None:
            found[number] = torch_frame(each).name + _launch(each.args)
    return found


def _correlation(event: Event) -> int | None:
    number = event.args.get("correlation")
    return number if type(number) is int and number > 0 else None


def _launch(args: Mapping[str, Any]) -> str:
    """Return how a kernel was launched, ``<<<(32,4,1),(256,1,1)>>> smem=0B``, if it is told."""
    shapes = args.get("grid"), args.get("block")
    for shape in shapes:
        if not isinstance(shape, list) or len(shape) != 3:
            return ""
        if not all(type(each) is int and 0 < each < _MOST_THREADS for each in shape):
            raise TraceError("a kernel has a grid or block that is none")
    grid, block = (",".join(map(str, each)) for each in shapes if each is not None)
    return f" <<<({grid}),({block})>>> smem={_count(args, 'shared memory')}B"


def _count(args: Mapping[str, Any], name: str) -> int:
    value = args.get(name, 0)
    if type(value) is not int or not 0 <= value <= _MOST:
        raise TraceError(f"an event has {name} that are no number of bytes")
    return value


def _span(event: Event, name: str, lane: str, kernel: str = "") -> Span:
    moved = _count(event.args, "bytes") if event.category == "gpu_memcpy" else 0
    return Span(brick_name(name), lane, event.start_us, event.length_us, moved, kernel)


def _thread(event: Event) -> str:
    return escape(" ".join(part for part in event.track if part)) or "0"
