"""What must survive: full disks, denied permissions, links, crowds and kills at any point."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.core import files, locks
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.locks import lock_directory
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import ArtifactStore
from tests.receipt import crowd
from tests.receipt.crash import NEW, OLD, SCENARIOS
from tests.receipt.crowd import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable


ROOT = Path(__file__).parents[2]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"tests.receipt.{name}", *arguments]


# --- what is written reads back ------------------------------------------------------------


def test_write_atomic(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file"
    store.write_atomic(path, b"one")
    store.write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_publish_leaves_nothing_of_the_run_before(tmp_path: Path) -> None:
    place = tmp_path / "latest" / "decode"
    store.publish(place, OLD)
    store.publish(place, NEW)
    assert contents(place) == NEW
    assert [entry.name for entry in place.parent.iterdir()] == ["decode"]


def test_publish_in_two_steps_where_one_is_not_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "exchange_names", lambda _one, _other: False)
    store.publish(tmp_path / "run", OLD)
    store.publish(tmp_path / "run", NEW)
    assert contents(tmp_path / "run") == NEW
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_this_system_swaps_in_one_step(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("renameat2 is a Linux call")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not files.exchange_names(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot swap")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()
    with pytest.raises(FileNotFoundError):
        files.exchange_names(tmp_path / "a", tmp_path / "nowhere")


def test_clear(tmp_path: Path) -> None:
    store.clear(tmp_path / "no" / "such" / "place")
    store.publish(tmp_path / "run", OLD)
    store.clear(tmp_path / "run")
    store.clear(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_append_line(tmp_path: Path) -> None:
    path = tmp_path / "history" / "runs.jsonl"
    store.append_line(path, b"one")
    path.write_bytes(path.read_bytes() + b"torn")
    store.append_line(path, b"two")
    assert path.read_bytes() == b"one\ntorn\ntwo\n"
    with pytest.raises(ToolError, match="E_NOT_ONE_LINE"):
        store.append_line(path, b"two\nlines")


def test_read_bounded(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert files.read_bounded(path, 10) == b"x" * 10
    with pytest.raises(FlamegateError, match="E_TOO_LARGE"):
        files.read_bounded(path, 9)


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        store.publish(tmp_path / "run", OLD)
        store.write_atomic(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "run" / "receipt.json").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


# --- names and links -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "a\0b", ".hidden"])
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(ToolError, match="E_BAD_NAME"):
        store.child_path(tmp_path, name)
    with pytest.raises(ToolError, match="E_BAD_NAME"):
        store.publish(tmp_path / "run", {"receipt.json": b"", name: b""})
    assert list(tmp_path.iterdir()) == []


def test_plain_names(tmp_path: Path) -> None:
    for name in ("decode-10tok", "a b", "test_x[1]", "x..y", "é"):
        assert store.child_path(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize(
    "act",
    [
        lambda path: store.write_atomic(path, b"new"),
        lambda path: store.append_line(path, b"new"),
        lambda path: store.publish(path, NEW),
        lambda path: store.clear(path),
        lambda path: locks.lock_file(path, 1.0).__enter__(),
    ],
    ids=["write_atomic", "append_line", "publish", "clear", "lock"],
)
@pytest.mark.parametrize("dangling", [True, False])
def test_links_are_refused(tmp_path: Path, act: Callable[[Path], Any], dangling: bool) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if not dangling:
        target.write_bytes(b"mine")
    link.symlink_to(target)
    with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
        act(link)
    assert link.is_symlink()
    assert target.exists() is not dangling
    assert dangling or target.read_bytes() == b"mine"


def test_what_is_no_regular_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ToolError, match=r"E_CANNOT_WRITE.*no regular file"):
        store.write_atomic(pipe, b"new")
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_linked_directory_is_not_published_into(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    store.publish(elsewhere, OLD)
    (tmp_path / "run").symlink_to(elsewhere)
    with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
        store.publish(tmp_path / "run", NEW)
    with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
        store.clear(tmp_path / "run")
    assert contents(elsewhere) == OLD


# --- a system that refuses -----------------------------------------------------------------


def refusing(monkeypatch: pytest.MonkeyPatch, call: str, number: int, after: int = 0) -> None:
    """Let the system call ``os.<call>`` fail with ``number`` from its n-th use on."""
    module: Any = files if call == "exchange_names" else os
    real, left = getattr(module, call), after

    def fail(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **named)

    monkeypatch.setattr(module, call, fail)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("write", 0),
        ("write", 1),
        ("fsync", 0),
        ("fsync", 2),
        ("mkdir", 0),
        ("open", 0),
        ("open", 2),
    ],
)
def test_a_refused_publish_leaves_the_earlier_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: int, number: int
) -> None:
    place = tmp_path / "latest" / "decode"
    store.publish(place, OLD)
    with monkeypatch.context() as patch:
        refusing(patch, call, number, after)
        with pytest.raises(ToolError) as raised:
            store.publish(place, NEW)
    assert raised.value.code == "E_CANNOT_WRITE"
    assert str(place) in raised.value.problem
    assert os.strerror(number) in raised.value.problem
    assert raised.value.exit_code == 5
    assert contents(place) == OLD
    store.publish(place, NEW)
    assert contents(place) == NEW
    assert [entry.name for entry in place.parent.iterdir()] == ["decode"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("call", ["open", "write", "fsync", "exchange_names"])
def test_a_refused_write_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = tmp_path / "file"
    store.write_atomic(path, b"old")
    with monkeypatch.context() as patch:
        refusing(patch, call, number)
        with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
            store.write_atomic(path, b"new")
    assert contents(tmp_path) == {"file": b"old"}


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_refused_line_leaves_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "history"
    store.append_line(path, b"one")
    with monkeypatch.context() as patch:
        refusing(patch, call, errno.ENOSPC)
        with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
            store.append_line(path, b"two")
    store.append_line(path, b"three")
    assert path.read_bytes() == b"one\nthree\n"


def test_half_a_line_on_a_full_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history"
    store.append_line(path, b"one")
    real = os.write
    written: list[int] = []

    def half(descriptor: int, data: memoryview) -> int:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(real(descriptor, bytes(data[:2])))
        return written[0]

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(ToolError, match="No space left"):
            store.append_line(path, b"two")
    assert written == [2]
    assert path.read_bytes() == b"one\n"


@pytest.mark.parametrize(
    "act",
    [
        lambda path: store.write_atomic(path, b""),
        lambda path: store.append_line(path, b""),
        lambda path: store.publish(path, {}),
        lambda path: store.ensure_gitignore(path),
        lambda path: locks.lock_file(path, 1.0).__enter__(),
    ],
    ids=["write_atomic", "append_line", "publish", "ensure_gitignore", "lock"],
)
def test_a_file_where_a_directory_is_needed(tmp_path: Path, act: Callable[[Path], Any]) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(ToolError) as raised:
        act(tmp_path / "file" / "run")
    assert raised.value.code == "E_CANNOT_WRITE"
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_file_in_the_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"mine")
    with pytest.raises(ToolError, match="Not a directory"):
        store.publish(tmp_path / "run", NEW)
    with pytest.raises(ToolError, match="Not a directory"):
        store.clear(tmp_path / "run")
    assert contents(tmp_path) == {"run": b"mine"}


# --- spoilt and left over ------------------------------------------------------------------


def test_what_is_set_aside_is_kept_for_good(tmp_path: Path) -> None:
    path = tmp_path / "file"
    store.write_atomic(path, b"spoilt")
    aside = store.write_atomic(path, b"new", set_aside=True)
    assert aside is not None
    assert aside.name.startswith(".file.corrupt-")
    store.write_atomic(path, b"newer")
    store.sweep(tmp_path)
    assert contents(tmp_path) == {"file": b"newer", aside.name: b"spoilt"}
    assert store.write_atomic(tmp_path / "other", b"", set_aside=True) is None


def test_a_spoilt_file_gives_way_to_a_directory_only_when_asked_to(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"spoilt")
    aside = store.publish(tmp_path / "run", NEW, set_aside=True)
    assert aside is not None
    assert aside.read_bytes() == b"spoilt"
    assert contents(tmp_path / "run") == NEW


def test_a_refused_write_sets_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish(tmp_path / "run", OLD)
    refusing(monkeypatch, "fsync", errno.EIO, after=len(NEW) + 1)
    with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
        store.publish(tmp_path / "run", NEW, set_aside=True)
    assert contents(tmp_path / "run") == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("swaps", [True, False])
def test_what_the_disk_did_not_confirm_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    """The last sync is of the directory whose entries were swapped."""
    if not swaps:
        monkeypatch.setattr(files, "exchange_names", lambda _one, _other: False)
    store.publish(tmp_path / "run", OLD)
    with monkeypatch.context() as patch:
        refusing(patch, "fsync", errno.EIO, after=len(NEW) + 1)
        with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
            store.publish(tmp_path / "run", NEW)
    assert contents(tmp_path / "run") == OLD
    with monkeypatch.context() as patch:
        refusing(patch, "fsync", errno.EIO)
        with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
            store.clear(tmp_path / "run")
    assert contents(tmp_path / "run") == OLD


def test_what_killed_writers_left_is_swept_but_not_beside_a_live_one(tmp_path: Path) -> None:
    shelf = tmp_path / "latest"
    left = [shelf / f".{name}.new-0123456789ab" for name in ("renamed away", "x.old-1")]
    for path in left:
        store.publish(path, OLD)
    (shelf / ".flamegate-probe-0123456789ab").touch()
    mine = [".mine", ".x.new-1", ".run.corrupt-20260301T120000.000000Z", "x.new-0123456789ab"]
    for name in mine:
        (shelf / name).touch()
    with lock_directory(shelf, 1.0):
        store.sweep(shelf)
        assert all(path.is_dir() for path in left)
    store.sweep(shelf)
    assert {path.name for path in shelf.iterdir()} == set(mine)
    store.sweep(tmp_path / "nowhere")


def test_where_others_files_stand_only_probes_are_swept(tmp_path: Path) -> None:
    for name in (".x.new-0123456789ab", ".flamegate-probe-0123456789ab"):
        (tmp_path / name).touch()
    ArtifactStore(tmp_path / ".flamegate").sweep()
    assert [path.name for path in tmp_path.iterdir()] == [".x.new-0123456789ab"]


def test_new_directories_are_synced_before_anything_is_put_into_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publish into a fresh place outlives a power cut only if every name above it does."""
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_directory", synced.append)
    (tmp_path / "a").mkdir()
    files.make_directory(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    # Its maker may have been killed before he synced: an empty one is synced once more.
    synced.clear()
    files.make_directory(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path / "a" / "b"]
    synced.clear()
    (tmp_path / "a" / "b" / "c" / "file").touch()
    files.make_directory(tmp_path / "a" / "b" / "c")
    assert synced == []


def test_a_history_that_was_moved_away_while_waiting_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "history"
    store.append_line(path, b"one")
    real, moved = locks.acquire_lock, tmp_path / "moved"

    def hold(*arguments: Any) -> None:
        real(*arguments)
        if not moved.exists():
            path.rename(moved)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "acquire_lock", hold)
        store.append_line(path, b"two")
    assert contents(tmp_path) == {"moved": b"one\n", "history": b"two\n"}


# --- several at once -----------------------------------------------------------------------


def generation(directory: Path) -> set[bytes] | None:
    """Read all files through one directory handle; None if they were swapped away meanwhile."""
    with suppress(FileNotFoundError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            found = set()
            for name in NAMES:
                descriptor = os.open(name, os.O_RDONLY, dir_fd=handle)
                found.add(os.read(descriptor, 100))
                os.close(descriptor)
            return found
        finally:
            os.close(handle)
    return None


def test_nobody_ever_sees_two_runs_mixed(tmp_path: Path) -> None:
    writers = crowd.start("publish", tmp_path, 4, 25)
    place = tmp_path / "latest" / "toy"
    seen = 0
    while any(writer.is_alive() for writer in writers):
        found = generation(place)
        if found is not None:
            assert len(found) == 1
            seen += 1
    assert [crowd.ended(writer) for writer in writers] == [0, 0, 0, 0]
    assert seen > 0
    final = generation(place)
    assert final is not None
    assert len(final) == 1
    assert final.pop().endswith(b"-24")
    assert [entry.name for entry in place.parent.iterdir()] == ["toy"]


def test_a_held_lock_times_out_and_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with locks.lock_file(path, 1.0):
        with pytest.raises(ToolError) as raised, locks.lock_file(path, 0.05):
            pytest.fail("the lock was given twice")
        assert raised.value.code == "E_LOCK_TIMEOUT"
        assert f"process {os.getpid()}" in raised.value.problem
    with locks.lock_file(path, 0.05):
        assert path.exists()


def test_what_fails_under_a_lock_keeps_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locks.lock_file(tmp_path / "lock", 1.0):
        (tmp_path / "nowhere").read_bytes()
    with locks.lock_file(tmp_path / "lock", 0.05):
        pass


def test_a_publish_that_waits_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.publish(tmp_path / "run", OLD)
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.05)
    with lock_directory(tmp_path, 1.0), pytest.raises(ToolError, match="E_LOCK_TIMEOUT") as raised:
        store.publish(tmp_path / "run", NEW)
    if sys.platform.startswith("linux"):
        assert f"by process {os.getpid()}." in raised.value.problem
    assert contents(tmp_path / "run") == OLD


# --- killed at any point -------------------------------------------------------------------


def text(files: dict[str, bytes]) -> dict[str, str]:
    return {name: data.decode() for name, data in files.items()}


def old_with(**changes: str) -> dict[str, str]:
    return {**text(OLD), **{name.replace("_", "."): value for name, value in changes.items()}}


LEFT: dict[str, list[dict[str, str] | None]] = {
    "publish": [text(OLD), text(NEW)],
    # Where no single step is to be had, a crash between the two leaves nothing to be seen.
    "publish-in-two-steps": [text(OLD), None, text(NEW)],
    "clear": [text(OLD), None],
    "write": [text(OLD), old_with(receipt_json="new receipt")],
    "append": [text(OLD), old_with(receipt_json="old receipt\nline\n")],
}
AGAIN: dict[str, list[dict[str, str] | None]] = {
    "publish": [text(NEW)],
    "publish-in-two-steps": [text(NEW)],
    "clear": [None],
    "write": [old_with(receipt_json="new receipt")],
    "append": [
        old_with(receipt_json="old receipt\nline\n"),
        old_with(receipt_json="old receipt\nline\nline\n"),
    ],
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_every_call_it_leaves_the_old_or_the_new(tmp_path: Path, scenario: str) -> None:
    if scenario == "publish" and not _swaps(tmp_path):
        pytest.skip("this file system cannot swap two directories in one step")
    run = subprocess.run(
        module("crash", scenario, str(tmp_path / "place")),
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=120,
    )
    points = json.loads(run.stdout)
    assert sum(point["killed"] for point in points) >= 5
    assert {point["status"] for point in points} == {0, -9}
    left = [_without_hidden(point["left"]) for point in points]
    # Nothing but these, and each of them: the kills did come before and after.
    assert all(files in LEFT[scenario] for files in left)
    assert all(files in left for files in LEFT[scenario])
    for point in points:
        assert point["repaired"] in AGAIN[scenario]
        assert point["litter"] == []


def _without_hidden(files: dict[str, str] | None) -> dict[str, str] | None:
    """Leave out what a killed writer had not yet given its name."""
    if files is None:
        return None
    return {name: data for name, data in files.items() if not name.startswith(".")}


def _swaps(place: Path) -> bool:
    for name in ("x", "y"):
        (place / name).mkdir()
    swapped = files.exchange_names(place / "x", place / "y")
    for name in ("x", "y"):
        (place / name).rmdir()
    return swapped


def test_a_run_cut_off_between_two_steps_is_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier result stands under a hidden name; a publish that then fails restores it."""
    store.publish(tmp_path / "run", OLD)
    (tmp_path / "run").rename(tmp_path / ".run.old-0123456789ab")
    with monkeypatch.context() as patch:
        refusing(patch, "write", errno.ENOSPC)
        with pytest.raises(ToolError):
            store.publish(tmp_path / "run", NEW)
    assert contents(tmp_path / "run") == OLD


# --- git -----------------------------------------------------------------------------------


def test_gitignore_keeps_all_but_baselines_and_calibrations_out(tmp_path: Path) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    subprocess.run([git, "init", "-q", str(tmp_path)], check=True, capture_output=True)
    root = tmp_path / ".flamegate"
    store.ensure_gitignore(root)
    files = {
        "latest/decode/receipt.json": False,
        "history/runs.jsonl": False,
        "lock": False,
        ".gitignore": False,
        "baselines/amd-2/decode/receipt.json": True,
        "baselines/amd-2/decode/verdict.json": True,
        "baselines/amd-2/.decode.new-0123456789ab/receipt.json": False,
        "calibration/amd-2/decode.json": True,
        "calibration/amd-2/.decode.json.new-0123456789ab": False,
    }
    for name in files:
        store.write_atomic(root / name, b"" if name != ".gitignore" else (root / name).read_bytes())
    subprocess.run([git, "add", "-A"], cwd=tmp_path, check=True, capture_output=True)
    listed = subprocess.run(
        [git, "ls-files"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.split()
    assert listed == sorted(f".flamegate/{name}" for name, kept in files.items() if kept)


def test_gitignore_is_kept_up_and_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / ".gitignore"
    store.ensure_gitignore(tmp_path)
    current = path.read_bytes()
    path.write_bytes(b"# Written by flamegate\n*\n")
    store.ensure_gitignore(tmp_path)
    assert path.read_bytes() == current
    path.write_bytes(b"# mine\n")
    store.ensure_gitignore(tmp_path)
    assert path.read_bytes() == b"# mine\n"
