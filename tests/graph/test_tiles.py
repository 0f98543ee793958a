"""Tiles are what was clocked and told: no rate is made of a figure that nobody gave."""

from __future__ import annotations

import dis
import threading
import time
from typing import Any

import pytest

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.graph import tensors
from pytest_flamegate.graph.tensors import LEVELS, TileRecorder, TileStats, tile


class Clock:
    """Goes on by what it is told."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.reads = 0

    def perf_counter_ns(self) -> int:
        self.reads += 1
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tensors, "time", made)
    return made


def test_each_level_by_itself(clock: Clock) -> None:
    with TileRecorder() as recorder, tile("macro", flops=4000, bytes=100):
        for took_ns in (100, 300):
            with tile("midi", flops=600):
                clock.now_ns += took_ns
        with tile("micro", bytes=8):
            clock.now_ns += 50
    assert recorder.stats() == (
        TileStats("macro", 1, 450, 450, 450, 4000, 100),
        TileStats("midi", 2, 400, 100, 300, 1200, None),
        TileStats("micro", 1, 50, 50, 50, None, 8),
    )
    macro, midi, micro = recorder.stats()
    assert macro.gflops == pytest.approx(4000 / 450)
    assert macro.arithmetic_intensity == 40
    assert midi.gflops == 3
    assert (midi.arithmetic_intensity, micro.gflops, micro.arithmetic_intensity) == (None,) * 3


def test_one_call_that_tells_nothing_leaves_no_rate(clock: Clock) -> None:
    with TileRecorder() as recorder:
        for flops in (10, None, 10):
            with tile("macro", flops=flops, bytes=0):
                clock.now_ns += 5
    (macro,) = recorder.stats()
    assert (macro.calls, macro.flops, macro.gflops) == (3, None, None)
    assert (macro.bytes, macro.arithmetic_intensity) == (0, None)


def test_a_tile_within_its_own_level_counts_once(clock: Clock) -> None:
    with TileRecorder() as recorder, tile("macro", flops=10), tile("macro", flops=7):
        clock.now_ns += 5
    (macro,) = recorder.stats()
    assert (macro.calls, macro.total_ns, macro.flops) == (1, 5, 10)


def test_a_tile_that_raises_was_there(clock: Clock) -> None:
    def fail() -> None:
        with tile("midi"):
            clock.now_ns += 5
            raise KeyError

    with TileRecorder() as recorder:
        with pytest.raises(KeyError):
            fail()
        with tile("midi"):
            clock.now_ns += 1
    assert recorder.stats()[0].calls == 2


def test_off_no_clock_is_read_and_nothing_made(clock: Clock) -> None:
    assert tile("macro", flops=1) is tile("micro")
    with tile("macro"):
        pass
    recorder = TileRecorder()
    with recorder:
        pass
    with tile("macro"):
        pass
    assert clock.reads == 0
    assert recorder.stats() == ()


def test_real_threads_lose_nothing() -> None:
    def work() -> None:
        for _ in range(500):
            with tile("macro", flops=3), tile("micro", bytes=2):
                pass

    began_ns = time.perf_counter_ns()
    with TileRecorder() as recorder:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    wall_ns = time.perf_counter_ns() - began_ns
    macro, micro = recorder.stats()
    assert (macro.calls, macro.flops) == (4000, 12_000)
    assert (micro.calls, micro.bytes) == (4000, 8000)
    assert 0 < micro.total_ns < macro.total_ns <= 8 * wall_ns


def test_a_mark_looks_once_whether_anything_records() -> None:
    """Another thread may turn the marks off between two looks."""
    looks = [each for each in dis.get_instructions(tile) if each.argval == "_on"]
    assert len(looks) == 1


def test_one_recorder_at_a_time() -> None:
    with TileRecorder() as first:
        with pytest.raises(UsageError, match="E_TILES_ON"), TileRecorder():
            pass
        with tile("macro"):
            pass
    assert first.stats()[0].calls == 1
    with TileRecorder():
        pass


@pytest.mark.parametrize(
    ("level", "more", "code"),
    [
        ("huge", {}, "E_TILE_LEVEL"),
        ("macro", {"flops": -1}, "E_TILE_FIGURE"),
        ("macro", {"bytes": 1.5}, "E_TILE_FIGURE"),
        ("macro", {"flops": True}, "E_TILE_FIGURE"),
    ],
)
def test_what_is_no_tile_is_refused(level: Any, more: dict[str, Any], code: str) -> None:
    with TileRecorder() as recorder:
        with pytest.raises(UsageError, match=code), tile(level, **more):
            pass
        assert recorder.stats() == ()


def test_no_figure_is_invented() -> None:
    """What profilers of this kind are known to make up has no place to stand in."""
    names = set(TileStats.__slots__) | {n for n in vars(TileStats) if not n.startswith("_")}
    assert not {name for name in names if "efficiency" in name or "ipc" in name or "hit" in name}
    assert LEVELS == ("macro", "midi", "micro")
