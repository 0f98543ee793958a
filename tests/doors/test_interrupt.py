"""Ctrl-C during a measurement: its processes end, and earlier results stay."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.doors.project import Project, workload

pytestmark = pytest.mark.measures
_TIMEOUT_S = 60.0
CLI = "import sys; from pytest_flamegate.cli import main; sys.exit(main())"


def is_alive(pid: int) -> bool:
    """Whether the process still runs: a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def interrupt(
    arguments: list[str], project: Project, how: signal.Signals = signal.SIGINT
) -> tuple[int, str]:
    """Start a program, interrupt it when it measures; return its exit status and its output."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=project.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_restore_interrupts,
    ) as process:
        deadline_s = time.monotonic() + _TIMEOUT_S
        # The engine hangs, so it is there for as long as it takes to find it.
        while not (project.path / "began").exists():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        measured = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
        assert measured
        process.send_signal(how)
        printed = process.communicate(timeout=_TIMEOUT_S)[0]
    assert not list(filter(is_alive, measured))
    return process.returncode, printed


def _restore_interrupts() -> None:
    """Take SIGINT again, which a shell lets the jobs in its background ignore."""
    for each in (signal.SIGINT, signal.SIGHUP):  # nohup ignores the second
        signal.signal(each, signal.SIG_DFL)


@pytest.fixture
def measuring(project: Project) -> Project:
    """A project whose engine writes ``began`` and hangs, and two earlier results."""
    project.write(
        "slow.py",
        "import time\n"
        "def generate(prompt, max_tokens):\n"
        f"    open({str(project.path / 'began')!r}, 'w').close()\n"
        "    yield 1\n"
        "    time.sleep(600)\n",
    )
    project.declare(workload("slow").replace("toy:generate", "slow:generate"))
    for name in ("slow", "other"):
        project.write(f".flamegate/latest/{name}/receipt.json", "earlier")
    return project


def require_untouched(project: Project) -> None:
    """Assert that earlier results are as they were, and that nothing was recorded."""
    latest = project.artifacts / "latest"
    names = sorted(path.relative_to(latest).as_posix() for path in latest.glob("*/*"))
    assert names == ["other/receipt.json", "slow/receipt.json"]
    assert (latest / "slow" / "receipt.json").read_text() == "earlier"
    assert not (project.artifacts / "history").exists()


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_command(measuring: Project, how: signal.Signals, code: int) -> None:
    arguments = ["-c", CLI, "run", "--budget=1", "--profiler=none"]
    status, printed = interrupt(arguments, measuring, how)
    assert status == code
    assert "flamegate: interrupted" in printed
    assert "Traceback" not in printed
    require_untouched(measuring)


def test_pytest(measuring: Project) -> None:
    arguments = ["--flamegate", "--flamegate-budget=1", "--flamegate-profiler=none"]
    status, printed = interrupt(["-m", "pytest", *arguments], measuring, signal.SIGTERM)
    assert status == pytest.ExitCode.INTERRUPTED
    assert "Terminated" in printed
    require_untouched(measuring)


def test_a_comparison_leaves_no_checkout(measuring: Project) -> None:
    measuring.commit()
    measuring.write("slow.py", (measuring.path / "slow.py").read_text() + "# changed\n")
    arguments = ["--flamegate", "--flamegate-against=HEAD", "--flamegate-profiler=none"]
    status, _ = interrupt(["-m", "pytest", *arguments], measuring, signal.SIGHUP)
    assert status == pytest.ExitCode.INTERRUPTED
    assert measuring.has_one_worktree()


def test_a_program_that_only_waits_is_ended_too(project: Project) -> None:
    """It writes nothing, so it would never learn that its reader is gone."""
    project.write("waits.sh", "touch began\nexec sleep 600\n")
    project.declare(
        '[workloads.waits]\ncommand = ["sh", "waits.sh"]\nprompt = "p"\nmax_tokens = 1\n'
    )
    arguments = ["-c", CLI, "run", "--budget=1", "--profiler=none"]
    assert interrupt(arguments, project, signal.SIGTERM)[0] == 128 + signal.SIGTERM


def test_a_calibration_and_a_selftest_leave_nothing(measuring: Project, own_tmp: Path) -> None:
    shutil.rmtree(measuring.artifacts)
    commands = (
        ["calibrate", "--pairs=10"],
        ["selftest", "slow", "--frame=generate", "--budget=1"],
    )
    for command in commands:
        status, printed = interrupt(["-c", CLI, *command, "--profiler=none"], measuring)
        assert status == 130
        assert "flamegate: interrupted" in printed
        assert "Traceback" not in printed
        assert not measuring.artifacts.exists()
        assert not list(own_tmp.glob("flamegate-*"))
        (measuring.path / "began").unlink()
