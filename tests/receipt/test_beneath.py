"""Files below a root, in which a repository may contain links, pipes, devices and huge holes."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_flamegate.core import files
from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.core.text import Refusal
from pytest_flamegate.receipt import sources
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.verify import verify_receipt
from tests.made import bundle
from tests.receipt.operations import RUN
from tests.snapshots import snapshot


def test_a_file_below_its_root(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x" * 10)
    (tmp_path / "root").symlink_to(tmp_path)  # the user chose the root
    for root in (tmp_path, tmp_path / "root"):
        assert files.read_beneath(root, "a", "b", "file", limit=10) == b"x" * 10
    with pytest.raises(FlamegateError, match="E_TOO_LARGE"):
        files.read_beneath(tmp_path, "a", "b", "file", limit=9)
    for missing in (("x",), ("x", "y"), ("a", "b", "file", "y"), ("a\0b",), ("a\0b", "y")):
        with pytest.raises(FlamegateError, match="E_CANNOT_READ"):
            files.read_beneath(tmp_path, *missing, limit=9)


@pytest.mark.parametrize("name", ["", "..", "/etc/passwd", "a/b"])
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"")
    for parts in ((name,), (name, "b"), ("a", name)):
        with pytest.raises(FlamegateError, match="E_BAD_NAME"):
            files.read_beneath(tmp_path, *parts, limit=9)
    for path in ("../x", "a/../../x", "/x"):
        with pytest.raises(FlamegateError, match="does not lie in"):
            files.require_confined(tmp_path, tmp_path / path)


def write_terabyte(path: Path) -> None:
    with path.open("wb") as file:
        try:
            file.truncate(1 << 40)
        except OSError:
            pytest.skip("the file system holds no file of a terabyte")


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (os.mkfifo, "E_CANNOT_READ"),
    "directory": (Path.mkdir, "E_CANNOT_READ"),
    "terabyte": (write_terabyte, "E_TOO_LARGE"),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), "E_CANNOT_READ"),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", ["receipt.json", "evidence.json", "profile.folded"])
def test_odd_entries_in_the_place_of_a_file(tmp_path: Path, name: str, kind: str) -> None:
    make, code = ODD[kind]
    receipt = bundle().write(tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    make(tmp_path / "run" / name)
    answer = verify_receipt(receipt)
    assert code in {refusal.code for refusal in answer.refusals}
    assert not answer.ok


def test_all_files_are_of_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("linked", ["machine", "machine/4tok", "machine/4tok/evidence.json"])
def test_a_committed_link_in_a_baseline_is_an_error(tmp_path: Path, linked: str) -> None:
    """The target of a link in a pull request is on the machine that checks it out."""
    artifacts = ArtifactStore(tmp_path / ".flamegate")
    artifacts.accept_baseline("machine", "4tok", bundle().files)
    assert artifacts.read_baseline("machine", "4tok") is not None
    place = tmp_path / ".flamegate" / "baselines" / linked
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReceiptError, match="E_BASELINE_CORRUPT") as raised:
        artifacts.read_baseline("machine", "4tok")
    assert "symbolic link" in raised.value.problem


WRITES: dict[str, Callable[[ArtifactStore], object]] = {
    "publish": lambda artifacts: artifacts.publish_run("w", {"receipt.json": b"{}"}),
    "accept": lambda artifacts: artifacts.accept_baseline("m", "w", {"receipt.json": b"{}"}),
    "calibrate": lambda artifacts: artifacts.write_calibration("m", "w", b"{}"),
    "record": lambda artifacts: artifacts.append_run(RUN),
    "remove": lambda artifacts: artifacts.remove_baseline(artifacts.baseline_directory("m", "w")),
    "probe": lambda artifacts: artifacts.require_writable("m"),
    "sweep": lambda artifacts: artifacts.sweep(),
}
PLACES = {
    "publish": ("", "latest", "latest/w"),
    "accept": ("", "baselines", "baselines/m", "baselines/m/w"),
    "calibrate": ("", "calibration", "calibration/m", "calibration/m/w.json"),
    "record": ("", "history", "history/runs.jsonl"),
    "remove": ("", "baselines", "baselines/m", "baselines/m/w"),
    "probe": ("", "latest", "baselines", "baselines/m"),
    "sweep": ("", "latest", "history", "imported", "baselines", "baselines/m", "calibration/m"),
}


@pytest.mark.parametrize(
    ("write", "place"), [(write, place) for write in WRITES for place in PLACES[write]]
)
@pytest.mark.parametrize("dangling", [False, True])
def test_no_link_is_followed(tmp_path: Path, write: str, place: str, dangling: bool) -> None:
    root, outside = tmp_path / "project" / ".flamegate", tmp_path / "outside"
    link = root / place
    link.parent.mkdir(parents=True)
    outside.mkdir()
    for name in ("receipt.json", "latest", "baselines", "w", ".w.new-0123456789ab"):
        (outside / name).write_text("precious")
    link.symlink_to(outside / "new" if dangling else outside)
    before = snapshot(outside)
    with pytest.raises(FlamegateError, match="E_CANNOT_WRITE") as raised:
        WRITES[write](ArtifactStore(root))
    assert "symbolic link" in raised.value.problem
    assert snapshot(outside) == before


@pytest.mark.parametrize("write", ["publish", "accept", "calibrate", "record"])
def test_without_a_link_it_is_written(tmp_path: Path, write: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")  # a directory above may be a link
    WRITES[write](ArtifactStore(tmp_path / "link" / ".flamegate"))
    assert (tmp_path / "real" / ".flamegate" / PLACES[write][-1]).exists()
