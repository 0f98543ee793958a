"""The difference of two profiles: exact arithmetic, and noise that stays noise."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.profile.difference import (
    PathChange,
    ProfileDifference,
    ProfileSide,
    compare_profiles,
    find_mismatches,
)
from pytest_flamegate.profile.model import Frame, Profile, Stack
from tests.profile.profiles import profile as profile_of


def frame(name: str) -> Frame:
    return Frame(name, f"{name}.py", "python")


def profile(stacks: dict[str, int]) -> Profile:
    """Return a profile of stacks written as ``"root leaf": samples``."""
    return profile_of({tuple(map(frame, text.split())): n for text, n in stacks.items()})


def diff(
    base: dict[str, int], head: dict[str, int], *costs_us: float, cpu_error: float = 0.0
) -> ProfileDifference:
    old, new = (cost * 1e-6 for cost in costs_us) if costs_us else (None, None)
    return compare_profiles(
        ProfileSide("base", profile(base), old, cpu_error),
        ProfileSide("head", profile(head), new, cpu_error),
    )


def function(found: ProfileDifference, name: str):  # type: ignore[no-untyped-def]
    return next(each for each in found.functions if each.frame.name == name)


def paths(found: ProfileDifference) -> dict[str, PathChange]:
    named: dict[str, PathChange] = {}
    remedy = [(path.frame.name, path) for path in found.roots]
    while remedy:
        name, path = remedy.pop()
        named[name] = path
        remedy += [(f"{name} {child.frame.name}", child) for child in path.children]
    return named


def test_a_function_that_got_dearer_is_named_and_its_callers_stay_unchanged() -> None:
    found = diff(
        {"run norm": 620, "run gemv": 9380}, {"run norm": 1640, "run gemv": 9380}, 1000, 1102
    )
    assert found.measure == "cost"
    assert [(each.frame.name, each.state) for each in found.changed] == [("norm", "up")]
    norm = function(found, "norm").own
    assert norm.base == pytest.approx(62e-6)
    assert norm.head == pytest.approx(1640 / 11020 * 1102e-6)
    assert norm.shift_pp == pytest.approx(100 * (1640 / 11020 - 0.062))
    seen = {name: path.state for name, path in paths(found).items()}
    assert seen == {"run": "unchanged", "run norm": "up", "run gemv": "unchanged"}


def test_a_share_that_rose_at_an_unchanged_cost_is_unchanged() -> None:
    """Another function twice as fast: the share of the first rises, its cost does not."""
    base, head = {"run attn": 3140, "run gemv": 6860}, {"run attn": 3140, "run gemv": 3430}
    found = diff(base, head, 1000, 657)
    assert function(found, "attn").own.shift_pp > 15
    assert {each.frame.name: each.state for each in found.changed} == {"gemv": "down"}


def test_without_costs_shares_are_compared() -> None:
    found = diff({"a": 900, "b": 100}, {"a": 500, "b": 500})
    assert found.measure == "share"
    assert function(found, "b").own.base == pytest.approx(0.1)
    assert {each.frame.name: each.state for each in found.changed} == {"a": "down", "b": "up"}


def test_new_and_vanished_functions() -> None:
    found = diff({"run old": 500, "run a": 500}, {"run new": 500, "run a": 500}, 10, 10)
    assert {each.frame.name: each.state for each in found.changed} == {
        "old": "vanished",
        "new": "new",
    }
    assert paths(found)["run old"].state == "vanished"
    assert paths(found)["run new"].state == "new"


def test_a_few_samples_that_come_or_go_are_no_change() -> None:
    found = diff({"a": 997, "b": 3}, {"a": 996, "c": 4}, 10, 10)
    assert found.changed == ()


def test_a_function_spread_over_many_paths_colours_all_that_moved_its_way() -> None:
    base = {f"from{i} norm": 40 for i in range(20)} | {"gemv": 9200}
    head = {f"from{i} norm": 80 for i in range(20)} | {"gemv": 9200}
    head["from0 norm"] = 39
    found = diff(base, head, 1000, 1080)
    states = {name: path.state for name, path in paths(found).items()}
    assert function(found, "norm").state == "up"
    assert states["from1 norm"] == "up"
    assert states["from0 norm"] == "unchanged"
    assert states["from1"] == "unchanged"


def test_recursion_counts_once_in_the_inclusive_change() -> None:
    found = diff({"walk walk walk": 10, "walk": 10}, {"walk walk": 20}, 10, 10)
    walk = function(found, "walk")
    assert (walk.inclusive.base_samples, walk.inclusive.head_samples) == (20, 20)
    assert (walk.own.base_samples, walk.own.head_samples) == (20, 20)


def test_an_uncertain_cpu_time_makes_every_cost_uncertain() -> None:
    base, head = {"a": 100_000}, {"a": 100_000}
    assert function(diff(base, head, 1000, 1050), "a").state == "up"
    assert function(diff(base, head, 1000, 1050, cpu_error=0.03), "a").state == "unchanged"


def test_exact_counts_are_compared_by_themselves() -> None:
    counted = {"unit": "instructions"}
    base = replace(profile({"a": 1_000_000, "b": 1_000_000}), **counted)  # type: ignore[arg-type]
    head = replace(profile({"a": 1_050_000, "b": 1_002_000}), **counted)  # type: ignore[arg-type]
    found = compare_profiles(ProfileSide("base", base), ProfileSide("head", head))
    assert found.measure == "count"
    assert [(each.frame.name, each.own.change) for each in found.changed] == [("a", 50_000.0)]


def test_two_profiles_of_one_program_show_a_change_in_one_of_a_hundred_at_most() -> None:
    weights = {"gemv": 0.6, "attn": 0.2, "norm": 0.1, "python": 0.07, "copy": 0.03}
    chance = random.Random(7)

    def sampled() -> dict[str, int]:
        drawn = chance.choices(list(weights), list(weights.values()), k=2000)
        return {name: drawn.count(name) for name in weights}

    alarms = sum(bool(diff(sampled(), sampled(), 100, 100).changed) for _ in range(300))
    assert alarms <= 8  # 3 are expected at most; independent samples spread less than SPREAD


def test_as_many_paths_of_one_program_show_a_change_as_functions_do() -> None:
    callers = [f"caller{number} f" for number in range(200)]
    chance = random.Random(7)

    def sampled() -> dict[str, int]:
        # In clumps of two the shares spread as much as profiles of one program may.
        drawn = Counter(chance.choices(callers, k=5000))
        return {path: 2 * count for path, count in drawn.items()}

    found = [paths(diff(sampled(), sampled(), 100, 100)) for _ in range(40)]
    alarms = sum(any(path.state != "unchanged" for path in each.values()) for each in found)
    assert alarms <= 3


def test_equal_profiles_differ_by_nothing() -> None:
    found = diff({"a b": 10, "a": 5}, {"a b": 10, "a": 5}, 10, 10)
    assert found.changed == ()
    assert all(each.own.change == 0.0 and each.own.z == 0.0 for each in found.functions)
    assert found.total.change == 0.0


def test_a_profile_without_samples_is_refused() -> None:
    with pytest.raises(UndecidedError, match="E_NO_SAMPLES"):
        diff({}, {"a": 1}, 10, 10)


def test_the_samples_are_added_up_once_and_not_for_every_path() -> None:
    class Watched(dict[Stack, int]):
        asked = 0

        def values(self):  # type: ignore[no-untyped-def]
            Watched.asked += 1
            return super().values()

    stacks = Watched({(frame("run"), frame(f"f{i}")): 9 for i in range(200)})
    side = ProfileSide("base", profile_of(stacks), 1e-3)
    Watched.asked = 0
    assert len(compare_profiles(side, side).roots[0].children) == 200
    assert Watched.asked < 5


def test_a_stack_deeper_than_pythons_own() -> None:
    deep: Stack = tuple(frame(f"f{i}") for i in range(5000))
    side = profile_of({deep: 10})
    found = compare_profiles(ProfileSide("base", side), ProfileSide("head", side))
    assert len(found.roots) == 1


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("profiler", "other", "profiler"),
        ("event", "cpu-clock:u", "event"),
        ("rate_hz", 1, "rate (Hz)"),
        ("call_graph", "fp", "call graph"),
        ("python", "3.12.1", "Python"),
        ("covers", "process", "what is covered"),
        ("rate_hz", 0, "rate (Hz)"),
    ],
)
def test_what_was_not_taken_alike_is_named(name: str, value: object, told: str) -> None:
    one = replace(profile({"a": 1}), python="3.11.7")
    other = replace(one, **{name: value})  # type: ignore[arg-type]
    assert [each.what for each in find_mismatches(one, other)] == [told]


def test_a_patch_release_of_python_is_no_mismatch() -> None:
    one = replace(profile({"a": 1}), python="3.11.7")
    assert find_mismatches(one, replace(one, python="3.11.9")) == ()


def test_of_counts_of_time_nobody_knows_the_noise() -> None:
    one = replace(profile({"a": 1000}), unit="nanoseconds")
    assert [str(each) for each in find_mismatches(one, one)] == [
        "noise: unknown of nanoseconds and unknown of nanoseconds"
    ]
