"""Bricks in the event traces of other profilers: torch.profiler, onnxruntime, Chrome's format."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_flamegate.bricks import record
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import escape_name
from pytest_flamegate.profile.formats import traces, unpack

MAX_BYTES = 64 << 20
MAX_CALLS = 100_000
"""Calls that are kept; of more there are only the totals."""
MAX_NAMES = 10_000
"""Different bricks of one file."""
TOLERANCE = 0.01
"""By how much events of one thread may overlap: clocks are read a little apart."""
_CHROME = re.compile(rb'\s*(?:\[\s*\{.*"ph"\s*:|\{.*"traceEvents"\s*:)', re.DOTALL)
_INSPECTED_BYTES = 1 << 16
_COPY = re.compile(r"(?i)memcpy\s*(?P<from>[hd])to(?P<to>[hd])")
_MAX_BYTES_COPIED = 10**15
_MAX_THREADS = 2**32
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class IngestedTrace:
    """The bricks in another tool's file. They are ``ingested``, so they are never gated.

    ``wall_ns`` and the times of ``calls`` count from the start of the first event. Of more than
    ``MAX_CALLS`` events there are only ``totals`` and no ``calls``.
    """

    source: str
    wall_ns: int
    totals: tuple[record.BrickTotals, ...]
    calls: tuple[record.BrickCall, ...]
    lanes: tuple[record.ThreadTotals, ...]
    notes: tuple[str, ...] = ()


def is_trace(data: bytes) -> bool:
    """Whether ``data``, which is unpacked, looks like a trace that ``read_trace`` reads."""
    start = data[:_INSPECTED_BYTES]
    return (
        traces.is_torch_trace(data)
        or traces.is_onnx_trace(data)
        or _CHROME.match(start) is not None
    )


def read_trace(data: bytes, name: str = "") -> IngestedTrace:
    """Return the bricks in another profiler's trace, which may be compressed with gzip.

    Raises:
        ReceiptError: ``E_UNKNOWN_FORMAT``, ``E_TOO_LARGE``; ``E_TRACE`` for a malformed file, no
            event, too many names or levels, and if events of one thread overlap by more than 1 %
            of its time.
    """
    data = unpack(data)
    subject = f"{escape_name(name, _SHOWN)!a}" if name else "The file"
    if len(data) > MAX_BYTES:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"{subject} has more than the {MAX_BYTES:,} bytes allowed.",
            "Record a shorter time.",
        )
    if not is_trace(data):
        raise ReceiptError(
            "E_UNKNOWN_FORMAT",
            f"{subject} is not a trace that bricks can be read from.",
            "Pass a trace of torch.profiler or of Chrome, or a profile of onnxruntime.",
        )
    if traces.is_onnx_trace(data):
        events = [
            _rename(event, traces.operator_name(event)) for event in traces.read_onnx_events(data)
        ]
        return _build_trace(
            events, {}, traces.ONNX_TRACE_SOURCE, ["its clock counts whole microseconds"]
        )
    if traces.is_torch_trace(data):
        return _read_torch(data)
    document = traces.parse_trace_json(data)
    events = traces.parse_events(
        document.get("traceEvents") if isinstance(document, dict) else document
    )
    return _build_trace([_rename(event, event.name) for event in events], {}, "chrome")


def _read_torch(data: bytes) -> IngestedTrace:
    launches: dict[int, str] = {}
    events: list[traces.TraceEvent] = []
    for event in traces.read_torch_events(data):
        frame = traces.make_torch_frame(event)
        name = frame.name
        if event.category in traces.ON_GPU:
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
    return _build_trace(events, launches, traces.TORCH_TRACE_SOURCE, notes)


def _rename(event: traces.TraceEvent, name: str) -> traces.TraceEvent:
    """Return ``event`` as the known brick of that name or alias, else as the name, escaped."""
    return event._replace(name=record.resolve_alias(escape_name(name.strip())) or "(no name)")


def _correlation(event: traces.TraceEvent) -> int | None:
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
            raise traces.TraceError("a kernel has an invalid grid or block")
    grid, block = (",".join(map(str, shape)) for shape in shapes if shape is not None)
    return f" <<<({grid}),({block})>>> smem={_parse_bytes(args, 'shared memory')}B"


def _parse_bytes(args: Mapping[str, Any], name: str) -> int:
    value = args.get(name, 0)
    if type(value) is not int or not 0 <= value <= _MAX_BYTES_COPIED:
        raise traces.TraceError(f"the {name} of an event is no number of bytes")
    return value


def _build_trace(
    events: Sequence[traces.TraceEvent],
    launches: Mapping[int, str],
    source: str,
    notes: Sequence[str] = (),
) -> IngestedTrace:
    """Return calls, self times and totals by name.

    ``launches`` maps the correlation number of an event to the kernel that it launched.
    """
    if not events:
        raise traces.TraceError("it contains no event with a duration")
    nested = traces.nest_events(events)
    has_calls = len(nested.events) <= MAX_CALLS
    if not has_calls:
        notes = [*notes, f"of more than {MAX_CALLS:,} calls only the totals are kept"]
    return IngestedTrace(
        source,
        max(nested.ends_ns),
        tuple(sorted(_iter_totals(nested), key=lambda each: (-each.self_ns, each.name))),
        calls=tuple(_iter_calls(nested, launches)) if has_calls else (),
        lanes=_sum_threads(nested),
        notes=tuple(notes),
    )


def _iter_totals(nested: traces.NestedEvents) -> Iterator[record.BrickTotals]:
    lengths_ns = [end - start for start, end in zip(nested.starts_ns, nested.ends_ns, strict=True)]
    by_name: dict[str, list[int]] = {}
    outermost_ns: Counter[str] = Counter()
    # The open events of each track, innermost last, and how many of them have each name.
    open_events: dict[traces.Track, list[int]] = defaultdict(list)
    open_names: dict[traces.Track, Counter[str]] = defaultdict(Counter)
    for number, event in enumerate(nested.events):
        stack, names = open_events[event.track], open_names[event.track]
        while stack and stack[-1] != nested.parents[number]:
            names[nested.events[stack.pop()].name] -= 1
        by_name.setdefault(event.name, []).append(number)
        if len(by_name) > MAX_NAMES:
            raise traces.TraceError(f"more than {MAX_NAMES:,} different names")
        outermost_ns[event.name] += 0 if names[event.name] else lengths_ns[number]
        stack.append(number)
        names[event.name] += 1
    for name, numbers in by_name.items():
        own_ns = [lengths_ns[number] for number in numbers]
        buckets = Counter(map(record.find_bucket, own_ns))
        yield record.BrickTotals(
            name,
            record.find_category(name),
            len(numbers),
            outermost_ns[name],
            sum(nested.selves_ns[number] for number in numbers),
            min(own_ns),
            max(own_ns),
            bytes=sum(_copied_bytes(nested.events[number]) for number in numbers),
            durations={str(bucket): calls for bucket, calls in buckets.items()},
            provenance="ingested",
        )


def _sum_threads(nested: traces.NestedEvents) -> tuple[record.ThreadTotals, ...]:
    threads = []
    for track, totals in nested.tracks.items():
        name = escape_name(" ".join(part for part in track if part)) or "0"
        if totals.overlap_ns > totals.busy_ns * TOLERANCE:
            raise ReceiptError(
                "E_TRACE",
                f"The trace contradicts itself: events of the thread {name} overlap for "
                f"{totals.overlap_ns / 1e6:,.3f} ms of {totals.busy_ns / 1e6:,.3f} ms.",
            )
        threads.append(record.ThreadTotals(name, totals.busy_ns, totals.calls))
    return tuple(threads)


def _iter_calls(
    nested: traces.NestedEvents, launches: Mapping[int, str]
) -> Iterator[record.BrickCall]:
    threads = {track: number for number, track in enumerate(nested.tracks)}
    for number, event in enumerate(nested.events):
        on_gpu = event.category in traces.ON_GPU
        yield record.BrickCall(
            event.name,
            nested.starts_ns[number],
            nested.ends_ns[number],
            nested.selves_ns[number],
            lane=threads[event.track],
            parent=nested.parents[number],
            bytes=_copied_bytes(event),
            kernel="" if on_gpu else launches.get(_correlation(event) or 0, ""),
        )


def _copied_bytes(event: traces.TraceEvent) -> int:
    return _parse_bytes(event.args, "bytes") if event.category == "gpu_memcpy" else 0
