"""The page of a whole run: several flame graphs, each with its own tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report.run_page import run_page
from tests.report import verdicts
from tests.report.test_run_page import reported

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.watched import Watched


def test_two_workloads(watched: Watched, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    shown = [reported(verdicts.regressed(), "first"), reported(verdicts.no_baseline(), "second")]
    path.write_text(run_page(shown, title="run"), "utf-8")
    page = watched.open(path)
    sections = page.locator("[data-flame]")
    sections.nth(1).locator(".box").first.wait_for()
    sections.nth(1).locator(".box", has_text="swiglu_ffn").click()
    assert sections.nth(1).locator(".said").inner_text().startswith("Zoomed to swiglu_ffn")
    assert sections.nth(0).locator(".said").inner_text().startswith("1,312 samples")
    # The keys are for the one that was last worked with.
    page.keyboard.press("Control+f")
    page.keyboard.type("rms")
    assert sections.nth(1).locator(".found").inner_text() == "3.2 % of samples match"
    assert sections.nth(0).locator(".found").inner_text() == ""
    page.locator("summary", has_text="What to do next").first.click()
    assert page.locator("pre", has_text="--flamegate-update").first.is_visible()
    page.locator(".overview a", has_text="second").click()
    watched.was_quiet(path)
