"""Setup of all tests: Hypothesis, and the lanes in which pytest-xdist runs them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.commands.asked import Command

# An example may take long on a busy machine; that is no defect of the code under test. The same
# examples run every time; .ci/nightly draws new ones with --hypothesis-profile=random.
settings.register_profile("flamegate", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("flamegate")

# Settings of this run must not reach the code under test: not pytest's own options, and not the
# variables by which flamegate recognises CI and takes its options.
for _name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS"):
    os.environ.pop(_name, None)
# BLAS reads this when NumPy is imported first: helper threads spin, and gain nothing here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A shell starts background jobs with SIGINT ignored; tests interrupt themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command that must end with a given exit code, and returns its output."""
    from tests.commands.asked import Command

    return Command(capsys)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Under ``-n N`` distribute tests by lane, whatever ``--dist`` says."""
    if getattr(config.option, "dist", "no") != "no":
        config.option.dist = "loadgroup"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put all tests that measure on one worker, and the tests of a module on one worker.

    Two measurements at the same time would disturb each other. A module's fixtures are made
    once if its tests stay together.
    """
    for item in items:
        path = item.nodeid.partition("::")[0]
        measures = item.get_closest_marker("measures") is not None
        item.add_marker(pytest.mark.xdist_group("measures" if measures else path))
