"""The one line that moves where somebody is looking."""

from __future__ import annotations

import io
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.core.progress import StreamProgress, progress_line
from tests.doors.project import QUICK, workload

if TYPE_CHECKING:
    from tests.doors.project import Project

pytestmark = pytest.mark.measures


@pytest.mark.parametrize(("spent", "full"), [(0.0, 0), (0.03, 0), (0.5, 7), (0.97, 14), (1.0, 14)])
def test_the_bar_fills(spent: float, full: int) -> None:
    line = progress_line("toy", "8 processes, 1,312 samples", spent)
    assert line == f"toy                {'━' * full}{'╌' * (14 - full)} 8 processes, 1,312 samples"


def test_a_stream_keeps_one_line_for_each_workload() -> None:
    stream = io.StringIO()
    progress = StreamProgress(stream)
    for name in ("one", "two"):
        for step in (1, 2):
            progress.step(name, f"{step} processes", step / 2)
    progress.end()
    progress.end()
    shown = [line.rpartition("\x1b[K")[2] for line in stream.getvalue().split("\n")]
    assert [line.split() for line in shown] == [
        ["one", "━" * 14, "2", "processes"],
        ["two", "━" * 14, "2", "processes"],
        [],
    ]


def on_a_terminal(arguments: list[str], project: Project, timeout_s: float = 60.0) -> str:
    """Run a program on a pseudo-terminal of its own; return what it wrote there."""
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        arguments, cwd=project.path, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        written = bytearray()
        deadline_s = time.monotonic() + timeout_s
        try:
            while time.monotonic() < deadline_s:
                if not select.select([ours], [], [], 0.2)[0]:
                    continue
                try:
                    data = os.read(ours, 65536)
                except OSError:  # the other side is closed
                    break
                if not data:
                    break
                written += data
        finally:
            os.close(ours)
            if process.poll() is None and time.monotonic() >= deadline_s:
                process.kill()
    return written.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_the_line_moves_past_pytests_capturing(project: Project) -> None:
    project.declare(workload("toy"))
    written = on_a_terminal([sys.executable, "-m", "pytest", *QUICK], project)
    assert "\r\x1b[Ktoy " in written
    assert "5 processes, 0 samples" in written
    # pytest's own line is whole, before and after it.
    assert "\nflamegate.toml " in written.replace("\r", "")
    assert "1 passed" in written


def test_nothing_moves_in_a_log(project: Project) -> None:
    project.declare(workload("toy"))
    result = project.run(*QUICK)
    assert "processes, " not in result.stdout.str().partition("= flamegate =")[0]
    assert "\x1b[K" not in result.stdout.str()
