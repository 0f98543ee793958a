"""Debian's Chromium, driven by playwright; without either the tests here are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.browser.watched import Watched
from tests.tools import require

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    require(find_spec("playwright") is not None, "playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    require(program is not None, "there is no chromium on PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Every launch takes a fresh profile directory and removes it.
        launched = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"], timeout=120_000
        )
        yield launched
        launched.close()


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    context.set_default_timeout(60_000)
    yield Watched(context)
    context.close()
