"""Names that try to be more than names reach page and picture as text, in a real browser."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.profile.model import Frame, Stack
from pytest_flamegate.report.flame import Drawn
from tests.browser.watched import Watched, write
from tests.report import factory
from tests.report.test_hostile import EVIL

if TYPE_CHECKING:
    from playwright.sync_api import Page


HOSTILE = (
    *EVIL.values(),
    "</script><script>window.hacked = 1</script>",
    "</title></style></svg><img src=x onerror='window.hacked = 1'>",
    '" onmouseover="window.hacked = 1" x="',
    "' onfocus='window.hacked = 1' autofocus='",
    "]]><script>window.hacked = 1</script><![CDATA[",
    "<!--<script>",
    "${window.hacked = 1}{{constructor.constructor('window.hacked = 1')()}}",
    "javascript:window.hacked=1",
    "semi;colon",
    "line\u2028and\u2029paragraph",
    b"not \xff\xfe UTF-8".decode("utf-8", "surrogateescape"),
    "https://example.invalid/beacon.png",
    "__proto__",
    "constructor",
)
HARMLESS = tuple(f"function_{number:02}" for number in range(len(HOSTILE)))
STRUCTURE = """() => [...document.querySelectorAll("*")].map((each) =>
  each.tagName + [...each.attributes].map((a) => a.name).sort().join())"""


def write_names(directory: Path, names: tuple[str, ...]) -> Path:
    root = factory.python(names[0], names[0])
    stacks: dict[Stack, int] = {
        (root, Frame(name, name, "native")): 10 + at for at, name in enumerate(names)
    }
    return write(directory, Drawn(names[0], factory.profile(stacks), 1e-3))


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
    harmless = Counter(watched.open(write_names(tmp_path, HARMLESS)).evaluate(STRUCTURE))
    path = write_names(tmp_path, HOSTILE)
    watched.asked.clear()
    page = watched.open(path)
    assert Counter(page.evaluate(STRUCTURE)) == harmless
    use(page)
    assert page.evaluate("window.hacked") is None
    assert page.title() == f"{HOSTILE[0]} · flame graph"
    watched.was_quiet(path)


def test_names_are_read_as_they_were_written(watched: Watched, tmp_path: Path) -> None:
    page = watched.open(write_names(tmp_path, HOSTILE))
    shown = page.locator("table.functions .name").all_inner_texts()
    assert {
        HOSTILE[0], "semi;colon", "__proto__", "safe\\u202egnp.exe\\u2066",
        "a\\x0aPASSED b\\x0d\\x0aFAILED c", "not \\udcff\\udcfe UTF-8",
    } <= set(shown)  # fmt: skip
    assert sum(name.endswith("(10,000 characters)") for name in shown) == 2
    # A name that means something to the search or to JavaScript is found as text.
    for name in ("__proto__", "constructor", "semi;colon", "]]>"):
        page.locator(".search input").fill(name)
        assert page.locator(".found").inner_text().endswith("of samples match")
