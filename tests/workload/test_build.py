from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload.build import build
from pytest_flamegate.workload.spec import Workload


def workload(directory: Path, code: str) -> Workload:
    return Workload(
        "w",
        "command",
        "p",
        1,
        "test",
        directory=directory,
        build=(sys.executable, "-c", code),
        env={"MARK": "7"},
    )


def test_a_build_runs_in_its_directory_with_the_workloads_environment(tmp_path: Path) -> None:
    build(workload(tmp_path, "import os; open('made-' + os.environ['MARK'], 'w').close()"))
    assert (tmp_path / "made-7").exists()


def test_a_build_can_be_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMEGATE_SKIP_BUILD", "1")
    build(workload(tmp_path, "open('made', 'w').close()"))
    assert not (tmp_path / "made").exists()


def test_a_failed_build_shows_its_last_lines(tmp_path: Path) -> None:
    code = "import sys; [print('line', i) for i in range(40)]; sys.exit('error: borrow of moved')"
    with pytest.raises(ToolError) as refused:
        build(workload(tmp_path, code))
    assert refused.value.code == "E_BUILD_FAILED"
    assert "error: borrow of moved" in str(refused.value)
    assert "line 39" in str(refused.value)
    assert "line 20" not in str(refused.value)
