from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.profilers import base
from pytest_flamegate.profile.profilers.base import Sidecar


def test_what_is_written_is_read(tmp_path: Path) -> None:
    noted = Sidecar(7, 4711, nonblocking=True, errors=2, degraded=("not paused",))
    base.write_sidecar(tmp_path / "raw", noted)
    assert base.read_sidecar(tmp_path / "raw", "perf") == noted


def test_a_wrapped_command_has_none(tmp_path: Path) -> None:
    assert base.read_sidecar(tmp_path / "raw", "perf") == Sidecar()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"\xff",
        b"[" * 100_000,
        *(
            json.dumps({**asdict(Sidecar(7)), **changes}).encode()
            for changes in (
                {"pid": "7"},
                {"started_ticks": 1.5},
                {"nonblocking": 0},
                {"errors": None},
                {"degraded": [1]},
            )
        ),
    ],
)
def test_anything_else_is_refused(content: bytes, tmp_path: Path) -> None:
    base.sidecar_path(tmp_path / "raw").write_bytes(content)
    with pytest.raises(FlamegateError, match="E_PROFILER_OUTPUT"):
        base.read_sidecar(tmp_path / "raw", "perf")


def test_no_recording_takes_the_place_of_another(tmp_path: Path) -> None:
    first = base.unused_path(tmp_path / "new", "perf", ".data")
    first.touch()
    second = base.unused_path(tmp_path / "new", "perf", ".data")
    assert first != second
    assert not second.exists()
