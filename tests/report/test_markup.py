"""Foreign text stays text, judged by a CommonMark parser and not by eye."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_flamegate.report.markup import block, code, escape, table
from pytest_flamegate.report.text import visible

HOSTILE = st.one_of(
    st.text(alphabet="`|\\*_[]()<>#+-.!~&$=:1 a\n\x00\u202e'\"/@", max_size=30),
    st.text(max_size=30),
)


def render(markdown: str) -> str:
    return str(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown))


def cell_texts(html: str) -> list[str]:
    return [unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", html, re.DOTALL)]


@given(HOSTILE)
def test_escaped_text_is_a_paragraph_of_itself(text: str) -> None:
    shown = re.sub(r"\s+", " ", visible(text)).strip()
    html = render(escape(text))
    if shown:
        assert unescape(re.sub(r"\s+", " ", html)).strip() == f"<p>{shown}</p>"
    else:
        assert html == ""


@given(HOSTILE)
def test_code_is_a_span_of_the_text(text: str) -> None:
    html = cell_texts(render(table(["name"], [[code(text)]])))[0]
    shown = visible(text)
    if shown.strip():
        found = re.fullmatch(r"<code>(.*)</code>", html, re.DOTALL)
        assert found is not None
        assert found[1].split() == shown.split()
    else:
        assert html == "(empty)"


@given(HOSTILE, HOSTILE)
def test_a_table_keeps_its_cells(one: str, other: str) -> None:
    html = render(table(["a", "b", "c"], [[code(one), escape(other) or "–", "end"]]))
    cells = cell_texts(html)
    assert len(cells) == 3
    assert cells[2] == "end"


@given(st.lists(HOSTILE, max_size=4))
def test_a_block_cannot_be_closed_from_inside(lines: list[str]) -> None:
    html = render(block("\n".join(lines), "bash") + "\n\nafter")
    assert html.count("<pre>") == 1
    assert html.endswith("<p>after</p>\n")


@pytest.mark.parametrize(
    "text",
    ["# head", "- item", "1. one", "12) twelve", "+ x", "---", "===", "> quote", "    code", "```"],
)
def test_nothing_opens_a_block(text: str) -> None:
    assert render(escape(text)).startswith("<p>")


def test_links_are_not_made_by_themselves() -> None:
    assert escape("see https://evil.example and www.evil.example") == (
        r"see https\://evil.example and www\.evil.example"
    )


def test_columns_on_the_right() -> None:
    assert table(["a", "b"], [["x", "1"]], right=[1]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
