"""Figures and notes next to the judged ones: wall rate, instructions, output, programs."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType

import pytest

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.core.git import Commit
from pytest_flamegate.gate import Signal, read_measurement
from pytest_flamegate.gate.ungated import find_notes, instruction_signals, wall_signal
from pytest_flamegate.observe.build import Build, Program
from pytest_flamegate.receipt.types import Evidence
from tests import made
from tests.gate.factory import QUIET, baseline, evidence, scaled

HERE = Commit("a" * 40, "main", 0, "tree")


def test_wall_rate_is_shown_and_never_gated() -> None:
    old, new = read_measurement(baseline()), read_measurement(evidence(scaled(QUIET, 2.0)))
    signal = wall_signal(old, new)
    assert signal.decision == "not_gated"
    assert signal.change_pct == pytest.approx(-50.0, abs=0.1)
    assert wall_signal(None, new).change_pct is None


def compare_counts(before: float | None, after: float | None) -> tuple[Signal, ...]:
    old, new = (
        evidence(metrics=() if value is None else (made.metric("instructions_per_token", value),))
        for value in (before, after)
    )
    return instruction_signals(old, new)


@pytest.mark.parametrize(
    ("before", "after", "change_pct", "words"),
    [
        (1e6, 1e6, 0.0, "unchanged to 0.01 %"),
        (1e6, 1e6 + 40.0, 0.004, "unchanged to 0.01 %"),
        (1e6, 1e6 + 60.0, 0.006, "0.01 % more"),
        (4.895e6, 5.1397e6, 4.999, "5.00 % more"),
        (2.0, 1.0, -50.0, "50.00 % fewer"),
    ],
)
def test_instructions_are_shown_and_not_gated(
    before: float, after: float, change_pct: float, words: str
) -> None:
    (signal,) = compare_counts(before, after)
    assert (signal.baseline, signal.current) == (before, after)
    assert (signal.name, signal.unit) == ("instructions_per_token", "instructions")
    assert (signal.direction, signal.decision) == ("lower_is_better", "not_gated")
    assert signal.change_pct == pytest.approx(change_pct, abs=1e-3)
    (reason,) = signal.reasons
    assert reason.code == "I_INSTRUCTIONS"
    assert reason.message.startswith(f"Instructions per token: {words}. This counts work, not time")


def test_a_count_of_one_side_is_shown_alone() -> None:
    assert compare_counts(1000.0, None) == ()
    (signal,) = compare_counts(None, 1000.0)
    assert (signal.baseline, signal.current, signal.change_pct) == (None, 1000.0, None)
    assert signal.reasons == ()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_an_impossible_count_is_an_error(bad: float) -> None:
    for sides in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(UndecidedError, match="E_IMPOSSIBLE_FIGURE: The number of instr"):
            compare_counts(*sides)
    with pytest.raises(UndecidedError, match="E_IMPOSSIBLE_FIGURE: The change from 1e-308"):
        compare_counts(1e-308, 1e308)


# --- notes ---------------------------------------------------------------------------------


def program(sha256: str, flags: str | None = None, *, inside: bool = True) -> Program:
    build = None
    if flags is not None:
        build = Build(("make",), True, MappingProxyType({"CFLAGS": flags}))
    return Program("bin/engine", sha256 * 64, 10, inside, build=build)


def notes(old: Evidence | None, new: Evidence) -> dict[str, str]:
    return {reason.code: reason.message for reason in find_notes(old, new)}


def test_a_plain_run_has_no_notes() -> None:
    assert notes(None, evidence()) == notes(baseline(), evidence()) == {}


@pytest.mark.parametrize(
    ("at", "later", "words"),
    [
        (1, "9", "token 1 was 'b' in the first run and '9' in a later one"),
        (1, None, "token 1 was 'b' in the first run and missing, because it had ended, in a later"),
        (2, "c", "token 2 was missing, because it had ended, in the first run and 'c' in a later"),
        (0, "x" * 41, f"in the first run and '{'x' * 39}…' in a later"),
        (0, "x" * 40, f"in the first run and '{'x' * 40}' in a later"),
    ],
)
def test_the_first_token_that_differs_is_shown(at: int, later: str | None, words: str) -> None:
    found = replace(evidence(), tokens=("a", "b"), differs_at=at, differs_to=later)
    assert words in notes(None, found)["W_NOT_DETERMINISTIC"]


def test_variables_that_were_not_as_requested_are_named() -> None:
    asked = {"A": "1", "B": "2", "C": "3"}
    plain = replace(evidence(), requested_environment=asked, program=program("1"))
    had = replace(plain, effective_environment={"A": "1", "B": "8", "Z": "0"})
    message = notes(None, had)["W_ENVIRONMENT"]
    assert "B was '8' and not '2', C was not set, and not '3'. A wrapper script" in message
    assert notes(None, replace(plain, effective_environment={})) == {}
    assert notes(None, replace(had, program=None)) == {}
    many = replace(had, requested_environment={f"V{i}": "1" for i in range(6)})
    assert "V3 was not set, and not '1' and 2 more. A" in notes(None, many)["W_ENVIRONMENT"]


def test_two_sides_of_one_program_are_reported() -> None:
    old = replace(baseline(), program=program("1"), side="base")
    new = replace(evidence(), program=program("1"), side="head")
    assert "very same program, bin/engine" in notes(old, new)["W_SAME_PROGRAM"]
    assert notes(old, replace(new, program=program("2"))) == {}
    assert notes(old, replace(new, program=program("1", inside=False))) == {}
    assert notes(replace(old, side=None), replace(new, side=None)) == {}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (None, None, "was it built with other flags?"),
        ("-O2", "-O3", "built with CFLAGS '-O2' then, '-O3' now"),
        ("-O2", "-O2", "was it built by another compiler?"),
    ],
)
def test_another_program_of_one_commit(before: str | None, after: str | None, words: str) -> None:
    old = replace(baseline(), commit=HERE, program=program("1", before))
    new = replace(evidence(), commit=HERE, program=program("2", after))
    assert words in notes(old, new)["I_OTHER_PROGRAM"]
    assert notes(old, replace(new, commit=replace(HERE, uncommitted=1))) == {}
