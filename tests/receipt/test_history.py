"""The history of gated runs: a line for each, whatever became of the line before."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import decode_json
from pytest_flamegate.receipt.artifacts import ArtifactStore, RunLine

RUN = RunLine(
    workload="decode-10tok",
    verdict="pass",
    reasons=("R_NO_CHANGE",),
    accepted=False,
    created="2026-03-01T12:00:00.000Z",
    nonce="9f1c2b7a5e3d40816c8a",
)


def read_runs(path: Path) -> list[RunLine]:
    """Return the complete lines of a history."""
    lines = []
    for data in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
        with suppress(ReceiptError):
            lines.append(decode_json(data, RunLine))
    return lines


def test_a_run_is_one_line_with_the_figures_that_are_known(tmp_path: Path) -> None:
    artifacts = ArtifactStore(tmp_path)
    artifacts.append_run(RUN)
    assert read_runs(artifacts.runs_path) == [RUN]
    (line,) = artifacts.runs_path.read_text().splitlines()
    assert "commit" not in json.loads(line)


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_last_line_spoils_no_later_one(tmp_path: Path, cut: int) -> None:
    artifacts = ArtifactStore(tmp_path)
    for name in "abc":
        artifacts.append_run(replace(RUN, workload=name))
    path = artifacts.runs_path
    path.write_bytes(path.read_bytes()[:-cut])
    artifacts.append_run(replace(RUN, workload="d"))
    found = [each.workload for each in read_runs(path)]
    assert [name for name in found if name != "c"] == ["a", "b", "d"]
