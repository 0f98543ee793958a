"""A pass over the bricks, in the observed process: sequences with the brick clock turned on.

Only a process that is there for this alone imports it, when the pass begins.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_flamegate.bricks import BrickProfiler
from pytest_flamegate.bricks.wire import MAX_TOKEN_CALLS, BrickReport, encode_report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_flamegate.bricks.record import BrickCall


if TYPE_CHECKING:
    Run = Callable[[int, Callable[[], None], Callable[[Any], None]], None]

_KEPT = 2 * MAX_TOKEN_CALLS
"""An engine may go on after its last token, to find that there is no further one."""


def record_bricks(
    run: Run, times: int, engine: object, began: Callable[[], None], token: Callable[[Any], None]
) -> str:
    """Have ``run(times, began, token)`` generate with the clock on; return its record, as JSON.

    Calls are kept one by one of one sequence more, which stands in no figure: keeping them costs
    time. An engine may have ``mark_bricks()``: it returns a context manager within which its marks
    are set, and which may give options of ``BrickProfiler`` (how a device is waited for).
    """
    mark = getattr(engine, "mark_bricks", None)
    with nullcontext() if mark is None else mark() as options:
        phases = _Phases(BrickProfiler(**(options or {})), began, token)
        with phases.profiler:
            from_ns = time.perf_counter_ns()
            run(times, phases.began, phases.token)
            wall_ns = time.perf_counter_ns() - from_ns
        kept = _Phases(BrickProfiler(**{**(options or {}), "keep_calls": _KEPT}))
        with kept.profiler:
            run(1, kept.began, kept.token)
    recorded = phases.profiler.recorded()
    calls = select_token_calls(kept.profiler.recorded().calls, *kept.last)
    recorded = replace(recorded, wall_ns=wall_ns, calls=calls or ())
    return encode_report(BrickReport(recorded, left_out=calls is None))


class _Phases:
    """Tells a profiler which phase a sequence is in, and when its last token began and ended."""

    def __init__(
        self,
        profiler: BrickProfiler,
        began: Callable[[], None] = lambda: None,
        token: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.profiler = profiler
        self.last = (0, 0)
        self._began = began
        self._token = token
        self._decodes = False

    def began(self) -> None:
        """Begin a sequence."""
        self._began()
        self._decodes = False
        self.profiler.phase = "prefill"
        self.last = (0, time.perf_counter_ns())

    def token(self, each: Any) -> None:
        """Take one token."""
        self._token(each)
        if not self._decodes:
            self._decodes = True
            self.profiler.phase = "decode"
        self.last = (self.last[1], time.perf_counter_ns())


def select_token_calls(
    calls: Sequence[BrickCall], from_ns: int, to_ns: int, kept: int = _KEPT
) -> tuple[BrickCall, ...] | None:
    """Return the calls that began from ``from_ns`` on and before ``to_ns``.

    ``calls`` are the last that there were, at most ``kept``. None where more belong to the token
    than are told, or than were kept.
    """
    chosen = [index for index, call in enumerate(calls) if from_ns <= call.start_ns < to_ns]
    lost = len(calls) >= kept and all(call.start_ns >= from_ns for call in calls)
    if len(chosen) > MAX_TOKEN_CALLS or lost:
        return None
    place = {index: number for number, index in enumerate(chosen)}
    return tuple(
        replace(each, parent=None if each.parent is None else place.get(each.parent))
        for each in (calls[index] for index in chosen)
    )
