"""A pass over the bricks, in the observed process: sequences with the brick clock turned on.

Only a process that is there for this alone imports it, when the pass begins.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_flamegate.bricks import BrickProfiler
from pytest_flamegate.bricks.telling import MOST_CALLS, Told, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_flamegate.bricks.record import BrickCall

    Run = Callable[[Callable[[], None], Callable[[Any], None]], None]

_KEPT = 2 * MOST_CALLS
"""An engine may go on after its last token, to find that there is no further one."""


def clocked(
    run: Run, engine: object, began: Callable[[], None], token: Callable[[Any], None]
) -> str:
    """Have ``run(began, token)`` generate with the clock on; return what it recorded, as JSON.

    An engine may have ``mark_bricks()``: it returns a context manager within which its marks are
    set, and which may give the options of ``BrickProfiler`` (how a device is waited for).
    """
    mark = getattr(engine, "mark_bricks", None)
    with nullcontext() if mark is None else mark() as options:
        profiler = BrickProfiler(**{**(options or {}), "keep_calls": _KEPT})
        last = [0, 0]

        def begins() -> None:
            began()
            profiler.phase = "prefill"
            last[:] = [0, time.perf_counter_ns()]

        def tells(each: Any) -> None:
            token(each)
            if profiler.phase != "decode":
                profiler.phase = "decode"
            last[:] = [last[1], time.perf_counter_ns()]

        with profiler:
            from_ns = time.perf_counter_ns()
            run(begins, tells)
            wall_ns = time.perf_counter_ns() - from_ns
    recorded = profiler.recorded()
    calls = of_one_token(recorded.calls, *last)
    return tell(
        Told(
            replace(recorded, wall_ns=wall_ns, calls=calls or ()),
            left_out=calls is None,
        )
    )


def of_one_token(
    calls: Sequence[BrickCall], from_ns: int, to_ns: int, kept: int = _KEPT
) -> tuple[BrickCall, ...] | None:
    """Return the calls that began from ``from_ns`` on and before ``to_ns``.

    ``calls`` are the last that there were, at most ``kept``. None where more belong to the token
    than are told, or than were kept.
    """
    chosen = [index for index, call in enumerate(calls) if from_ns <= call.start_ns < to_ns]
    lost = len(calls) >= kept and all(call.start_ns >= from_ns for call in calls)
    if len(chosen) > MOST_CALLS or lost:
        return None
    place = {index: number for number, index in enumerate(chosen)}
    return tuple(
        replace(each, parent=None if each.parent is None else place.get(each.parent))
        for each in (calls[index] for index in chosen)
    )
