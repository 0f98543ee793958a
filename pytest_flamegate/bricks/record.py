"""The record of a run's bricks as plain data, and the names of the known bricks."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pytest_flamegate.core import limit
from pytest_flamegate.core.errors import FlamegateError, ToolError

# Durations are counted in buckets that are 1.6 % wide at most: one for each nanosecond below
# _EXACT_BELOW, from there on _PER_OCTAVE for each doubling.
_EXACT_BELOW = 128
_PER_OCTAVE = 64
_BUCKETS = 4096
"""More than durations of 64 bits fill."""


def find_bucket(duration_ns: int) -> int:
    """Return the number of the bucket of a duration of at least 0 ns."""
    if duration_ns < _EXACT_BELOW:
        return duration_ns
    shift = duration_ns.bit_length() - 7
    return shift * _PER_OCTAVE + (duration_ns >> shift)


def compute_bucket_bounds_ns(number: int) -> tuple[int, int]:
    """Return the shortest and the longest duration of a bucket."""
    if number < _EXACT_BELOW:
        return number, number
    shift = number // _PER_OCTAVE - 1
    low_ns = (number - shift * _PER_OCTAVE) << shift
    return low_ns, low_ns + (1 << shift) - 1


def compute_bucket_middle_ns(number: int) -> int:
    """Return the duration in the middle of a bucket."""
    low_ns, high_ns = compute_bucket_bounds_ns(number)
    return (low_ns + high_ns + 1) // 2


def parse_bucket(name: str) -> int | None:
    """Return the number of the bucket that is written as ``name``; None if it is invalid."""
    is_number = name.isascii() and name.isdigit() and len(name) < 5 and str(int(name)) == name
    return int(name) if is_number and int(name) < _BUCKETS else None


def parse_durations(durations: Mapping[str, int]) -> Mapping[int, int]:
    """Return calls by the number of their bucket; empty if any name is not a bucket's."""
    numbers = [parse_bucket(name) for name in durations]
    return {
        number: calls
        for number, calls in zip(numbers, durations.values(), strict=True)
        if number is not None and None not in numbers
    }


def compute_quantile_ns(counts: Mapping[int, int], part: float) -> int:
    """Return the duration that ``part`` (0 to 1) of the calls do not exceed: the nearest rank.

    ``counts`` maps buckets to calls. Raises ``ValueError`` if there is no call.
    """
    calls = sum(counts.values())
    if not calls:
        raise ValueError("no call, no quantile")
    left = max(1, -int(-part * calls // 1))
    for number in sorted(counts):
        left -= counts[number]
        if left <= 0:
            break
    return compute_bucket_middle_ns(number)


CLIPPED_ABOVE = 0.25
"""No call counts with a longer duration than this quantile of its row's durations."""


def cut_own_time_ns(counts: Mapping[int, int], self_ns: int) -> float:
    """Return the own time of all calls, with the longer ones cut to that of the fastest quarter.

    A call that was interrupted shows the interruption, so the fastest quarter of the calls says
    how long each may count. ``counts`` maps buckets to calls, and ``self_ns`` is their sum.
    """
    took_ns = sum(compute_bucket_middle_ns(number) * calls for number, calls in counts.items())
    if not took_ns:
        return self_ns
    most_ns = compute_quantile_ns(counts, CLIPPED_ABOVE)
    cut_ns = sum(
        min(compute_bucket_middle_ns(number), most_ns) * calls for number, calls in counts.items()
    )
    return self_ns * cut_ns / took_ns


Category = Literal["Norm", "Attention", "FFN", "Other"]
CATEGORIES: tuple[Category, ...] = get_args(Category)

_KNOWN = tomllib.loads(Path(__file__).with_name("known.toml").read_text("utf-8"))
KNOWN_BRICKS: Mapping[str, Category] = {
    name: category for category in CATEGORIES for name in _KNOWN[category]
}
"""The known bricks and the category of each."""
ALIASES: Mapping[str, str] = {
    alias: name for each in _KNOWN.values() for name in each for alias in each[name]
}
"""Other names by which engines call known bricks."""
MAX_NAME_CHARACTERS = 256
"""Limit for the names of bricks, threads and kernels."""


def is_valid_name(name: object) -> bool:
    """Whether ``name`` can be the name of a brick, thread or kernel: a text that is UTF-8."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def resolve_alias(name: str) -> str:
    """Return the known brick that ``name`` is an alias of, else ``name`` itself."""
    return ALIASES.get(name, name)


def find_category(name: str) -> Category:
    """Return the category of a known brick or alias; ``Other`` for any other name."""
    return KNOWN_BRICKS.get(resolve_alias(name), "Other")


MAX_COUNT = 2**63 - 1
"""Limit for counts and for times in nanoseconds."""
MAX_TOKEN_CALLS = 4096
"""Calls of one token that are sent one by one; if there are more, none is sent."""
MAX_ROWS = 16_384
MAX_THREADS = 1024

# As text, so that an engine which imports this module does not import msgspec.
Name: TypeAlias = "Annotated[str, limit(min_length=1, max_length=MAX_NAME_CHARACTERS)]"
Figure: TypeAlias = "Annotated[int, limit(ge=0, le=MAX_COUNT)]"
OptionalFigure: TypeAlias = "Annotated[int, limit(ge=0, le=MAX_COUNT)] | None"
Phase = Literal["prefill", "decode", ""]
"""The part of a generation that a call belongs to; empty if it is not known."""
Sync = Literal["immediate", "per_layer", "deferred", "none"]
"""When the device is waited for: at each brick, after each layer, once at the end, or never."""
Provenance = Literal["measured_wall", "measured_device_event", "ingested", "derived"]
"""How a figure was obtained. Those that are ``derived`` or ``ingested`` are never gated."""


@dataclass(frozen=True, slots=True)
class BrickCall:
    """One call of a brick.

    Times are nanoseconds of the process's monotonic clock; ``self_ns`` leaves out the calls
    within. ``parent`` is the index of the call around it, ``lane`` the number of its thread or
    task. ``kernel`` names the kernel that it launched, with the launch if that is known.
    """

    name: Name
    start_ns: Figure
    end_ns: Figure
    self_ns: Figure
    layer: OptionalFigure = None
    phase: Phase = ""
    lane: Figure = 0
    parent: OptionalFigure = None
    elements: Figure = 0
    bytes: Figure = 0
    kernel: Annotated[str, limit(max_length=MAX_NAME_CHARACTERS)] = ""


@dataclass(frozen=True, slots=True)
class BrickTotals:
    """All calls of one brick in one layer and phase.

    ``total_ns`` is inclusive; if a brick runs within itself, the outermost call counts.
    ``self_ns`` leaves out the bricks within. ``min_ns``, ``max_ns`` and ``durations`` (calls by
    bucket, see ``find_bucket``, as text) are of single calls, inclusive. ``typical_ns`` is the own
    time with each call cut to that of the fastest quarter, if there are bricks within: these
    calls' own times have no buckets. None otherwise, and in older evidence.
    """

    name: Name
    category: Category
    calls: Annotated[int, limit(ge=1, le=MAX_COUNT)]
    total_ns: Figure
    self_ns: Figure
    min_ns: Figure
    max_ns: Figure
    layer: OptionalFigure = None
    phase: Phase = ""
    elements: Figure = 0
    bytes: Figure = 0
    flops: Figure = 0
    durations: Mapping[str, Figure] = field(default_factory=dict)
    provenance: Provenance = "measured_wall"
    typical_ns: OptionalFigure = None


@dataclass(frozen=True, slots=True)
class ThreadTotals:
    """The bricks of one thread or task; its self times do not overlap."""

    name: Name
    self_ns: Figure
    calls: Figure


@dataclass(frozen=True, slots=True)
class Recorded:
    """The record of a ``BrickProfiler`` that was on for ``wall_ns``.

    ``lanes`` are its threads and tasks. ``calls`` are the last ``keep_calls`` calls. ``unended``
    counts calls that never ended; no other figure includes them. ``calls_left_out`` if a token had
    more than ``MAX_TOKEN_CALLS``.
    """

    wall_ns: Figure
    sync: Sync
    totals: Annotated[tuple[BrickTotals, ...], limit(max_length=MAX_ROWS)]
    lanes: Annotated[tuple[ThreadTotals, ...], limit(max_length=MAX_THREADS)]
    calls: Annotated[tuple[BrickCall, ...], limit(max_length=MAX_TOKEN_CALLS)] = ()
    unended: Figure = 0
    calls_left_out: bool = False


@dataclass(frozen=True, slots=True)
class BrickRun:
    """A brick run: one process that generated with its bricks timed, and did nothing else.

    It generated ``sequences`` whole sequences with ``tokens`` tokens, ``decode_tokens`` of them
    after the first token of a sequence, in ``wall_ns`` by the process's own clock.
    """

    pid: Annotated[int, limit(ge=1)]
    started_ticks: OptionalFigure
    sequences: Figure
    tokens: Figure
    decode_tokens: Figure
    wall_ns: Figure
    sync: Sync
    totals: Annotated[tuple[BrickTotals, ...], limit(max_length=MAX_ROWS)]
    lanes: Annotated[tuple[ThreadTotals, ...], limit(max_length=MAX_THREADS)]
    unended: Figure = 0

    @property
    def coverage(self) -> float:
        """The part of the wall time that the busiest thread spent in bricks, 0 to 1."""
        return max((thread.self_ns for thread in self.lanes), default=0) / max(self.wall_ns, 1)


def encode_recorded(recorded: Recorded) -> str:
    """Return ``recorded`` as JSON, its fields under their own names."""
    return json.dumps(recorded, separators=(",", ":"), default=_encode)


def _encode(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def decode_recorded(text: str) -> Recorded:
    """Parse the output of ``encode_recorded``. ``ToolError`` ``E_BAD_BRICKS`` for anything else."""
    # Imported here: the measured process only encodes, and its interpreter may lack msgspec.
    from pytest_flamegate.core.json import decode_json
    from pytest_flamegate.core.json_parser import EVIDENCE_LIMITS

    try:
        data = text.encode("utf-8", "replace")
        recorded = decode_json(data, Recorded, EVIDENCE_LIMITS, subject="the record")
    except FlamegateError as error:
        raise _bad(error.problem.rstrip(".")) from None
    rows = set()
    for row in recorded.totals:
        if (row.name, row.layer, row.phase) in rows:
            raise _bad(f"the brick {row.name!a} has two rows for one layer and phase")
        rows.add((row.name, row.layer, row.phase))
        if any(parse_bucket(name) is None for name in row.durations):
            raise _bad(f"the brick {row.name!a} has calls in a bucket that does not exist")
    for index, call in enumerate(recorded.calls):
        if call.parent is not None and (call.parent >= len(recorded.calls) or call.parent == index):
            raise _bad(f"the parent of call {index} is not in the record")
        if call.end_ns < call.start_ns:
            raise _bad(f"call {index} ends before it starts")
    return recorded


def missing_record_error() -> ToolError:
    """Build the error for a process that ended its brick run and sent no record."""
    return _bad("it sent none")


def _bad(why: str) -> ToolError:
    return ToolError("E_BAD_BRICKS", f"The process's record of its bricks cannot be read: {why}.")
