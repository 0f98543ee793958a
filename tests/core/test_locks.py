"""Locks between processes."""

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import locks
from pytest_flamegate.core.errors import ToolError


@pytest.mark.parametrize("lock", [locks.lock_file, locks.lock_directory])
def test_a_lock_that_is_held_times_out_and_names_its_holder(tmp_path: Path, lock: Any) -> None:
    path = tmp_path if lock is locks.lock_directory else tmp_path / "deep" / "lock"
    with lock(path, 1.0):
        with pytest.raises(ToolError) as raised, lock(path, 0.05):
            pytest.fail("the lock was given twice")
        assert raised.value.code == "E_LOCK_TIMEOUT"
        assert f"process {os.getpid()}" in raised.value.problem
    with lock(path, 0.05):
        assert path.exists()


def test_an_error_under_a_lock_is_not_changed_and_releases_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locks.lock_file(tmp_path / "lock", 1.0):
        (tmp_path / "nowhere").read_bytes()
    with locks.lock_file(tmp_path / "lock", 0.05):
        pass


def test_a_lock_file_that_was_removed_during_the_wait_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    acquire = locks.acquire_lock
    removed: list[Path] = []

    def acquire_then_remove(*arguments: object) -> None:
        acquire(*arguments)  # type: ignore[arg-type]
        if not removed:
            removed.append(path)
            path.unlink()

    monkeypatch.setattr(locks, "acquire_lock", acquire_then_remove)
    with locks.lock_file(path, 1.0):
        assert path.exists()


def test_without_proc_locks_the_holder_is_read_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_LOCKS", tmp_path / "none")
    path = tmp_path / "lock"
    with (
        locks.lock_file(path, 1.0),
        pytest.raises(ToolError, match=f"process {os.getpid()}"),
        locks.lock_file(path, 0.05),
    ):
        pytest.fail("the lock was given twice")
    path.write_bytes(b"not a number")
    descriptor = os.open(path, os.O_RDWR)
    assert locks.describe_holder(descriptor) == "another process"
    os.close(descriptor)
