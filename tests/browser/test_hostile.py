"""Names that try to be more than names reach page and picture as text, in a real browser."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.profile.model import Frame, Profile, Stack
from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.flame_html import flamegraph_html
from tests.browser.watched import Watched
from tests.report import factory

if TYPE_CHECKING:
    from playwright.sync_api import Page


HOSTILE = (
    "<script>window.hacked = 1; document.title = 'hacked'</script>",
    "</script><script>window.hacked = 1</script>",
    "</title></style></svg><img src=x onerror='window.hacked = 1'>",
    '" onmouseover="window.hacked = 1" x="',
    "' onfocus='window.hacked = 1' autofocus='",
    "]]><script>window.hacked = 1</script><![CDATA[",
    "<!--<script>",
    "&lt;b&gt; &amp; &#x3c;",
    "${window.hacked = 1}{{constructor.constructor('window.hacked = 1')()}}",
    "javascript:window.hacked=1",
    "a\u202egnp.exe\u2066",
    "line\nbreak\r\n\ttab\x00\x1b[31m\x7f",
    "semi;colon",
    "line\u2028and\u2029paragraph",
    "x" * 10_000,
    b"not \xff\xfe UTF-8".decode("utf-8", "surrogateescape"),
    "https://example.invalid/beacon.png",
    "__proto__",
    "constructor",
)
HARMLESS = tuple(f"function_{number:02}" for number in range(len(HOSTILE)))
STRUCTURE = """() => [...document.querySelectorAll("*")].map((each) =>
  each.tagName + [...each.attributes].map((a) => a.name).sort().join())"""


def stacks(names: tuple[str, ...]) -> dict[Stack, int]:
    root = factory.python(names[0], names[0])
    return {(root, Frame(name, name, "native")): 10 + index for index, name in enumerate(names)}


def profile(names: tuple[str, ...]) -> Profile:
    return factory.profile(stacks(names))


def html(names: tuple[str, ...]) -> str:
    drawn = Drawn(names[0], profile(names), 1e-3, categorise=lambda _: "native")
    return flamegraph_html(drawn, subtitle=names[1])


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, "utf-8")
    return path


def use(page: Page) -> None:
    """Do what could wake something that sleeps in a name."""
    for box in page.locator(".box").all():
        box.hover()
    page.locator(".search input").fill("script")
    page.locator("table.functions button.name").first.click()
    page.get_by_role("button", name="Inverted").click()
    page.locator(".box").nth(1).click()
    page.keyboard.press("Escape")


def test_the_page_stays_what_it_was(watched: Watched, tmp_path: Path) -> None:
    harmless = Counter(
        watched.open(written(tmp_path, "a.html", html(HARMLESS))).evaluate(STRUCTURE)
    )
    path = written(tmp_path, "b.html", html(HOSTILE))
    watched.asked.clear()
    page = watched.open(path)
    assert Counter(page.evaluate(STRUCTURE)) == harmless
    assert page.title() == f"{HOSTILE[0]} · flame graph"
    use(page)
    assert page.evaluate("window.hacked") is None
    assert page.title() == f"{HOSTILE[0]} · flame graph"
    watched.was_quiet(path)


def test_names_are_read_as_they_were_written(watched: Watched, tmp_path: Path) -> None:
    page = watched.open(written(tmp_path, "a.html", html(HOSTILE)))
    shown = page.locator("table.functions .name").all_inner_texts()
    assert HOSTILE[1] in shown
    assert "semi;colon" in shown
    assert "__proto__" in shown
    assert "a\\u202egnp.exe\\u2066" in shown
    assert "line\\x0abreak\\x0d\\x0a\\x09tab\\x00\\x1b[31m\\x7f" in shown
    assert "not \\udcff\\udcfe UTF-8" in shown
    assert sum(name.endswith("(10,000 characters)") for name in shown) == 1
    # A name that means something to the search or to JavaScript is found as text.
    for name in ("__proto__", "constructor", "semi;colon", "]]>"):
        page.locator(".search input").fill(name)
        assert page.locator(".found").inner_text().endswith("of samples match")
