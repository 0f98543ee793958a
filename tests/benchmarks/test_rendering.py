from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import folders
from benchmarks.rendering import distinct_stacks, drawn, grown
from pytest_flamegate.profile.folded import parse_folded
from tests.profile.profiles import native, profile

pytestmark = pytest.mark.measures


def test_stacks_are_distinct_and_are_folded_text() -> None:
    stacks = parse_folded(distinct_stacks(200))
    assert len(stacks) == 200
    assert min(map(len, stacks)) >= 10


def test_a_profile_is_grown_in_the_same_stacks() -> None:
    a, b = ((native(name, "x"),) for name in "ab")
    assert grown(profile({a: 1, b: 3}), 1000).stacks == {a: 250, b: 750}


def test_ours_draws_and_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "found", lambda _: None)
    folded = tmp_path / "few.folded"
    folded.write_text(distinct_stacks(50))
    shown = drawn("few", folded, 1)
    assert shown.title == "Drawing few (1 rounds)"
    assert float(shown.rows[0][1]) == round((tmp_path / "ours.svg").stat().st_size / 1e3)
    assert {line[1] for line in shown.rows[1:]} == {"not installed"}
