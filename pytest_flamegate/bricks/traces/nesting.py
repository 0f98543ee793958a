"""Events with a beginning and a length, as calls within calls: what each spent itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.bricks.durations import bucket
from pytest_flamegate.bricks.names import canonical, category_of
from pytest_flamegate.bricks.record import BrickCall, BrickTotals, Lane
from pytest_flamegate.bricks.traces.ingested import (
    MAX_NAMES,
    SLACK,
    Ingested,
    no_bricks,
    self_exceeds_wall,
)
from pytest_flamegate.profile.chrome_trace import TraceError
from pytest_flamegate.profile.imported import MAX_DEPTH
from pytest_flamegate.profile.text import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_CALLS = 100_000
"""Calls that are kept; of more there are totals alone."""
_NS = 1000
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


def nested(spans: Sequence[Span], source: str, notes: Sequence[str] = ()) -> Ingested:
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
        start_ns = round((span.start_us - begun_us) * _NS)
        nest.open(span, start_ns, start_ns + round(span.length_us * _NS))
    told = list(notes)
    if len(spans) > MAX_CALLS:
        told.append(f"of more than {MAX_CALLS:,} calls only the totals are kept")
    return Ingested(
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
        found.durations[bucket(length_ns)] += 1

    def totals(self) -> tuple[BrickTotals, ...]:
        """Return the sums by name, the longest first."""
        for span, self_ns in zip(self.spans, self.selves_ns, strict=True):
            self.sums[span.name].self_ns += self_ns
        ordered = sorted(self.sums.items(), key=lambda each: (-each[1].self_ns, each[0]))
        return tuple(
            BrickTotals(
                name,
                category_of(name),
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

    def told_lanes(self) -> tuple[Lane, ...]:
        """Return the lanes; ``E_SELF_EXCEEDS_WALL`` for one that was in two events at once."""
        for name, lane in self.lanes.items():
            if lane.overlap_ns > lane.busy_ns * SLACK:
                raise self_exceeds_wall(
                    f"events of the thread {name} overlap for {lane.overlap_ns / 1e6:,.3f} ms of "
                    f"{lane.busy_ns / 1e6:,.3f} ms"
                )
        return tuple(Lane(name, lane.busy_ns, lane.calls) for name, lane in self.lanes.items())


def brick_name(name: str) -> str:
    """Return the known brick of that name or alias, else the name as it can be shown."""
    return canonical(escape(name.strip())) or "(no name)"
