"""A project whose one workload was gated, by fake processes, and a directory with a receipt."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.core.locks import LOCK_DIRECTORY
from tests.commands.asked import Command, Repository
from tests.doors.project import IGNORED, workload, write_toy
from tests.made import bundle
from tests.run import fakes
from tests.workload.repositories import git


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory: a project with the workload ``toy``."""
    for name in ("FLAMEGATE_PROFILER", "FLAMEGATE_SKIP_BUILD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(LOCK_DIRECTORY, str(tmp_path))
    directory = tmp_path / "project"
    directory.mkdir()
    write_toy(directory)
    (directory / "flamegate.toml").write_text(workload("toy"))
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> fakes.World:
    """Replace the processes that a gate measures."""
    return fakes.install(monkeypatch)


@pytest.fixture
def receipt_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory: it holds a receipt with its evidence and profile."""
    directory = tmp_path / "receipt"
    directory.mkdir()
    for name, data in bundle().sealed().files.items():
        (directory / name).write_bytes(data)
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def clone(project: Path, command: Command) -> Repository:
    """The project as a repository, whose first commit declares toy; its processes are real."""
    git(project, "init", "-q", "-b", "main")
    (project / ".gitignore").write_text(f"{IGNORED}.flamegate/latest\n.flamegate/history\n")
    write_toy(project)
    repo = Repository(project, fakes.World(), command)
    repo.declare()
    return repo


@pytest.fixture
def repo(clone: Repository, world: fakes.World) -> Repository:
    """The same repository, whose processes are those of its world."""
    return replace(clone, world=world)
