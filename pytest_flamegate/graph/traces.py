"""Bricks in the files of other profilers: event traces, and the formats of ``ingested``.

A new format is a reader in one of the two files and a line in ``FORMATS``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytest_flamegate.bricks.record import (
    BrickCall,
    BrickTotals,
    ThreadTotals,
    find_bucket,
    find_category,
)
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import escape_name
from pytest_flamegate.graph.ingested import (
    MAX_NAMES,
    TOLERANCE,
    IngestedTrace,
    contradiction_error,
    has_lines,
    is_trueno,
    no_bricks_error,
    normalize_name,
    read_lines,
    read_trueno,
)
from pytest_flamegate.profile.formats.registry import unpack
from pytest_flamegate.profile.formats.traces import (
    ON_GPU,
    ONNX_TRACE_SOURCE,
    TORCH_TRACE_SOURCE,
    NestedEvents,
    TraceError,
    TraceEvent,
    Track,
    is_onnx_trace,
    is_torch_trace,
    make_torch_frame,
    nest_events,
    operator_name,
    parse_events,
    parse_trace_json,
    read_onnx_events,
    read_torch_events,
)

MAX_CALLS = 100_000
"""Calls that are kept; of more there are only the totals."""
_CHROME = re.compile(rb'\s*(?:\[\s*\{.*"ph"\s*:|\{.*"traceEvents"\s*:)', re.DOTALL)
_INSPECTED_BYTES = 1 << 16
_COPY = re.compile(r"(?i)memcpy\s*(?P<from>[hd])to(?P<to>[hd])")
_MAX_BYTES_COPIED = 10**15
_MAX_THREADS = 2**32
_SHOWN = 200


def is_chrome_trace(data: bytes) -> bool:
    """Whether ``data`` looks like an event trace in Chrome's format."""
    return is_torch_trace(data) or _CHROME.match(data[:_INSPECTED_BYTES]) is not None


def read_chrome(data: bytes) -> IngestedTrace:
    """Return the events of each thread and stream. See ``build_trace`` for errors."""
    if is_torch_trace(data):
        return _read_torch(data)
    document = parse_trace_json(data)
    events = parse_events(document.get("traceEvents") if isinstance(document, dict) else document)
    return build_trace([_rename(event, event.name) for event in events], {}, "chrome")


def read_onnx(data: bytes) -> IngestedTrace:
    """Return sessions and operators. See ``build_trace`` for errors."""
    events = [_rename(event, operator_name(event)) for event in read_onnx_events(data)]
    return build_trace(events, {}, ONNX_TRACE_SOURCE, ["its clock counts whole microseconds"])


def _read_torch(data: bytes) -> IngestedTrace:
    launches: dict[int, str] = {}
    events: list[TraceEvent] = []
    for event in read_torch_events(data):
        frame = make_torch_frame(event)
        name = frame.name
        if event.category in ON_GPU:
            if event.category == "kernel" and (number := _correlation(event)):
                launches[number] = name + _format_launch(event.args)
            if event.category == "gpu_memcpy" and (copy := _COPY.match(event.name)):
                name = f"{copy['from']}2{copy['to']}".upper()
            device, thread = event.track
            stream = event.args.get("stream")
            track = "GPU", f"{device} stream {stream if type(stream) is int else thread}"
            event = event._replace(track=track)
        elif event.category == "python_function":
            name = f"{name} ({frame.module})"
        events.append(_rename(event, name))
    notes = ["each event of torch.profiler costs time that the model does not"]
    return build_trace(events, launches, TORCH_TRACE_SOURCE, notes)


def _rename(event: TraceEvent, name: str) -> TraceEvent:
    return event._replace(name=normalize_name(name))


def _correlation(event: TraceEvent) -> int | None:
    """Return the number that torch gives to a launch and to the kernel that it launched."""
    number = event.args.get("correlation")
    return number if type(number) is int and number > 0 else None


def _format_launch(args: Mapping[str, Any]) -> str:
    """Return ``" <<<(32,4,1),(256,1,1)>>> smem=0B"``, or "" if the launch is not known."""
    shapes = args.get("grid"), args.get("block")
    for shape in shapes:
        if not isinstance(shape, list) or len(shape) != 3:
            return ""
        if not all(type(size) is int and 0 < size < _MAX_THREADS for size in shape):
            raise TraceError("a kernel has an invalid grid or block")
    grid, block = (",".join(map(str, shape)) for shape in shapes if shape is not None)
    return f" <<<({grid}),({block})>>> smem={_parse_bytes(args, 'shared memory')}B"


def _parse_bytes(args: Mapping[str, Any], name: str) -> int:
    value = args.get(name, 0)
    if type(value) is not int or not 0 <= value <= _MAX_BYTES_COPIED:
        raise TraceError(f"the {name} of an event is no number of bytes")
    return value


@dataclass(slots=True)
class NameSums:
    """Sums over the events of one name."""

    calls: int = 0
    total_ns: int = 0
    self_ns: int = 0
    min_ns: int | None = None
    max_ns: int = 0
    bytes: int = 0
    durations: Counter[int] = field(default_factory=Counter)


def build_trace(
    events: Sequence[TraceEvent],
    launches: Mapping[int, str],
    source: str,
    notes: Sequence[str] = (),
) -> IngestedTrace:
    """Return calls, self times and totals by name.

    ``launches`` maps the correlation number of an event to the kernel that it launched.

    Raises:
        ReceiptError: ``E_TRACE_CONTRADICTS`` if events of one thread overlap by more than 1 % of
            its time, ``E_TRACE`` for too many names or levels.
        UndecidedError: ``E_NO_BRICKS`` if there is no event.
    """
    if not events:
        raise no_bricks_error("The trace")
    nested = nest_events(events)
    sums, threads = _sum_by_name(nested), _sum_threads(nested)
    has_calls = len(nested.events) <= MAX_CALLS
    if not has_calls:
        notes = [*notes, f"of more than {MAX_CALLS:,} calls only the totals are kept"]
    return IngestedTrace(
        source,
        max(nested.ends_ns),
        tuple(
            BrickTotals(
                name,
                find_category(name),
                row.calls,
                row.total_ns,
                row.self_ns,
                row.min_ns or 0,
                row.max_ns,
                bytes=row.bytes,
                durations={str(number): calls for number, calls in row.durations.items()},
                provenance="ingested",
            )
            for name, row in sorted(sums.items(), key=lambda item: (-item[1].self_ns, item[0]))
        ),
        calls=tuple(_iter_calls(nested, launches)) if has_calls else (),
        lanes=threads,
        notes=tuple(notes),
    )


def _sum_by_name(nested: NestedEvents) -> dict[str, NameSums]:
    sums: dict[str, NameSums] = {}
    # The open events of each track, innermost last, and how many of them have each name.
    open_events: dict[Track, list[int]] = defaultdict(list)
    open_names: dict[Track, Counter[str]] = defaultdict(Counter)
    for number, event in enumerate(nested.events):
        name, stack, names = event.name, open_events[event.track], open_names[event.track]
        while stack and stack[-1] != nested.parents[number]:
            names[nested.events[stack.pop()].name] -= 1
        row = sums.get(name)
        if row is None:
            if len(sums) >= MAX_NAMES:
                raise TraceError(f"more than {MAX_NAMES:,} different names")
            row = sums[name] = NameSums()
        length_ns = nested.ends_ns[number] - nested.starts_ns[number]
        row.calls += 1
        row.total_ns += 0 if names[name] else length_ns
        row.self_ns += nested.selves_ns[number]
        row.min_ns = length_ns if row.min_ns is None else min(row.min_ns, length_ns)
        row.max_ns = max(row.max_ns, length_ns)
        row.bytes += _copied_bytes(event)
        row.durations[find_bucket(length_ns)] += 1
        stack.append(number)
        names[name] += 1
    return sums


def _sum_threads(nested: NestedEvents) -> tuple[ThreadTotals, ...]:
    threads = []
    for track, totals in nested.tracks.items():
        name = escape_name(" ".join(part for part in track if part)) or "0"
        if totals.overlap_ns > totals.busy_ns * TOLERANCE:
            raise contradiction_error(
                f"events of the thread {name} overlap for {totals.overlap_ns / 1e6:,.3f} ms of "
                f"{totals.busy_ns / 1e6:,.3f} ms"
            )
        threads.append(ThreadTotals(name, totals.busy_ns, totals.calls))
    return tuple(threads)


def _iter_calls(nested: NestedEvents, launches: Mapping[int, str]) -> Iterator[BrickCall]:
    threads = {track: number for number, track in enumerate(nested.tracks)}
    for number, event in enumerate(nested.events):
        on_gpu = event.category in ON_GPU
        yield BrickCall(
            event.name,
            nested.starts_ns[number],
            nested.ends_ns[number],
            nested.selves_ns[number],
            lane=threads[event.track],
            parent=nested.parents[number],
            bytes=_copied_bytes(event),
            kernel="" if on_gpu else launches.get(_correlation(event) or 0, ""),
        )


def _copied_bytes(event: TraceEvent) -> int:
    return _parse_bytes(event.args, "bytes") if event.category == "gpu_memcpy" else 0


MAX_BYTES = 64 << 20


class BrickFormat(NamedTuple):
    """A format that bricks are read from, recognised by its content."""

    name: str
    is_format: Callable[[bytes], bool]
    read: Callable[[bytes], IngestedTrace]


FORMATS = (
    BrickFormat("trueno", is_trueno, read_trueno),
    BrickFormat("onnxruntime", is_onnx_trace, read_onnx),
    BrickFormat("chrome", is_chrome_trace, read_chrome),
    BrickFormat("lines", has_lines, read_lines),
)


def is_trace(data: bytes) -> bool:
    """Whether ``data``, which is unpacked, looks like one of ``FORMATS``."""
    return any(each.is_format(data) for each in FORMATS)


def read_trace(data: bytes, name: str = "") -> IngestedTrace:
    """Return the bricks in another profiler's file, which may be compressed with gzip.

    Args:
        data: The content of the file.
        name: Name of the file, for errors.

    Raises:
        ReceiptError: ``E_UNKNOWN_FORMAT``, ``E_TOO_LARGE``, ``E_TRACE`` or ``E_JSON_…`` for a
            malformed file, ``E_TRACE_CONTRADICTS`` if its figures cannot all be true.
        UndecidedError: ``E_NO_BRICKS``, ``E_TOO_FEW_RUNS``.
        ToolError: ``E_BAD_FIGURE``, ``E_BAD_SOURCE`` for lines that an engine printed.
    """
    data = unpack(data)
    subject = f"{escape_name(name, _SHOWN)!a}" if name else "The file"
    if len(data) > MAX_BYTES:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"{subject} has more than the {MAX_BYTES:,} bytes allowed.",
            "Record a shorter time.",
        )
    for each in FORMATS:
        if each.is_format(data):
            return each.read(data)
    raise ReceiptError(
        "E_UNKNOWN_FORMAT",
        f"{subject} is not a trace that bricks can be read from.",
        "Pass a trace of torch.profiler or of Chrome, a profile of onnxruntime or trueno, or text "
        "with timing: or quant_dispatch lines.",
    )
