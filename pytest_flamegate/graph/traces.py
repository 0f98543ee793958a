"""What other profilers clocked, read as bricks: shown beside what was measured, never gated.

A new format is one file here and one line in ``reading.FORMATS``.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_flamegate.bricks.record import (
    BrickCall,
    BrickTotals,
    ThreadTotals,
    find_bucket,
    find_category,
    resolve_alias,
)
from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.core.json_old import Refused, loads_strict
from pytest_flamegate.core.text import decode_name, escape_name
from pytest_flamegate.engines.figure_sources import QuantDispatch, phases_us
from pytest_flamegate.engines.figures import Heard
from pytest_flamegate.profile.formats.imported import MAX_DEPTH
from pytest_flamegate.profile.formats.registry import unpack
from pytest_flamegate.profile.formats.traces import (
    ON_GPU,
    ONNX_TRACE_SOURCE,
    TORCH_TRACE_SOURCE,
    TraceError,
    is_onnx_trace,
    is_torch_trace,
    make_torch_frame,
    operator_name,
    parse_events,
    parse_trace_json,
    read_onnx_events,
    read_torch_events,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_flamegate.profile.formats.traces import TraceEvent


MAX_NAMES = 10_000
"""Different bricks of one file."""
SLACK = 0.01
"""How far what was spent may exceed the wall: clocks are read a little apart."""
_SHOWN = 200
_TODO = "Have the tool that wrote it write it again."


@dataclass(frozen=True, slots=True)
class IngestedTrace:
    """What ``source`` clocked. It is ``ingested``: nothing of it may be gated.

    ``wall_ns`` and ``tokens`` are None where the file does not tell them. ``calls`` are there
    where it tells single calls; their times count from its first. ``kernels`` is how often each
    kernel was dispatched, ``medians_us`` what a figure is in the middle of all runs.
    """

    source: str
    wall_ns: int | None
    totals: tuple[BrickTotals, ...]
    tokens: int | None = None
    calls: tuple[BrickCall, ...] = ()
    lanes: tuple[ThreadTotals, ...] = ()
    kernels: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    medians_us: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    provenance: Literal["ingested"] = "ingested"


def contradicts(why: str) -> ReceiptError:
    """Return the refusal of a file whose figures cannot all be true."""
    return ReceiptError(
        "E_TRACE_CONTRADICTS", f"The trace contradicts itself: {escape_name(why, _SHOWN)}.", _TODO
    )


def self_exceeds_wall(why: str) -> ReceiptError:
    """Return the refusal of more time spent than there was."""
    return ReceiptError(
        "E_SELF_EXCEEDS_WALL",
        f"The trace tells of more time spent than passed: {escape_name(why, _SHOWN)}.",
        "Have the profiler clock each thread by itself, and calls within calls only once.",
    )


def no_bricks(what: str) -> UndecidedError:
    """Return the refusal of a file that tells of nothing."""
    return UndecidedError(
        "E_NO_BRICKS", f"{what} tells of no brick.", "Record while the engine generates."
    )


LEAST_RUNS = 3
"""Two figures have no middle."""
_TIMING, _DISPATCH = b"timing:", b"quant_dispatch"
_BRICKS = {
    "embed_us": "Embedding",
    "forward_us": "Forward",
    "logits_us": "LmHead",
    "sample_us": "Sampling",
}
_NS = 1000
_MOST_US = 1e15
_LONGEST_BYTES = 1 << 14

_malformed = Refused("E_TRACE", "The trace")


def is_lines(data: bytes) -> bool:
    """Return whether ``data`` is text with lines of the kind."""
    return data.lstrip()[:1] not in (b"{", b"[") and (_TIMING in data or _DISPATCH in data)


def read_lines(data: bytes) -> IngestedTrace:
    """Return the phases, each of them a brick, and how often each kernel was dispatched.

    The phases of a line come one after the other, so that each is its own time; nothing says
    what else passed. ``UndecidedError``: ``E_TOO_FEW_RUNS`` where a phase is told fewer than
    three times, ``E_NO_BRICKS``. ``ToolError``: ``E_BAD_FIGURE``, ``E_BAD_SOURCE``.
    """
    said = phases_us(_with(_TIMING, data))
    told = QuantDispatch().read(Heard(lines=tuple(_with(_DISPATCH, data))))
    if not said and told is None:
        raise no_bricks("The text")
    for name, values in said.items():
        if len(values) < LEAST_RUNS:
            raise UndecidedError(
                "E_TOO_FEW_RUNS",
                f"{name} is told {len(values)} times, and {LEAST_RUNS} is the least.",
                "Have the engine generate more tokens, or put the lines of more runs in one file.",
            )
        if max(values) > _MOST_US:
            raise _malformed(f"{name} is out of range")
    return IngestedTrace(
        "timing" if said else QuantDispatch.name,
        None,
        tuple(_totals(_BRICKS[name], values) for name, values in said.items()),
        kernels=told.report.kernels if told is not None else {},
        medians_us={name: statistics.median(values) for name, values in said.items()},
    )


def _with(mark: bytes, data: bytes) -> Iterator[str]:
    """Yield the lines in which ``mark`` stands."""
    for line in BytesIO(data):
        if mark in line:
            if len(line) > _LONGEST_BYTES:
                raise _malformed(f"a line has more than {_LONGEST_BYTES:,} bytes")
            yield decode_name(line)


def _totals(brick: str, values_us: Sequence[float]) -> BrickTotals:
    values_ns = [round(value * _NS) for value in values_us]
    durations = Counter(str(find_bucket(value)) for value in values_ns)
    return BrickTotals(
        brick,
        find_category(brick),
        len(values_ns),
        sum(values_ns),
        sum(values_ns),
        min(values_ns),
        max(values_ns),
        durations=dict(durations),
        provenance="ingested",
    )


MAX_CALLS = 100_000
"""Calls that are kept; of more there are totals alone."""
_NS_NESTING = 1000
_ROUNDING_NS = 2000
"""A beginning and a length, each cut to whole microseconds."""


class Span(NamedTuple):
    """One event: times in microseconds, ``kernel`` what it launched."""

    name: str
    lane: str
    start_us: float
    length_us: float
    bytes: int = 0
    kernel: str = ""


@dataclass(slots=True)
class _Lane:
    """One thread or stream: the open events as (end, number, name), innermost last."""

    number: int
    opened: list[tuple[int, int, str]] = field(default_factory=list)
    within: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    busy_ns: int = 0
    overlap_ns: int = 0


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    total_ns: int = 0
    self_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0
    bytes: int = 0
    durations: Counter[int] = field(default_factory=Counter)


def nested(spans: Sequence[Span], source: str, notes: Sequence[str] = ()) -> IngestedTrace:
    """Return the calls, their self times, and the totals by name.

    Events of one lane lie in each other: one that began in another is within it. Where it ends
    after it by no more than rounding it is cut. ``ReceiptError``: ``E_SELF_EXCEEDS_WALL`` where
    events of one lane overlap, ``E_TRACE`` for more than can be; ``UndecidedError``
    ``E_NO_BRICKS`` for no event.
    """
    if not spans:
        raise no_bricks("The trace")
    begun_us = min(span.start_us for span in spans)
    nest = _Nest()
    for span in sorted(spans, key=lambda each: (each.start_us, -each.length_us)):
        start_ns = round((span.start_us - begun_us) * _NS_NESTING)
        nest.open(span, start_ns, start_ns + round(span.length_us * _NS_NESTING))
    told = list(notes)
    if len(spans) > MAX_CALLS:
        told.append(f"of more than {MAX_CALLS:,} calls only the totals are kept")
    return IngestedTrace(
        source,
        max(nest.ends_ns),
        nest.totals(),
        calls=nest.calls() if len(spans) <= MAX_CALLS else (),
        lanes=nest.told_lanes(),
        notes=tuple(told),
    )


@dataclass(slots=True)
class _Nest:
    spans: list[Span] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)
    selves_ns: list[int] = field(default_factory=list)
    parents: list[int | None] = field(default_factory=list)
    lanes: dict[str, _Lane] = field(default_factory=dict)
    sums: dict[str, _Sum] = field(default_factory=dict)

    def open(self, span: Span, start_ns: int, end_ns: int) -> None:
        """Add the event that begins next."""
        lane = self.lanes.setdefault(span.lane, _Lane(len(self.lanes)))
        opened, number = lane.opened, len(self.spans)
        while opened and opened[-1][0] <= start_ns:
            lane.within[opened.pop()[2]] -= 1
        parent = None
        if opened:
            until_ns, parent, _ = opened[-1]
            lane.overlap_ns += max(end_ns - until_ns - _ROUNDING_NS, 0)
            end_ns = min(end_ns, until_ns)
            self.selves_ns[parent] -= end_ns - start_ns
        else:
            lane.busy_ns += end_ns - start_ns
        if len(opened) >= MAX_DEPTH:
            raise TraceError(f"more than {MAX_DEPTH} events are open at once")
        opened.append((end_ns, number, span.name))
        lane.calls += 1
        self.spans.append(span)
        self.starts_ns.append(start_ns)
        self.ends_ns.append(end_ns)
        self.selves_ns.append(end_ns - start_ns)
        self.parents.append(parent)
        self._count(span, end_ns - start_ns, outermost=not lane.within[span.name])
        lane.within[span.name] += 1

    def _count(self, span: Span, length_ns: int, *, outermost: bool) -> None:
        found = self.sums.get(span.name)
        if found is None:
            if len(self.sums) >= MAX_NAMES:
                raise TraceError(f"more than {MAX_NAMES:,} different names")
            found = self.sums[span.name] = _Sum(min_ns=length_ns)
        found.calls += 1
        found.total_ns += length_ns if outermost else 0
        found.min_ns = min(found.min_ns, length_ns)
        found.max_ns = max(found.max_ns, length_ns)
        found.bytes += span.bytes
        found.durations[find_bucket(length_ns)] += 1

    def totals(self) -> tuple[BrickTotals, ...]:
        """Return the sums by name, the longest first."""
        for span, self_ns in zip(self.spans, self.selves_ns, strict=True):
            self.sums[span.name].self_ns += self_ns
        ordered = sorted(self.sums.items(), key=lambda each: (-each[1].self_ns, each[0]))
        return tuple(
            BrickTotals(
                name,
                find_category(name),
                each.calls,
                each.total_ns,
                each.self_ns,
                each.min_ns,
                each.max_ns,
                bytes=each.bytes,
                durations={str(number): calls for number, calls in each.durations.items()},
                provenance="ingested",
            )
            for name, each in ordered
        )

    def calls(self) -> tuple[BrickCall, ...]:
        """Return the calls as they began; the number of a call is its place."""
        return tuple(
            BrickCall(
                span.name,
                start_ns,
                end_ns,
                self_ns,
                lane=self.lanes[span.lane].number,
                parent=parent,
                bytes=span.bytes,
                kernel=span.kernel,
            )
            for span, start_ns, end_ns, self_ns, parent in zip(
                self.spans, self.starts_ns, self.ends_ns, self.selves_ns, self.parents, strict=True
            )
        )

    def told_lanes(self) -> tuple[ThreadTotals, ...]:
        """Return the lanes; ``E_SELF_EXCEEDS_WALL`` for one that was in two events at once."""
        for name, lane in self.lanes.items():
            if lane.overlap_ns > lane.busy_ns * SLACK:
                raise self_exceeds_wall(
                    f"events of the thread {name} overlap for {lane.overlap_ns / 1e6:,.3f} ms of "
                    f"{lane.busy_ns / 1e6:,.3f} ms"
                )
        return tuple(
            ThreadTotals(name, lane.busy_ns, lane.calls) for name, lane in self.lanes.items()
        )


def brick_name(name: str) -> str:
    """Return the known brick of that name or alias, else the name as it can be shown."""
    return resolve_alias(escape_name(name.strip())) or "(no name)"


_MARK = re.compile(rb'\s*(?:\[\s*\{.*"ph"\s*:|\{.*"traceEvents"\s*:)', re.DOTALL)
_LOOKED_AT = 1 << 16
_COPY = re.compile(r"(?i)memcpy\s*(?P<from>[hd])to(?P<to>[hd])")
_MOST = 10**15
_MOST_THREADS = 2**32


def is_chrome_trace(data: bytes) -> bool:
    """Return whether ``data`` looks like events as Chrome reads them."""
    return is_torch_trace(data) or _MARK.match(data[:_LOOKED_AT]) is not None


def read_chrome(data: bytes) -> IngestedTrace:
    """Return the events of each thread and stream. Raises what ``nested`` raises."""
    if is_torch_trace(data):
        return _torch(read_torch_events(data))
    document = parse_trace_json(data)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    found = parse_events(events)
    return nested([_span(each, each.name, _thread(each)) for each in found], "chrome")


def _torch(events: Sequence[TraceEvent]) -> IngestedTrace:
    launched = _launches(events)
    spans: list[Span] = []
    for each in events:
        if each.category in ON_GPU:
            spans.append(_on_gpu(each))
            continue
        frame = make_torch_frame(each)
        name = f"{frame.name} ({frame.module})" if each.category == "python_function" else ""
        kernel = launched.get(_correlation(each) or 0, "")
        spans.append(_span(each, name or frame.name, _thread(each), kernel))
    notes = ["each event of torch.profiler costs time that the model does not"]
    return nested(spans, TORCH_TRACE_SOURCE, notes)


def _on_gpu(event: TraceEvent) -> Span:
    """Return a kernel, or a copy under the name of its direction, in the lane of its stream."""
    stream = event.args.get("stream")
    lane = f"GPU {event.track[0]} stream {stream if type(stream) is int else event.track[1]}"
    copied = _COPY.match(event.name)
    if event.category != "gpu_memcpy" or copied is None:
        return _span(event, make_torch_frame(event).name, lane)
    return _span(event, f"{copied['from']}2{copied['to']}".upper(), lane)


def _launches(events: Sequence[TraceEvent]) -> Mapping[int, str]:
    """Return what was launched, by the number that torch writes to both sides."""
    found: dict[int, str] = {}
    for each in events:
        number = _correlation(each)
        if each.category == "kernel" and number is not None:
            found[number] = make_torch_frame(each).name + _launch(each.args)
    return found


def _correlation(event: TraceEvent) -> int | None:
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


def _span(event: TraceEvent, name: str, lane: str, kernel: str = "") -> Span:
    moved = _count(event.args, "bytes") if event.category == "gpu_memcpy" else 0
    return Span(brick_name(name), lane, event.start_us, event.length_us, moved, kernel)


def _thread(event: TraceEvent) -> str:
    return escape_name(" ".join(part for part in event.track if part)) or "0"


def read_onnx(data: bytes) -> IngestedTrace:
    """Return sessions and operators. Raises what ``nested`` raises."""
    spans = [
        Span(
            brick_name(operator_name(each)),
            escape_name(" ".join(part for part in each.track if part)) or "0",
            each.start_us,
            each.length_us,
        )
        for each in read_onnx_events(data)
    ]
    return nested(spans, ONNX_TRACE_SOURCE, ["its clock counts whole microseconds"])


SOURCE = "trueno"
TRUENO_MAX_BYTES = 16 << 20
_MARKS = (b'"bricks"', b'"total_ns"')
_LARGEST = 10**18
_NS_TRUENO = 1000
_HALF_STEP_NS = 6
"""Of a microsecond with two decimals, and a little for its own arithmetic."""
_HALF_SHARE_PP = 0.051

_refused = Refused("E_TRACE", "The trace")


class _Brick(NamedTuple):
    name: str
    calls: int
    total_ns: int
    average_us: float | None
    least_us: float | None
    most_us: float | None
    share_percent: float | None
    bytes: int


def is_trueno(data: bytes) -> bool:
    """Return whether ``data`` looks like a profile of trueno."""
    return data.lstrip()[:1] == b"{" and all(mark in data for mark in _MARKS)


def read_trueno(data: bytes) -> IngestedTrace:
    """Return the sums of bricks.

    ``ReceiptError``: ``E_TRACE`` for what is malformed, ``E_TRACE_CONTRADICTS`` where figures of
    one brick do not fit each other, ``E_PERCENT_NESTED`` where shares sum to more than all,
    ``E_SELF_EXCEEDS_WALL`` where bricks took longer than there was. ``UndecidedError``
    ``E_NO_BRICKS`` for none.
    """
    document = loads_strict(data, _refused, max_bytes=TRUENO_MAX_BYTES)
    if not isinstance(document, dict) or not isinstance(document.get("bricks"), list):
        raise _refused("it has no list of bricks")
    total_ns = _whole(document, "total_ns", "the file")
    found = [_brick(each) for each in document["bricks"][: MAX_NAMES + 1]]
    if len(found) > MAX_NAMES:
        raise _refused(f"it tells of more than {MAX_NAMES:,} bricks")
    if len({each.name for each in found}) < len(found):
        raise contradicts("one brick stands there twice")
    for each in found:
        _check(each)
    if not any(each.calls for each in found):
        raise no_bricks("The trace")
    spent_ns = sum(each.total_ns for each in found)
    notes = _shares(found, total_ns)
    if spent_ns > total_ns * (1 + SLACK):
        raise self_exceeds_wall(f"its bricks took {spent_ns:,} ns of {total_ns:,} ns")
    is_sum = spent_ns >= total_ns
    if is_sum:
        notes.append("total_ns is the sum of its bricks, and so no wall time")
    if "total_tokens" in document:
        elements = _whole(document, "total_tokens", "the file")
        notes.append(f"total_tokens ({elements:,}) sums elements of all bricks: it is no tokens")
    return IngestedTrace(
        SOURCE, None if is_sum else total_ns, tuple(map(_totals_trueno, found)), notes=tuple(notes)
    )


def _brick(value: Any) -> _Brick:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _refused("a brick has no name")
    name = brick_name(value["name"])
    return _Brick(
        name,
        _whole(value, "count", name),
        _whole(value, "total_ns", name),
        _figure(value, "avg_us", name),
        _figure(value, "min_us", name),
        _figure(value, "max_us", name),
        _figure(value, "pct", name),
        _whole(value, "total_bytes", name) if "total_bytes" in value else 0,
    )


def _whole(fields: Mapping[str, Any], name: str, of: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise _refused(f"{of} has a {name} that is no whole number from 0")
    return value


def _figure(fields: Mapping[str, Any], name: str, of: str) -> float | None:
    if name not in fields:
        return None
    value = fields[name]
    if type(value) not in (int, float) or not 0 <= value <= _LARGEST:
        raise _refused(f"{of} has a {name} that is no finite number from 0")
    return float(value)


def _check(brick: _Brick) -> None:
    """Refuse what cannot be true together, beyond what rounding makes of it."""
    calls, total_ns = brick.calls, brick.total_ns
    if not calls and total_ns:
        raise contradicts(f"{brick.name} took {total_ns:,} ns without a call")
    slack_ns = calls * _HALF_STEP_NS + total_ns * 1e-9
    average, least, most = (
        None if each is None else each * _NS_TRUENO * calls
        for each in (brick.average_us, brick.least_us, brick.most_us)
    )
    if average is not None and abs(average - total_ns) > slack_ns:
        raise contradicts(
            f"{calls:,} calls of {brick.name} at {brick.average_us:g} us are not {total_ns:,} ns"
        )
    if least is not None and least > total_ns + slack_ns:
        raise contradicts(f"{brick.name} took less than its shortest call, each time")
    if most is not None and most < total_ns - slack_ns:
        raise contradicts(f"{brick.name} took more than its longest call, each time")


def _shares(found: Sequence[_Brick], total_ns: int) -> list[str]:
    """Compute shares again; ``E_PERCENT_NESTED`` where those of the file sum to more than all."""
    told = [each.share_percent for each in found if each.share_percent is not None]
    if math.fsum(told) > 100 + len(told) * _HALF_SHARE_PP:
        raise ReceiptError(
            "E_PERCENT_NESTED",
            f"The shares of the trace's bricks sum to {math.fsum(told):.1f} %.",
            "Have the profiler count calls within calls once, in one of both.",
        )
    wrong = [
        each.name
        for each in found
        if each.share_percent is not None
        and abs(each.share_percent - 100 * each.total_ns / max(total_ns, 1)) > _HALF_SHARE_PP
    ]
    return [f"{len(wrong)} shares of the file are others than its times give"] if wrong else []


def _totals_trueno(brick: _Brick) -> BrickTotals:
    average_ns = round(brick.total_ns / max(brick.calls, 1))
    least, most = brick.least_us, brick.most_us
    return BrickTotals(
        brick.name,
        find_category(brick.name),
        brick.calls,
        brick.total_ns,
        brick.total_ns,
        average_ns if least is None else round(least * _NS_TRUENO),
        average_ns if most is None else round(most * _NS_TRUENO),
        bytes=brick.bytes,
        provenance="ingested",
    )


MAX_BYTES = 64 << 20
_SHOWN_READING = 200


class Format(NamedTuple):
    """A format: whether bytes are of it, and how they are read."""

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[bytes], IngestedTrace]


FORMATS = (
    Format("trueno", is_trueno, read_trueno),
    Format("onnxruntime", is_onnx_trace, read_onnx),
    Format("chrome", is_chrome_trace, read_chrome),
    Format("lines", is_lines, read_lines),
)


def is_trace(data: bytes) -> bool:
    """Return whether ``data``, which is unpacked, looks like a trace that is known."""
    return any(each.recognises(data) for each in FORMATS)


def read_trace(data: bytes, name: str = "") -> IngestedTrace:
    """Return what ``data`` tells of bricks; ``name`` is what the file is called in a refusal.

    gzip is unpacked. ``ReceiptError``: ``E_UNKNOWN_FORMAT``, ``E_TOO_LARGE``, ``E_TRACE`` for
    what is malformed, ``E_SELF_EXCEEDS_WALL``, ``E_TRACE_CONTRADICTS``, ``E_PERCENT_NESTED``.
    ``UndecidedError``: ``E_NO_BRICKS``, ``E_TOO_FEW_RUNS``. ``ToolError``: ``E_BAD_FIGURE``,
    ``E_BAD_SOURCE`` for what engines print.
    """
    data = unpack(data)
    if len(data) > MAX_BYTES:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"{_called(name)} has more than the {MAX_BYTES:,} bytes allowed.",
            "Record a shorter time.",
        )
    found = next((each for each in FORMATS if each.recognises(data)), None)
    if found is None:
        raise ReceiptError(
            "E_UNKNOWN_FORMAT",
            f"{_called(name)} is no trace of bricks that is known.",
            "Give a trace of torch.profiler or of Chrome, a profile of onnxruntime or trueno, "
            "or text with timing: or quant_dispatch lines.",
        )
    return found.read(data)


def _called(name: str) -> str:
    return f"{escape_name(name, _SHOWN_READING)!a}" if name else "The file"


__all__ = ["IngestedTrace", "is_trace", "read_trace"]
