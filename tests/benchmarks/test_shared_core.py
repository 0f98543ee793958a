from pathlib import Path

import pytest

from benchmarks import shared_core
from benchmarks.tables import as_markdown

PAGE = Path(__file__).parents[2] / "docs" / "gate-power.md"


def test_the_documented_tables_are_those_of_the_stored_pairs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = PAGE.read_text()
    for table in (shared_core.noise(), shared_core.decisions()):
        assert as_markdown(table) in page
    assert shared_core.main([]) == 0
    assert "passage, busy" in capsys.readouterr().out
