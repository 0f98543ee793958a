from __future__ import annotations

import dataclasses
import math

import pytest

from pytest_flamegate.profile.difference import ProfileSide, compare_profiles
from pytest_flamegate.profile.model import Stack
from pytest_flamegate.report.difference import (
    SHARES_ONLY,
    Scale,
    answer,
    rows,
    state_words,
    told_z,
    unit_of,
    whole,
    z_words,
)
from pytest_flamegate.report.difference_svg import difference_svg
from tests.report import factory
from tests.report.differences import STACKS, compared, slowed


def renamed(old: str, new: str) -> dict[Stack, int]:
    return {
        (*stack[:-1], factory.python(new)) if stack[-1].name == old else stack: count
        for stack, count in STACKS.items()
    }


def test_the_answer_names_what_changed_by_how_much_and_how_surely() -> None:
    said = answer(compared(slowed("rms_norm", 2.0)))
    assert said.startswith("rms_norm costs 100 → 200 µs/token (+100 ± ")
    assert said.endswith("); nothing else changed beyond sampling noise")


def test_nothing_is_said_to_be_nothing() -> None:
    assert answer(compared(STACKS)).startswith(
        "no difference beyond sampling noise: 2,000 → 2,000 µs/token (0 ± "
    )


def test_a_whole_that_changed_with_no_function_certain_names_the_likeliest() -> None:
    base, head = (
        ProfileSide(
            name, factory.profile({stack: max(n // 40, 1) for stack, n in stacks.items()}), cost
        )
        for name, stacks, cost in (("a", STACKS, 2.0e-3), ("b", slowed("rms_norm", 1.5), 2.2e-3))
    )
    found = compare_profiles(base, head)
    assert found.changed == ()
    assert answer(found).startswith("the whole costs 2,000 → 2,200 µs/token (+200 ± ")
    assert f"most likely {found.functions[0].frame.name} costs" in answer(found)


def test_what_is_new_and_what_is_gone_is_said_in_these_words() -> None:
    said = answer(compared(renamed("softmax", "softmax_fast")))
    assert "softmax is gone (140 µs/token before)" in said
    assert "softmax_fast is new and costs 140 µs/token" in said


def test_of_many_changes_three_are_named_and_the_others_counted() -> None:
    head = STACKS
    for name in ("ternary_gemv", "rms_norm", "attention", "softmax", "decode_step"):
        head = slowed(name, 2.0, head)
    said = answer(compared(head)).split("; ")
    assert [part.split()[0] for part in said] == ["ternary_gemv", "attention", "softmax", "2"]
    assert said[-1] == "2 more changed"


def test_shares_are_larger_and_not_dearer() -> None:
    found = compared(slowed("rms_norm", 3.0), costs=False)
    assert "% of the samples" in answer(found)
    assert answer(found).startswith("rms_norm takes 5 → 13.6 % of the samples (+8.6 ± ")
    assert state_words(found, "up") == "larger"


def test_exact_counts_are_told_as_instructions() -> None:
    base, head = (
        ProfileSide(name, dataclasses.replace(factory.profile(stacks), unit="instructions"))
        for name, stacks in (("a", STACKS), ("b", slowed("rms_norm", 2.0)))
    )
    assert answer(compare_profiles(base, head)).startswith(
        "rms_norm executes 1,000 → 2,000 instructions (+1,000 ± "
    )


def test_shares_are_of_what_the_profiles_count() -> None:
    base, head = (
        ProfileSide(name, dataclasses.replace(factory.profile(stacks), unit="nanoseconds"))
        for name, stacks in (("a", STACKS), ("b", slowed("rms_norm", 3.0)))
    )
    found = compare_profiles(base, head)
    assert "% of the nanoseconds" in answer(found)
    assert whole(found) == "20,000 and 22,000 nanoseconds"
    picture = difference_svg(found, title="t", subtitle="s")
    assert "600 → 1,800 nanoseconds" in picture
    assert "width: share of nanoseconds" in picture
    assert "samples" not in SHARES_ONLY
    assert (
        unit_of(compare_profiles(dataclasses.replace(base, profile=factory.profile()), head))
        == "count"
    )


@pytest.mark.parametrize(
    ("z", "shown", "held"),
    [(3.14, "+3.1", 3.1), (-2.0, "−2.0", -2.0), (math.inf, "–", 1e6), (-math.inf, "–", -1e6)],
)
def test_a_z_without_an_end_is_a_dash_that_sorts(z: float, shown: str, held: float) -> None:
    assert (z_words(z), told_z(z)) == (shown, held)


def test_the_last_row_is_everything_else() -> None:
    first, rest = rows(compared(slowed("rms_norm", 2.0)))
    assert (first.rank, first.name, first.said) == ("1", "rms_norm", "dearer")
    assert (first.before, first.after, first.change) == ("100", "200", "+100")
    assert (first.share, first.shift) == ("5.0 % → 9.5 %", "+4.5 pp")
    assert float(first.z) > 4
    assert (rest.name, rest.said, rest.before, rest.after, rest.change) == (
        "everything else", "unchanged", "1,900", "1,900", "0"
    )  # fmt: skip


def test_rows_that_are_not_shown_are_counted_in_the_last_one() -> None:
    head = slowed("rms_norm", 3.0, slowed("attention", 3.0))
    shown = rows(compared(head), most=1)
    assert [row.name for row in shown] == ["attention", "everything else (1 more changed)"]


def test_what_was_not_there_has_no_figure() -> None:
    by_name = {row.name: row for row in rows(compared(renamed("softmax", "softmax_fast")))}
    assert (by_name["softmax"].after, by_name["softmax_fast"].before) == ("–", "–")
    assert by_name["softmax"].change == "−140"


@pytest.mark.parametrize(
    ("seconds", "unit", "shown"), [(2e-3, "µs/token", "2,000"), (0.25, "ms/token", "250")]
)
def test_the_unit_follows_the_whole(seconds: float, unit: str, shown: str) -> None:
    side = ProfileSide("a", factory.profile(STACKS), seconds)
    scale = Scale.of(compare_profiles(side, side))
    assert (scale.unit, scale.bare(seconds)) == (unit, shown)
