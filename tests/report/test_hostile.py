"""Hostile names end as text, wherever people read them: terminal, log, Markdown, page."""

import re
import unicodedata
from collections import Counter
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.verdict import headline
from pytest_flamegate.profile.model import Stack
from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.markdown import guide_readme, run_markdown, step_summary
from pytest_flamegate.report.page import run_page
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.report.source import source_lines
from pytest_flamegate.report.terminal import (
    brick_lines,
    error_annotation,
    failure_section,
    summary,
)
from pytest_flamegate.report.text import cells
from tests.report import factory, verdicts

EVIL = {
    "script": "<script>document.title='x'</script>",
    "image": '<img src=x onerror="alert(1)">',
    "quotes": "\"'`",
    "cdata": "]]><svg onload=x>",
    "bidi": "safe\u202egnp.exe\u2066",
    "newline": "a\nPASSED b\r\nFAILED c",
    "controls": "\x00\x07\x08\x1b[2J\x1b]0;title\x07\x7f\x9b31m",
    "semicolon": "a;b;c 12",
    "long": "x" * 10_000,
    "long wide": "行" * 10_000,
    "surrogate": "\udcff\ud800",
    "pipes": "a|b\\|c||",
    "backticks": "``a`b``` ```\n```",
    "link": "[click](javascript:alert(1)) ![i](http://e/x.png) http://evil.example/",
    "heading": "# heading\n- list\n1. one",
    "entity": "&lt;b&gt; &#60;i&#62;",
    "reference": "x\n\n[a]: http://evil.example/\n",
    "braces": "{regenerate}{reading}",
}
TAGS = {
    "h1", "h2", "h3", "p", "table", "thead", "tbody", "tr", "th", "td", "code", "pre", "img",
    "strong", "em", "a", "ul", "li", "details", "summary", "ol", "br", "hr",
}  # fmt: skip
evil_names = pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL)


def outcome(evil: str) -> RunReport:
    """Return a run in which every foreign text is ``evil``."""
    records = tuple(
        replace(each, name=evil, module=evil, category=evil) for each in factory.hotspots()
    )
    hotspot, signal = verdicts.share(evil, 0.1, 0.2, "costs_more", "regressed")
    verdict = replace(
        verdicts.in_pairs(),
        hotspots=(hotspot,),
        signals=(verdicts.rate(), signal),
        reasons=(Reason("E_X", evil),),
        attribution=(verdicts.cost(evil, 62.0, 181.0, 9.0, 0.0001, 0.98),),
        error_rate_basis=evil,
        grade=evil,
    )
    recipe = {"name": evil, "prompt": evil, "command": [evil], "x": {evil: evil}, "build": [evil]}
    evidence = factory.evidence(
        records=records,
        model={"path": evil, "name": evil},
        workload=recipe,
        commit=replace(factory.COMMIT, revision=evil, branch=evil),
    )
    evidence = replace(evidence, machine={"cpu_model": evil}, tokens=(evil,), created=evil)
    return RunReport(
        evil, verdict, headline(verdict), factory.receipt(), evidence, (evil,), again=evil,
        bricks=factory.shown_bricks(evil, text=evil),
    )  # fmt: skip


def assert_inert(text: str, longest: int) -> None:
    """No terminal obeys anything in ``text``, nothing is hidden, no line is endless."""
    categories = {unicodedata.category(char) for char in text.replace("\n", "")}
    assert not categories & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert max(map(len, text.split("\n"))) <= longest


@evil_names
def test_a_terminal_keeps_its_lines(evil: str) -> None:
    def lines(name: str) -> list[str]:
        shown = outcome(name)
        assert shown.verdict is not None
        # A long grade would break the line of the receipts, between two of its parts.
        verdict = replace(shown.verdict, grade="OBSERVED")
        shown = replace(shown, verdict=verdict)
        failed = failure_section(
            verdict,
            shown.evidence,
            shown.evidence,
            paths=[name],
            look=name,
            again=name,
            accept=name,
        )
        table = summary([shown], width=60, directory="x", accept=name)
        return [*failed.split("\n"), *table]

    assert_inert("\n".join(lines(evil)), 3000)
    assert len(lines(evil)) == len(lines("plain"))
    assert "\n" not in error_annotation(evil, 3, evil, "x")
    assert_inert(error_annotation(evil, 3, evil, evil), 200_000)
    brick = brick_lines(evil, factory.shown_bricks(evil, text=evil), width=80)
    assert_inert("".join(brick), 200_000)
    assert max(map(cells, brick)) <= 80


@evil_names
def test_sources_keep_their_lines(evil: str) -> None:
    shown = source_lines(factory.source_view(evil), 80)
    assert_inert("\n".join(shown), 3000)
    assert len(shown) == len(source_lines(factory.source_view("plain"), 80))
    assert max(cells(line) for line in shown if " 2 def a" in line) <= 80


@evil_names
def test_markdown_shows_text_and_nothing_else(evil: str) -> None:
    def pages(name: str) -> list[str]:
        shown = replace(outcome(name), picture=f"{name}.svg")
        pair = [replace(shown, family=name, variant=each) for each in (name, f"{name}2")]
        return [run_markdown(shown), step_summary(pair), guide_readme([shown])]

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for page, plain in zip(pages(evil), pages("plain"), strict=True):
        html, harmless = str(parser.render(page)), str(parser.render(plain))
        assert set(re.findall(r"<([a-z][a-z0-9]*)", html)) <= TAGS
        for tag in ("<h1>", "<h2>", "<h3>", "<table>", "<details>"):
            assert html.count(tag) == harmless.count(tag)
        assert not re.search(r'(?:href|src)="(?:javascript|https?)', unescape(html))
        assert not set(page) & set("\x00\x1b\u202e\u2066\x9b\udcff")
        for table in re.findall(r"<table>.*?</table>", html, re.DOTALL):
            assert len({len(re.findall(r"<t[dh]", row)) for row in table.split("<tr>")[1:]}) == 1
        assert len(page) < 200_000


def count_tags(page: str) -> Counter[tuple[str, ...]]:
    """Count the tags of a page with the names of their attributes."""
    found: Counter[tuple[str, ...]] = Counter()
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.update([(tag, *(n for n, _ in attrs))])  # type: ignore[method-assign]
    parser.feed(page)
    return found


@evil_names
def test_a_page_shows_text_and_nothing_else(evil: str) -> None:
    def page(name: str) -> str:
        stacks: dict[Stack, int] = {(factory.python(f"_{name}", name), factory.python("in")): 1}
        drawn = Drawn(name, factory.profile(stacks), 1e-3)
        source = factory.source_view(name, name)
        return run_page([replace(outcome(name), drawn=drawn, source=source)], title=name)

    shown = page(evil)
    assert count_tags(shown) == count_tags(page("plain"))
    assert not set(shown) & set("\x00\x1b\u202e\u2066\x9b\udcff")
