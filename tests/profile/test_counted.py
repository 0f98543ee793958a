"""Instructions as a profile: exact for each function, and honest about what is left out."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.profile.folded import fold_profile, parse_folded
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Frame, Profile, Stack
from pytest_flamegate.profile.profilers.callgrind import CALLERS, Counted
from pytest_flamegate.profile.profilers.instructions import (
    EVAL_LOOP,
    SMALLEST,
    build_instruction_profile,
)


def stack(path: str) -> Stack:
    return tuple(Frame(name, "engine", "native") for name in path.split(">"))


def run(counts: dict[str, int]) -> Counted:
    by_stack = {stack(path): cost for path, cost in counts.items()}
    return Counted(sum(counts.values()), by_stack, (7,), "3.19.0", (), b"")


def taken(long: dict[str, int], short: dict[str, int] | None = None) -> Profile:
    before = None if short is None else run(short)
    return build_instruction_profile(run(long), before, python="", notes=("noted",))


def paths(profile: Profile) -> dict[str, int]:
    return {">".join(f.name for f in each): count for each, count in profile.stacks.items()}


def test_the_difference_says_how_it_was_taken() -> None:
    profile = taken({"main>load": 500, "main>gemv": 900}, {"main>load": 500, "main>gemv": 100})
    assert paths(profile) == {"main>gemv": 800}
    assert (profile.unit, profile.covers, profile.rate_hz) == ("instructions", "decode", 0)
    assert profile.call_graph == f"callers,{CALLERS}"
    assert profile.degraded == ("noted",)
    assert parse_folded(fold_profile(profile)) == profile.stacks


def test_without_a_shorter_run_it_is_the_whole_process() -> None:
    profile = taken({"main>load": 500, "main>gemv": 900})
    assert (profile.samples, profile.covers) == (1400, "process")


def test_less_in_one_stack_is_taken_off_another_of_the_same_function() -> None:
    before = {"main>a>look": 1000, "main>b>look": 100, "main>gemv": 0}
    profile = taken({"main>a>look": 940, "main>b>look": 400, "main>gemv": 9000}, before)
    assert paths(profile) == {"main>b>look": 240, "main>gemv": 9000}
    assert profile.degraded == ("noted",)


def test_a_function_that_took_less_is_left_out_and_told() -> None:
    profile = taken({"main>free": 90, "main>gemv": 1000}, {"main>free": 100, "main>gemv": 0})
    assert paths(profile) == {"main>gemv": 1000}
    assert profile.degraded[1].endswith("are left out: 10 instructions, 1.00%")


def test_small_stacks_keep_their_function_and_lose_their_callers() -> None:
    small = {f"main>{index}>look": 3 for index in range(50)}
    profile = taken({**small, "main>gemv": round(100 / SMALLEST)})
    assert paths(profile) == {"look": 150, "main>gemv": round(100 / SMALLEST)}


def test_stacks_begin_at_the_innermost_eval_loop_and_are_whole_then() -> None:
    profile = taken(
        {
            f"main>{EVAL_LOOP}>call>{EVAL_LOOP}>matmul>sgemv": 500,
            f"vectorcall>{EVAL_LOOP}": 300,
            "main>init": 100,
            "deep>deeper": 100,
        }
    )
    assert paths(profile) == {
        f"{EVAL_LOOP}>matmul>sgemv": 500,
        EVAL_LOOP: 300,
        "main>init": 100,
        "deep>deeper": 100,
    }
    assert profile.completeness == pytest.approx(0.9)


COUNTS = st.dictionaries(
    st.sampled_from(["m>a", "m>b", "m>a>b", "m>b>a", "c>a", "c>b", "m>c", "c"]),
    st.integers(0, 1000),
)


@given(COUNTS, COUNTS)
def test_what_each_function_took_is_exact(long: dict[str, int], short: dict[str, int]) -> None:
    """Whatever the two runs hold; only a function that took less is not in it."""
    own: Counter[str] = Counter()
    for counts, sign in ((long, 1), (short, -1)):
        for path, cost in counts.items():
            own[path.rpartition(">")[2]] += sign * cost
    profile = taken(long, short)
    assert all(count > 0 for count in profile.stacks.values())
    found = (
        {spot.name: spot.self_samples for spot in rank_hotspots(profile)} if profile.samples else {}
    )
    for name, cost in own.items():
        assert found.get(name, 0) == max(cost, 0)
    left_out = -sum(cost for cost in own.values() if cost < 0)
    assert profile.samples - left_out == sum(own.values())
    told = [note for note in profile.degraded if "left out" in note]
    assert bool(told) == (left_out > 0)
