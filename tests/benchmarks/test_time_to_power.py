from collections.abc import Sequence

import pytest

from benchmarks.peers import Missing
from benchmarks.replay import Decision, Method, Outcome, Replay
from benchmarks.streams import Pair
from benchmarks.time_to_power import SIZES, Growing, needed, pairs_to_power
from tests.benchmarks.made import pairs


def replayed(*said: tuple[Decision, int]) -> Replay:
    return Replay(tuple(Outcome(what, pairs, 2.0 * pairs) for what, pairs in said), drawn=True)


def test_power_is_reached_when_nineteen_of_twenty_have_alarmed() -> None:
    alarms: list[tuple[Decision, int]] = [("regressed", n) for n in range(1, 20)]
    assert pairs_to_power(replayed(*alarms, ("pass", 5))) == 19
    assert pairs_to_power(replayed(*alarms, ("regressed", 50))) == 19
    assert pairs_to_power(replayed(*alarms[1:], ("pass", 5), ("pass", 5))) is None


def fixed(enough: int, *, part: float = 1.0, alarms: bool = False) -> Growing:
    """Finds every slowdown from ``enough`` on; ``alarms``: finds one everywhere."""

    def at(size: int) -> Method:
        def judge(of: Sequence[Pair]) -> Outcome:
            slow = alarms or (of[0].effect_pct > 0.0 and size >= enough)
            return Outcome("regressed" if slow else "pass", len(of), 2.0 * len(of))

        return Method(str(size), round(size / part), judge, part=part)

    return Growing("fixed", "peer", at, draws=20)


SAME, SLOWER = pairs(*[0.0] * 12), pairs(*[3.0] * 12, effect_pct=3.0)


@pytest.mark.parametrize("part", [1.0, 0.5])
@pytest.mark.parametrize(("enough", "size"), [(1, SIZES[0]), (16, 17), (17, 17), (SIZES[-1],) * 2])
def test_the_least_size_that_suffices_is_found(enough: int, size: int, part: float) -> None:
    found = needed(fixed(enough, part=part), SAME, SLOWER)
    assert not isinstance(found, Missing)
    assert (found.size, found.most, found.seconds) == (size, size, 2.0 * size)
    assert (found.found, found.alarms, found.honest) == (1.0, 0.0, True)


def test_what_alarms_at_unchanged_code_is_marked() -> None:
    found = needed(fixed(3, alarms=True), SAME, SLOWER)
    assert not isinstance(found, Missing)
    assert (found.alarms, found.honest) == (1.0, False)
