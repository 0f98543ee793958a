"""The difference of two profiles: exact arithmetic, and noise that stays noise."""

import math
import random
from collections import Counter
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import pytest

from pytest_flamegate.core.errors import ToolError, UndecidedError
from pytest_flamegate.profile.difference import (
    COUNT_ERROR,
    SPREAD,
    FunctionChange,
    PathChange,
    ProfileDifference,
    ProfileSide,
    compare_profiles,
)
from pytest_flamegate.profile.model import Frame, Profile, Stack, find_mismatches, merge_profiles
from tests.profile.profiles import profile as profile_of


def frame(name: str) -> Frame:
    """Return a frame of ``name``, or of ``name@module``."""
    name, _, module = name.partition("@")
    return Frame(name, module or f"{name}.py", "python")


def profile(stacks: dict[str, int], **changes: Any) -> Profile:
    """Return a profile of stacks written as ``"root leaf": samples``."""
    return profile_of({tuple(map(frame, text.split())): n for text, n in stacks.items()}, **changes)


def compare(
    base: dict[str, int], head: dict[str, int], *costs_us: float, **sides: Any
) -> ProfileDifference:
    old, new = (cost * 1e-6 for cost in costs_us) if costs_us else (None, None)
    return compare_profiles(
        ProfileSide("base", profile(base), old, **sides),
        ProfileSide("head", profile(head), new, **sides),
    )


def function(found: ProfileDifference, name: str) -> FunctionChange:
    (only,) = [each for each in found.functions if each.frame.name == name]
    return only


def states(found: ProfileDifference) -> dict[str, str]:
    return {each.frame.name: each.state for each in found.changed}


def paths(found: ProfileDifference) -> dict[str, PathChange]:
    named: dict[str, PathChange] = {}
    pending = [(path.frame.name, path) for path in found.roots]
    while pending:
        name, path = pending.pop()
        assert name not in named
        named[name] = path
        pending += [(f"{name} {child.frame.name}", child) for child in path.children]
    return named


def path_states(found: ProfileDifference) -> dict[str, str]:
    return {name: path.state for name, path in paths(found).items()}


# What is compared.


def test_a_function_that_got_slower_is_named_and_its_callers_stay_unchanged() -> None:
    found = compare(
        {"run norm": 620, "run gemv": 9380}, {"run norm": 1640, "run gemv": 9380}, 1000, 1102
    )
    assert found.measure == "cost"
    assert states(found) == {"norm": "up"}
    norm = function(found, "norm").own
    assert (norm.base, norm.head) == pytest.approx((62e-6, 1640 / 11020 * 1102e-6))
    assert norm.change == pytest.approx(102e-6)
    assert (norm.base_share, norm.head_share) == (0.062, 1640 / 11020)
    assert norm.shift_pp == pytest.approx(100 * (1640 / 11020 - 0.062))
    assert path_states(found) == {"run": "unchanged", "run norm": "up", "run gemv": "unchanged"}
    run = function(found, "run")
    assert (run.own.base_samples, run.inclusive.base_samples) == (0, 10_000)
    assert (found.total.base, found.total.head) == pytest.approx((1000e-6, 1102e-6))


def test_a_share_that_rose_at_an_unchanged_cost_is_unchanged() -> None:
    """Another function is twice as fast: the share of the first rises, its cost does not."""
    base, head = {"run attn": 3140, "run gemv": 6860}, {"run attn": 3140, "run gemv": 3430}
    found = compare(base, head, 1000, 657)
    assert function(found, "attn").own.shift_pp > 15
    assert states(found) == {"gemv": "down"}


def test_without_a_cost_on_both_sides_shares_are_compared() -> None:
    found = compare({"a": 900, "b": 100}, {"a": 500, "b": 500})
    assert found.measure == "share"
    assert function(found, "b").own.base == pytest.approx(0.1)
    assert states(found) == {"a": "down", "b": "up"}
    one, other = ProfileSide("b", profile({"a": 9}), 1e-3), ProfileSide("h", profile({"a": 9}))
    assert compare_profiles(one, other).measure == "share"
    assert compare_profiles(other, one).measure == "share"
    # No CPU time at all is no cost either, of which nothing could be a part.
    assert compare({"a": 9}, {"a": 9}, 0.0, 0.0).measure == "share"


def test_exact_counts_are_compared_by_themselves() -> None:
    base = profile({"z": 1_000_000, "b": 1_000_000}, unit="instructions")
    head = profile({"z": 1_050_000, "b": 1_002_000, "c": 50}, unit="instructions")
    found = compare_profiles(ProfileSide("b", base, 1e-3), ProfileSide("h", head, 1e-3))
    assert found.measure == "count"
    changed = [(each.frame.name, each.own.change) for each in found.changed]
    assert changed == [("z", 50_000.0), ("c", 50.0)]
    assert [each.frame.name for each in found.functions] == ["z", "b", "c"]
    error = COUNT_ERROR * math.hypot(1_000_000, 1_050_000)
    assert function(found, "z").own.error == pytest.approx(error)
    assert function(found, "c").state == "new"
    mixed = compare_profiles(ProfileSide("b", base), ProfileSide("h", profile({"a": 9})))
    assert mixed.measure == "share"


def test_a_profile_without_samples_is_an_error() -> None:
    for base, head in (({}, {"a": 1}), ({"a": 1}, {})):
        with pytest.raises(UndecidedError, match="E_NO_SAMPLES"):
            compare(base, head, 10, 10)


# What is noise.


def test_the_error_of_a_cost_is_that_of_its_share_and_of_the_clock() -> None:
    found = compare({"a": 30, "b": 70}, {"a": 0, "b": 200}, 2000, 1000, cpu_error=0.01)
    own = function(found, "a").own
    base, head = 30.5 / 101, 0.5 / 201
    assert own.error == pytest.approx(
        math.sqrt(
            (SPREAD * 2e-3) ** 2 * base * (1 - base) / 100
            + (SPREAD * 1e-3) ** 2 * head * (1 - head) / 200
        )
    )
    assert own.z == pytest.approx(-0.6e-3 / own.error)
    # b costs 1.4 ms, then 1 ms. Both clocks err by 1 %, and with them the logarithm of the ratio.
    other = function(found, "b").own
    clock = math.sqrt(2) * 0.01 * 0.4e-3 / math.log(1.4)
    assert other.error == pytest.approx(math.hypot(own.error, clock))
    less = function(compare({"a": 30, "b": 70}, {"a": 30, "b": 70}, 1, 1, spread=1.0), "a").own
    assert less.error == pytest.approx(math.sqrt(2 * base * (1 - base) / 100) * 1e-6)


def test_the_whole_has_the_error_of_the_clocks_and_no_sampling_noise() -> None:
    found = compare({"a": 300}, {"a": 300}, 1000, 1030, cpu_error=0.001)
    clock = math.sqrt(2) * 0.001 * 30e-6 / math.log(1.03)
    assert found.total.error == pytest.approx(clock)
    assert abs(found.total.z) > found.certain_z
    # Of a function that has all samples, another one may have some.
    assert function(found, "a").own.error > clock
    assert compare({"a": 300}, {"a": 300}).total.error == 0.0


def test_the_certain_z_allows_one_false_alarm_in_a_hundred_comparisons() -> None:
    """Two-sided, and divided among the functions that have samples enough to change."""
    one_in = {count: NormalDist().inv_cdf(1 - 0.005 / count) for count in (1, 2, 3)}
    assert compare({"a": 50}, {"a": 50}).certain_z == pytest.approx(one_in[1])
    assert compare({"a": 50, "b": 50}, {"a": 50}).certain_z == pytest.approx(one_in[2])
    few = {"a": 50, "b": 3, "c": 2}
    assert compare(few, {"a": 50, "b": 2, "c": 2}).certain_z == pytest.approx(one_in[2])
    assert compare(few, {"a": 50, "b": 2, "c": 3}).certain_z == pytest.approx(one_in[3])
    assert compare({"a": 1}, {"a": 1}).certain_z == pytest.approx(one_in[1])


def test_two_profiles_of_one_program_show_a_change_in_one_of_a_hundred_at_most() -> None:
    weights = {"gemv": 0.6, "attn": 0.2, "norm": 0.1, "python": 0.07, "copy": 0.03}
    chance = random.Random(7)

    def sampled() -> dict[str, int]:
        # In clumps of two the shares spread nearly as much as profiles of one program may.
        drawn = Counter(chance.choices(list(weights), list(weights.values()), k=1000))
        return {name: 2 * count for name, count in drawn.items()}

    alarms = sum(bool(compare(sampled(), sampled(), 100, 100).changed) for _ in range(300))
    assert 0 < alarms <= 8  # 3 are expected


def test_equal_profiles_differ_by_nothing_and_an_exact_change_has_no_limit() -> None:
    # Samples without a stack belong to no function.
    found = compare({"a b": 10, "a": 5, "": 5}, {"a b": 10, "a": 5, "": 5}, 10, 10)
    assert (found.changed, found.total.change) == ((), 0.0)
    assert {each.frame.name: each.own.base_share for each in found.functions} == {
        "a": 0.25,
        "b": 0.5,
    }
    assert all(each.own.change == 0.0 and each.own.z == 0.0 for each in found.functions)
    exact = replace(found.total, base=0.0, head=0.0, error=0.0)
    assert exact.z == 0.0
    for cost in (1.0, -1.0):
        assert replace(exact, head=cost).z == math.copysign(math.inf, cost)


# What is new.


def test_new_and_vanished_functions() -> None:
    found = compare({"run old": 500, "run a": 500}, {"run new": 500, "run a": 500}, 10, 10)
    assert states(found) == {"old": "vanished", "new": "new"}
    one_sided = {name: path.one_sided for name, path in paths(found).items()}
    assert one_sided == {"run": None, "run old": "vanished", "run new": "new", "run a": None}


@pytest.mark.parametrize(("samples", "state"), [(49, "up"), (50, "new")])
def test_a_function_that_could_not_have_been_seen_is_not_new(samples: int, state: str) -> None:
    """A tenth of its cost must be five samples of the other side, else it may have been there."""
    base, head = {"run": 500}, {"run": 500 - samples, "norm": samples}
    assert function(compare(base, head, 100, 100), "norm").state == state
    back = function(compare(head, base, 100, 100), "norm")
    assert back.state == {"up": "down", "new": "vanished"}[state]


def test_detectability_is_a_matter_of_cost_and_not_of_share() -> None:
    """The head's token costs four times as much: 3 % of it are 12 % of a token of the base."""
    found = compare({"run": 500}, {"run": 970, "norm": 30}, 100, 400)
    assert function(found, "norm").state == "new"
    assert function(compare({"run": 500}, {"run": 970, "norm": 30}), "norm").state == "up"


@pytest.mark.parametrize(
    ("base", "head", "changed"),
    [
        ({"run norm": 500}, {"run norm": 400, "run": 100}, {"run": "up", "norm": "down"}),
        ({"run norm": 400, "run": 100}, {"run norm": 500}, {"run": "down", "norm": "up"}),
        ({"run": 999, "norm": 1}, {"run": 900, "norm": 100}, {"run": "down", "norm": "up"}),
        ({"a": 997, "b": 3}, {"a": 996, "c": 4}, {}),
    ],
    ids=["only called others", "only calls others now", "a few samples", "came or went"],
)
def test_a_function_that_was_there_is_not_new(
    base: dict[str, int], head: dict[str, int], changed: dict[str, str]
) -> None:
    assert states(compare(base, head, 10, 10)) == changed


# Where it is called.


def test_a_function_that_is_called_elsewhere_is_neither_new_nor_cheaper() -> None:
    found = compare({"run norm": 500, "run": 500}, {"run wrap norm": 500, "run": 500}, 10, 10)
    both = paths(found)
    assert {each.state for each in both.values()} == {"unchanged"}
    assert (both["run norm"].one_sided, both["run wrap norm"].one_sided) == (None, None)
    assert found.one_sided_call(both["run norm"]) == "vanished"
    assert found.one_sided_call(both["run wrap norm"]) == "new"
    assert found.one_sided_call(both["run"]) is None
    few = compare({"run norm": 1, "run": 999}, {"run wrap norm": 1, "run": 999}, 10, 10)
    assert found.one_sided_call(both["run wrap"]) == "new"
    assert few.one_sided_call(paths(few)["run norm"]) is None


@pytest.mark.parametrize("head", ["run norm norm", "run norm norm norm"])
def test_recursion_and_a_wrapper_of_the_same_name_are_one_entry(head: str) -> None:
    """So an injected slowdown, whose wrapper has the name of its function, is one box."""
    found = compare({"run norm": 300, "run": 700}, {head: 300, "run norm": 300, "run": 700}, 10, 13)
    assert states(found) == {"norm": "up"}
    assert path_states(found) == {"run": "unchanged", "run norm": "up"}
    assert paths(found)["run norm"].head_self == 600


def test_a_caller_of_the_same_name_in_another_file_is_one_row_and_two_boxes() -> None:
    stacks = {"run forward@model.py forward@layer.py": 300, "run": 700}
    found = compare(stacks, stacks, 10, 10)
    assert [each.frame.name for each in found.functions] == ["forward", "run"]
    assert list(paths(found)) == ["run", "run forward", "run forward forward"]


def test_a_function_spread_over_many_paths_colours_all_that_moved_its_way() -> None:
    base = {f"from{i} norm": 40 for i in range(20)} | {"gemv": 9200}
    head = {f"from{i} norm": 80 for i in range(20)} | {"gemv": 9200}
    head["from0 norm"] = 39
    found = compare(base, head, 1000, 1080)
    drawn = path_states(found)
    assert function(found, "norm").state == "up"
    assert drawn["from1 norm"] == "up"
    assert drawn["from0 norm"] == "unchanged"
    assert drawn["from1"] == "unchanged"
    back = path_states(compare(head, base, 1080, 1000))
    assert (back["from1 norm"], back["from0 norm"]) == ("down", "unchanged")


def test_a_path_is_idle_if_it_only_hands_on_to_one_function() -> None:
    found = compare({"go run a": 9, "go run b": 9}, {"go run a": 9, "go run b": 9})
    idle = {name: path.is_idle for name, path in paths(found).items()}
    assert idle == {"go": True, "go run": False, "go run a": False, "go run b": False}
    worked = compare({"go run": 9}, {"go run": 9, "go": 1})
    assert not paths(worked)["go"].is_idle
    came = paths(compare({"go": 500}, {"go": 100, "go wrap run": 400}, 10, 10))["go wrap"]
    assert (came.one_sided, came.is_idle) == ("new", False)
    assert not paths(compare({"go run": 9, "go": 1}, {"go run": 9}))["go"].is_idle


def test_a_stack_deeper_than_pythons_own() -> None:
    deep: Stack = tuple(frame(f"f{i}") for i in range(5000))
    side = profile_of({deep: 10})
    found = compare_profiles(ProfileSide("base", side), ProfileSide("head", side))
    assert len(found.roots) == 1


# Which function is which.


def test_a_function_that_moved_to_another_file_is_the_same_function() -> None:
    base = {"run@old/app.py norm@old/ops.py": 500, "run@old/app.py gemv@old/ops.py": 500}
    head = {"run@new/src/app.py norm@new/src/ops.py": 1000, "run@new/src/app.py gemv@k.py": 500}
    found = compare(base, head, 100, 150)
    assert states(found) == {"norm": "up"}
    assert path_states(found) == {"run": "unchanged", "run norm": "up", "run gemv": "unchanged"}
    assert function(found, "norm").frame.module == "new/src/ops.py"
    assert {each.one_sided for each in found.functions} == {None}


def test_of_several_functions_of_one_name_those_in_files_of_one_name_are_the_same() -> None:
    base = {"run f@a/x.py": 100, "run f@a/y.py": 200, "run f@z.py": 300}
    head = {"run f@b/y.py": 200, "run f@b/x.py": 100, "run f@z.py": 300, "run f@c/w.py": 5}
    (run,) = compare(base, head, 10, 10).roots
    assert [(each.frame.module, each.base_self, each.head_self) for each in run.children] == [
        ("b/x.py", 100, 100),
        ("b/y.py", 200, 200),
        ("c/w.py", 0, 5),
        ("z.py", 300, 300),
    ]


def test_a_function_that_was_rewritten_in_c_is_the_same_function() -> None:
    base = profile_of({(frame("run"), frame("norm")): 500})
    head = profile_of({(frame("run"), Frame("norm", "ops.so", "native")): 500})
    (run,) = compare_profiles(ProfileSide("b", base), ProfileSide("h", head)).roots
    assert [(path.frame.kind, path.base_self) for path in run.children] == [("native", 500)]


def test_a_baseline_of_version_0_1_is_compared_by_function() -> None:
    """Its embedded engine stood elsewhere, and it shows frames of flamegate itself."""
    old, new = "pytest_flamegate/workload/child.py", "pytest_flamegate/child/serve.py"
    kernels = {"old": "pytest_flamegate/embedded/kernels.py"}
    kernels["new"] = "pytest_flamegate/child/embedded/kernels.py"
    base = {
        f"measured_sequences@{old} norm@{kernels['old']}": 500,
        f"measured_sequences@{old} began@{old}": 2,
        f"_run_code@<frozen-runpy> guarded@{old} _write@pytest_flamegate/workload/wire.py": 3,
    }
    head = {f"measured_sequences@{new} norm@{kernels['new']}": 500}
    found = compare(base, head, 10, 10)
    assert sorted(paths(found)) == ["[flamegate]", "measured_sequences", "measured_sequences norm"]
    assert states(found) == {}


# Under which conditions.


@pytest.mark.parametrize(
    ("name", "value", "condition"),
    [
        ("profiler", "other", "profiler"),
        ("unit", "instructions", "unit"),
        ("event", "cpu-clock:u", "event"),
        ("rate_hz", 1, "rate (Hz)"),
        ("call_graph", "fp", "call graph"),
        ("python", "3.12.1", "Python"),
        ("covers", "process", "phase"),
    ],
)
def test_a_condition_that_differs_is_named_and_profiles_are_not_pooled(
    name: str, value: object, condition: str
) -> None:
    one = replace(profile({"a": 1}), python="3.11.7")
    other = replace(one, **{name: value})  # type: ignore[arg-type]
    (found,) = find_mismatches(one, other)
    assert found.condition == condition
    assert str(found).startswith(f"{condition}: ")
    assert compare_profiles(ProfileSide("b", one), ProfileSide("h", other)).mismatches == (found,)
    with pytest.raises(ToolError, match="E_PROFILES_DIFFER"):
        merge_profiles([one, other])


def test_patch_releases_of_python_match_and_a_condition_stated_once_does_not() -> None:
    one = replace(profile({"a": 1}), python="3.11.7")
    with pytest.raises(ToolError, match="E_PROFILES_DIFFER"):
        merge_profiles([one, replace(one, profiler_version="6.2")])
    assert find_mismatches(one, replace(one, python="3.11.9")) == find_mismatches(one, one) == ()
    assert str(find_mismatches(replace(one, python=""), one)[0]) == "Python: unknown and 3.11"


def test_the_noise_of_times_is_unknown() -> None:
    one = profile({"a": 1000}, unit="nanoseconds")
    (found,) = find_mismatches(one, one)
    assert str(found) == "noise: unknown of nanoseconds and unknown of nanoseconds"


def test_a_function_judged_over_processes_is_as_certain_as_its_verdict() -> None:
    old, new = (
        ProfileSide(name, profile({"a": 1_000, "b": count}), (1_000 + count) * 1e-6)
        for name, count in (("base", 200), ("head", 230))
    )
    assert states(compare_profiles(old, new)) == {}
    found = compare_profiles(old, new, {"b": 1.01, "a": 0.5, "elsewhere": 9.0})
    assert states(found) == {"b": "up"}
    assert function(found, "b").own.z == pytest.approx(1.01 * found.certain_z)
    assert states(compare_profiles(old, new, {"b": 0.99})) == {}
