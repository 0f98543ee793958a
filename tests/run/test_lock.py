"""One measurement at a time: the lock on the machine, and files in its place that are not ours."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_flamegate.core import locks
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.locks import LOCK_DIRECTORY, machine_lock
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
    monkeypatch.setenv(LOCK_DIRECTORY, str(directory))
    return directory / "flamegate.lock"


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


def require_held() -> None:
    with pytest.raises(ToolError, match="E_LOCK_TIMEOUT"), machine_lock(lambda _: None, 0.05):
        pytest.fail("given twice")


def test_the_place_is_the_same_whatever_tmpdir_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def hold(path: Path, *_: object) -> int:
        asked.append(path)
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(locks, "_hold", hold)
    monkeypatch.delenv(LOCK_DIRECTORY, raising=False)
    monkeypatch.setenv("TMPDIR", "/somewhere/else")
    with machine_lock(pytest.fail):
        assert asked == [Path("/tmp/flamegate.lock")]


def test_it_is_held_and_given_back_and_every_user_may_take_it(place: Path) -> None:
    before = os.umask(0o077)
    try:
        for _ in range(2):
            with machine_lock(pytest.fail):
                assert place.read_text() == f"{os.getpid()}\n"
                assert stat.S_IMODE(place.stat().st_mode) == 0o666
                require_held()
    finally:
        os.umask(before)


def test_it_names_once_the_process_that_it_waits_for(holder: subprocess.Popen[str]) -> None:
    lines: list[str] = []
    assert holder.stdin is not None
    threading.Timer(0.1, holder.stdin.close).start()
    with machine_lock(lines.append, timeout_s=30.0):
        (line,) = lines
    assert line == f"waiting for process {holder.pid} to end its measurement on this machine"


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "directory"])
def test_a_file_of_another_kind_is_not_written(place: Path, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if kind == "link":
        place.symlink_to(victim)
    elif kind == "hard link":
        place.hardlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    lines: list[str] = []
    with machine_lock(lines.append):
        assert victim.read_text() == "precious"
        require_held()  # those who fall back still wait for one another
    (line,) = lines
    assert line.startswith(f"{place} cannot be the machine's lock (")


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
