"""Run a command: in this process, or, if it starts and reaps processes, in one of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_flamegate.cli import main

Captured = pytest.CaptureFixture[str]
PROGRAM = "import sys; from pytest_flamegate.cli import main; sys.exit(main())"


def ask(*arguments: str) -> int:
    """Return the exit code of ``flamegate ARGUMENTS``."""
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


def run_program(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``flamegate ARGUMENTS`` in ``directory`` and in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
