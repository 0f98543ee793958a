"""A project to run the doors in, and an environment without anybody's settings."""

import os
from pathlib import Path

# Every test here gets back the modules it found: these are slow, or can be loaded once only.
import numpy as np  # noqa: F401
import pytest

import pytest_flamegate.pytest_.gatekeeper
import pytest_flamegate.report.terminal  # noqa: F401
from pytest_flamegate.core.locks import LOCK_DIRECTORY
from pytest_flamegate.run import measure, schedule
from tests.doors.project import BARE, Project, require_profiler, write_toy
from tests.run import fakes
from tests.run.fakes import World

_FOREIGN = (
    *("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "BUILD_NUMBER"),
    *("FLAMEGATE_PROFILER", "FLAMEGATE_SKIP_BUILD"),
)


@pytest.fixture(scope="session")
def own_tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for temporary files and the lock on the machine: nobody else waits for it."""
    return tmp_path_factory.mktemp("tmp")


@pytest.fixture(autouse=True)
def environment(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, own_tmp: Path) -> None:
    """An empty directory, and nothing that the caller of these tests has set."""
    for name in tuple(os.environ):
        if name in _FOREIGN or name.startswith("PYTEST_XDIST"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_ADDOPTS", BARE)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TMPDIR", str(own_tmp))
    monkeypatch.setenv(LOCK_DIRECTORY, str(own_tmp))


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """An empty project with a toy engine, ``toy.py``, and no workload file."""
    write_toy(pytester.path)
    return Project(pytester)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Fake processes for the runs of pytest and of commands within this one."""
    return fakes.install(monkeypatch)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure for real, by the fewest processes: for effects far larger than any noise."""
    monkeypatch.setattr(measure, "MOST_ALONE", 0)
    monkeypatch.setattr(measure, "PAIRS_PROFILED", schedule.MIN_PROFILED)
    monkeypatch.setattr(schedule, "PAIRS_PROFILED_S", 0.8)
    monkeypatch.setattr(schedule, "MIN_TIMED", 3)


@pytest.fixture(scope="session")
def py_spy() -> None:
    """Require a py-spy that works here."""
    require_profiler("py-spy")
