"""The difference view: opened first, more than colours, unchanged callers grey."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.profile.difference import ProfileSide, compare_profiles
from pytest_flamegate.profile.model import Stack
from pytest_flamegate.report.flame import Drawn
from tests.browser.watched import Watched, boxes, named, write
from tests.report import factory

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


OLD: dict[Stack, int] = {
    (*factory.FFN, factory.python("ternary_gemv")): 8000,
    (*factory.ROOT, factory.python("rms_norm")): 400,
    (*factory.ROOT, factory.python("softmax")): 1000,
    (*factory.ROOT, factory.python("old_copy")): 600,
}
NEW: dict[Stack, int] = {
    (*factory.FFN, factory.python("ternary_gemv")): 8000,
    (*factory.ROOT, factory.python("rms_norm")): 1600,
    (*factory.ROOT, factory.python("softmax")): 500,
    (*factory.ROOT, factory.python("fresh_copy")): 500,
}


def drawn() -> Drawn:
    old, new = factory.profile(OLD), factory.profile(NEW)
    head_s = 1e-3 * new.samples / old.samples
    found = compare_profiles(
        ProfileSide("base 4f2c91a", old, 1e-3), ProfileSide("now <b>", new, head_s)
    )
    return Drawn("t", new, 1e-3, found, opens_compared=True)


@pytest.fixture
def page(watched: Watched, tmp_path: Path) -> Page:
    return watched.open(write(tmp_path, drawn()))


def colour(box: Locator) -> str:
    classes = (box.get_attribute("class") or "").split()
    return next(each for each in classes if each.startswith(("change-", "tone-")))


def test_it_opens_on_the_difference_and_toggles(watched: Watched, tmp_path: Path) -> None:
    path = write(tmp_path, drawn())
    page = watched.open(path)
    toggle = page.get_by_role("button", name="Difference")
    assert toggle.get_attribute("aria-pressed") == "true"
    assert page.locator(".said").inner_text().startswith("base 4f2c91a → now <b>")
    head = page.locator("table.functions:visible thead").inner_text().split()
    assert head == ["function", "before", "after", "change", "z"]
    toggle.focus()
    page.keyboard.press("Enter")
    assert colour(named(page, "rms_norm")) == "tone-norm"
    assert named(page, "old_copy").count() == 0
    page.locator(".legend button", has_text="norm").click()
    assert page.locator(".box.faint").count() > 0
    toggle.click()
    # The legend of the kinds of work, which explains faint boxes, is not visible here.
    assert page.locator(".box.faint").count() == 0
    watched.was_quiet(path)


def test_colours_words_and_widths(page: Page) -> None:
    colours = {"rms_norm": "up3", "softmax": "down3", "old_copy": "less", "fresh_copy": "more"}
    same = dict.fromkeys(("main", "decode_step", "swiglu_ffn", "ternary_gemv"), "same")
    for name, shade in {**colours, **same}.items():
        assert colour(named(page, name)) == f"change-{shade}"
    labels = {label.split(",")[0]: label for label in boxes(page)}
    assert "costs more, +120 µs with all it calls" in labels["rms_norm"]
    assert "costs less, −50.0 µs" in labels["softmax"]
    assert "gone, −60.0 µs" in labels["old_copy"]
    assert "new, +50.0 µs" in labels["fresh_copy"]
    assert "unchanged, ±0" in labels["ternary_gemv"]
    assert "NEW" in named(page, "fresh_copy").inner_text().upper()
    rows = page.locator("table.functions:visible tbody tr").all_inner_texts()
    shown = {row.split()[0]: row.split()[1:] for row in rows}
    assert shown["rms_norm"][:5] == ["costs", "more", "40", "160", "+120"]
    assert (shown["fresh_copy"][0], shown["old_copy"][0]) == ("new", "gone")
    assert "rms_norm costs 40 → 160 µs/token" in page.locator(".answer").inner_text()
    named(page, "rms_norm").hover()
    tip = page.locator(".tip").inner_text()
    for words in ("40.0 µs → 160 µs (+120 µs)", "4.0 % → 15.1 %", "+11.1 pp", "certain"):
        assert words in tip
    # Boxes are as wide as the costlier side.
    widths = {}
    for name in ("all", "rms_norm", "softmax", "old_copy", "ternary_gemv"):
        place = named(page, name).bounding_box()
        assert place is not None
        widths[name] = place["width"]
    unit = widths["all"] / (800 + 160 + 100 + 60 + 50)
    expected = {"rms_norm": 160, "softmax": 100, "old_copy": 60, "ternary_gemv": 800}
    for name, cost_us in expected.items():
        assert widths[name] == pytest.approx(cost_us * unit, abs=2)


def test_search_and_inverted(page: Page) -> None:
    for name, found in (
        ("old_copy", "6.0 % → 0.0 % of samples match"),
        ("nothing of the kind", "no match"),
        ("rms", "4.0 % → 15.1 % of samples match"),
    ):
        page.locator(".search input").fill(name)
        assert page.locator(".found").inner_text() == found
    page.locator(".search input").fill("")
    page.get_by_role("button", name="Inverted").click()
    roots = page.locator('.box[aria-level="2"]')
    found_colours = {
        str(box.get_attribute("aria-label")).split(",")[0]: colour(box) for box in roots.all()
    }
    assert found_colours == {
        "ternary_gemv": "change-same", "rms_norm": "change-up3", "softmax": "change-down3",
        "old_copy": "change-less", "fresh_copy": "change-more",
    }  # fmt: skip
