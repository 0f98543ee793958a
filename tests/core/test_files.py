"""Files that are created, all or nothing."""

import errno
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.files import create_file


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_is_created_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, "no hard links")

    monkeypatch.setattr(Path, "hardlink_to", fail)
    path = tmp_path / "below/key"
    create_file(path, b"secret", mode=0o600)
    assert path.read_bytes() == b"secret"
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to("nowhere")
    for taken in (path, tmp_path / "link"):
        with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
            create_file(taken, b"other", mode=0o600)
    assert path.read_bytes() == b"secret"
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["below", "key", "link"]


def test_another_error_of_a_hard_link_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(Path, "hardlink_to", fail)
    with pytest.raises(ToolError, match="E_CANNOT_WRITE"):
        create_file(tmp_path / "key", b"secret", mode=0o600)
    assert list(tmp_path.iterdir()) == []
