"""Event traces in Chrome's JSON format, as torch.profiler and onnxruntime write them.

``parse_events`` reads the complete events (``"ph": "X"``: each has a start and a duration) and
``nest_events`` finds which event contains which. Two views are built on that: the profile here,
and the bricks of ``graph/traces.py``. A malformed file raises ``ReceiptError`` ``E_TRACE``, a
profile without time ``UndecidedError`` ``E_NO_SAMPLES``.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json_parser import Limits, parse_json
from pytest_flamegate.core.text import escape_name
from pytest_flamegate.profile.formats import collapsed
from pytest_flamegate.profile.frames import escape_module, make_python_frame, shorten_symbol
from pytest_flamegate.profile.model import Frame, Profile, Stack

CODE = "E_TRACE"
_LIMITS = Limits(256 << 20)
_SHOWN = 200
_NS_PER_US = 1000
_LARGEST_US = 3e15
"""95 years: many traces count from 1970. Three times it, in nanoseconds, fits 63 bits."""

Track = tuple[str, str]
"""Process and thread of an event, as the trace names them."""


class TraceError(ReceiptError):
    """The trace is malformed; ``reason`` is a short clause that goes into the message."""

    def __init__(self, reason: str) -> None:
        super().__init__(CODE, f"The trace is malformed: {escape_name(reason, _SHOWN)}.")


class TraceEvent(NamedTuple):
    """One complete event. Times are microseconds of the trace's own clock."""

    name: str
    category: str
    track: Track
    start_us: float
    length_us: float
    args: Mapping[str, Any]


def parse_trace_json(data: bytes) -> Any:
    """Return the JSON document in ``data``. Raises ``ReceiptError`` ``E_TRACE``."""
    try:
        return parse_json(data, _LIMITS, subject="The trace")
    except ReceiptError as error:
        raise ReceiptError(CODE, error.problem) from None


def parse_events(values: Any, categories: Collection[str] | None = None) -> list[TraceEvent]:
    """Return the complete events of these categories, or of all, in ``values``, a trace's list.

    They stay in the order written. What is wrong with any other event does not matter.
    """
    if not isinstance(values, list):
        raise TraceError("its events are no list")
    events = []
    for value in values:
        if not isinstance(value, dict):
            raise TraceError("an event is no object")
        if value.get("ph") != "X":
            continue
        category = value.get("cat", "")
        is_text = isinstance(category, str)
        if categories is not None and not (is_text and category in categories):
            continue
        name, args = value.get("name"), value.get("args")
        if not isinstance(name, str) or not is_text:
            raise TraceError("an event has no name, or a category that is no text")
        process, thread = (
            str(number) if type(number) in (int, str) else ""
            for number in (value.get("pid"), value.get("tid"))
        )
        events.append(
            TraceEvent(
                name,
                category,
                (process, thread),
                _parse_time(value.get("ts"), "start", -_LARGEST_US),
                _parse_time(value.get("dur"), "duration", 0),
                args if isinstance(args, dict) else {},
            )
        )
    return events


def _parse_time(value: Any, name: str, least: float) -> float:
    if type(value) not in (int, float) or not least <= value <= _LARGEST_US:
        raise TraceError(f"the {name} of an event is no number, or out of range")
    return float(value)


@dataclass(slots=True)
class TrackTotals:
    """The events of one track: how many, and how long the outermost took.

    ``overlap_ns`` sums up how far events end after the event that they started in, beyond
    the ``ROUNDING_NS`` that a clock of whole microseconds explains.
    """

    calls: int = 0
    busy_ns: int = 0
    overlap_ns: int = 0


ROUNDING_NS = 2 * _NS_PER_US


@dataclass(slots=True)
class NestedEvents:
    """Events sorted by start, with parallel lists of what nesting found for each.

    Times are nanoseconds since the first event began. ``parents`` holds the index of the event
    that contains this one (None for an outermost event), ``selves_ns`` the time outside of
    contained events. An event that ends after its parent is cut there; ``cut`` counts those.
    """

    events: list[TraceEvent] = field(default_factory=list)
    parents: list[int | None] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)
    selves_ns: list[int] = field(default_factory=list)
    tracks: dict[Track, TrackTotals] = field(default_factory=dict)
    cut: int = 0


def nest_events(events: Iterable[TraceEvent]) -> NestedEvents:
    """Find which event contains which: an event lies in the last one still open on its track."""
    nested = NestedEvents(sorted(events, key=lambda event: (event.start_us, -event.length_us)))
    began_us = nested.events[0].start_us if nested.events else 0.0
    open_events: dict[Track, list[int]] = {}
    for number, event in enumerate(nested.events):
        start_ns = round((event.start_us - began_us) * _NS_PER_US)
        end_ns = start_ns + round(event.length_us * _NS_PER_US)
        totals = nested.tracks.setdefault(event.track, TrackTotals())
        around = open_events.setdefault(event.track, [])
        while around and nested.ends_ns[around[-1]] <= start_ns:
            around.pop()
        if len(around) >= collapsed.MAX_DEPTH:
            raise TraceError(f"more than {collapsed.MAX_DEPTH} events are open at once")
        parent = around[-1] if around else None
        if parent is None:
            totals.busy_ns += end_ns - start_ns
        else:
            # Clocks are read a little apart: an event may end after the one that contains it.
            beyond_ns = max(end_ns - nested.ends_ns[parent], 0)
            nested.cut += beyond_ns > 0
            totals.overlap_ns += max(beyond_ns - ROUNDING_NS, 0)
            end_ns -= beyond_ns
            nested.selves_ns[parent] -= end_ns - start_ns
        totals.calls += 1
        nested.parents.append(parent)
        nested.starts_ns.append(start_ns)
        nested.ends_ns.append(end_ns)
        nested.selves_ns.append(end_ns - start_ns)
        around.append(number)
    return nested


def build_trace_profile(
    events: Sequence[TraceEvent],
    frames_of: Callable[[TraceEvent], Stack],
    root_of: Callable[[TraceEvent], Stack],
    profiler: str,
    notes: Sequence[str],
) -> Profile:
    """Return the self times of ``events`` in nanoseconds, the stacks of all tracks together.

    ``frames_of`` gives the frames that one event adds to the stack, root first, and ``root_of``
    those above an outermost event.
    """
    nested = nest_events(events)
    # Equal paths share a node: paths are only spelled out for nodes that spent time.
    nodes: dict[tuple[int, Stack], int] = {}
    node_of: list[int] = []
    spent_ns: Counter[int] = Counter()
    for event, parent, self_ns in zip(nested.events, nested.parents, nested.selves_ns, strict=True):
        frames = frames_of(event)
        if parent is None:
            above, frames = -1, (*root_of(event), *frames)
        else:
            above = node_of[parent]
        node = nodes.setdefault((above, frames), len(nodes))
        node_of.append(node)
        spent_ns[node] += self_ns
    keys = list(nodes)
    weighted = collapsed.WeightedStacks(CODE)
    for node, self_ns in spent_ns.items():
        if self_ns > 0:
            parts: list[Stack] = []
            while node >= 0:
                node, frames = keys[node]
                parts.append(frames)
            weighted.add(tuple(chain.from_iterable(reversed(parts))), self_ns)
    stacks, rounded = weighted.to_counts()
    notes = [*notes, *rounded]
    if nested.cut:
        notes.append(
            f"{nested.cut:,} events reach beyond the one they began in, and were cut there"
        )
    return collapsed.make_foreign_profile(
        stacks, notes, profiler=profiler, unit="nanoseconds", duration_ns=max(nested.ends_ns)
    )


def count_kernels(data: bytes) -> Mapping[str, Counter[str]]:
    """Return how often each kernel of a trace ran, by source; empty for any other file.

    The sources are torch's operators, the kernels on the GPU, and the operators of each execution
    provider of onnxruntime.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    if is_torch_trace(data):
        for event in read_torch_events(data):
            if event.category == _OPERATOR:
                counts[TORCH_TRACE_SOURCE][escape_name(event.name, _SHOWN)] += 1
            elif event.category in ON_GPU:
                counts[TORCH_GPU_SOURCE][escape_name(shorten_symbol(event.name), _SHOWN)] += 1
    elif is_onnx_trace(data):
        for event in read_onnx_events(data):
            if event.category == _NODE:
                source = ":".join(filter(None, (ONNX_TRACE_SOURCE, _provider_name(event))))
                counts[source][escape_name(operator_name(event), _SHOWN)] += 1
    return counts


ONNX_TRACE_SOURCE = "onnxruntime"
_NODE, _SESSION, _KERNEL = "Node", "Session", "_kernel_time"
_ONNX_START = re.compile(rb'\s*\[\s*\{\s*"cat"\s*:\s*"(?:Session|Node|Api|Kernel)"')
_PROVIDER = re.compile(r"([A-Za-z0-9]{1,60}?)(?:ExecutionProvider)?")


def is_onnx_trace(data: bytes) -> bool:
    """Return whether ``data`` begins like a profile of onnxruntime."""
    return _ONNX_START.match(data) is not None


def read_onnx_trace(data: bytes, roots: Sequence[str] = ()) -> Profile:  # noqa: ARG001
    """Return the self times of sessions and nodes in nanoseconds, each node below its operator."""
    notes = [f"imported from a profile of {ONNX_TRACE_SOURCE}: its clock counts whole microseconds"]
    if not (kept := data.rstrip()).endswith(b"]"):
        data = kept.removesuffix(b",") + b"]"
        notes.append("its end is missing, as if the process had been stopped")
    return build_trace_profile(
        read_onnx_events(data), _onnx_frames, lambda _: (), ONNX_TRACE_SOURCE, notes
    )


def read_onnx_events(data: bytes) -> list[TraceEvent]:
    """Return the events of sessions and of kernels. Raises ``ReceiptError`` ``E_TRACE``."""
    suffixes = {_SESSION: "", _NODE: _KERNEL}
    events = parse_events(parse_trace_json(data), suffixes)
    return [each for each in events if each.name.endswith(suffixes[each.category])]


def _onnx_frames(event: TraceEvent) -> Stack:
    if event.category == _SESSION:
        return (Frame(escape_name(event.name), ONNX_TRACE_SOURCE, "native"),)
    node = event.name.removesuffix(_KERNEL)
    return (
        Frame(
            escape_name(operator_name(event)),
            escape_module(_provider_name(event) or ONNX_TRACE_SOURCE),
            "native",
        ),
        Frame(escape_name(node), "node", "native"),
    )


def operator_name(event: TraceEvent) -> str:
    """Return the operator of a kernel of onnxruntime, or the name of a part of a session."""
    name = event.args.get("op_name")
    return name if isinstance(name, str) and name else event.name.removesuffix(_KERNEL)


def _provider_name(event: TraceEvent) -> str:
    """Return the provider without the suffix that all have, empty if the event names none."""
    name = event.args.get("provider")
    found = _PROVIDER.fullmatch(name) if isinstance(name, str) else None
    return found[1] if found is not None else ""


TORCH_TRACE_SOURCE = "torch.profiler"
TORCH_GPU_SOURCE = f"{TORCH_TRACE_SOURCE}:gpu"
_OPERATOR, _PYTHON = "cpu_op", "python_function"
ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of events that ran on the GPU."""
_ON_CPU = frozenset(
    {_OPERATOR, _PYTHON, "user_annotation", "cuda_runtime", "cuda_driver", "privateuse1_runtime"}
)
_GPU_ROOT = Frame("[GPU]", "gpu", "native")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:')
_TORCH_KEYS = (b'"traceName"', b'"deviceProperties"', b'"cpu_op"', b'"schemaVersion"')
_INSPECTED_BYTES = 1 << 16
_PYTHON_PLACE = re.compile(r"(?P<file>[^()]*)\((?P<line>\d+)\): (?P<name>.*)", re.DOTALL)
_STEP_NUMBER = re.compile(r"#\d+$")


def is_torch_trace(data: bytes) -> bool:
    """Return whether ``data`` looks like a trace of torch.profiler, by keys only it writes."""
    ends = data[:_INSPECTED_BYTES] + data[-_INSPECTED_BYTES:]
    return _EVENTS_KEY.search(ends) is not None and any(key in ends for key in _TORCH_KEYS)


def read_torch_trace(data: bytes, roots: Sequence[str] = ()) -> Profile:
    """Return the self times of operators and functions in nanoseconds."""
    events = read_torch_events(data)
    source = f"imported from a trace of {TORCH_TRACE_SOURCE}"
    notes = [f"{source}: each event costs time that the model does not"]
    if any(event.category in ON_GPU for event in events):
        notes.append("time on the GPU stands beside time on the CPU: shares are of both together")
    return build_trace_profile(
        events,
        lambda event: (make_torch_frame(event, roots),),
        lambda event: (_GPU_ROOT,) if event.category in ON_GPU else (),
        TORCH_TRACE_SOURCE,
        notes,
    )


def read_torch_events(data: bytes) -> list[TraceEvent]:
    """Return the events that took time on CPU or GPU. Raises ``ReceiptError`` ``E_TRACE``."""
    document = parse_trace_json(data)
    if not isinstance(document, dict):
        raise TraceError("it is no object")
    return parse_events(document.get("traceEvents"), _ON_CPU | ON_GPU)


def make_torch_frame(event: TraceEvent, roots: Sequence[str] = ()) -> Frame:
    """Return the frame of an event, the same for each call of one function."""
    if event.category == _PYTHON:
        found = _PYTHON_PLACE.fullmatch(event.name)
        if found is not None:
            return make_python_frame(found["name"], found["file"], roots)
        module = "torch" if event.name.startswith("nn.") else "built-in"
        return make_python_frame(event.name, module)
    if event.category in ON_GPU:
        return Frame(escape_name(shorten_symbol(event.name)), _GPU_ROOT.module, "native")
    module = "torch" if event.category in (_OPERATOR, "user_annotation") else "cuda"
    return Frame(escape_name(_STEP_NUMBER.sub("", event.name)), module, "native")
