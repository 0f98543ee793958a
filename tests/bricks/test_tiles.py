"""Tiles are bricks; rates are computed only from operations and bytes that were passed."""

from typing import Any

import pytest

from pytest_flamegate.bricks import marks
from pytest_flamegate.bricks.tiles import TileRecorder, TileStats, tile
from pytest_flamegate.core.errors import UsageError
from tests.bricks.clocks import FakeClock


def test_stats_of_each_level() -> None:
    clock = FakeClock()
    with TileRecorder(clock=clock) as recorder, tile("macro", flops=4000, bytes=100):
        with pytest.raises(UsageError, match="E_BRICKS_STATE"), TileRecorder():
            pass
        for took_ns in (100, 300):
            with tile("midi", flops=600):
                clock.pass_(took_ns)
        with tile("micro", bytes=8), marks.brick("tile/huge"), marks.brick(" "):
            clock.pass_(50)
    macro, midi, micro = recorder.stats()
    assert macro == TileStats("macro", 1, 450, 450, 450, 4000, 100)
    assert midi == TileStats("midi", 2, 400, 100, 300, 1200, None)
    assert micro == TileStats("micro", 1, 50, 50, 50, None, 8)
    assert (macro.gflops, macro.arithmetic_intensity) == (4000 / 450, 40)
    assert (midi.gflops, midi.arithmetic_intensity) == (3, None)
    assert (micro.gflops, micro.arithmetic_intensity) == (None, None)


@pytest.mark.parametrize(
    ("first", "second", "flops", "nbytes"),
    [
        ({"flops": 10, "bytes": 0}, {"bytes": 0}, None, 0),
        ({"flops": 10, "bytes": 4}, {"flops": 1}, 11, None),
        ({"flops": 0, "bytes": 4}, {"flops": 1, "bytes": 1}, 1, 5),
    ],
)
def test_one_tile_without_an_amount_leaves_no_rate(
    first: dict[str, int], second: dict[str, int], flops: int | None, nbytes: int | None
) -> None:
    with TileRecorder() as recorder:
        for amount in (first, second):
            with tile("macro", **amount):
                pass
    (macro,) = recorder.stats()
    assert (macro.calls, macro.flops, macro.bytes) == (2, flops, nbytes)
    assert (macro.arithmetic_intensity is None) == (flops is None or not nbytes)


def test_tile_costs_nothing_while_off() -> None:
    assert tile("macro", flops=1) is tile("micro") is marks.OFF


@pytest.mark.parametrize(
    ("level", "more"), [("huge", {}), ("macro", {"flops": -1}), ("macro", {"bytes": -1.5})]
)
def test_invalid_tile_raises(level: Any, more: dict[str, Any]) -> None:
    with TileRecorder(), pytest.raises(UsageError, match="E_BRICK_ARGUMENT"):
        tile(level, **more)
