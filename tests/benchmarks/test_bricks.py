from __future__ import annotations

import pytest

from benchmarks import bricks
from benchmarks.tables import Table

pytestmark = pytest.mark.measures


def test_its_sections_are_those_that_are_told() -> None:
    assert list(bricks.SECTIONS) == ["cost", "graphs", "shares"]
    with pytest.raises(SystemExit, match="2"):
        bricks.main(["costs"])


def test_graphs_in_brief(capsys: pytest.CaptureFixture[str]) -> None:
    assert bricks.main(["graphs", "--brief", "--markdown"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("### Execution graphs")
    assert told.count("\n| 1,") == 1


def test_a_section_is_asked_whether_it_is_in_brief(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = {"shares": lambda brief: [Table(f"brief: {brief}", ("a",), (("x",),))]}
    monkeypatch.setattr(bricks, "SECTIONS", sections)
    assert bricks.main(["shares", "--brief"]) == bricks.main([]) == 0
    told = capsys.readouterr().out
    assert told.index("brief: True") < told.index("brief: False")
