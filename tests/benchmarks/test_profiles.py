from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import profiles
from benchmarks.tables import Table
from pytest_flamegate.core.errors import ToolError

pytestmark = pytest.mark.measures


def test_a_section_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        profiles.main(["foldings"])
    assert "there is no section 'foldings'" in capsys.readouterr().err


def test_sections_are_printed_in_order_and_refusals_end_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def good(brief: bool) -> Iterator[Table]:
        yield Table(f"brief: {brief}", ("a", "b"), (("x", "1"),))

    def bad(brief: bool) -> Iterator[Table]:
        raise ToolError("E_NO_SAMPLES", "Nothing came.", "Try again.")
        yield

    monkeypatch.setattr(profiles, "SECTIONS", {"good": good, "bad": bad})
    assert profiles.main(["good", "--brief"]) == 0
    assert profiles.main(["good", "bad"]) == 5
    printed = capsys.readouterr()
    assert printed.out.index("brief: True") < printed.out.index("brief: False")
    assert "bad: E_NO_SAMPLES" in printed.err
