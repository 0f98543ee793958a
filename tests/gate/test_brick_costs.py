"""What a brick costs in a process, and which passes cannot be judged at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flamegate.bricks.record import BrickRun, ThreadTotals
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.brick_costs import brick_costs, check_brick_runs, common_window
from tests.gate.bricked import CALLS, clocked, passes, row

COSTS = {"RmsNorm": 2.0, "LmHead": 50.0}


def test_a_call_and_a_token() -> None:
    (one,) = brick_costs([clocked([row("RmsNorm", 2.0)])], "decode").values()
    assert one.call_us == pytest.approx((2.0,))
    assert one.calls == (4.0,)
    assert one.token_us == pytest.approx((8.0,))


def test_calls_that_were_interrupted_do_not_count_for_slow_ones() -> None:
    interrupted = row("RmsNorm", 2.0, calls=390, slow=10, slow_us=900.0)
    assert interrupted.self_ns / interrupted.calls > 20_000
    (one,) = brick_costs([clocked([interrupted])], "decode").values()
    assert one.call_us == pytest.approx((2.0,), rel=0.02)


def test_calls_that_most_of_got_slower_count() -> None:
    slower = row("RmsNorm", 2.0, calls=80, slow=320, slow_us=3.0)
    (one,) = brick_costs([clocked([slower])], "decode").values()
    assert one.call_us[0] > 2.7


def test_a_brick_that_holds_others_costs_its_own_time() -> None:
    holding = replace(row("Block", 10.0), self_ns=CALLS * 1_000)
    (one,) = brick_costs([clocked([holding])], "decode").values()
    assert one.call_us == pytest.approx((1.0,))


def test_a_brick_without_histogram_costs_its_plain_mean() -> None:
    (one,) = brick_costs([clocked([row("RmsNorm", 2.0, durations={})])], "decode").values()
    assert one.call_us == pytest.approx((2.0,))


def test_layers_are_rows_of_one_brick_and_kept_apart() -> None:
    rows = [row("RmsNorm", 2.0, layer=0), row("RmsNorm", 4.0, layer=1)]
    (one,) = brick_costs([clocked(rows)], "decode").values()
    assert one.call_us == pytest.approx((3.0,))
    assert dict(one.layers_us) == pytest.approx({0: 8.0, 1: 16.0})


def test_aliases_are_one_brick() -> None:
    rows = [row("Qkv", 2.0), row("QkvProjection", 4.0)]
    found = brick_costs([clocked(rows)], "decode")
    assert list(found) == ["QkvProjection"]
    assert found["QkvProjection"].calls == (8.0,)


def test_prefill_is_left_out_where_decode_is_told_apart() -> None:
    told = clocked([row("RmsNorm", 2.0), row("RmsNorm", 9.0, phase="prefill")])
    untold = clocked([row("RmsNorm", 2.0, phase=""), row("RmsNorm", 9.0, phase="prefill")])
    assert common_window([told]) == "decode"
    assert common_window([told], [untold]) == "all"
    assert common_window([replace(told, decode_tokens=0)]) == "all"
    assert brick_costs([told], "decode")["RmsNorm"].calls == (4.0,)
    assert brick_costs([told], "all")["RmsNorm"].calls == pytest.approx((800 / 101,))


def broken(**changes: object) -> tuple[BrickRun, ...]:
    first, *rest = passes(COSTS)
    return (replace(first, **changes), *rest)  # type: ignore[arg-type]


FIRST = passes(COSTS)[0]


@pytest.mark.parametrize(
    ("side", "code"),
    [
        ((), "E_NO_BRICKS"),
        (broken(totals=()), "E_NO_BRICKS"),
        (passes(COSTS)[:4], "E_FEW_PROCESSES"),
        (broken(tokens=0), "E_NO_TOKENS"),
        (broken(wall_ns=FIRST.lanes[0].self_ns // 2), "E_IMPOSSIBLE_FIGURE"),
        (broken(wall_ns=0), "E_IMPOSSIBLE_FIGURE"),
        (
            broken(lanes=(ThreadTotals("main", 1, 1),), wall_ns=FIRST.wall_ns // 2),
            "E_IMPOSSIBLE_FIGURE",
        ),
        (broken(totals=(row("RmsNorm", 2.0, self_ns=10**9),)), "E_IMPOSSIBLE_FIGURE"),
        (broken(totals=(row("RmsNorm", 2.0, self_ns=-1), row("Up", 2.0))), "E_IMPOSSIBLE_FIGURE"),
        ((FIRST, *passes(COSTS)[:4]), "E_REPEATED_SAMPLES"),
        ((replace(FIRST, pid=9), *passes(COSTS)), "E_REPEATED_SAMPLES"),
    ],
)
def test_passes_that_cannot_be_judged(side: tuple[BrickRun, ...], code: str) -> None:
    with pytest.raises(UndecidedError) as raised:
        check_brick_runs(side, "current side")
    assert raised.value.code == code


def test_a_baseline_is_accepted_anew_and_not_measured_longer() -> None:
    with pytest.raises(UndecidedError, match="Accept a new baseline"):
        check_brick_runs((), "baseline")
    check_brick_runs(passes(COSTS), "baseline")


def test_a_brick_within_itself_counts_in_the_outermost_layer() -> None:
    outer = row("Block", 10.0, layer=0, self_ns=CALLS * 4_000)
    inner = row("Block", 6.0, layer=1, total_ns=0)
    within = passes({"Block": 1.0})
    nested = tuple(clocked([outer, inner], pid=each.pid) for each in within)
    check_brick_runs(nested, "current side")
