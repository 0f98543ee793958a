"""Traces of events as Chrome reads them: what torch.profiler and onnxruntime write, in common.

Only complete events (``ph`` is ``X``) are read: each has a beginning and a length, and those of
one track lie inside each other.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import escape
from pytest_flamegate.profile.formats.imported import MAX_DEPTH, WeightedStacks, foreign_profile
from pytest_flamegate.profile.frames import make_python_frame, shorten_symbol
from pytest_flamegate.profile.model import Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_flamegate.profile.model import Profile


CODE = "E_TRACE"
_TODO = "Have the tool that wrote it write it again."
_SHOWN = 200
_NS = 1000
"""Nanoseconds of a microsecond, which is what the times of a trace are in."""
_LARGEST_US = 3e15
"""95 years: many traces count from 1970. Three times it, in nanoseconds, fits 63 bits."""


class TraceError(ReceiptError):
    """The trace is malformed; ``why`` says how in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__(CODE, f"The trace is malformed: {escape(why, _SHOWN)}.", _TODO)


class TraceEvent(NamedTuple):
    """One complete event: times in microseconds of the trace's own clock, ``args`` as written."""

    name: str
    category: str
    track: tuple[str, str]
    start_us: float
    length_us: float
    args: Mapping[str, Any]


class KernelCounts(NamedTuple):
    """How often each kernel ran by what ``source`` wrote down."""

    source: str
    counts: Mapping[str, int]


def parse_trace_json(data: bytes) -> Any:
    """Return the JSON that ``data`` holds. Raises ``TraceError`` ``E_TRACE``."""
    try:
        return json.loads(data, parse_constant=_refused)
    except RecursionError:
        raise TraceError("no JSON (it is nested too deeply)") from None
    except ValueError as error:
        raise TraceError(f"no JSON ({error}); the tool may have been ended too early") from None


def parse_events(values: Any) -> list[TraceEvent]:
    """Return the complete events among ``values``, a trace's list, in the order written."""
    if not isinstance(values, list):
        raise TraceError("its events are no list")
    return [_event(each) for each in values if _fields(each, "an event").get("ph") == "X"]


def counts(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name occurs, as it can be shown, the most frequent first."""
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    told: dict[str, int] = {}
    for name, count in sorted(found.items(), key=lambda each: (-each[1], each[0])):
        shown = escape(name, _SHOWN)
        told[shown] = told.get(shown, 0) + count
    return told


def nested_profile(
    events: Sequence[TraceEvent],
    stack_of: Callable[[TraceEvent], tuple[Frame, ...]],
    roots: Callable[[TraceEvent], tuple[Frame, ...]],
    profiler: str,
    notes: Sequence[str],
) -> Profile:
    """Return the self time of nested events, in nanoseconds; the stacks of all tracks together.

    ``stack_of`` gives the frames of one event, ``roots`` those below which its track stands.
    ``UndecidedError`` ``E_NO_SAMPLES`` where no event took any time.
    """
    tracks: dict[tuple[str, str], list[TraceEvent]] = {}
    for event in events:
        tracks.setdefault(event.track, []).append(event)
    gathered, cut = WeightedStacks(CODE), 0
    for track in tracks.values():
        nest = _Nest()
        for event in sorted(track, key=lambda each: (each.start_us, -each.length_us)):
            nest.open(event, stack_of(event))
        nest.close_until(float("inf"))
        nest.gather(roots(track[0]), gathered)
        cut += nest.cut
    stacks, rounded = gathered.counts()
    begun = min(event.start_us for event in events)
    ended = max(event.start_us + event.length_us for event in events)
    told = [*notes, *rounded]
    if cut:
        told.append(f"{cut:,} events reach beyond the one they began in, and were cut there")
    return foreign_profile(
        stacks,
        told,
        profiler=profiler,
        unit="nanoseconds",
        duration_ns=round((ended - begun) * _NS),
    )


@dataclass(slots=True)
class _Nest:
    """The events of one track: which lie in which, and what each spent outside of others."""

    cut: int = 0
    _nodes: dict[tuple[int, tuple[Frame, ...]], int] = field(default_factory=dict)
    _keys: list[tuple[int, tuple[Frame, ...]]] = field(default_factory=list)
    _spent_us: list[float] = field(default_factory=list)
    _opened: list[tuple[float, int]] = field(default_factory=list)  # end, node
    _now_us: float = 0.0

    def open(self, event: TraceEvent, frames: tuple[Frame, ...]) -> None:
        self.close_until(event.start_us)
        end_us = event.start_us + event.length_us
        if self._opened and end_us > self._opened[-1][0]:
            # Clocks are read a little apart: an event may end after the one that it is part of.
            end_us = self._opened[-1][0]
            self.cut += 1
        if len(self._opened) >= MAX_DEPTH:
            raise TraceError(f"more than {MAX_DEPTH} events are open at once")
        key = (self._opened[-1][1] if self._opened else -1, frames)
        node = self._nodes.setdefault(key, len(self._keys))
        if node == len(self._keys):
            self._keys.append(key)
            self._spent_us.append(0.0)
        self._opened.append((end_us, node))

    def close_until(self, start_us: float) -> None:
        """Count the time up to ``start_us`` for what was open, and close what ended by then."""
        while self._opened and self._opened[-1][0] <= start_us:
            end_us, node = self._opened.pop()
            self._spend(node, end_us)
        if self._opened:
            self._spend(self._opened[-1][1], start_us)
        self._now_us = max(self._now_us, start_us)

    def gather(self, roots: tuple[Frame, ...], gathered: WeightedStacks) -> None:
        for node, spent_us in enumerate(self._spent_us):
            if spent_us > 0:
                gathered.add((*roots, *self._path(node)), spent_us * _NS)

    def _spend(self, node: int, until_us: float) -> None:
        self._spent_us[node] += max(until_us - self._now_us, 0.0)
        self._now_us = max(self._now_us, until_us)

    def _path(self, node: int) -> tuple[Frame, ...]:
        """Return the frames down to ``node``; only those that spent something are asked for."""
        parts: list[tuple[Frame, ...]] = []
        while node >= 0:
            node, frames = self._keys[node]
            parts.append(frames)
        return tuple(frame for part in reversed(parts) for frame in part)


def _event(fields: dict[str, Any]) -> TraceEvent:
    name, category = fields.get("name"), fields.get("cat", "")
    if not isinstance(name, str) or not isinstance(category, str):
        raise TraceError("an event has no name, or a category that is no text")
    args = fields.get("args", {})
    return TraceEvent(
        name,
        category,
        (_identity(fields.get("pid")), _identity(fields.get("tid"))),
        _time(fields.get("ts"), "begins at", -_LARGEST_US),
        _time(fields.get("dur"), "lasts", 0),
        args if isinstance(args, dict) else {},
    )


def _fields(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TraceError(f"{what} is no object")
    return value


def _identity(value: Any) -> str:
    return str(value) if type(value) in (int, str) else ""


def _time(value: Any, what: str, least: float) -> float:
    if type(value) not in (int, float) or not least <= value <= _LARGEST_US:
        raise TraceError(f"an event {what} no time, or one that is out of range")
    number: float = value
    return number


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


ONNX_TRACE_SOURCE = "onnxruntime"
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
    events = read_onnx_events(data)
    return nested_profile(
        events,
        _frames,
        lambda _: (),
        ONNX_TRACE_SOURCE,
        [f"imported from a profile of {ONNX_TRACE_SOURCE}: its clock counts whole microseconds"],
    )


def count_onnx_kernels(data: bytes) -> tuple[KernelCounts, ...]:
    """Return how often each operator ran, those of each execution provider apart.

    Raises ``ReceiptError`` ``E_TRACE``.
    """
    by_provider: dict[str, list[str]] = {}
    for event in read_onnx_events(data):
        if event.category == _NODE:
            by_provider.setdefault(_provider(event), []).append(operator_name(event))
    return tuple(
        KernelCounts(
            f"{ONNX_TRACE_SOURCE}:{provider}" if provider else ONNX_TRACE_SOURCE, counts(operators)
        )
        for provider, operators in sorted(by_provider.items())
    )


def read_onnx_events(data: bytes) -> list[TraceEvent]:
    """Return the parts of sessions, and the kernels. Raises ``ReceiptError`` ``E_TRACE``."""
    return [
        each
        for each in parse_events(parse_trace_json(data))
        if each.category == _SESSION or (each.category == _NODE and each.name.endswith(_KERNEL))
    ]


def _frames(event: TraceEvent) -> tuple[Frame, ...]:
    if event.category == _SESSION:
        return (Frame(escape(event.name), ONNX_TRACE_SOURCE, "native"),)
    node = event.name.removesuffix(_KERNEL)
    return (
        Frame(escape(operator_name(event)), _provider(event) or ONNX_TRACE_SOURCE, "native"),
        Frame(escape(node), "node", "native"),
    )


def operator_name(event: TraceEvent) -> str:
    """Return the operator of a kernel, or what a part of a session is called."""
    named = event.args.get("op_name")
    return named if isinstance(named, str) and named else event.name.removesuffix(_KERNEL)


def _provider(event: TraceEvent) -> str:
    """Return the provider without the words that all of them end in; empty where none is told."""
    named = event.args.get("provider")
    found = _PROVIDER.fullmatch(named) if isinstance(named, str) else None
    return found[1] if found is not None else ""


TORCH_TRACE_SOURCE = "torch.profiler"
GPU_SOURCE = f"{TORCH_TRACE_SOURCE}:gpu"
_OPERATOR, _PYTHON = "cpu_op", "python_function"
ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_ON_CPU = frozenset(
    {_OPERATOR, _PYTHON, "user_annotation", "cuda_runtime", "cuda_driver", "privateuse1_runtime"}
)
_GPU_ROOT = Frame("[GPU]", "gpu", "native")
_MARK = re.compile(rb'"traceEvents"\s*:')
_OWN = (b'"traceName"', b'"deviceProperties"', b'"cpu_op"', b'"schemaVersion"')
_LOOKED_AT = 1 << 16
_PLACE = re.compile(r"(?P<file>[^()]*)\((?P<line>\d+)\): (?P<name>.*)", re.DOTALL)
_STEP = re.compile(r"#\d+$")


def is_torch_trace(data: bytes) -> bool:
    """Return whether ``data`` looks like a trace of torch.profiler: its own keys stand in it."""
    ends = data[:_LOOKED_AT] + data[-_LOOKED_AT:]
    return _MARK.search(ends) is not None and any(mark in ends for mark in _OWN)


def read_torch_trace(data: bytes, roots: Sequence[str] = ()) -> Profile:
    """Return the self times of operators and functions, in nanoseconds.

    Raises ``ReceiptError`` ``E_TRACE`` where it is malformed, ``UndecidedError``
    ``E_NO_SAMPLES`` where nothing in it took any time.
    """
    events = read_torch_events(data)
    below = tuple(roots)
    source = f"imported from a trace of {TORCH_TRACE_SOURCE}"
    notes = [f"{source}: each event costs time that the model does not"]
    if any(each.category in ON_GPU for each in events):
        notes.append("time on the GPU stands beside time on the CPU: shares are of both together")
    return nested_profile(
        events,
        lambda event: (make_torch_frame(event, below),),
        lambda event: (_GPU_ROOT,) if event.category in ON_GPU else (),
        TORCH_TRACE_SOURCE,
        notes,
    )


def count_torch_kernels(data: bytes) -> tuple[KernelCounts, ...]:
    """Return how often each operator ran, and apart from them each kernel of the GPU.

    Raises ``ReceiptError`` ``E_TRACE``.
    """
    events = read_torch_events(data)
    found = (
        KernelCounts(
            TORCH_TRACE_SOURCE, counts(each.name for each in events if each.category == _OPERATOR)
        ),
        KernelCounts(
            GPU_SOURCE,
            counts(shorten_symbol(each.name) for each in events if each.category in ON_GPU),
        ),
    )
    return tuple(each for each in found if each.counts)


def read_torch_events(data: bytes) -> list[TraceEvent]:
    """Return what took time on the CPU or the GPU. Raises ``ReceiptError`` ``E_TRACE``."""
    document = parse_trace_json(data)
    if not isinstance(document, dict):
        raise TraceError("it is no object")
    events = parse_events(document.get("traceEvents"))
    return [each for each in events if each.category in _ON_CPU | ON_GPU]


def make_torch_frame(event: TraceEvent, roots: Sequence[str] = ()) -> Frame:
    """Return the frame of an event, the same for each of its calls."""
    if event.category == _PYTHON:
        found = _PLACE.fullmatch(event.name)
        if found is not None:
            return make_python_frame(found["name"], found["file"], roots)
        return make_python_frame(
            event.name, "torch" if event.name.startswith("nn.") else "built-in"
        )
    if event.category in ON_GPU:
        return Frame(escape(shorten_symbol(event.name)), _GPU_ROOT.module, "native")
    module = "torch" if event.category in (_OPERATOR, "user_annotation") else "cuda"
    return Frame(escape(_STEP.sub("", event.name)), module, "native")
