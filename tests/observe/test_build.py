"""A build runs before measuring, and its failure is a coded error with its last lines."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.observe import build
from pytest_flamegate.observe.build import build_workload


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
    build_workload(workload(tmp_path, "import os; open('made-' + os.environ['MARK'], 'w').close()"))
    assert (tmp_path / "made-7").exists()


def test_a_build_can_be_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMEGATE_SKIP_BUILD", "1")
    build_workload(workload(tmp_path, "open('made', 'w').close()"))
    assert not (tmp_path / "made").exists()


def test_a_failed_build_shows_its_last_lines(tmp_path: Path) -> None:
    code = "import sys; [print('line', i) for i in range(40)]; sys.exit('error: borrow of moved')"
    with pytest.raises(ToolError) as caught:
        build_workload(workload(tmp_path, code))
    assert caught.value.code == "E_BUILD_FAILED"
    assert "error: borrow of moved" in str(caught.value)
    assert "line 39" in str(caught.value)
    assert "line 20" not in str(caught.value)


def test_a_skipped_build_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = workload(tmp_path, "open('made', 'w').close()")
    monkeypatch.setenv("FLAMEGATE_SKIP_BUILD", "1")
    skipped, always = build_workload(declared), build_workload(declared, always=True)
    assert skipped is not None
    assert always is not None
    assert (skipped.ran, always.ran) == (False, True)
    assert not skipped.environment
    assert build_workload(replace(declared, build=())) is None


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("no-such-builder",), "E_CANNOT_START", "build of workload 'w'"),
        (("make && cp a b",), "E_CANNOT_START", "No shell reads it"),
        (
            (sys.executable, "-c", "import sys; sys.exit(2)", "&&", "x"),
            "E_BUILD_FAILED",
            "No shell reads it",
        ),
    ],
)
def test_a_build_that_cannot_work(
    tmp_path: Path, argv: tuple[str, ...], code: str, words: str
) -> None:
    with pytest.raises(ToolError) as caught:
        build_workload(replace(workload(tmp_path, ""), build=argv))
    assert caught.value.code == code
    assert words in str(caught.value)


def test_a_build_that_never_ends_and_one_that_floods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_TIMEOUT_S", 0.5)
    with pytest.raises(ToolError, match=r"E_BUILD_FAILED: .*timed out"):
        build_workload(workload(tmp_path, "import time; time.sleep(600)"))
    monkeypatch.setattr(build, "_TIMEOUT_S", 600)
    monkeypatch.setattr(process, "OUTPUT_LIMIT_BYTES", 1 << 16)
    with pytest.raises(ToolError, match="E_OUTPUT_FLOOD"):
        build_workload(workload(tmp_path, "while True: print('x' * 4096, flush=True)"))


def test_an_interrupted_build_leaves_nothing_running(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pids.new', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename('pids.new', 'pids')\n"
        "child.wait()\n"
    )
    pids = tmp_path / "pids"

    def interrupt() -> None:
        while not pids.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    waiting = threading.Thread(target=interrupt, daemon=True)
    waiting.start()
    with pytest.raises(KeyboardInterrupt):
        build_workload(workload(tmp_path, code))
    waiting.join()
    assert not any(psutil.pid_exists(int(pid)) for pid in pids.read_text().split())
