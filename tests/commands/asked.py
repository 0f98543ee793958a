"""Run a command in this process, or, by ``PROGRAM``, in one of its own."""

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
