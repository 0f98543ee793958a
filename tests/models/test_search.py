"""A search ends, whatever it meets, and says when it did not look at everything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_flamegate.models.discover import DirectorySearch


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.gguf", ["a.gguf"]),
        ("**/*.gguf", ["a.gguf", "x/b.gguf", "x/y/[c].gguf"]),
        ("x/**/*.gguf", ["x/b.gguf", "x/y/[c].gguf"]),
        ("**/y/**/*.gguf", ["x/y/[c].gguf"]),
        ("*/*.gguf", ["x/b.gguf"]),
        ("?/[ab].gguf", ["x/b.gguf"]),
        ("./x/../a.gguf", ["a.gguf"]),
        ("a.gguf", ["a.gguf"]),
        ("x/**", []),
        ("*", ["a.gguf"]),
        ("", []),
        (".", []),
        ("**/" * 2000 + "*.gguf", ["a.gguf", "x/b.gguf", "x/y/[c].gguf"]),
        ("**/x/" * 50 + "*.gguf", []),
        ("no/such/*", []),
        ("a.gguf/*", []),
        ("a\0b/*", []),
        ("x" * 300 + "/*", []),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, names: list[str]) -> None:
    for name in ("a.gguf", "x/b.gguf", "x/y/[c].gguf", "x/y/c.txt"):
        touch(tmp_path / name)
    search = DirectorySearch()
    found = [os.path.relpath(path, tmp_path) for path in search.files(tmp_path, pattern)]
    assert found == names
    assert search.complete


def test_links_in_circles_end(tmp_path: Path) -> None:
    wanted = touch(tmp_path / "a/b.gguf")
    (tmp_path / "a/up").symlink_to(tmp_path)
    (tmp_path / "a/self.gguf").symlink_to(tmp_path / "a/self.gguf")
    assert DirectorySearch().files(tmp_path, "**/*.gguf") == [wanted]
    assert DirectorySearch().files(tmp_path, "a/up/a/up/a/*.gguf") == [
        tmp_path / "a/up/a/up/a/b.gguf"
    ]


def test_too_much_is_told(tmp_path: Path) -> None:
    for number in range(30):
        touch(tmp_path / f"{number // 10}/{number}.gguf")
    search = DirectorySearch(most=20)
    assert len(search.files(tmp_path, "**/*.gguf")) < 30
    assert not search.complete
    assert search.files(tmp_path / "0", "*.gguf") == []
    whole = DirectorySearch(most=33)
    assert len(whole.files(tmp_path, "**/*.gguf")) == 30
    assert whole.complete


def test_what_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = touch(tmp_path / "open/a.gguf")
    touch(tmp_path / "shut/b.gguf")
    known = os.scandir

    def scandir(path: Path) -> object:
        if path == tmp_path / "shut":
            raise PermissionError(13, "Permission denied")
        return known(path)

    monkeypatch.setattr(os, "scandir", scandir)
    search = DirectorySearch()
    assert search.files(tmp_path, "**/*.gguf") == [wanted]
    assert search.unread == [tmp_path / "shut"]
