"""Ctrl-C in the middle of a measurement: nothing goes on, and nothing else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.doors.project import workload

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.doors.project import Project


pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there"),
]
_TIMEOUT_S = 60.0
_CLI = "import sys; from pytest_flamegate.cli import main; sys.exit(main())"


def living(pids: Iterable[int]) -> set[int]:
    """Return those processes that are still there, and no mere zombies."""
    found = set()
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.add(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def working_in(directory: Path) -> set[int]:
    """Return the processes whose working directory this is: engines and profilers of the test."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(directory):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found - {os.getpid()}


def interrupt(
    arguments: list[str], project: Project, how: signal.Signals = signal.SIGINT
) -> tuple[int, str]:
    """Start a program, wait until it measures, interrupt it; return its status and its words."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=project.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        deadline_s = time.monotonic() + _TIMEOUT_S
        # An engine that hangs is there for as long as it takes to find it.
        while not (project.path / "began").exists():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        measured = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
        assert measured
        process.send_signal(how)
        told = process.communicate(timeout=_TIMEOUT_S)[0]
    assert not living(measured)
    assert not working_in(project.path)
    return process.returncode, told


@pytest.fixture
def measuring(project: Project) -> Project:
    """A project whose engine says that it began and then hangs, and two earlier results."""
    project.write(
        "slow.py",
        "import time\n"
        "def generate(prompt, max_tokens):\n"
        "    open('began', 'w').close()\n"
        "    yield 1\n"
        "    time.sleep(600)\n",
    )
    project.declare(workload("slow").replace("toy:generate", "slow:generate"))
    for name in ("slow", "other"):
        project.write(f".flamegate/latest/{name}/receipt.json", "earlier")
    project.write(".flamegate/baselines/machine/other/evidence.json", "accepted")
    return project


def untouched(project: Project) -> None:
    latest = project.artifacts / "latest"
    assert (latest / "other" / "receipt.json").read_text() == "earlier"
    # What was interrupted has no result, neither an earlier one nor half of one.
    assert not (latest / "slow").exists()
    assert sorted(path.name for path in latest.iterdir()) == ["other"]
    accepted = project.artifacts / "baselines" / "machine" / "other" / "evidence.json"
    assert accepted.read_text() == "accepted"
    assert not (project.artifacts / "history").exists()


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_command(measuring: Project, how: signal.Signals, code: int) -> None:
    arguments = ["-c", _CLI, "run", "--budget=1", "--profiler=none"]
    status, told = interrupt(arguments, measuring, how)
    assert status == code
    assert "flamegate: interrupted" in told
    assert "Traceback" not in told
    untouched(measuring)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_pytest(measuring: Project, how: signal.Signals) -> None:
    arguments = ["--flamegate", "--flamegate-budget=1", "--flamegate-profiler=none"]
    status, told = interrupt(["-m", "pytest", *arguments], measuring, how)
    assert status == pytest.ExitCode.INTERRUPTED
    assert ("KeyboardInterrupt" if how == signal.SIGINT else "Terminated") in told
    untouched(measuring)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_only_waits_is_ended_too(project: Project, how: signal.Signals) -> None:
    """It writes nothing, so it would never learn that nobody listens."""
    project.write("waits.sh", "touch began\nexec sleep 600\n")
    project.declare(
        '[workloads.waits]\ncommand = ["sh", "waits.sh"]\nprompt = "p"\nmax_tokens = 1\n'
    )
    arguments = ["-c", _CLI, "run", "--budget=1", "--profiler=none"]
    assert interrupt(arguments, project, how)[0] == 128 + how
