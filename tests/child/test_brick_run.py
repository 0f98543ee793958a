"""A brick run is recorded by the process of the engine and stored by the observer."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.bricks import brick, marks
from pytest_flamegate.bricks.record import BrickCall, decode_recorded
from pytest_flamegate.child import brick_run, wire
from pytest_flamegate.child.brick_run import select_token_calls
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.observe.observer import Observer
from tests.observe.workloads import forked

TOKENS = 3


def generate(prompt: str, max_tokens: int) -> Iterator[int]:
    with brick("Embedding", elements=len(prompt)):
        sum(range(1000))
    for token in range(max_tokens):
        with brick("DownProjection", layer=1):
            sum(range(1000))
            with brick("Inner", layer=1):
                sum(range(1000))
        yield token


def observed(call: Callable[[str, int], Iterable[Any]]) -> Observer:
    return forked(Path(), call, name="toy", max_tokens=TOKENS)


def test_calls_are_counted_by_phase_and_tokens() -> None:
    observer = observed(generate)
    run, clocked, recorded = observer.run_bricks(0.01)
    assert run.role == "bricks"
    assert (run.pid, run.started_ticks) == (clocked.pid, clocked.started_ticks)
    sequences = clocked.sequences
    assert (clocked.tokens, clocked.decode_tokens) == (sequences * TOKENS, sequences * 2)
    calls = {(row.name, row.layer, row.phase): row.calls for row in clocked.totals}
    assert calls == {
        ("Embedding", None, "prefill"): sequences,
        ("DownProjection", 1, "prefill"): sequences,
        ("Inner", 1, "prefill"): sequences,
        ("DownProjection", 1, "decode"): 2 * sequences,
        ("Inner", 1, "decode"): 2 * sequences,
    }
    assert 0 < clocked.wall_ns <= run.blocks[0].interval.wall_ns
    assert 0 < clocked.coverage <= 1
    assert recorded.totals == clocked.totals
    # Of the last token of the last sequence alone.
    outer, inner = sorted(recorded.calls, key=lambda call: call.start_ns)
    assert (outer.name, inner.name) == ("DownProjection", "Inner")
    assert recorded.calls[inner.parent or 0] is outer
    assert observer.observation().tokens == ("0", "1", "2")
    assert observer.runs == (run,)
    assert not {"timed", "profiled"} & {each.role for each in observer.observation().runs}


def test_engine_without_marks() -> None:
    observer = observed(lambda _, max_tokens: range(max_tokens))
    with pytest.raises(
        ToolError, match=r"E_NO_BRICKS.*'toy' marked no brick.*five lines.*with brick\("
    ):
        observer.run_bricks(0.01)
    assert observer.runs == ()


@pytest.mark.parametrize("forged", ["record", "end"])
def test_records_that_the_engine_writes_itself(forged: str) -> None:
    def write(fd: int) -> None:
        if forged == "record":
            wire.send_text(fd, wire.RECORDED, "{}")
            return
        for kind in (wire.SEQUENCE, *[wire.TOKEN] * TOKENS, wire.DONE):
            wire.send(fd, kind)

    def forging(prompt: str, max_tokens: int) -> Iterator[int]:
        for token in range(max_tokens):
            for frame in sys._current_frames().values():
                inner: Any = frame
                while inner is not None:
                    server = inner.f_locals.get("self")
                    if hasattr(server, "_fd") and marks._on is not None:
                        write(server._fd)
                    inner = inner.f_back
            yield token

    with pytest.raises(ToolError, match="E_BAD_BRICKS"):
        observed(forging).run_bricks(0.01)


class Engine:
    """Has its marks set for the pass alone, and says how its device is waited for."""

    def __init__(self) -> None:
        self.marks = 0
        self.waits = 0

    def __call__(self, prompt: str, max_tokens: int) -> Iterator[int]:
        for token in range(max_tokens):
            if self.marks:
                with brick("Custom", category="Norm"):
                    pass
            yield token

    @contextmanager
    def mark_bricks(self) -> Iterator[dict[str, Any]]:
        self.marks += 1
        yield {"sync": "immediate", "synchronise": self.wait}
        self.marks -= 1

    def wait(self) -> None:
        self.waits += 1


def test_marks_are_set_for_the_brick_run_alone() -> None:
    engine = Engine()
    tokens: list[Any] = []
    before = set(threading.enumerate())

    def run(times: int, began: Callable[[], None], token: Callable[[Any], None]) -> None:
        for _ in range(times):
            began()
            for each in engine("p", TOKENS):
                token(each)

    list(engine("p", 1))
    recorded = decode_recorded(brick_run.record_bricks(run, 1, engine, lambda: None, tokens.append))
    (first, second) = sorted(recorded.totals, key=lambda row: row.phase, reverse=True)
    assert (first.name, first.category, first.calls) == ("Custom", "Norm", 1)
    assert (second.phase, second.calls) == ("decode", 2)
    assert recorded.sync == "immediate"
    assert tokens == [0, 1, 2]
    assert engine.marks == 0
    assert engine.waits >= TOKENS
    assert set(threading.enumerate()) <= before


def call(start_ns: int, parent: int | None = None) -> BrickCall:
    return BrickCall("B", start_ns, start_ns + 1, 1, parent=parent)


def test_calls_of_one_token() -> None:
    calls = (call(1), call(5), call(6, parent=1), call(7, parent=0), call(9))
    assert select_token_calls(calls, 5, 9) == (call(5), call(6, parent=0), call(7))
    many = tuple(call(at) for at in range(5000))
    assert select_token_calls(many[10:20], 10, 20, capacity=10) is None
    assert select_token_calls(many[10:20], 10, 20, capacity=11) == many[10:20]
    assert select_token_calls(many[10:20], 11, 20, capacity=10) == many[11:20]
    assert select_token_calls(many, 0, 5000) is None
