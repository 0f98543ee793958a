"""The clocks of other processes, as kernels and sandboxes tell them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.core import clocks

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.measures


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells ticks since boot")
def test_a_process_has_a_start() -> None:
    assert (clocks.read_start_ticks(os.getpid()) or 0) > 0
    assert clocks.read_start_ticks(2**22 + 1) is None


@pytest.mark.parametrize(("told", "ticks"), [(0, None), (1, 1), (123456, 123456)])
def test_a_start_of_zero_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: int, ticks: int | None
) -> None:
    stat = tmp_path / "stat"
    stat.write_text(f"7 (a ) b) S {' '.join('9' * 18)} {told} 5 5\n")
    monkeypatch.setattr(clocks, "Path", lambda _: stat)
    assert clocks.read_start_ticks(7) == ticks
