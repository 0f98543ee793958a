from __future__ import annotations

import dataclasses
import json

from pytest_flamegate.profile.difference import ProfileSide, compare_profiles
from pytest_flamegate.report.difference import difference_document, difference_text
from tests.report import factory
from tests.report.differences import BASE, HEAD, STACKS, compared, slowed


def test_the_first_line_is_the_answer_and_both_sides_are_named() -> None:
    first, *lines = difference_text(compared(slowed("rms_norm", 2.0))).splitlines()
    assert first.startswith("rms_norm costs 100 → 200 µs/token (+100 ± ")
    assert first.endswith("nothing else changed beyond sampling noise")
    assert lines[0].split() == ["before", *BASE.split(), "·", "20,000", "samples"]
    assert lines[1].split() == ["after", *HEAD.split(), "·", "21,000", "samples"]


def test_the_table_holds_what_changed_and_the_rest() -> None:
    lines = difference_text(compared(slowed("rms_norm", 2.0))).splitlines()
    row = next(line for line in lines if line.lstrip().startswith("1 "))
    assert row.split()[:6] == ["1", "rms_norm", "dearer", "100", "200", "+100"]
    assert any("everything else" in line for line in lines)


def test_shares_alone_and_sides_not_taken_alike_are_said_before_the_table() -> None:
    found = compared(slowed("rms_norm", 3.0), costs=False)
    head = dataclasses.replace(found.head.profile, profiler="perf")
    found = compare_profiles(found.base, dataclasses.replace(found.head, profile=head))
    lines = difference_text(found).splitlines()
    assert lines[1].startswith("  NOT COMPARABLE")
    assert "profiler: py-spy and perf" in lines[1]
    assert lines[2].startswith("  shares only")


def test_colour_is_asked_for() -> None:
    found = compared(slowed("rms_norm", 2.0))
    assert "\x1b" not in difference_text(found)
    assert difference_text(found, colour=True).startswith("\x1b[1m\x1b[33mrms_norm")


def test_hostile_names_reach_no_terminal() -> None:
    found = compare_profiles(
        ProfileSide("a\x1b[31m", factory.profile(STACKS), 1e-3),
        ProfileSide("b\u202e", factory.profile(STACKS), 1e-3),
    )
    text = difference_text(found)
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_document_holds_every_function_and_is_plain_json() -> None:
    found = compared(slowed("rms_norm", 2.0))
    document = json.loads(json.dumps(difference_document(found), allow_nan=False))
    first = document["functions"][0]
    assert (first["name"], first["state"]) == ("rms_norm", "up")
    assert first["own"]["base"] == 100e-6
    assert first["own"]["change"] == 100e-6
    assert document["unit"] == "s/token"
    assert {each["name"] for each in document["functions"]} == {
        frame.name for stack in STACKS for frame in stack
    }
    assert (document["base"]["name"], document["head"]["name"]) == (BASE, HEAD)


def test_exact_counts_that_are_equal_have_a_z_of_zero() -> None:
    stacks = dict.fromkeys(STACKS, 0) | {(factory.python("f"),): 1}
    one = ProfileSide("a", dataclasses.replace(factory.profile(stacks), unit="instructions"))
    both = compare_profiles(one, one)
    document = json.loads(json.dumps(difference_document(both), allow_nan=False))
    assert all(each["own"]["z"] == 0.0 for each in document["functions"])
    assert document["unit"] == "instructions"
