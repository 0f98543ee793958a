"""Ctrl-C during a measurement: its processes end, and earlier results stay."""

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.commands.asked import PROGRAM as CLI
from tests.doors.project import Project, workload

pytestmark = pytest.mark.measures
nightly = partial(pytest.param, marks=pytest.mark.nightly)
_TIMEOUT_S = 60.0
_KILLED_S = 20.0
"""How long a busy machine takes at most to end a process that was killed."""


def is_alive(pid: int) -> bool:
    """Whether the process still runs: a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def interrupt(arguments: list[str], project: Project, *how: signal.Signals) -> tuple[int, str]:
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
        for each in how:
            process.send_signal(each)
        printed = process.communicate(timeout=_TIMEOUT_S)[0]
    deadline_s = time.monotonic() + _KILLED_S
    while any(map(is_alive, measured)):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
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


@pytest.mark.parametrize(
    ("arguments", "how", "status"),
    [
        (["-c", CLI, "run", "--budget=1"], signal.SIGINT, 130),
        nightly(["-c", CLI, "calibrate", "--pairs=10"], signal.SIGINT, 130),
        nightly(["-c", CLI, "selftest", "slow", "--frame=generate"], signal.SIGINT, 130),
        nightly(["-m", "pytest", "--flamegate", "-oflamegate_profiler=none"], signal.SIGTERM, 2),
    ],
)
def test_earlier_results_stay_as_they_were(
    measuring: Project, own_tmp: Path, arguments: list[str], how: signal.Signals, status: int
) -> None:
    is_command = CLI in arguments
    options = ["--profiler=none"] if is_command else []
    found, printed = interrupt([*arguments, *options], measuring, how)
    assert found == status
    assert printed.count("flamegate: interrupted; other results are untouched") == 1
    assert is_command or "Terminated" in printed
    assert not is_command or "Traceback" not in printed
    latest = measuring.artifacts / "latest"
    names = sorted(path.relative_to(latest).as_posix() for path in latest.glob("*/*"))
    assert names == ["other/receipt.json", "slow/receipt.json"]
    assert (latest / "slow" / "receipt.json").read_text() == "earlier"
    assert {path.name for path in measuring.artifacts.iterdir()} <= {"latest", ".gitignore"}
    assert not list(own_tmp.glob("flamegate-*"))


def test_a_comparison_leaves_no_checkout(measuring: Project) -> None:
    measuring.commit()
    measuring.write("slow.py", (measuring.path / "slow.py").read_text() + "# changed\n")
    arguments = ["--flamegate", "--flamegate-against=HEAD", "--flamegate-profiler=none"]
    # GNU timeout and terminals signal a process, and its group as well.
    signals = signal.SIGHUP, signal.SIGTERM
    status, printed = interrupt(["-m", "pytest", *arguments], measuring, *signals)
    assert printed.count("flamegate: interrupted") == 1
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
