from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pytest_flamegate.profile.profilers import jitdump

HEADER = struct.pack("=4I2Q2I", 0x4A695444, 1, 40, 62, 0, 7, 0, 0)[:40]


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("=2IQ", kind, 16 + len(body), 1) + body


def loaded(name: bytes) -> bytes:
    return record(0, b"\x11" * 40 + name + b"\0" + b"\x48\x0a\x09\xc3")


def scrubbed(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    jitdump.scrub_names(path)
    return path.read_bytes()


def test_control_characters_leave_names_and_nothing_else(tmp_path: Path) -> None:
    unwinding = record(4, b"\x0a\x00\x09")
    before = HEADER + loaded(b"py::f:/x.py") + unwinding + loaded("py::a\n\tü\x7f".encode())
    after = HEADER + loaded(b"py::f:/x.py") + unwinding + loaded("py::a??ü?".encode())
    assert scrubbed(tmp_path / "jit.dump", before) == after


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        HEADER,
        HEADER + loaded(b"py::a\n")[:50],
        HEADER + struct.pack("=2IQ", 0, 0, 1),
        HEADER + struct.pack("=2IQ", 0, 2**32 - 1, 1),
        b"no jitdump at all, but long enough to hold a header of one",
    ],
)
def test_a_damaged_dump_is_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    assert scrubbed(tmp_path / "jit.dump", content) == content


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(HEADER + loaded(b"a\nb"))
    (tmp_path / "jit.dump").symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        jitdump.scrub_names(tmp_path / "jit.dump")
    assert b"a\nb" in target.read_bytes()


def test_only_the_files_of_one_process_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jitdump, "DIRECTORY", tmp_path)
    for name in ("jit-7.dump", "jitted-7-1.so", "jitted-7-22.so", "jit-77.dump", "jitted-77-1.so"):
        (tmp_path / name).touch()
    jitdump.remove_jit_files(7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jit-77.dump", "jitted-77-1.so"]
