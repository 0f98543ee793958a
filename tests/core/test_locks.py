"""One measurement at a time: locks between processes, and files in a lock's place."""

import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import locks
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.core.locks import machine_lock
from pytest_flamegate.run import session
from tests.run import fakes

HOLDS = """
import sys, time
from pytest_flamegate.core.locks import machine_lock
with machine_lock(print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock's path, in an empty directory."""
    directory = tmp_path / "locks"
    directory.mkdir()
    monkeypatch.setenv(locks.LOCK_DIRECTORY, str(directory))
    return directory / "flamegate.lock"


@pytest.fixture
def lock(place: Path) -> Any:
    """The machine's lock, which is a file in a directory of this test."""
    assert not place.exists()
    return lambda timeout_s: machine_lock(lambda _: None, timeout_s)


@pytest.fixture
def holder(place: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that measures, with another TMPDIR, until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


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
    with pytest.raises(FileNotFoundError), take(0.05):  # an error within it is not changed
        (tmp_path / "nowhere").read_bytes()
    with take(0.05):
        pass


def test_a_lock_file_that_was_removed_during_the_wait_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, lock: Any
) -> None:
    acquire = locks.acquire_lock
    removed: list[Path] = []

    def acquire_then_remove(*arguments: object) -> None:
        acquire(*arguments)  # type: ignore[arg-type]
        if not removed:
            removed.append(place)
            place.unlink()

    monkeypatch.setattr(locks, "acquire_lock", acquire_then_remove)
    with lock(1.0):
        assert place.exists()


def test_a_holder_that_linux_does_not_name_is_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: Any
) -> None:
    monkeypatch.setattr(locks, "_LOCKS", tmp_path / "none")
    with lock(1.0), pytest.raises(ToolError, match="by another process"), lock(0.05):
        pytest.fail("the lock was given twice")


def test_the_place_is_the_same_whatever_tmpdir_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def hold(path: Path, *_: object) -> int:
        asked.append(path)
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(locks, "_hold", hold)
    monkeypatch.delenv(locks.LOCK_DIRECTORY, raising=False)
    monkeypatch.setenv("TMPDIR", "/somewhere/else")
    with machine_lock(pytest.fail):
        assert asked == [Path("/tmp/flamegate.lock")]


def test_every_user_may_take_it(place: Path, lock: Any) -> None:
    before = os.umask(0o077)
    try:
        with lock(1.0):
            assert stat.S_IMODE(place.stat().st_mode) == 0o666
    finally:
        os.umask(before)


def test_it_names_the_process_that_it_waits_for_from_time_to_time(
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    assert holder.stdin is not None
    monkeypatch.setattr(locks, "_ANNOUNCED_S", 0.2)
    threading.Timer(0.3, holder.stdin.close).start()
    with machine_lock(lines.append, timeout_s=30.0):
        first, second, *_ = lines
    process = rf"process {holder.pid} \(.*, since \d\d:\d\d:\d\d\)"
    assert re.match(f"waiting for {process} to end its measurement on this machine, at most", first)
    assert second == first.replace("; Ctrl-C", " (0 s so far); Ctrl-C")


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "directory"])
def test_a_file_of_another_kind_is_not_written(place: Path, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    make: dict[str, Callable[[], None]] = {
        "link": lambda: place.symlink_to(victim),
        "hard link": lambda: place.hardlink_to(victim),
        "pipe": lambda: os.mkfifo(place),
        "directory": place.mkdir,
    }
    make[kind]()
    lines: list[str] = []
    with machine_lock(lines.append):
        assert victim.read_text() == "precious"
        # Those who fall back still wait for one another.
        with pytest.raises(ToolError, match="E_LOCK_TIMEOUT"), machine_lock(lines.append, 0.05):
            pytest.fail("given twice")
    assert lines[0].startswith(f"{place} cannot be the machine's lock (")


def test_a_run_that_waited_too_long_is_an_error(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fakes.install(monkeypatch)
    monkeypatch.setattr(session, "machine_lock", lambda announce: machine_lock(announce, 0.1))
    outcome = fakes.session(tmp_path).gate(fakes.toy(tmp_path))
    (reason,) = outcome.verdict.reasons
    assert reason.code == "E_LOCK_TIMEOUT"
    assert f"by process {holder.pid}" in reason.message
    assert (outcome.exit_code, world.started) == (5, [])


def test_another_system_is_an_error_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(UsageError, match=r"E_NOT_LINUX.*Darwin"), machine_lock(pytest.fail):
        pytest.fail("it was measured")
