"""One measurement at a time: whose lock it is, who is told, and what nobody can do with it."""

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


def ignore(_: str) -> None:
    pass


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


def test_the_place_is_the_same_whatever_tmpdir_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def held(path: Path, *_: object) -> int:
        asked.append(path)
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(locks, "_hold", held)
    monkeypatch.delenv(LOCK_DIRECTORY, raising=False)
    monkeypatch.setenv("TMPDIR", "/somewhere/else")
    with machine_lock(pytest.fail):
        assert asked == [Path("/tmp/flamegate.lock")]


def test_it_is_held_and_given_back(place: Path) -> None:
    for _ in range(2):
        with machine_lock(pytest.fail):
            assert place.read_text() == f"{os.getpid()}\n"
            with pytest.raises(ToolError) as raised, machine_lock(ignore, timeout_s=0.05):
                pytest.fail("given twice")
            assert raised.value.code == "E_LOCK_TIMEOUT"


def test_every_user_may_take_it(place: Path) -> None:
    before = os.umask(0o077)
    try:
        with machine_lock(pytest.fail):
            assert stat.S_IMODE(place.stat().st_mode) == 0o666
    finally:
        os.umask(before)


def test_it_says_once_for_whom_it_waits(holder: subprocess.Popen[str]) -> None:
    told: list[str] = []
    with pytest.raises(ToolError), machine_lock(told.append, timeout_s=0.2):
        pytest.fail("given twice")
    (line,) = told
    assert line == f"waiting for process {holder.pid} to end its measurement on this machine"
    assert holder.stdin is not None
    threading.Timer(0.1, holder.stdin.close).start()
    with machine_lock(told.append, timeout_s=30.0):
        assert len(told) == 2


def test_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    place.symlink_to(victim)
    told: list[str] = []
    with machine_lock(told.append):
        assert victim.read_text() == "precious"
    (line,) = told
    assert line.startswith(f"{place} cannot be the machine's lock (")


@pytest.mark.parametrize("kind", ["hard link", "pipe", "directory"])
def test_what_is_no_file_of_its_own_is_not_written(place: Path, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if kind == "hard link":
        place.hardlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    told: list[str] = []
    with machine_lock(told.append):
        assert victim.read_text() == "precious"
    assert len(told) == 1


def test_those_who_fall_back_still_wait_for_one_another(place: Path) -> None:
    place.mkdir()
    with (
        machine_lock(ignore),
        pytest.raises(ToolError, match="E_LOCK_TIMEOUT"),
        machine_lock(ignore, timeout_s=0.05),
    ):
        pytest.fail("given twice")


def test_a_lock_that_was_cleaned_away_is_taken_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever waited for the old file and whoever made the new one would both measure."""
    hold = locks.acquire_lock

    def cleaned(descriptor: int, path: Path, timeout_s: float) -> None:
        hold(descriptor, path, timeout_s)
        monkeypatch.setattr(locks, "acquire_lock", hold)
        place.unlink()

    monkeypatch.setattr(locks, "acquire_lock", cleaned)
    with machine_lock(pytest.fail), pytest.raises(ToolError), machine_lock(ignore, timeout_s=0.05):
        pytest.fail("given twice")


def test_a_run_that_waited_too_long_is_an_error(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fakes.install(monkeypatch)
    monkeypatch.setattr(session, "machine_lock", lambda tell: machine_lock(tell, 0.1))
    outcome = fakes.session(tmp_path).gate(fakes.toy(tmp_path))
    (reason,) = outcome.verdict.reasons
    assert reason.code == "E_LOCK_TIMEOUT"
    assert f"by process {holder.pid}" in reason.message
    assert (outcome.exit_code, world.started) == (5, [])
