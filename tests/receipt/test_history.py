"""Append-only lines: what is torn or spoilt costs itself alone, and is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.receipt import artifacts


def line(**changes: Any) -> dict[str, Any]:
    return {
        "schema_version": "1.0.0",
        "workload": "decode-10tok",
        "verdict": "pass",
        "created": "2026-03-01T12:00:00.000Z",
        "commit": "4f2db7e0c1a95d3b8e6f70a2c4d6e8f1a3b5c7d9",
        "tokens_per_second": 512.6,
        "quiet_s_per_token": 0.00195,
        "machine": "amd-epyc-2c-3f9a1c",
        "nonce": "9f1c2b7a5e3d40816c8a",
        "reasons": ["R_NO_CHANGE"],
        "accepted": False,
        **changes,
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A history of three runs."""
    place = tmp_path / "history" / "runs.jsonl"
    for name in "abc":
        artifacts.append_run(place, line(workload=name))
    return place


def names(path: Path) -> tuple[list[object], tuple[str, ...]]:
    found = artifacts.read_runs(path)
    return [each.workload for each in found.lines], found.warnings


def test_what_is_appended_is_read(path: Path) -> None:
    assert names(path) == (["a", "b", "c"], ())
    assert all(
        json.loads(each)["schema_version"] == "1.0.0" for each in path.read_text().splitlines()
    )


def test_there_is_no_history_yet(tmp_path: Path) -> None:
    assert artifacts.read_runs(tmp_path / "runs.jsonl") == artifacts.HistoryLines()


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_torn_last_line_is_dropped_and_said(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:-cut])
    found, warnings = names(path)
    assert found == ["a", "b"]
    assert warnings == (f"Line 3 of {path} does not count: a crash cut it off.",)


def test_what_is_appended_after_a_torn_line_counts(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])
    artifacts.append_run(path, line(workload="d"))
    found, (warning,) = names(path)
    assert found == ["a", "b", "d"]
    assert warning.startswith(f"Line 3 of {path} does not count: ")


@pytest.mark.parametrize(
    "spoilt",
    [b"x", b"[]", b"{}", b"\0" * 50, b'{"a": NaN}', b"\xff", b'{"a": 1, "a": 1}', b"[" * 10_000],
)
def test_a_spoilt_middle_line_is_named_and_left_out(path: Path, spoilt: bytes) -> None:
    first, _, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + spoilt + b"\n" + last)
    found, (warning,) = names(path)
    assert found == ["a", "c"]
    assert warning.startswith(f"Line 2 of {path} does not count: ")


def test_lines_from_before_they_carried_a_version_count(path: Path) -> None:
    old = {name: value for name, value in line().items() if name != "schema_version"}
    path.write_text(json.dumps(old) + "\n")
    assert names(path) == (["decode-10tok"], ())


def test_many_spoilt_lines_are_counted(path: Path) -> None:
    path.write_bytes(b"x\n" * 1000)
    found, warnings = names(path)
    assert found == []
    assert len(warnings) == 9
    assert warnings[-1].startswith("992 more lines")


def test_a_file_that_is_too_large_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MAX_BYTES", 100)
    with pytest.raises(FlamegateError, match="E_TOO_LARGE"):
        artifacts.read_runs(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "fine"},
        {"accepted": None},
        {"reasons": [1]},
        {"tokens_per_second": -1.0},
        {"created": "yesterday"},
    ],
)
def test_what_is_no_line_is_not_appended(path: Path, changes: dict[str, Any]) -> None:
    before = path.read_bytes()
    with pytest.raises(ReceiptError, match="E_HISTORY_SCHEMA"):
        artifacts.append_run(path, line(**changes))
    assert path.read_bytes() == before
