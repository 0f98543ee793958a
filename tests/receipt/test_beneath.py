"""Files beneath a root, where somebody may have put links, pipes, devices and huge holes."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.core.files import open_directory, read_beneath, read_bounded
from pytest_flamegate.core.text import Refusal
from pytest_flamegate.receipt import sources
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.verify import verify_receipt
from tests.made import bundle


def test_a_file_beneath_its_root(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x" * 10)
    (tmp_path / "root").symlink_to(tmp_path)  # whoever typed the root chose it
    for root in (tmp_path, tmp_path / "root"):
        assert read_beneath(root, "a", "b", "file", limit=10) == b"x" * 10
    with pytest.raises(FlamegateError, match="E_TOO_LARGE"):
        read_beneath(tmp_path, "a", "b", "file", limit=9)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_no_part_may_be_a_link(tmp_path: Path, part: int) -> None:
    names = ("a", "b", "file")
    (tmp_path / "real" / "a" / "b").mkdir(parents=True)
    (tmp_path / "real" / "a" / "b" / "file").write_bytes(b"secret")
    link = tmp_path / "root" / Path(*names[: part + 1])
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "real" / Path(*names[: part + 1]))
    assert (tmp_path / "root" / Path(*names)).read_bytes() == b"secret"
    with pytest.raises(FlamegateError, match="E_CANNOT_READ") as raised:
        read_beneath(tmp_path / "root", *names, limit=100)
    assert "symbolic link" in raised.value.problem


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/passwd", "a/b"])
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"")
    for parts in ((name,), (name, "b"), ("a", name)):
        with pytest.raises(FlamegateError, match="E_BAD_NAME"):
            read_beneath(tmp_path, *parts, limit=9)


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for parts in (("x",), ("x", "y"), ("file", "y"), ("a\0b",), ("a\0b", "y")):
        with pytest.raises(FlamegateError, match="E_CANNOT_READ"):
            read_beneath(tmp_path, *parts, limit=9)
    with pytest.raises(FlamegateError, match="E_CANNOT_READ"):
        read_beneath(tmp_path / "nowhere", "x", limit=9)


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket has a hundred bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(before)


def a_directory(path: Path) -> None:
    path.mkdir()


def a_terabyte(path: Path) -> None:
    with path.open("wb") as file:
        try:
            file.truncate(1 << 40)
        except OSError:
            pytest.skip("the file system holds no file of a terabyte")


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD: list[tuple[Callable[[Path], None], str]] = [
    (a_pipe, "E_NOT_A_FILE"),
    (a_socket, "E_NOT_A_FILE"),
    (a_directory, "E_NOT_A_FILE"),
    (a_terabyte, "E_TOO_LARGE"),
    (a_link_to_a_device, "E_CANNOT_READ"),
]


@pytest.mark.parametrize(("put", "code"), ODD, ids=[put.__name__ for put, _ in ODD])
@pytest.mark.parametrize("name", ["receipt.json", "evidence.json", "profile.folded"])
def test_odd_things_in_the_place_of_a_file(
    tmp_path: Path, name: str, put: Callable[[Path], None], code: str
) -> None:
    receipt = bundle().write(tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    put(tmp_path / "run" / name)
    answer = verify_receipt(receipt)
    assert code in {refusal.code for refusal in answer.refusals}
    assert not answer.ok


@pytest.mark.parametrize(
    "path", ["/dev/zero", "/dev/null", "/dev/tty", "/proc/self/mem", "/proc/kmsg", "/proc/self"]
)
def test_what_the_system_shows_as_files(path: str) -> None:
    if not os.path.lexists(path):
        pytest.skip(f"there is no {path} here")
    with pytest.raises(FlamegateError) as raised:
        read_bounded(Path(path), 1000)
    assert raised.value.code in {"E_NOT_A_FILE", "E_CANNOT_READ", "E_TOO_LARGE"}
    assert not verify_receipt(Path(path)).ok


def test_what_stands_beside_is_of_the_same_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is swapped right after the receipt was read: that changes nothing."""
    receipt = bundle(seed=1).write(tmp_path / "run")
    bundle(seed=2).write(tmp_path / "other")
    plain_read = sources._read

    def swapping(*arguments: object) -> bytes | Refusal:
        data = plain_read(*arguments)  # type: ignore[arg-type]
        if not (tmp_path / "old").exists():
            (tmp_path / "run").rename(tmp_path / "old")
            (tmp_path / "other").rename(tmp_path / "run")
        return data

    monkeypatch.setattr(sources, "_read", swapping)
    assert verify_receipt(receipt).refusals == ()
    assert (tmp_path / "old").exists()


def test_a_directory_stays_what_it_was_when_it_was_opened(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").write_bytes(b"before")
    with open_directory(tmp_path / "run") as directory:
        (tmp_path / "run").rename(tmp_path / "old")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "file").write_bytes(b"after")
        assert directory.holds("file")
        assert not directory.holds("other")
        assert directory.read("file", 10) == b"before"


@pytest.mark.parametrize("linked", ["machine", "machine/4tok", "machine/4tok/evidence.json"])
def test_a_committed_link_in_a_baseline_is_refused(tmp_path: Path, linked: str) -> None:
    """What a link in a pull request points to is on the machine of whoever checks it out."""
    artifacts = ArtifactStore(tmp_path / ".flamegate")
    artifacts.accept_baseline("machine", "4tok", bundle().files)
    assert artifacts.read_baseline("machine", "4tok") is not None
    place = tmp_path / ".flamegate" / "baselines" / linked
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReceiptError, match="E_BASELINE_CORRUPT") as raised:
        artifacts.read_baseline("machine", "4tok")
    assert "symbolic link" in raised.value.problem
