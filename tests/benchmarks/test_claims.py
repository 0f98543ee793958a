from collections.abc import Sequence

import pytest

from benchmarks import claims
from benchmarks.claims import Gates
from benchmarks.replay import Decision, Method, Outcome, Replay
from benchmarks.streams import Pair
from benchmarks.time_to_power import Kind, Needed
from tests.benchmarks.made import pair


def replay(took_s: float = 10.0, **counts: int) -> Replay:
    """So many gates of each decision."""
    kinds: tuple[Decision, ...] = ("regressed", "pass", "improved", "inconclusive")
    outcomes = [Outcome(kind, 5, took_s) for kind in kinds for _ in range(counts.get(kind, 0))]
    return Replay(tuple(outcomes), drawn=True)


def need(
    kind: Kind, seconds: float | None, *, honest: bool = True, tried_s: float = 900.0
) -> Needed:
    alarms = 0.0 if honest else 0.1
    return Needed(f"{kind} {seconds}", kind, None, seconds, 320, tried_s, 1.0, alarms, honest)


@pytest.mark.parametrize(
    ("gates", "met"),
    [
        (Gates(299, 0), False),  # enough for the bound, not for what was promised
        (Gates(300, 0), True),
        (Gates(300, 1), False),
        (Gates(600, 1), True),
        (Gates(0, 0), None),
    ],
)
def test_false_alarms_are_proven_by_enough_gates(gates: Gates, met: bool | None) -> None:
    claim = claims.alarms_proven("τ", gates)
    assert claim.met is met
    assert f"{gates.alarms} of {gates.gates}" in claim.figure


def test_unchanged_code_is_gated_in_order_under_each_load() -> None:
    def judge(of: Sequence[Pair]) -> Outcome:
        return Outcome("regressed" if of[0].took_s > 5.0 else "pass", 2, 4.0)

    made = {
        ("quiet", 0.0): [pair()] * 7,
        ("mixed", 0.0): [pair(took_s=9.0), *[pair(load="mixed")] * 4],
        ("mixed", 5.0): [pair(took_s=9.0, effect_pct=5.0)] * 20,
    }
    assert claims.unchanged(Method("two", 2, judge), made) == Gates(5, 1)


def test_misses_are_those_that_pass_at_the_effects_promised() -> None:
    made = {
        ("quiet", 3.0): replay(**{"pass": 9}, regressed=1),
        ("quiet", 5.0): replay(regressed=99, inconclusive=1),
        ("mixed", 10.0): replay(regressed=97, improved=1, **{"pass": 2}),
        ("mixed", 20.0): replay(improved=1),
    }
    claim = claims.misses("τ = 5 %", made, 5.0, 10.0, 0.01)
    assert (claim.met, claim.figure) == (False, "at most 3 %, mixed at 10 %")
    assert claims.misses("τ", made, 5.0, 10.0, 0.03).met is True
    assert claims.misses("τ", made, 50.0, 60.0, 0.03).met is None
    assert str(claim) == (
        "τ = 5 %: misses ≤ 1 % at a true 5…10 %: MISSED (at most 3 %, mixed at 10 %)"
    )


@pytest.mark.parametrize(
    ("load", "effects", "met"),
    [
        ("quiet", (0.0, 5.0), True),
        ("quiet", (0.0, 3.0), False),
        (None, (0.0,), False),
        ("other core", (0.0,), None),
    ],
)
def test_the_slowest_median_counts(
    load: str | None, effects: tuple[float, ...], met: bool | None
) -> None:
    made = {("quiet", 0.0): 14.0, ("quiet", 3.0): 50.0, ("mixed", 0.0): 16.0}
    replays = {cell: replay(took_s, regressed=1) for cell, took_s in made.items()}
    claim = claims.median_time("τ", replays, load, effects, 15.0)
    assert claim.met is met
    assert load is not None or claim.figure == "at most 16 s, at 0 %, mixed"


PEER = need("peer", 400.0)


@pytest.mark.parametrize(
    ("needs", "met"),
    [
        ([need("ours", 50.0), need("peer", 250.0), PEER], True),
        ([need("ours", 50.0), need("peer", 249.0), PEER], False),
        ([need("ours", 50.0), need("peer", 60.0, honest=False), PEER], True),
        ([need("ours", 50.0), need("lent", 60.0), PEER], True),
        ([need("ours", 50.0), need("peer", None)], True),
        ([need("ours", 200.0), need("peer", None)], False),  # tried for 900 s only
        ([need("ours", None), PEER], False),
        ([need("ours", 50.0, honest=False), PEER], False),
        ([need("ours", 50.0), need("peer", 400.0, honest=False)], None),
        ([], None),
    ],
)
def test_a_fifth_of_the_best_peer_that_keeps_to_its_alarms(
    needs: list[Needed], met: bool | None
) -> None:
    claim = claims.sooner("mixed", 3.0, needs)
    assert claim.met is met
    if any(each.kind == "lent" for each in needs):
        assert "60 s of lent 60.0: 1/1.2" in claim.figure
