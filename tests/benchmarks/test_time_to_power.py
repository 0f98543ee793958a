from collections.abc import Sequence

import pytest

from benchmarks.peers import Missing
from benchmarks.replay import Decision, Method, Outcome, Replay
from benchmarks.streams import Pair
from benchmarks.time_to_power import (
    SIZES,
    Growing,
    Kind,
    Needed,
    needed,
    pairs_to_power,
    sooner,
)
from tests.benchmarks.made import pairs


def replayed(*said: tuple[Decision, int]) -> Replay:
    return Replay(tuple(Outcome(what, pairs, 2.0 * pairs) for what, pairs in said))


def test_power_is_reached_when_nineteen_of_twenty_have_alarmed() -> None:
    alarms: list[tuple[Decision, int]] = [("regressed", n) for n in range(1, 20)]
    assert pairs_to_power(replayed(*alarms, ("pass", 5))) == 19
    assert pairs_to_power(replayed(*alarms, ("regressed", 50))) == 19
    assert pairs_to_power(replayed(*alarms[1:], ("pass", 5), ("pass", 5))) is None


def fixed(enough: int, part: float) -> Growing:
    """Finds every slowdown from ``enough`` on."""

    def at(size: int) -> Method:
        def judge(of: Sequence[Pair]) -> Outcome:
            slow = of[0].effect_pct > 0.0 and size >= enough
            return Outcome("regressed" if slow else "pass", len(of), 2.0 * len(of))

        return Method(str(size), round(size / part), judge, part=part)

    return Growing("fixed", "peer", at, draws=20)


SAME, SLOWER = pairs(*[0.0] * 12), pairs(*[3.0] * 12, effect_pct=3.0)


@pytest.mark.parametrize("part", [1.0, 0.5])
@pytest.mark.parametrize(("enough", "size"), [(1, SIZES[0]), (16, 17), (17, 17), (SIZES[-1],) * 2])
def test_the_least_size_that_suffices_is_found(enough: int, size: int, part: float) -> None:
    found = needed(fixed(enough, part), SAME, SLOWER)
    assert not isinstance(found, Missing)
    assert (found.size, found.most, found.seconds) == (size, size, 2.0 * size)
    assert (found.found, found.alarms, found.honest) == (1.0, 0.0, True)


def need(
    kind: Kind, seconds: float | None, *, honest: bool = True, tried_s: float = 900.0
) -> Needed:
    alarms = 0.0 if honest else 0.1
    return Needed(f"{kind} {seconds}", kind, None, seconds, 320, tried_s, 1.0, alarms, honest)


PEER = need("peer", 600.0)


@pytest.mark.parametrize(
    ("needs", "word"),
    [
        ([need("ours", 50.0), need("peer", 500.0), PEER], "met (50 s against 500 s"),
        ([need("ours", 50.0), need("peer", 499.0), PEER], "MISSED (50 s against 499 s"),
        ([need("ours", 50.0), need("peer", 60.0, honest=False), PEER], "met"),
        ([need("ours", 50.0), need("lent", 60.0), PEER], "met"),
        ([need("ours", 50.0), need("peer", None)], "met (50 s; no peer"),
        ([need("ours", 200.0), need("peer", None)], "MISSED"),  # tried for 900 s only
        ([need("ours", None), PEER], "MISSED (ours"),
        ([need("ours", 50.0, honest=False), PEER], "MISSED (ours"),
        ([need("ours", 50.0), need("peer", 400.0, honest=False)], "not compared"),
    ],
)
def test_a_tenth_of_the_best_peer_that_keeps_to_its_alarms(needs: list[Needed], word: str) -> None:
    assert sooner(needs).startswith(word)
