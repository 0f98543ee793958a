"""Locks between processes."""

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import locks
from pytest_flamegate.core.errors import ToolError


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The machine's lock, which is a file in a directory of this test."""
    monkeypatch.setenv(locks.LOCK_DIRECTORY, str(tmp_path))
    return lambda timeout_s: locks.machine_lock(lambda _: None, timeout_s)


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_lock_that_is_held_times_out_and_names_its_holder(
    tmp_path: Path, lock: Any, kind: str
) -> None:
    take = lock if kind == "file" else lambda timeout_s: locks.lock_directory(tmp_path, timeout_s)
    with take(1.0):
        with pytest.raises(ToolError) as raised, take(0.05):
            pytest.fail("the lock was given twice")
        assert raised.value.code == "E_LOCK_TIMEOUT"
        assert f"process {os.getpid()}" in raised.value.problem
    with take(0.05):
        pass


def test_an_error_under_a_lock_is_not_changed_and_releases_it(tmp_path: Path, lock: Any) -> None:
    with pytest.raises(FileNotFoundError), lock(1.0):
        (tmp_path / "nowhere").read_bytes()
    with lock(0.05):
        pass


def test_a_lock_file_that_was_removed_during_the_wait_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: Any
) -> None:
    path = tmp_path / "flamegate.lock"
    acquire = locks.acquire_lock
    removed: list[Path] = []

    def acquire_then_remove(*arguments: object) -> None:
        acquire(*arguments)  # type: ignore[arg-type]
        if not removed:
            removed.append(path)
            path.unlink()

    monkeypatch.setattr(locks, "acquire_lock", acquire_then_remove)
    with lock(1.0):
        assert path.exists()


def test_a_holder_that_linux_does_not_name_is_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: Any
) -> None:
    monkeypatch.setattr(locks, "_LOCKS", tmp_path / "none")
    with lock(1.0), pytest.raises(ToolError, match="by another process"), lock(0.05):
        pytest.fail("the lock was given twice")
