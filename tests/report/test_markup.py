"""Foreign text stays text, judged by a CommonMark parser and not by eye."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_flamegate.report.markup import block, code, escape, link, table
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


def test_figures_are_on_the_right_and_keep_their_unit() -> None:
    assert table(["a b", "c d"], [["x y", "1 %"]], right=[1]) == (
        "| a b | c d |\n| --- | ---: |\n| x y | 1\u00a0% |"
    )


@given(HOSTILE, HOSTILE)
def test_a_link_leads_where_it_says_and_nowhere_else(text: str, path: str) -> None:
    html = render("x" + link(text, path))
    found = re.fullmatch(r'<p>x<a href="([^"]*)">(.*)</a></p>\n', html, re.DOTALL)
    assert found is not None
    assert not re.search(r"[^\w./~%-]", found[1], re.ASCII)


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("a/b_1.svg", "a/b_1.svg"),
        ("javascript:alert(1)", "javascript%3Aalert%281%29"),
        ("a b.svg", "a%20b.svg"),
    ],
)
def test_addresses(path: str, address: str) -> None:
    assert link("x", path) == f"[x]({address})"
