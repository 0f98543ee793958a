"""How far the shares of a profile's processes differ, against samples of known spread."""

from __future__ import annotations

from random import Random

import pytest

from pytest_flamegate.profile.difference import SPREAD
from pytest_flamegate.receipt.metrics import spread_of
from pytest_flamegate.receipt.types import ProcessProfile

SHARES = {"gemv": 0.6, "attn": 0.25, "norm": 0.1, "copy": 0.05}


def processes(spread: float, count: int = 40, samples: int = 2000) -> list[ProcessProfile]:
    """Processes whose shares vary ``spread`` times as much as independent samples would."""
    chance = Random(11)
    made = []
    for pid in range(count):
        # Samples in clumps of n vary by the square root of n more.
        clump = round(spread**2)
        names = chance.choices(list(SHARES), list(SHARES.values()), k=samples // clump)
        own = {name: clump * names.count(name) for name in SHARES}
        made.append(ProcessProfile(pid, sum(own.values()), own))
    return made


def test_independent_samples_are_taken_for_no_less_than_profiles_of_a_program_spread() -> None:
    assert spread_of(processes(1.0)) == SPREAD


@pytest.mark.parametrize("spread", [2.0, 3.0, 5.0])
def test_what_spreads_further_is_seen(spread: float) -> None:
    assert spread_of(processes(spread)) == pytest.approx(spread, rel=0.25)


@pytest.mark.parametrize(
    "seen",
    [
        [],
        [ProcessProfile(1, 10, {"f": 10})],
        [ProcessProfile(1, 0, {})],
        [ProcessProfile(pid, 0, {"f": 10}) for pid in (1, 2)],
    ],
)
def test_one_process_tells_nothing(seen: list[ProcessProfile]) -> None:
    assert spread_of(seen) == SPREAD
