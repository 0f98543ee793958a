"""A changed file never gets an old digest, and what is kept is nobody else's word."""

import hashlib
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.models import files
from pytest_flamegate.models.files import model_sha256, read_stamp, read_stamps, require_unchanged

SIZE = 4096
OLD_NS = 1_700_000_000_000_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep everything here, at once, on whatever file system."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "CACHED_BYTES", 0)
    monkeypatch.setattr(files, "_SETTLED_NS", -(10**18))
    return tmp_path / "cache/pytest-flamegate/model-sha256"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"a" * SIZE)
    os.utime(path, ns=(OLD_NS, OLD_NS))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wait_for_the_clock(path: Path) -> None:
    """Wait until a change would have another time than the last: a tick of the kernel's clock."""
    beside = path.with_name("tick")
    before = read_stamp(path).ctime_ns
    beside.touch()
    while read_stamp(beside).ctime_ns <= before:
        time.sleep(0.001)
        beside.touch()


def rewrite(path: Path) -> None:
    """Change one byte and put the file's time back."""
    status = path.stat()
    with path.open("r+b") as file:
        file.write(b"b")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"b" * SIZE)
    os.utime(other, ns=(OLD_NS, OLD_NS))
    other.replace(path)


def rewrite_by_mapping(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        data[:1] = b"b"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rewrite, "written to, or its times"),
        (rewrite_by_mapping, "written to"),
        (replace, "another file is there now"),
        (lambda path: path.write_bytes(b""), "it had 4096 bytes and has 0"),
        (lambda path: path.unlink(), "cannot be read: No such file"),
    ],
    ids=["time put back", "mapping", "replaced", "emptied", "removed"],
)
def test_a_changed_file_gets_no_old_digest(
    model: Path, change: Callable[[Path], object], words: str
) -> None:
    before = model_sha256(model)
    known = read_stamps(model)
    require_unchanged(known)
    wait_for_the_clock(model)
    change(model)
    assert not model.exists() or model_sha256(model) == sha256(model) != before
    with pytest.raises(ToolError, match=f"E_MODEL_(CHANGED|MISSING).*{words}"):
        require_unchanged(known)


def test_a_cache_that_cannot_be_read_counts_for_nothing(model: Path, cache: Path) -> None:
    digest = model_sha256(model)
    (file,) = cache.iterdir()
    file.write_bytes(b"0" * 64)
    assert model_sha256(model) == "0" * 64  # the cache is read
    for content in (b"\xff\x00", b"0" * 63, b"0" * 64 + b"\n"):
        file.write_bytes(content)
        assert model_sha256(model) == digest
    os.truncate(file, 1 << 32)
    assert model_sha256(model) == digest
    file.unlink()
    file.mkdir()
    assert model_sha256(model) == digest


@pytest.mark.parametrize("named", ["relative", "a\0b", "/proc/none", "small"])
def test_where_nothing_can_be_kept_it_is_read(
    model: Path, named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(files, "CACHED_BYTES", SIZE + 1 if named == "small" else 0)
    monkeypatch.setattr(os, "environ", {"XDG_CACHE_HOME": named, "HOME": str(tmp_path / "taken")})
    (tmp_path / "taken").touch()
    for _ in range(2):
        assert model_sha256(model) == sha256(model)
    assert (tmp_path / "taken").is_file()
    assert not Path("relative").exists()
    assert not Path("small").exists()


def test_the_latest_are_kept(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "x"
    for number in range(300):
        path.write_bytes(b"x" * number)
        digest = model_sha256(path)
    values = {file.read_text() for file in cache.iterdir()}
    assert len(values) == 256
    assert digest in values


def test_a_split_model_is_its_parts_in_order(tmp_path: Path, cache: Path) -> None:
    parts = [tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(part.name.encode())
    whole = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    assert [model_sha256(parts[0]) for _ in range(2)] == [whole] * 2
    assert [file.read_text() for file in cache.iterdir()] == [whole]
    known = read_stamps(parts[0])
    wait_for_the_clock(parts[1])
    parts[1].write_bytes(b"m-00002-of-00003.gguf")
    assert model_sha256(parts[0]) != whole
    with pytest.raises(ToolError, match="m-00002-of-00002"):
        require_unchanged(known)


def test_a_file_that_changes_while_it_is_read_is_refused(
    model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = files._read

    def read_and_write(path: Path, digest: Any) -> object:
        found = known(path, digest)
        path.write_bytes(b"b" * (SIZE + 1))
        return found

    monkeypatch.setattr(files, "_read", read_and_write)
    with pytest.raises(ToolError, match="while it was read") as refused:
        model_sha256(model)
    assert refused.value.code == "E_MODEL_CHANGED"
    assert not cache.exists()
