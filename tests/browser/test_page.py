"""The page of a whole run: several flame graphs with their own tools, at every width."""

from pathlib import Path

from pytest_flamegate.report.page import run_page
from tests.browser.watched import Watched
from tests.report import factory, verdicts
from tests.report.factory import report


def test_two_workloads(watched: Watched, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    runs = [
        report(verdicts.in_pairs(), "first", pairs_pct=(-6.0, -7.5, -5.2)),
        report(verdicts.no_baseline(), "second"),
    ]
    path.write_text(run_page(runs, title="run"), "utf-8")
    page = watched.open(path)
    sections = page.locator("[data-flame]")
    sections.nth(1).locator(".box").first.wait_for()
    sections.nth(1).locator(".box", has_text="swiglu_ffn").click()
    assert sections.nth(1).locator(".said").inner_text().startswith("Zoomed to swiglu_ffn")
    assert sections.nth(0).locator(".said").inner_text().startswith("1,312 samples")
    # Keys act on the flame graph that was used last.
    page.keyboard.press("Control+f")
    page.keyboard.type("rms")
    assert sections.nth(1).locator(".found").inner_text() == "3.2 % of samples match"
    assert sections.nth(0).locator(".found").inner_text() == ""
    assert "#flame-2?" in page.url
    assert page.locator("pre", has_text="--flamegate-update").first.is_visible()
    assert page.locator("svg.pairs circle").count() == 3
    page.locator(".overview a", has_text="second").click()
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    change = page.locator(".workload table").first.locator("th", has_text="change").first
    for shown in (page.locator("main > ul > li", has_text="% slower"), change):
        place = shown.bounding_box()
        assert place is not None
        assert place["x"] + place["width"] <= 400
    wide = "e => e.scrollWidth > e.clientWidth && getComputedStyle(e).backgroundImage !== 'none'"
    assert page.locator(".scroll").first.evaluate(wide)
    watched.was_quiet(path)


def test_the_lines_of_a_function(watched: Watched, tmp_path: Path) -> None:
    """A click on a function offers its lines; a narrow page has one text for both sides."""
    path = tmp_path / "report.html"
    run = report(verdicts.in_pairs(), source=factory.source_view())
    path.write_text(run_page([run], title="run"), "utf-8")
    page = watched.open(path)
    said, lines = page.locator(".said"), page.locator("table.source")
    page.locator(".box", has_text="decode_step").click()
    assert said.locator("button").count() == 0
    page.locator(".box", has_text="swiglu_ffn").click()
    said.locator("button", has_text="Source").click()
    assert lines.evaluate("each => each === document.activeElement")
    same = lines.locator("tr.same").first
    assert same.locator(".base.code").is_visible()
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert not same.locator(".base.code").is_visible()
    assert same.locator(".head.code").is_visible()
    changed = lines.locator("tr.changed").first
    before, after = (changed.locator(f".{side}.code").bounding_box() for side in ("base", "head"))
    assert before is not None
    assert after is not None
    assert before["y"] + before["height"] <= after["y"]
    watched.was_quiet(path)
