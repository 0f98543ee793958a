"""The store under full disks, denied permissions, links, and several writers."""

import errno
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import files
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.locks import lock_directory
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import ArtifactStore
from tests.receipt import crowd
from tests.receipt.crowd import NAMES
from tests.receipt.operations import RUN, read_runs

OLD = {"receipt.json": b"old receipt", "evidence.json": b"old evidence", "flamegraph.svg": b"old"}
NEW = {"receipt.json": b"new receipt", "evidence.json": b"new evidence", "verdict.json": b"new"}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    store.publish(tmp_path / "run", OLD)
    for gone in (tmp_path / "run", tmp_path / "run", tmp_path / "no" / "such" / "place"):
        store.remove(gone)
    assert list(tmp_path.iterdir()) == []


def test_linux_swaps_two_directories_in_one_step(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not store.exchange_names(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot swap")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()
    with pytest.raises(FileNotFoundError):
        store.exchange_names(tmp_path / "a", tmp_path / "nowhere")


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


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", "a\0b", ".hidden"])
def test_a_name_that_leads_elsewhere_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ToolError, match="E_BAD_NAME"):
        store.child_path(tmp_path, name)
    with pytest.raises(ToolError, match="E_BAD_NAME"):
        store.publish(tmp_path / "run", {"receipt.json": b"", name: b""})
    assert list(tmp_path.iterdir()) == []
    for plain in ("decode-10tok", "a b", "test_x[1]", "x..y", "é"):
        assert store.child_path(tmp_path, plain) == tmp_path / plain


ACTS: dict[str, Callable[[Path], Any]] = {
    "write_atomic": lambda path: store.write_atomic(path, b"new"),
    "append_line": lambda path: store.append_line(path, b"new"),
    "publish": lambda path: store.publish(path, NEW),
    "remove": store.remove,
    "ensure_gitignore": store.ensure_gitignore,
}


@pytest.mark.parametrize("act", ["write_atomic", "append_line", "publish", "ensure_gitignore"])
def test_a_file_where_a_directory_is_needed(tmp_path: Path, act: str) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
        ACTS[act](tmp_path / "file" / "run")
    assert contents(tmp_path) == {"file": b"mine"}


def test_an_entry_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_bytes(b"mine")
    with pytest.raises(ToolError, match=r"E_CANNOT_WRITE.*no regular file"):
        store.write_atomic(pipe, b"new")
    for act in ("publish", "remove"):
        with pytest.raises(ToolError, match="Not a directory"):
            ACTS[act](file)
    assert pipe.is_fifo()
    assert file.read_bytes() == b"mine"
    assert sorted(tmp_path.iterdir()) == [file, pipe]


def refusing(monkeypatch: pytest.MonkeyPatch, call: str, number: int, after: int = 0) -> None:
    """Let the system call ``os.<call>`` fail with ``number`` from its n-th use on."""
    real, left = getattr(os, call), after

    def fail(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **named)

    monkeypatch.setattr(os, call, fail)


@pytest.mark.parametrize(
    ("call", "after", "number"),
    [
        ("write", 1, errno.ENOSPC),
        ("fsync", 2, errno.EIO),
        ("mkdir", 0, errno.EACCES),
        ("open", 2, errno.EROFS),
    ],
)
def test_a_publish_that_fails_leaves_the_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: int, number: int
) -> None:
    place = tmp_path / "latest" / "decode"
    store.publish(place, OLD)
    with monkeypatch.context() as patch:
        refusing(patch, call, number, after)
        with pytest.raises(ToolError, match="E_CANNOT_WRITE") as raised:
            store.publish(place, NEW)
    assert str(place) in raised.value.problem
    assert os.strerror(number) in raised.value.problem
    assert contents(place) == OLD
    store.publish(place, NEW)
    assert contents(place) == NEW
    assert [entry.name for entry in place.parent.iterdir()] == ["decode"]


def test_a_file_that_was_set_aside_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    store.write_atomic(path, b"spoilt")
    aside = store.write_atomic(path, b"new", set_aside=True)
    assert aside is not None
    assert aside.name.startswith(".file.corrupt-")
    store.write_atomic(path, b"newer")
    store.sweep(tmp_path)
    assert contents(tmp_path) == {"file": b"newer", aside.name: b"spoilt"}
    assert store.write_atomic(tmp_path / "other", b"", set_aside=True) is None
    assert store.publish(path, NEW, set_aside=True) is not None
    assert contents(path) == NEW


@pytest.mark.parametrize("swaps", [True, False])
def test_a_swap_that_the_disk_did_not_confirm_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    """The last sync is of the directory whose entries were swapped."""
    if not swaps:
        monkeypatch.setattr(store, "exchange_names", lambda _one, _other: False)
    with monkeypatch.context() as patch:
        refusing(patch, "fsync", errno.EIO, after=len(OLD) + 2)
        with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
            store.publish(tmp_path / "run", OLD)
    assert list(tmp_path.iterdir()) == []
    store.publish(tmp_path / "run", OLD)
    with monkeypatch.context() as patch:
        refusing(patch, "fsync", errno.EIO, after=len(NEW) + 1)
        for set_aside in (False, True):
            with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
                store.publish(tmp_path / "run", NEW, set_aside=set_aside)
    assert contents(tmp_path / "run") == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with monkeypatch.context() as patch:
        refusing(patch, "fsync", errno.EIO)
        with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
            store.remove(tmp_path / "run")
    assert contents(tmp_path / "run") == OLD


def test_names_that_cannot_be_swapped_are_replaced_and_failures_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "exchange_names", lambda _one, _other: False)
    path = tmp_path / "file"
    store.write_atomic(path, b"old")
    for call, after in (("fsync", 1), ("replace", 0)):
        with monkeypatch.context() as patch:
            refusing(patch, call, errno.EIO, after=after)
            with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
                store.write_atomic(path, b"new")
        assert contents(tmp_path) == {"file": b"old"}
    store.write_atomic(path, b"new")
    assert contents(tmp_path) == {"file": b"new"}
    store.publish(tmp_path / "run", OLD)
    with monkeypatch.context() as patch:
        refusing(patch, "rename", errno.EIO, after=1)
        with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
            store.publish(tmp_path / "run", NEW)
    # Not even the way back was possible: the next writer goes it.
    store.sweep(tmp_path)
    assert contents(tmp_path / "run") == OLD


def test_leftovers_are_swept_unless_a_writer_is_active(tmp_path: Path) -> None:
    shelf = tmp_path / "latest"
    left = [shelf / f".{name}.new-0123456789ab" for name in ("renamed away", "x.old-1")]
    for path in left:
        store.publish(path, OLD)
    mine = [".mine", ".x.new-1", ".run.corrupt-20260301T120000.000000Z", "x.new-0123456789ab"]
    for name in mine:
        (shelf / name).touch()
    with lock_directory(shelf, 1.0):
        store.sweep(shelf)
        assert all(path.is_dir() for path in left)
    store.sweep(shelf)
    assert {path.name for path in shelf.iterdir()} == set(mine)
    store.sweep(tmp_path / "nowhere")


def test_a_new_directory_is_synced_before_files_are_put_into_it(
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


def test_a_reader_never_sees_files_of_two_runs(tmp_path: Path) -> None:
    writers = crowd.start("publish", tmp_path, 4, 15)
    reads = 0
    while any(writer.is_alive() for writer in writers):
        # The directory may be missing yet, or be swapped away meanwhile.
        with suppress(ToolError), files.open_directory(tmp_path / "latest" / "toy") as directory:
            assert len({directory.read(name, 100) for name in NAMES}) == 1
            reads += 1
    assert [crowd.wait(writer) for writer in writers] == [0, 0, 0, 0]
    assert reads > 0


def test_a_publish_that_waits_too_long_names_the_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish(tmp_path / "run", OLD)
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.05)
    with lock_directory(tmp_path, 1.0), pytest.raises(ToolError, match="E_LOCK_TIMEOUT") as raised:
        store.publish(tmp_path / "run", NEW)
    assert f"by process {os.getpid()} (" in raised.value.problem
    assert contents(tmp_path / "run") == OLD


def test_gitignore_keeps_all_but_baselines_and_calibrations_out(tmp_path: Path) -> None:
    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)
        return done.stdout.decode().split()

    root = tmp_path / ".flamegate"
    root.mkdir()
    (root / ".gitignore").write_bytes(b"# Written by flamegate\n*\n")
    store.ensure_gitignore(root)  # an older one of ours is replaced
    tracked = {
        "baselines/amd-2/decode/receipt.json",
        "baselines/amd-2/decode/verdict.json",
        "calibration/amd-2/decode.json",
    }
    for name in (
        *("latest/decode/receipt.json", "history/runs.jsonl", "lock", *tracked),
        "baselines/amd-2/.decode.new-0123456789ab/receipt.json",
        "calibration/amd-2/.decode.json.new-0123456789ab",
    ):
        store.write_atomic(root / name, b"")
    git("init", "-q")
    git("add", "-A")
    assert set(git("ls-files")) == {f".flamegate/{name}" for name in tracked}
    (root / ".gitignore").write_bytes(b"# mine\n")
    store.ensure_gitignore(root)
    assert (root / ".gitignore").read_bytes() == b"# mine\n"


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_line_of_the_history_spoils_no_later_one(tmp_path: Path, cut: int) -> None:
    artifacts = ArtifactStore(tmp_path)
    for name in "abc":
        artifacts.append_run(replace(RUN, workload=name))
    path = artifacts.runs_path
    assert b"commit" not in path.read_bytes()  # what is not known is not written
    path.write_bytes(path.read_bytes()[:-cut])
    artifacts.append_run(replace(RUN, workload="d"))
    found = [each.workload for each in read_runs(path)]
    assert [name for name in found if name != "c"] == ["a", "b", "d"]
