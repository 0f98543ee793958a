"""The trial of false alarms: what it keeps, how it goes on, and what it counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from benchmarks import kernel_false_alarms
from benchmarks.tables import as_text

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.measures


def kept(verdict: str, change_pct: float | None = None) -> kernel_false_alarms.Record:
    told = {"verdict": verdict, "code": "C"}
    kernels = {"k.test_rope": told if change_pct is None else {**told, "change_pct": change_pct}}
    return {"load": 1.0, "seconds": 60.0, "exit_status": 0, "budget_s": 1.0, "kernels": kernels}


def test_verdicts_are_counted_by_kernel() -> None:
    runs = [kept("pass", -1.5), kept("regressed", -12.0), kept("inconclusive"), kept("error")]
    told = kernel_false_alarms.table(runs)
    assert told.rows[0] == ("test_rope", "4", "1", "0", "1", "1", "1", "12.0")
    assert told.rows[-1] == ("all", *told.rows[0][1:])
    assert "4 runs, 4 minutes" in as_text(told)


def test_a_run_without_a_kernel_is_an_error_of_it() -> None:
    told = kernel_false_alarms.table([kept("pass", 0.5), {**kept("pass"), "kernels": {}}])
    assert told.rows[0][1:7] == ("2", "1", "0", "0", "0", "1")


def test_a_trial_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps(kept("pass", 0.1)) + "\n" + '{"load": 1.')
    assert len(kernel_false_alarms.records(file)) == 1
    monkeypatch.setattr(kernel_false_alarms, "clone", lambda directory: directory)
    monkeypatch.setattr(kernel_false_alarms, "run", lambda *_: kept("pass", 0.2))
    assert kernel_false_alarms.main([str(file), "--runs", "3"]) == 0
    assert len(kernel_false_alarms.records(file)) == 3
    assert "3 runs" in capsys.readouterr().out
