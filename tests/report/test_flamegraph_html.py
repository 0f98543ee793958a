from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.model import Profile, Stack
from pytest_flamegate.report import html
from pytest_flamegate.report.flame_html import flamegraph_html
from tests.report import factory

HANDLER = re.compile(r"\bon[a-z]+=|\bstyle=|javascript:")
NAMES = st.one_of(
    st.text(min_size=1, max_size=40),
    st.text(alphabet="<>&\"'];\x00\x1b\u2028\u202e\ud800]]>/script", max_size=30),
)


class Seen(HTMLParser):
    """The tags of a page, and what stands in its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.inside: list[tuple[dict[str, str | None], str]] = []
        self.open: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open = dict(attrs) if tag in ("script", "style") else None
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]

    def handle_data(self, data: str) -> None:
        if self.open is not None:
            self.inside.append((self.open, data))
            self.open = None


def draw(profile: Profile | None = None, **changes: object) -> str:
    return flamegraph_html(profile or factory.profile(), **{**factory.SHOWN, **changes})  # type: ignore[arg-type]


def test_equal_arguments_give_equal_bytes() -> None:
    assert draw() == draw()


def test_the_policy_lets_in_what_stands_there_and_nothing_else() -> None:
    text = draw()
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert len(policy) == 1
    hashes = re.findall(r"'sha256-([^']+)'", policy[0])
    code = [data for attrs, data in Seen(text).inside if attrs.get("type") != "application/json"]
    assert sorted(hashes) == sorted(
        base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in code
    )
    assert policy[0].startswith("default-src 'none'; ")


def test_it_asks_for_nothing() -> None:
    text = draw()
    assert not re.search(r"https?:|//[a-z]|@import|url\(|fetch\(|XMLHttpRequest|eval\(", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", html.script())
    assert "localStorage" not in html.script()


def test_the_frame_of_the_page_is_small() -> None:
    assert len(html.script().encode()) + len(html.style().encode()) <= 60_000


def test_the_table_is_there_without_javascript() -> None:
    body = draw().partition("<script")[0]
    for words in ("ternary_gemv", "71.6 %", "1,383", "matmul", "1.38 ms", "1,312 samples"):
        assert words in body


def test_a_profile_without_a_cost() -> None:
    text = draw(cpu_s_per_token=None)
    assert "µs/token" not in text.partition("<script")[0]
    found = [data for attrs, data in Seen(text).inside if attrs.get("type") == "application/json"]
    assert json.loads(found[0])["cost"] is None


def test_no_samples() -> None:
    with pytest.raises(FlamegateError, match="E_NO_SAMPLES"):
        draw(factory.profile({}))


@given(NAMES, NAMES)
def test_no_name_is_more_than_a_name(name: str, module: str) -> None:
    assert tags(name, module) == tags("a", "b")


def tags(name: str, module: str) -> list[str]:
    stacks: dict[Stack, int] = {(factory.python("_" + name, module), factory.python("inner")): 1}
    text = draw(factory.profile(stacks), title="_" + name, subtitle="_" + module)
    seen = Seen(text)
    data = [text for attrs, text in seen.inside if attrs.get("type") == "application/json"]
    assert len(data) == 1
    assert len(json.loads(data[0])["names"]) == 2
    return seen.tags
