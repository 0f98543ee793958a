"""A page in a real Chromium, with everything it did that a report must not do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.page import flamegraph_html

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
  (event) => window.violations.push(event.violatedDirective + " " + event.blockedURI));
"""


@dataclass
class Watched:
    """One page. ``said`` holds console messages and errors, ``asked`` every request."""

    context: BrowserContext
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.add_init_script(_VIOLATIONS)

    def open(self, path: Path) -> Page:
        """Open a file and wait until its first flame graph, if any, is drawn."""
        self.page.goto(path.as_uri())
        if self.page.locator("[data-flame]").count():
            self.page.locator("[data-flame] .box").first.wait_for()
        return self.page

    def was_quiet(self, *files: Path) -> None:
        """Assert that only ``files`` were read, and nothing was refused or went wrong."""
        assert self.said == []
        assert self.page.evaluate("window.violations") == []
        asked = [url for url in self.asked if not url.startswith("data:")]
        assert asked == [file.as_uri() for file in files]


def boxes(page: Page) -> dict[str, Locator]:
    """Return the boxes by what a screen reader says of them."""
    found = page.locator(".box").all()
    return {str(box.get_attribute("aria-label")): box for box in found}


def named(page: Page, name: str) -> Locator:
    """Return the first box whose label starts with that name."""
    return page.locator(f'.box[aria-label^="{name},"]').first


def write(directory: Path, drawn: Drawn) -> Path:
    path = directory / "flamegraph.html"
    path.write_text(flamegraph_html(drawn, subtitle="embedded · 10 tokens"), "utf-8")
    return path
