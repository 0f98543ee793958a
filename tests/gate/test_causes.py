"""The functions and the changed line that a headline names."""

import pytest

from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.causes import describe_cause, is_likely, likeliest, micros
from pytest_flamegate.gate.costs import OTHER
from tests.report import verdicts

PROJECT = verdicts.cost("project", 126.0, 167.0, 62.0, 0.3, 1.1)
LIBRARY = verdicts.cost("__powf_fma", 110.0, 173.0, 10.0, 1e-4, 0.7)
(LINE,) = verdicts.in_pairs().lines


@pytest.mark.parametrize(
    ("part", "certainty", "likely"),
    [(0.5, 0.5, True), (0.49, 9.0, False), (9.0, 0.49, False), (-0.6, 0.9, False)],
)
def test_a_likely_cause_makes_up_half_of_the_change_and_stands_out_of_the_noise(
    part: float, certainty: float, likely: bool
) -> None:
    assert is_likely(part, certainty) is likely


def test_the_likeliest_function_is_named_if_none_is_certain() -> None:
    words = ", most likely project"
    assert describe_cause([PROJECT], []) == words
    smaller = verdicts.cost("other", 90.0, 120.0, 40.0, 0.3, 0.6)
    assert describe_cause([smaller, PROJECT], []) == words
    assert likeliest([smaller, PROJECT]) is PROJECT
    # The bucket of the rest is no function, and a certain one needs no guess.
    assert describe_cause([replace(PROJECT, name=OTHER)], []) == ""
    assert describe_cause([PROJECT, LIBRARY], []) == ", most of it in __powf_fma (70 %)"
    unknown = replace(PROJECT, explains=None)
    assert likeliest([unknown]) is None
    assert describe_cause([unknown], []) == ""


def test_a_certain_line_of_the_change_comes_first() -> None:
    new = replace(LINE, cost=replace(LINE.cost, baseline_us=1.8e-5, current_us=90.3, explains=1.02))
    place = ", 100 % of it at src/norm.c:221-224 (changed here, 0 → 90.3 µs/token)"
    assert describe_cause([LIBRARY], [new]) == f"{place}, most of it in __powf_fma (70 %)"
    assert describe_cause([], [new]) == place
    elsewhere = replace(new, place=replace(new.place, is_changed=False))
    assert describe_cause([], [elsewhere]) == ""


def test_what_is_no_cost_is_zero() -> None:
    assert [micros(each) for each in (1.8e-5, 0.0099, 0.01, 90.34)] == ["0", "0", "0.0100", "90.3"]
