"""Finding functions in the interactive flame graph, by keys, text and expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.report import text
from tests.browser.test_flame import focused, found, said, write
from tests.browser.watched import Watched, named
from tests.report import factory

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page


PREVENTED = """([key, ctrl]) => !document.activeElement.dispatchEvent(
    new KeyboardEvent("keydown", {key, ctrlKey: ctrl, bubbles: true, cancelable: true}))"""


@pytest.fixture
def page(watched: Watched, tmp_path: Path) -> Page:
    return watched.open(write(tmp_path))


@pytest.mark.parametrize(("key", "ctrl"), [("f", True), ("/", False)])
def test_a_key_leads_to_the_search(page: Page, key: str, ctrl: bool) -> None:
    assert page.evaluate(PREVENTED, [key, ctrl])
    assert focused(page) == "Search functions"
    # The second time it is left to the browser, and a slash is a character.
    assert not page.evaluate(PREVENTED, [key, ctrl])


def test_search_marks_matches_and_tells_their_share(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("GEMV")
    assert found(page) == "71.6 % of samples match"
    assert page.locator(".box.match").count() == 1
    assert "faint" in (named(page, "rms_norm").get_attribute("class") or "")
    page.keyboard.press("Escape")
    assert page.locator(".box.match").count() == 0
    assert found(page) == ""
    page.keyboard.type("nothing of the kind")
    assert found(page) == "no match"


def test_search_by_expression(page: Page) -> None:
    box = page.locator(".search input")
    box.fill("^(rms|soft)")
    assert found(page) == "no match"
    page.get_by_role("button", name="Regular expression").click()
    assert found(page) == f"{text.share(98 / 1312)} of samples match"
    box.fill("(")
    assert found(page) == "not a regular expression"


def test_enter_leads_from_match_to_match(page: Page) -> None:
    page.locator(".search input").fill("m")
    steps = []
    for keys in ("Enter", "Enter", "Shift+Enter", "Shift+Enter"):
        page.keyboard.press(keys)
        steps.append(said(page).split(",")[0])
    assert steps == ["1 of 5: main", "2 of 5: softmax", "1 of 5: main", "5 of 5: ternary_gemv"]
    assert page.locator(".box.pointed").count() == 1
    assert focused(page) == "Search functions"


def test_signs_have_names(page: Page) -> None:
    page.locator(".search input").fill("softmax")
    page.get_by_role("button", name="Next match", exact=True).click()
    page.get_by_role("button", name="Previous match", exact=True).click()
    assert said(page).startswith("1 of 1: softmax")


def test_recursion_counts_once(watched: Watched, tmp_path: Path) -> None:
    fib, main = factory.python("fib"), factory.python("main")
    page = watched.open(write(tmp_path, {(main, fib, fib, fib): 60, (main,): 40}))
    page.locator(".search input").fill("fib")
    assert found(page) == "60.0 % of samples match"
    named(page, "fib").hover()
    assert "60" in page.locator(".tip").inner_text()
    row = page.locator("table.functions tbody tr").filter(has_text="fib")
    assert row.locator("td").all_inner_texts()[:2] == ["60.0 %", "60.0 %"]
