"""What stands beside the figures: output that differs, knobs that did not take, programs."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from pytest_flamegate.core.git import Commit
from pytest_flamegate.gate.ungated import find_notes
from pytest_flamegate.observe.build import Build, Program
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import baseline, evidence

HERE = Commit("a" * 40, "main", 0, "tree")


def program(sha256: str, flags: str | None = None, *, inside: bool = True) -> Program:
    build = None
    if flags is not None:
        build = Build(("make",), True, MappingProxyType({"CFLAGS": flags}))
    return Program("bin/engine", sha256 * 64, 10, inside, build=build)


def told(old: Evidence | None, new: Evidence) -> dict[str, str]:
    return {reason.code: reason.message for reason in find_notes(old, new)}


def test_of_a_plain_run_there_is_nothing_to_say() -> None:
    assert told(None, evidence()) == {}
    assert told(baseline(), evidence()) == {}


@pytest.mark.parametrize(
    ("at", "later", "words"),
    [
        (1, "9", "token 1 was 'b' in the first run and '9' in a later one"),
        (1, None, "token 1 was 'b' in the first run and missing, because it had ended, in a later"),
        (2, "c", "token 2 was missing, because it had ended, in the first run and 'c' in a later"),
    ],
)
def test_the_first_token_that_differs_is_shown(at: int, later: str | None, words: str) -> None:
    seen = replace(evidence(), tokens=("a", "b"), differs_at=at, differs_to=later)
    message = told(None, seen)["W_NOT_DETERMINISTIC"]
    assert words in message
    assert "threads = 1" in message


def test_a_knob_that_did_not_take_is_named() -> None:
    asked = MappingProxyType({"A": "1", "B": "2", "C": "3"})
    seen = replace(evidence(), requested_environment=asked, program=program("1"))
    had = replace(seen, effective_environment=MappingProxyType({"A": "1", "B": "8", "Z": "0"}))
    message = told(None, had)["W_ENVIRONMENT"]
    assert "B was '8' and not '2', C was not set, and not '3'" in message
    assert "A was" not in message
    assert told(None, replace(seen, effective_environment=MappingProxyType({}))) == {}
    assert told(None, replace(had, program=None)) == {}


def test_two_sides_of_one_program_are_told_so() -> None:
    old = replace(baseline(), program=program("1"), side="base")
    new = replace(evidence(), program=program("1"), side="head")
    assert "very same program, bin/engine" in told(old, new)["W_SAME_PROGRAM"]
    assert told(old, replace(new, program=program("2"))) == {}
    assert told(old, replace(new, program=program("1", inside=False))) == {}
    assert told(replace(old, side=None), replace(new, side=None)) == {}


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
    assert words in told(old, new)["I_OTHER_PROGRAM"]
    assert told(old, replace(new, commit=replace(HERE, uncommitted=1))) == {}
