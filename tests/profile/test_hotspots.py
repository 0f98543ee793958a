from __future__ import annotations

from typing import Any

import pytest

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.profile.hotspots import rank_hotspots, require_samples
from pytest_flamegate.profile.model import Stack
from tests.profile.profiles import native, profile, python, system

ROOT = python("measured_sequences", "child.py")
NORM = python("rms_norm", "kernels.py")
GEMV = python("ternary_gemv", "kernels.py")
LINEAR = python("linear", "a.py")


def test_functions_are_ranked_by_their_own_cost() -> None:
    spots = rank_hotspots(profile({(ROOT, NORM): 20, (ROOT, GEMV): 70, (ROOT,): 10}), 0.002)
    shown: list[Any] = [(s.name, s.self_share, s.inclusive_share, s.cpu_s_per_token) for s in spots]
    assert shown == [
        ("ternary_gemv", 0.7, 0.7, pytest.approx(0.0014)),
        ("rms_norm", 0.2, 0.2, pytest.approx(0.0004)),
        ("measured_sequences", 0.1, 1.0, pytest.approx(0.0002)),
    ]
    assert sum(spot.self_samples for spot in spots) == 100
    assert [spot.category for spot in spots] == ["matmul", "norm", "python"]


def test_recursion_counts_once_in_a_stack() -> None:
    spots = rank_hotspots(profile({(ROOT, NORM, NORM, NORM): 4}))
    assert [(s.name, s.self_samples, s.inclusive_samples) for s in spots] == [
        ("rms_norm", 4, 4),
        ("measured_sequences", 0, 4),
    ]


def test_functions_of_one_name_are_one_hotspot_that_shows_the_heaviest() -> None:
    twin = native("linear", "libheavy.so")
    callers: dict[Stack, int] = {(LINEAR, python(f"caller{index}")): 9 for index in range(5)}
    (spot,) = [
        found
        for found in rank_hotspots(
            profile({(LINEAR,): 3, (ROOT, twin): 8, (twin, LINEAR): 1, **callers})
        )
        if found.name == "linear"
    ]
    assert (spot.module, spot.kind) == ("libheavy.so", "native")
    assert spot.self_samples == 12
    assert spot.inclusive_samples == 3 + 8 + 1 + 45


def test_the_order_of_the_stacks_does_not_matter() -> None:
    stacks: dict[Stack, int] = {(ROOT, NORM): 5, (ROOT, GEMV): 5, (ROOT, system("read")): 5}
    backwards = dict(reversed(stacks.items()))
    assert rank_hotspots(profile(stacks)) == rank_hotspots(profile(backwards))
    assert [s.name for s in rank_hotspots(profile(stacks))][:3] == [
        "read",
        "rms_norm",
        "ternary_gemv",
    ]


def test_without_cpu_time_there_is_no_cost() -> None:
    assert rank_hotspots(profile({(ROOT,): 1}))[0].cpu_s_per_token is None


def test_a_profile_without_samples_has_no_hotspots() -> None:
    assert rank_hotspots(profile({})) == ()


@pytest.mark.parametrize(
    ("samples", "floor", "code"),
    [(0, 0, "E_NO_SAMPLES"), (0, 100, "E_NO_SAMPLES"), (99, 100, "E_FEW_SAMPLES"), (100, 100, "")],
)
def test_too_few_samples_are_an_error(samples: int, floor: int, code: str) -> None:
    taken = profile({(ROOT,): samples} if samples else {})
    if code:
        with pytest.raises(UndecidedError, match=code):
            require_samples(taken, floor)
    else:
        require_samples(taken, floor)
