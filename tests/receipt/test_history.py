"""The history of gated runs: a torn or malformed line affects no other, and is reported."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.json import decode_plain
from pytest_flamegate.receipt import artifacts as artifact_files
from pytest_flamegate.receipt.artifacts import ArtifactStore, RunLine, read_history

RUN = RunLine(
    workload="decode-10tok",
    verdict="pass",
    reasons=("R_NO_CHANGE",),
    accepted=False,
    created="2026-03-01T12:00:00.000Z",
    nonce="9f1c2b7a5e3d40816c8a",
)


def read_runs(path: Path) -> tuple[tuple[RunLine, ...], tuple[str, ...]]:
    return read_history(path, lambda document: decode_plain(document, RunLine, subject="It"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a history of the three runs a, b and c."""
    artifacts = ArtifactStore(tmp_path)
    for name in "abc":
        artifacts.append_run(replace(RUN, workload=name))
    return artifacts.runs_path


def names(path: Path) -> tuple[list[str], tuple[str, ...]]:
    lines, warnings = read_runs(path)
    return [each.workload for each in lines], warnings


def test_an_appended_run_is_read_again(tmp_path: Path) -> None:
    artifacts = ArtifactStore(tmp_path)
    assert read_runs(artifacts.runs_path) == ((), ())
    artifacts.append_run(RUN)
    assert read_runs(artifacts.runs_path) == ((RUN,), ())
    (line,) = artifacts.runs_path.read_text().splitlines()
    assert json.loads(line)["schema_version"] == "1.0.0"


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_torn_last_line_is_ignored_with_a_warning(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:-cut])
    assert names(path) == (["a", "b"], (f"Line 3 of {path} is ignored: it was cut off.",))
    ArtifactStore(path.parents[1]).append_run(replace(RUN, workload="d"))
    found, warnings = names(path)
    assert [name for name in found if name != "c"] == ["a", "b", "d"]
    assert all(each.startswith(f"Line 3 of {path} is ignored: ") for each in warnings)
    assert len(found) + len(warnings) == 4


@pytest.mark.parametrize(
    "malformed",
    [
        b"x",
        b"{}",
        b"\0" * 50,
        b'{"a": NaN}',
        b"[" * 10_000,
        b'{"workload": "w", "verdict": "pass", "reasons": [1], "accepted": true}',
    ],
)
def test_a_malformed_line_is_ignored_with_a_warning(path: Path, malformed: bytes) -> None:
    first, _, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + malformed + b"\n" + last)
    found, (warning,) = names(path)
    assert found == ["a", "c"]
    assert warning.startswith(f"Line 2 of {path} is ignored: ")


def test_of_many_malformed_lines_the_first_are_named_and_the_others_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"x\n" * 1000)
    found, warnings = names(path)
    assert (found, len(warnings)) == ([], 9)
    assert warnings[-1].startswith("992 more lines")
    monkeypatch.setattr(artifact_files, "_HISTORY_MAX_BYTES", 100)
    with pytest.raises(FlamegateError, match="E_TOO_LARGE"):
        read_runs(path)
