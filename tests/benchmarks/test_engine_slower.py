from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import engine_slower
from benchmarks.engine_slower import Gate, Repository, read_gate, table
from tests.workload.repositories import git

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.measures


def test_counts_come_with_bounds_and_what_else_was_said() -> None:
    gates = [Gate("regressed", 5.0, 14, 40.0), Gate("inconclusive", 3.0, 20, 60.0)]
    (line,) = table({5: gates}).rows
    assert line[:3] == ("5 %", "2", "1")
    assert line[4:] == ("1 inconclusive", "+4.0", "17", "50", "60")


def test_a_gate_is_read_from_its_verdict() -> None:
    signals = [{"name": "other"}, {"name": "tokens_per_second", "change_pct": -5.0}]
    said = {"verdict": "regressed", "pairs": 14, "signals": signals}
    assert read_gate(said, 40.0) == Gate("regressed", 5.0, 14, 40.0)


def test_each_size_is_one_commit_behind_the_same_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Repository, "_run", lambda *_: "12.5")
    repository = Repository(tmp_path, tmp_path / "model.gguf")
    assert "ROUNDS = 0\n" in git(tmp_path, "show", "base:slower_engine.py")
    for effect, rounds in ((5, 62), (10, 125), (0, 0)):
        repository.make_slower(effect)
        assert git(tmp_path, "rev-list", "--count", "base..HEAD").strip() == "1"
        assert f"ROUNDS = {rounds}  # changed" in (tmp_path / "slower_engine.py").read_text()
    assert git(tmp_path, "status", "--short").strip() == ""


def test_the_engine_that_is_copied_has_work_to_add() -> None:
    assert "ROUNDS = 0\n" in engine_slower.ENGINE.read_text()
