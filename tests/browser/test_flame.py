"""The interactive flame graph, clicked and typed into like a person would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.profile.model import Stack, Unit
from pytest_flamegate.report import text
from pytest_flamegate.report.flame_html import flamegraph_html
from tests.browser.watched import Watched, boxes, named
from tests.report import factory

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, FloatRect, Page


COST_S = 1.93e-3


def write(directory: Path, stacks: dict[Stack, int] | None = None) -> Path:
    path = directory / "flamegraph.html"
    page = flamegraph_html(
        factory.profile(stacks),
        title="embedded::10tok",
        subtitle="embedded · 10 tokens",
        cpu_s_per_token=COST_S,
        categorise=factory.categorise,
    )
    path.write_text(page, "utf-8")
    return path


@pytest.fixture
def page(watched: Watched, tmp_path: Path) -> Page:
    return watched.open(write(tmp_path))


def said(page: Page) -> str:
    return page.locator(".said").inner_text()


def found(page: Page) -> str:
    return page.locator(".found").inner_text()


def place(page: Page, name: str) -> FloatRect:
    found = named(page, name).bounding_box()
    assert found is not None
    return found


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.getAttribute('aria-label')"))


def test_it_needs_nothing_and_breaks_no_rule(watched: Watched, tmp_path: Path) -> None:
    path = write(tmp_path)
    page = watched.open(path)
    page.locator(".search input").fill("gemv")
    named(page, "ternary_gemv").hover()
    named(page, "attention").click()
    watched.was_quiet(path)
    policy = page.locator("meta[http-equiv]").get_attribute("content") or ""
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    # The policy is in force: what comes from elsewhere does not run.
    watched.run(
        "document.body.append(Object.assign(document.createElement('script'), "
        "{textContent: 'window.foreign = 1'}))"
    )
    assert watched.run("window.foreign") is None
    assert watched.run("window.violations.length") == 1


def test_every_box_says_name_module_share_and_cost(page: Page) -> None:
    total = 1312
    counts = {
        "main": 1312, "generate": 1311, "decode_step": 1311, "swiglu_ffn": 1150,
        "ternary_gemv": 940, "quantize": 210, "softmax": 56, "attention": 56,
        "rms_norm": 42, "memmove": 30, "read": 1,
    }  # fmt: skip
    modules = {"ternary_gemv": "kernels.py", "quantize": "kernels.py", "memmove": "libc.so.6",
               "read": "kernel"}  # fmt: skip
    expected = {
        f"{name}, {modules.get(name, 'engine.py')}, {text.share(count / total)} of samples, "
        f"{text.seconds(COST_S * count / total)} per token"
        for name, count in counts.items()
    }
    assert set(boxes(page)) == expected | {"all, 100.0 % of samples, 1.93 ms per token"}


def test_boxes_stand_on_their_callers_and_are_as_wide_as_their_share(page: Page) -> None:
    whole, ffn, gemv = (place(page, name) for name in ("all", "swiglu_ffn", "ternary_gemv"))
    assert gemv["y"] < ffn["y"] < whole["y"]
    assert gemv["width"] == pytest.approx(whole["width"] * 940 / 1312, abs=2)
    assert ffn["x"] <= gemv["x"]
    page.get_by_role("button", name="Icicle").click()
    whole, gemv = (place(page, name) for name in ("all", "ternary_gemv"))
    assert gemv["y"] > whole["y"]


def test_a_click_zooms_in_and_keys_zoom_out(page: Page) -> None:
    named(page, "swiglu_ffn").click()
    assert said(page).startswith("Zoomed to swiglu_ffn, engine.py, 87.7 % of samples")
    whole, ffn = (place(page, name) for name in ("all", "swiglu_ffn"))
    assert ffn["width"] == pytest.approx(whole["width"], abs=1)
    assert named(page, "rms_norm").count() == 0
    page.keyboard.press("Escape")
    assert said(page).startswith("Zoomed to decode_step")
    page.keyboard.press("Backspace")
    page.keyboard.press("Home")
    assert said(page).startswith("1,312 samples")
    assert named(page, "rms_norm").count() == 1
    assert page.get_by_role("button", name="Reset zoom").is_disabled()


def test_arrows_walk_and_enter_zooms(page: Page) -> None:
    tree = page.get_by_role("tree")
    assert tree.locator('[tabindex="0"]').count() == 1
    tree.locator('[tabindex="0"]').focus()
    walked = []
    for key in ("ArrowUp",) * 5 + ("ArrowLeft", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
        walked.append(focused(page).split(",")[0])
    assert walked == [
        "main", "generate", "decode_step", "swiglu_ffn", "ternary_gemv", "quantize",
        "swiglu_ffn", "swiglu_ffn",
    ]  # fmt: skip
    assert tree.locator('[tabindex="0"]').count() == 1
    assert page.locator(".tip").is_visible()
    page.keyboard.press("Enter")
    assert said(page).startswith("Zoomed to swiglu_ffn")
    assert focused(page).startswith("swiglu_ffn")
    assert page.locator('.box[aria-level="5"]').count() == 1


@pytest.mark.parametrize("unit", ["nanoseconds", "instructions", "bytes"])
def test_what_is_counted_is_called_by_its_name(
    watched: Watched, tmp_path: Path, unit: Unit
) -> None:
    profile = replace(factory.profile(), unit=unit)
    path = tmp_path / "flamegraph.html"
    path.write_text(
        flamegraph_html(profile, title="t", subtitle="s", cpu_s_per_token=None), "utf-8"
    )
    page = watched.open(path)
    page.locator(".search input").fill("gemv")
    named(page, "ternary_gemv").hover()
    assert said(page).startswith(f"1,312 {unit} · width: share of {unit}")
    assert found(page) == f"71.6 % of {unit} match"
    assert page.locator(".tip dt").first.inner_text() == unit
    assert f"71.6 % of {unit}" in str(named(page, "ternary_gemv").get_attribute("aria-label"))
    assert "sample" not in page.locator("main").inner_text()


def test_inverted_starts_with_what_runs(page: Page) -> None:
    page.get_by_role("button", name="Inverted").click()
    roots = page.locator('.box[aria-level="2"]')
    first = [str(box.get_attribute("aria-label")).split(",")[0] for box in roots.all()]
    assert first[:3] == ["ternary_gemv", "quantize", "softmax"]
    assert first[-1] == "read"
    named(page, "ternary_gemv").click()
    names = [label.split(",")[0] for label in boxes(page)]
    assert names == ["all", "ternary_gemv", "swiglu_ffn", "decode_step", "generate", "main"]


def test_the_tip_tells_everything(page: Page) -> None:
    named(page, "ternary_gemv").hover()
    tip = page.locator(".tip").inner_text()
    for words in ("ternary_gemv", "kernels.py · matmul", "940", "71.6 % · 1.38 ms/token", "81.7 %"):
        assert words in tip
    page.mouse.move(2, 2)
    assert not page.locator(".tip").is_visible()


def test_the_legend_highlights_one_kind_of_work(page: Page) -> None:
    chip = page.locator(".legend button", has_text="norm")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert "faint" in (named(page, "ternary_gemv").get_attribute("class") or "")
    assert "faint" not in (named(page, "rms_norm").get_attribute("class") or "")
    chip.click()
    assert page.locator(".box.faint").count() == 0


def test_the_table_sorts_and_searches(page: Page) -> None:
    names = page.locator("table.functions tbody .name")
    assert names.first.inner_text() == "ternary_gemv"
    page.get_by_role("button", name="total", exact=True).click()
    assert names.first.inner_text() == "main"
    assert page.locator('th[aria-sort="descending"]').inner_text().startswith("total")
    page.get_by_role("button", name="total", exact=True).click()
    assert names.first.inner_text() == "read"
    page.get_by_role("button", name="function", exact=True).click()
    assert names.first.inner_text() == "attention"
    assert page.locator('th[aria-sort="ascending"]').inner_text().startswith("function")
    page.get_by_role("button", name="function", exact=True).click()
    assert names.first.inner_text() == "ternary_gemv"
    assert page.locator('th[aria-sort="descending"]').inner_text().startswith("function")
    page.locator("table.functions button.name", has_text="softmax").click()
    assert found(page) == "4.3 % of samples match"
    page.locator("table.functions button.name", has_text="softmax").click()
    assert found(page) == ""


def test_dark_and_light(page: Page) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark").click()
    dark = page.evaluate(paper)
    assert light == "rgb(255, 255, 255)" != dark
    page.get_by_role("button", name="Light").click()
    assert page.evaluate(paper) == light
    assert page.evaluate("localStorage.length + document.cookie.length") == 0


def test_the_system_s_choice_counts(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    page = Watched(context).open(write(tmp_path))
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert page.get_by_role("button", name="Light").count() == 1
    context.close()


def test_a_narrow_window(page: Page) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function("document.querySelector('.chart').clientWidth < 400")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert place(page, "all")["width"] < 400


def test_without_javascript(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(write(tmp_path).as_uri())
    assert "needs JavaScript" in page.locator("noscript").inner_text()
    assert page.locator("table.functions tbody tr").count() == 11
    assert "matmul" in page.locator(".legend").inner_text()
    context.close()


def test_a_hundred_thousand_stacks(watched: Watched, tmp_path: Path) -> None:
    frames = [factory.python(f"function_{number}") for number in range(200)]
    stacks: dict[Stack, int] = {
        tuple(frames[(number // 7**level) % 200] for level in range(6)): 1 + number % 5
        for number in range(100_000)
    }
    path = write(tmp_path, stacks)
    page = watched.open(path)
    assert page.locator(".box").count() <= 3000
    page.get_by_role("button", name="Inverted").click()
    page.locator(".search input").fill("function_19")
    assert found(page).endswith("of samples match")
    watched.was_quiet(path)


def test_a_stack_deeper_than_any_call_stack(watched: Watched, tmp_path: Path) -> None:
    deep = (factory.python("loop"),) * 20_000
    path = write(tmp_path, {deep: 3, deep[:1]: 1})
    page = watched.open(path)
    assert page.locator(".box").count() <= 3001
    named(page, "loop").click()
    page.get_by_role("button", name="Inverted").click()
    watched.was_quiet(path)


def test_what_is_too_small_to_tell_is_one_box_of_no_kind(watched: Watched, tmp_path: Path) -> None:
    small: dict[Stack, int] = {(factory.python(f"small_{n}"),): 1 for n in range(500)}
    page = watched.open(write(tmp_path, {(factory.python("hot"),): 30_000, **small}))
    assert said(page).endswith("500 paths too small to tell are told together.")
    named(page, "(paths too small to tell)").hover()
    tip = page.locator(".tip").inner_text().splitlines()
    assert tip[:2] == ["(paths too small to tell)", "module unknown"]
    assert "on all paths" not in tip
