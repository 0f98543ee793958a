"""How unlike processes of the same code are: φ of machines of known truth."""

from __future__ import annotations

from random import Random

import pytest

from pytest_flamegate.gate.shares import share_spreads
from tests.gate.factory import profiles, sampled

SHARES = {"gemv": 0.55, "attention": 0.25, "rms_norm": 0.05, "tiny": 0.004}


@pytest.mark.parametrize(("spread", "low", "high"), [(0.0, 0.8, 1.25), (0.1, 3.0, 8.0)])
def test_phi_is_one_for_independent_samples_and_more_with_a_spread(
    spread: float, low: float, high: float
) -> None:
    random = Random(5)
    counts = [sampled(random, SHARES, 2000, spread) for _ in range(200)]
    found = {each.name: each for each in share_spreads(profiles(counts, 2000))}
    assert list(found) == ["gemv", "attention", "rms_norm"]
    assert low < found["gemv"].phi < high
    assert abs(found["attention"].share - 0.25) < 0.01


def test_one_process_says_nothing() -> None:
    assert share_spreads(profiles([{"gemv": 500}])) == ()
    assert share_spreads(()) == ()
    empty = profiles([{}], 0)
    assert share_spreads((*profiles([{"gemv": 500}]), *empty)) == ()
