"""The difference view: toggled, told by more than colour, unchanged callers grey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.profile.difference import ProfileSide, compare_profiles
from pytest_flamegate.profile.model import Profile, Stack
from pytest_flamegate.report.flame_html import flamegraph_html
from tests.browser.watched import Watched, boxes, named
from tests.report import factory

if TYPE_CHECKING:
    from pathlib import Path

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


def profile(stacks: dict[Stack, int], **changes: Any) -> Profile:
    from dataclasses import replace

    return replace(factory.profile(stacks), **changes)


def write(directory: Path, old: Profile, new: Profile, cost: float | None = 1e-3) -> Path:
    head_cost = None if cost is None else cost * new.samples / old.samples
    found = compare_profiles(
        ProfileSide("base 4f2c91a", old, cost), ProfileSide("now <b>", new, head_cost)
    )
    path = directory / "flamegraph.html"
    page = flamegraph_html(
        new, title="t", subtitle="s", cpu_s_per_token=cost, difference=found,
        categorise=factory.categorise,
    )  # fmt: skip
    path.write_text(page, "utf-8")
    return path


@pytest.fixture
def page(watched: Watched, tmp_path: Path) -> Page:
    page = watched.open(write(tmp_path, profile(OLD), profile(NEW)))
    page.get_by_role("button", name="Difference").click()
    return page


def colour(box: Locator) -> str:
    classes = (box.get_attribute("class") or "").split()
    return next(each for each in classes if each.startswith(("change-", "tone-")))


def test_the_toggle(watched: Watched, tmp_path: Path) -> None:
    path = write(tmp_path, profile(OLD), profile(NEW))
    page = watched.open(path)
    assert colour(named(page, "rms_norm")) == "tone-norm"
    assert named(page, "old_copy").count() == 0
    toggle = page.get_by_role("button", name="Difference")
    toggle.focus()
    page.keyboard.press("Enter")
    assert toggle.get_attribute("aria-pressed") == "true"
    assert page.locator("table.functions:visible thead").inner_text().split() == [
        "function", "before", "after", "change", "z",
    ]  # fmt: skip
    said = page.locator(".said").inner_text()
    assert said.startswith("base 4f2c91a → now <b>")
    toggle.click()
    assert colour(named(page, "rms_norm")) == "tone-norm"
    watched.was_quiet(path)


def test_what_changed_is_coloured_and_its_callers_are_not(page: Page) -> None:
    assert colour(named(page, "rms_norm")) == "change-up3"
    assert colour(named(page, "softmax")) == "change-down3"
    assert colour(named(page, "old_copy")) == "change-less"
    assert colour(named(page, "fresh_copy")) == "change-more"
    for name in ("main", "generate", "decode_step", "swiglu_ffn", "ternary_gemv"):
        assert colour(named(page, name)) == "change-same"


def test_a_caller_on_one_side_alone_has_an_outline_where_that_is_certain(
    watched: Watched, tmp_path: Path
) -> None:
    work, noise = factory.python("work"), factory.python("noise")
    old: dict[Stack, int] = {(factory.python("old_caller"), work): 400, (noise, work): 600}
    new: dict[Stack, int] = {(factory.python("new_caller"), work): 400, (noise, work): 580,
                             (factory.python("seldom"), work): 20}  # fmt: skip
    old[(factory.python("seen_once"), work)] = 3
    page = watched.open(write(tmp_path, profile(old), profile(new)))
    page.get_by_role("button", name="Difference").click()
    names = ("old_caller", "new_caller", "seldom", "seen_once", "noise")
    assert [colour(named(page, name)) for name in names] == [
        "change-went", "change-came", "change-came", "change-same", "change-same",
    ]  # fmt: skip


def test_words_say_what_colours_say(page: Page) -> None:
    labels = {label.split(",")[0]: label for label in boxes(page)}
    assert "dearer, +120 µs with all it calls" in labels["rms_norm"]
    assert "cheaper, −50.0 µs" in labels["softmax"]
    assert "gone, −60.0 µs" in labels["old_copy"]
    assert "new, +50.0 µs" in labels["fresh_copy"]
    assert "unchanged, ±0" in labels["ternary_gemv"]
    assert "NEW" in named(page, "fresh_copy").inner_text().upper()
    rows = page.locator("table.functions:visible tbody tr").all_inner_texts()
    told = {row.split()[0]: row.split()[1:] for row in rows}
    assert told["rms_norm"][:4] == ["dearer", "40", "160", "+120"]
    assert told["fresh_copy"][0] == "new"
    assert told["old_copy"][0] == "gone"
    assert "rms_norm costs 40 → 160 µs/token" in page.locator(".answer").inner_text()


def test_the_tip_has_both_sides(page: Page) -> None:
    named(page, "rms_norm").hover()
    tip = page.locator(".tip").inner_text()
    for words in ("40.0 µs → 160 µs (+120 µs)", "4.0 % → 15.1 %", "+11.1 pp", "dearer", "certain"):
        assert words in tip


def test_widths_are_those_of_the_dearer_side(page: Page) -> None:
    widths = {}
    for name in ("all", "rms_norm", "softmax", "old_copy", "ternary_gemv"):
        place = named(page, name).bounding_box()
        assert place is not None
        widths[name] = place["width"]
    unit = widths["all"] / (800 + 160 + 100 + 60 + 50)
    expected = {"rms_norm": 160, "softmax": 100, "old_copy": 60, "ternary_gemv": 800}
    for name, cost_us in expected.items():
        assert widths[name] == pytest.approx(cost_us * unit, abs=2)


def test_inverted(page: Page) -> None:
    page.get_by_role("button", name="Inverted").click()
    roots = page.locator('.box[aria-level="2"]')
    found = {str(box.get_attribute("aria-label")).split(",")[0]: colour(box) for box in roots.all()}
    assert found == {
        "ternary_gemv": "change-same", "rms_norm": "change-up3", "softmax": "change-down3",
        "old_copy": "change-less", "fresh_copy": "change-more",
    }  # fmt: skip


def test_z_stands_only_where_it_is_of_what_is_shown(page: Page) -> None:
    page.get_by_role("button", name="Inverted").click()
    named(page, "rms_norm").click()
    tips = {}
    for name in ("rms_norm", "decode_step"):
        named(page, name).hover()
        tips[name] = page.locator(".tip dt").all_inner_texts()
    assert "z" in tips["rms_norm"]
    assert tips["decode_step"] == [each for each in tips["rms_norm"] if each != "z"]


def test_a_search_tells_both_sides(page: Page) -> None:
    page.locator(".search input").fill("old_copy")
    assert page.locator(".found").inner_text() == "6.0 % → 0.0 % of samples match"
    page.locator(".search input").fill("nothing of the kind")
    assert page.locator(".found").inner_text() == "no match"
    page.locator(".search input").fill("rms")
    assert page.locator(".found").inner_text() == "4.0 % → 15.1 % of samples match"
    page.get_by_role("button", name="Difference").click()
    assert page.locator(".found").inner_text() == "15.1 % of samples match"


def test_a_kind_of_work_that_is_looked_at_leaves_the_difference_alone(page: Page) -> None:
    toggle = page.get_by_role("button", name="Difference")
    toggle.click()
    page.locator(".legend button", has_text="norm").click()
    assert page.locator(".box.faint").count() > 0
    toggle.click()
    assert page.locator(".box.faint").count() == 0


def test_sides_that_were_not_taken_alike(watched: Watched, tmp_path: Path) -> None:
    path = write(tmp_path, profile(OLD, rate_hz=99), profile(NEW, python="3.13.1"))
    page = watched.open(path)
    told = page.get_by_role("alert").all_inner_texts()
    assert len(told) == 2
    assert "rate (Hz): 99 and 100" in told[0]
    assert "Python: 3.11 and 3.13" in told[1]


def test_shares_alone(watched: Watched, tmp_path: Path) -> None:
    page = watched.open(write(tmp_path, profile(OLD), profile(NEW), cost=None))
    page.get_by_role("button", name="Difference").click()
    assert "+11.1 pp" in str(named(page, "rms_norm").get_attribute("aria-label"))
    assert "shares are compared" in page.locator(".beside").inner_text()


def test_a_profile_against_itself(watched: Watched, tmp_path: Path) -> None:
    page = watched.open(write(tmp_path, profile(OLD), profile(OLD)))
    page.get_by_role("button", name="Difference").click()
    assert {colour(box) for box in page.locator(".box").all()} == {"tone-floor", "change-same"}
