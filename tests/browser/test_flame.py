"""The interactive flame graph, used as a person would: a few page loads, many checks each."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.profile.difference import ProfileSide, compare_profiles
from pytest_flamegate.profile.model import SourceLine, Stack
from pytest_flamegate.report import text
from pytest_flamegate.report.flame import Drawn
from tests.browser.watched import Watched, boxes, named, write
from tests.report import factory

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FloatRect, Locator, Page


COST_S = factory.TOKEN_S
PREVENTED = """([key, ctrl]) => !document.activeElement.dispatchEvent(
    new KeyboardEvent("keydown", {key, ctrlKey: ctrl, bubbles: true, cancelable: true}))"""


def drawn(stacks: dict[Stack, int] | None = None) -> Drawn:
    return Drawn("embedded::10tok", factory.profile(stacks), COST_S)


@pytest.fixture
def page(watched: Watched, tmp_path: Path) -> Page:
    return watched.open(write(tmp_path, drawn()))


def said(page: Page) -> str:
    return page.locator(".said").inner_text()


def said_of(page: Page) -> str:
    """Return the sentence above the flame graph that is shown."""
    return page.locator(".flame:not([hidden]) .said").inner_text()


def found(page: Page) -> str:
    return page.locator(".found").inner_text()


def place(page: Page, name: str) -> FloatRect:
    rect = named(page, name).bounding_box()
    assert rect is not None
    return rect


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.getAttribute('aria-label')"))


def test_boxes_have_names_places_and_tips_and_nothing_breaks_the_policy(
    watched: Watched, tmp_path: Path
) -> None:
    path = write(tmp_path, drawn())
    page = watched.open(path)
    counts = {
        "main": 1312, "generate": 1311, "decode_step": 1311, "swiglu_ffn": 1150,
        "ternary_gemv": 940, "quantize": 210, "softmax": 56, "attention": 56,
        "rms_norm": 42, "memmove": 30, "read": 1,
    }  # fmt: skip
    modules = {"ternary_gemv": "kernels.py", "quantize": "kernels.py", "memmove": "libc.so.6",
               "read": "kernel"}  # fmt: skip
    assert set(boxes(page)) == {
        f"{name}, {modules.get(name, 'engine.py')}, {text.share(count / 1312)} of samples, "
        f"{text.seconds(COST_S * count / 1312)} per token"
        for name, count in counts.items()
    } | {"all, 100.0 % of samples, 1.93 ms per token"}
    whole, ffn, gemv = (place(page, name) for name in ("all", "swiglu_ffn", "ternary_gemv"))
    assert gemv["y"] < ffn["y"] < whole["y"]
    assert gemv["width"] == pytest.approx(whole["width"] * 940 / 1312, abs=2)
    assert ffn["x"] <= gemv["x"]
    named(page, "ternary_gemv").hover()
    tip = page.locator(".tip").inner_text()
    for words in ("ternary_gemv", "kernels.py · matmul", "940", "71.6 % · 1.38 ms/token", "81.7 %"):
        assert words in tip
    page.mouse.move(2, 2)
    assert not page.locator(".tip").is_visible()
    page.get_by_role("button", name="Icicle").click()
    assert place(page, "ternary_gemv")["y"] > place(page, "all")["y"]
    watched.was_quiet(path)
    # The policy is in force: a foreign script does not run.
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), "
        "{textContent: 'window.foreign = 1'}))"
    )
    assert page.evaluate("window.foreign") is None
    assert page.evaluate("window.violations.length") == 1


def test_clicks_and_keys_zoom_and_walk(page: Page) -> None:
    named(page, "swiglu_ffn").click()
    assert said(page).startswith("Zoomed to swiglu_ffn, engine.py, 87.7 % of samples")
    assert place(page, "swiglu_ffn")["width"] == pytest.approx(place(page, "all")["width"], abs=1)
    assert named(page, "rms_norm").count() == 0
    page.keyboard.press("Escape")
    assert said(page).startswith("Zoomed to decode_step")
    page.keyboard.press("Backspace")
    page.keyboard.press("Home")
    assert said(page).startswith("1,312 samples")
    assert page.get_by_role("button", name="Reset zoom").is_disabled()
    tree = page.get_by_role("tree")
    tree.locator('[tabindex="0"]').focus()
    walked = []
    for key in ("ArrowUp",) * 5 + ("ArrowLeft", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
        walked.append(focused(page).split(",")[0])
    assert walked[-4:] == ["ternary_gemv", "quantize", "swiglu_ffn", "swiglu_ffn"]
    assert tree.locator('[tabindex="0"]').count() == 1
    assert page.locator(".tip").is_visible()
    page.keyboard.press("Enter")
    assert said(page).startswith("Zoomed to swiglu_ffn")
    assert focused(page).startswith("swiglu_ffn")


def test_zoom_search_and_view_survive_a_reload(watched: Watched, tmp_path: Path) -> None:
    path = write(tmp_path, drawn())
    page = watched.open(path)
    page.get_by_role("button", name="Inverted").click()
    named(page, "ternary_gemv").click()
    page.locator(".search input").fill("^tern|swi")
    page.get_by_role("button", name="Regular expression").click()
    address = page.url
    assert address.startswith(f"{path.as_uri()}#flame-1?")
    page.goto("about:blank")
    page.goto(address)
    page.locator(".box").first.wait_for()
    assert page.get_by_role("button", name="Inverted").get_attribute("aria-pressed") == "true"
    assert said(page).startswith("Zoomed to ternary_gemv")
    assert page.locator(".search input").input_value() == "^tern|swi"
    assert page.locator(".box.match").count() == 2
    # An address may hold anything.
    page.goto("about:blank")
    page.goto(f"{path.as_uri()}#flame-1?zoom=9.x.-1&view=constructor&search=(&by=expression")
    page.locator(".box").first.wait_for()
    assert found(page) == "not a regular expression"
    page.get_by_role("button", name="Regular expression").click()
    page.locator(".search input").fill("")
    assert page.url == path.as_uri()


def test_the_switch_between_functions_and_lines(watched: Watched, tmp_path: Path) -> None:
    lines = {
        (SourceLine("src/engine.py", 5), SourceLine("src/kernels.py", 81)): 900,
        (SourceLine("src/engine.py", 6),): 400,
    }
    plain = drawn()
    by_line = replace(plain, profile=replace(plain.profile, lines=lines))
    page = watched.open(write(tmp_path, by_line))
    assert named(page, "ternary_gemv").is_visible()
    page.get_by_role("button", name="By line").click()
    shares = {"engine.py:5": 900, "kernels.py:81": 900, "engine.py:6": 400}
    modules = {"kernels.py:81": "src/kernels.py"}
    assert {label for label, box in boxes(page).items() if box.is_visible()} == {
        f"{name}, {modules.get(name, 'src/engine.py')}, {text.share(count / 1312)} of samples, "
        f"{text.seconds(COST_S * count / 1312)} per token"
        for name, count in shares.items()
    } | {
        "all, 100.0 % of samples, 1.93 ms per token",
        f"(outside of the project), module unknown, {text.share(12 / 1312)} of samples, "
        f"{text.seconds(COST_S * 12 / 1312)} per token",
    }
    named(page, "kernels.py:81").click()
    assert page.evaluate("location.hash") == "#flame-1-lines?zoom=1.0&folding=line"
    page.reload()
    assert said_of(page).startswith("Zoomed to kernels.py:81")
    assert page.locator(".flame:not([hidden]) .legend button button").count() == 0
    page.get_by_role("button", name="By line").click()
    assert named(page, "ternary_gemv").is_visible()
    assert "folding" not in page.evaluate("location.hash")


def test_inverted_tables_and_legend(page: Page) -> None:
    page.get_by_role("button", name="Inverted").click()
    roots = page.locator('.box[aria-level="2"]')
    first = [str(box.get_attribute("aria-label")).split(",")[0] for box in roots.all()]
    assert first[:3] == ["ternary_gemv", "quantize", "softmax"]
    named(page, "ternary_gemv").click()
    names = [label.split(",")[0] for label in boxes(page)]
    assert names == ["all", "ternary_gemv", "swiglu_ffn", "decode_step", "generate", "main"]
    page.get_by_role("button", name="Inverted").click()
    chip = page.locator(".legend button", has_text="norm")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert "faint" in (named(page, "ternary_gemv").get_attribute("class") or "")
    assert "faint" not in (named(page, "rms_norm").get_attribute("class") or "")
    chip.click()
    assert page.locator(".box.faint").count() == 0
    rows = page.locator("table.functions tbody .name")
    for column, order, top in (
        ("total", "descending", "main"), ("total", "ascending", "read"),
        ("function", "ascending", "attention"), ("function", "descending", "ternary_gemv"),
    ):  # fmt: skip
        page.get_by_role("button", name=column, exact=True).click()
        assert page.locator(f'th[aria-sort="{order}"]').inner_text().startswith(column)
        assert rows.first.inner_text() == top
    page.locator("table.functions button.name", has_text="softmax").click()
    assert found(page) == "4.3 % of samples match"
    page.locator("table.functions button.name", has_text="softmax").click()
    assert found(page) == ""


def test_search(page: Page) -> None:
    for key, ctrl in (("/", False), ("f", True)):
        page.evaluate("document.activeElement.blur()")
        assert page.evaluate(PREVENTED, [key, ctrl])
        assert focused(page) == "Search functions"
        # The second time it is left to the browser, and a slash is a character.
        assert not page.evaluate(PREVENTED, [key, ctrl])
    page.keyboard.type("GEMV")
    assert found(page) == "71.6 % of samples match"
    assert page.locator(".box.match").count() == 1
    assert "faint" in (named(page, "rms_norm").get_attribute("class") or "")
    page.keyboard.press("Escape")
    assert page.locator(".box.match").count() == 0
    box = page.locator(".search input")
    box.fill("^(rms|soft)")
    assert found(page) == "no match"
    page.get_by_role("button", name="Regular expression").click()
    assert found(page) == f"{text.share(98 / 1312)} of samples match"
    page.get_by_role("button", name="Regular expression").click()
    box.fill("m")
    steps = []
    for keys in ("Enter", "Enter", "Shift+Enter", "Shift+Enter"):
        page.keyboard.press(keys)
        steps.append(said(page).split(",")[0])
    assert steps == ["1 of 5: main", "2 of 5: softmax", "1 of 5: main", "5 of 5: ternary_gemv"]
    assert focused(page) == "Search functions"
    page.get_by_role("button", name="Next match", exact=True).click()
    assert said(page).startswith("1 of 5: main")


def test_chains_recursion_and_small_paths(watched: Watched, tmp_path: Path) -> None:
    fib, main, idle = (factory.python(name) for name in ("fib", "main", "idle"))
    small: dict[Stack, int] = {(factory.python(f"small_{n}"),): 1 for n in range(150)}
    callers = (idle, factory.python("a"), factory.python("b"))
    stacks: dict[Stack, int] = {(*callers, main, fib, fib): 18_000, (*callers, main): 12_000}
    page = watched.open(write(tmp_path, drawn({**stacks, **small})))
    assert said(page).endswith("150 paths too small to show are one box.")
    assert named(page, "idle › a › b").count() == 1
    # A name of the table finds the chain that it is in.
    page.locator("table.functions button.name", has_text="idle").click()
    assert found(page) == "99.5 % of samples match"
    page.locator(".search input").fill("fib")
    assert found(page) == "at least 59.7 % of samples match"
    page.locator(".search input").fill("small_7")
    assert found(page) == "no match in the paths shown"
    named(page, "(paths too small to show)").hover()
    assert "module unknown" in page.locator(".tip").inner_text().splitlines()


def test_themes_and_a_narrow_window(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    page = Watched(context).open(write(tmp_path, drawn()))
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.get_by_role("button", name="Light").click()
    assert page.evaluate(paper) == "rgb(255, 255, 255)" != dark
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(paper) == dark
    assert page.evaluate("localStorage.length + document.cookie.length") == 0
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function("document.querySelector('.chart').clientWidth < 400")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert place(page, "all")["width"] < 400
    context.close()


def test_without_javascript(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(write(tmp_path, drawn()).as_uri())
    assert "needs JavaScript" in page.locator("noscript").inner_text()
    assert page.locator("table.functions tbody tr").count() == 11
    assert "matmul" in page.locator(".legend").inner_text()
    context.close()


# The difference: opened first, more than colours, unchanged callers grey


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


def drawn_difference() -> Drawn:
    old, new = factory.profile(OLD), factory.profile(NEW)
    head_s = 1e-3 * new.samples / old.samples
    found = compare_profiles(
        ProfileSide("base 4f2c91a", old, 1e-3), ProfileSide("now <b>", new, head_s)
    )
    return Drawn("t", new, 1e-3, found, opens_compared=True)


@pytest.fixture
def difference(watched: Watched, tmp_path: Path) -> Page:
    return watched.open(write(tmp_path, drawn_difference()))


def colour(box: Locator) -> str:
    classes = (box.get_attribute("class") or "").split()
    return next(each for each in classes if each.startswith(("change-", "tone-")))


def test_it_opens_on_the_difference_and_toggles(watched: Watched, tmp_path: Path) -> None:
    path = write(tmp_path, drawn_difference())
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


def test_colours_words_and_widths(difference: Page) -> None:
    colours = {"rms_norm": "up3", "softmax": "down3", "old_copy": "less", "fresh_copy": "more"}
    same = dict.fromkeys(("main", "decode_step", "swiglu_ffn", "ternary_gemv"), "same")
    for name, shade in {**colours, **same}.items():
        assert colour(named(difference, name)) == f"change-{shade}"
    labels = {label.split(",")[0]: label for label in boxes(difference)}
    assert "costs more, +120 µs itself, +120 µs with all it calls" in labels["rms_norm"]
    # The figure in a box is its own change, as in the SVG; without one there is none.
    assert named(difference, "rms_norm").inner_text() == "rms_norm+120 µs"
    assert named(difference, "decode_step").inner_text() == "decode_step"
    assert "itself" in labels["decode_step"]
    assert "costs less, −50.0 µs" in labels["softmax"]
    assert "gone, −60.0 µs" in labels["old_copy"]
    assert "new, +50.0 µs" in labels["fresh_copy"]
    assert "unchanged, ±0" in labels["ternary_gemv"]
    assert "NEW" in named(difference, "fresh_copy").inner_text().upper()
    rows = difference.locator("table.functions:visible tbody tr").all_inner_texts()
    shown = {row.split()[0]: row.split()[1:] for row in rows}
    assert shown["rms_norm"][:5] == ["costs", "more", "40", "160", "+120"]
    assert (shown["fresh_copy"][0], shown["old_copy"][0]) == ("new", "gone")
    assert "rms_norm costs 40 → 160 µs/token" in difference.locator(".answer").inner_text()
    named(difference, "rms_norm").hover()
    tip = difference.locator(".tip").inner_text()
    for words in ("40.0 µs → 160 µs (+120 µs)", "4.0 % → 15.1 %", "+11.1 pp", "certain"):
        assert words in tip
    # Boxes are as wide as the costlier side.
    widths = {}
    for name in ("all", "rms_norm", "softmax", "old_copy", "ternary_gemv"):
        place = named(difference, name).bounding_box()
        assert place is not None
        widths[name] = place["width"]
    unit = widths["all"] / (800 + 160 + 100 + 60 + 50)
    expected = {"rms_norm": 160, "softmax": 100, "old_copy": 60, "ternary_gemv": 800}
    for name, cost_us in expected.items():
        assert widths[name] == pytest.approx(cost_us * unit, abs=2)


def test_search_of_both_sides(difference: Page) -> None:
    for name, found in (
        ("old_copy", "6.0 % → 0.0 % of samples match"),
        ("nothing of the kind", "no match"),
        ("rms", "4.0 % → 15.1 % of samples match"),
    ):
        difference.locator(".search input").fill(name)
        assert difference.locator(".found").inner_text() == found


def test_a_function_of_the_table_is_counted_in_paths_too_small_to_show(
    watched: Watched, tmp_path: Path
) -> None:
    work = [factory.python(f"work_{number}") for number in range(100)]
    hot, small = factory.python("hot"), factory.python("small")
    stacks: dict[Stack, int] = {(hot,): 30_000, (work[0],): 200, (work[0], hot): 60}
    stacks |= {(each, hot): 1 for each in work[1:]} | {(each, hot, small): 1 for each in work}
    page = watched.open(write(tmp_path, drawn(stacks)))
    assert "too small to show" in said(page)
    for name, samples in (("hot", 30_259), ("small", 100)):
        row = page.locator("table.functions tbody tr").filter(has_text=re.compile(rf"^\s*{name}"))
        assert row.locator("td").nth(1).inner_text() == text.share(samples / 30_459)
        row.get_by_role("button").click()
        assert found(page) == f"{text.share(samples / 30_459)} of samples match"
    page.reload()
    assert found(page) == f"{text.share(100 / 30_459)} of samples match"
    page.get_by_role("button", name="Inverted").click()
    assert found(page) == f"{text.share(100 / 30_459)} of samples match"


# Much data


@pytest.mark.nightly
def test_a_hundred_thousand_stacks_and_one_of_twenty_thousand_frames(
    watched: Watched, tmp_path: Path
) -> None:
    frames = [factory.python(f"function_{number}") for number in range(200)]
    stacks: dict[Stack, int] = {
        tuple(frames[(number // 7**level) % 200] for level in range(6)): 1 + number % 5
        for number in range(100_000)
    }
    deep = tuple(factory.python(f"loop_{number % 2}") for number in range(20_000))
    path = write(tmp_path, drawn({**stacks, deep: 1}))
    page = watched.open(path)
    assert page.locator(".box").count() <= 3001
    page.get_by_role("button", name="Inverted").click()
    page.locator(".search input").fill("function_19")
    assert found(page).endswith("of samples match")
    watched.was_quiet(path)
