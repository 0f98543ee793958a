"""Run a command in this process."""

from __future__ import annotations

import pytest

from pytest_flamegate.cli import main

Captured = pytest.CaptureFixture[str]


def ask(*arguments: str) -> int:
    """Return the exit code of ``flamegate ARGUMENTS``."""
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
