"""A brick run, in the observed process: it generates sequences with the brick clock on.

Imported when the observer commands such a run, so that no other process loads anything of bricks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_flamegate.bricks import BrickProfiler
from pytest_flamegate.bricks.record import MAX_TOKEN_CALLS, encode_recorded
from pytest_flamegate.child import Run

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import BrickCall

_BUFFER_CALLS = 2 * MAX_TOKEN_CALLS
"""More than a token may have: an engine may go on after its last token, to find no further one."""


def record_bricks(
    run: Run,
    sequences: int,
    engine: object,
    on_sequence: Callable[[], None],
    on_token: Callable[[Any], None],
) -> str:
    """Generate ``sequences`` sequences with the brick clock on.

    One sequence more is generated for the calls of its last token. It is in no sum, because
    keeping single calls takes time.

    ``engine`` may have ``mark_bricks()``, a context manager that sets the marks and may yield
    options for ``BrickProfiler``. Returns the report as JSON.
    """
    mark = getattr(engine, "mark_bricks", None)
    with nullcontext() if mark is None else mark() as options:
        summed = _PhaseTracker(BrickProfiler(**(options or {})), on_sequence, on_token)
        with summed.profiler:
            began_ns = time.perf_counter_ns()
            run(sequences, summed.begin_sequence, summed.take_token)
            wall_ns = time.perf_counter_ns() - began_ns
        last = _PhaseTracker(BrickProfiler(**{**(options or {}), "keep_calls": _BUFFER_CALLS}))
        with last.profiler:
            run(1, last.begin_sequence, last.take_token)
    recorded = summed.profiler.recorded()
    calls = select_token_calls(last.profiler.recorded().calls, *last.last_token_ns)
    left_out = calls is None
    return encode_recorded(
        replace(recorded, wall_ns=wall_ns, calls=calls or (), calls_left_out=left_out)
    )


class _PhaseTracker:
    """Sets the profiler's phase; ``last_token_ns`` is when the last token began and ended."""

    def __init__(
        self,
        profiler: BrickProfiler,
        on_sequence: Callable[[], None] = lambda: None,
        on_token: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.profiler = profiler
        self.last_token_ns = (0, 0)
        self._on_sequence = on_sequence
        self._on_token = on_token

    def begin_sequence(self) -> None:
        self._on_sequence()
        self.profiler.phase = "prefill"
        self.last_token_ns = (0, time.perf_counter_ns())

    def take_token(self, token: Any) -> None:
        self._on_token(token)
        if self.profiler.phase == "prefill":
            self.profiler.phase = "decode"
        self.last_token_ns = (self.last_token_ns[1], time.perf_counter_ns())


def select_token_calls(
    calls: Sequence[BrickCall], from_ns: int, to_ns: int, capacity: int = _BUFFER_CALLS
) -> tuple[BrickCall, ...] | None:
    """Return the calls that began from ``from_ns`` on and before ``to_ns``.

    ``calls`` is a full or partly filled buffer of ``capacity`` calls. Returns None if the token
    has more calls than ``MAX_TOKEN_CALLS``, or if some of them are no longer in the buffer.
    """
    chosen = [index for index, call in enumerate(calls) if from_ns <= call.start_ns < to_ns]
    is_cut = len(calls) >= capacity and all(call.start_ns >= from_ns for call in calls)
    if len(chosen) > MAX_TOKEN_CALLS or is_cut:
        return None
    places = {index: place for place, index in enumerate(chosen)}
    return tuple(
        replace(call, parent=None if call.parent is None else places.get(call.parent))
        for call in (calls[index] for index in chosen)
    )
