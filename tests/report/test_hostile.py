"""Hostile names end as text, wherever people read them: terminal, log, Markdown."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from html import unescape

import pytest
from markdown_it import MarkdownIt

from pytest_flamegate.gate import Reason
from pytest_flamegate.gate.verdict import headline
from pytest_flamegate.report.markdown import run_markdown, step_summary
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.report.terminal import error_annotation, failure_section, preamble, summary
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
}
TAGS = {"h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "code", "pre", "img"} | {
    "strong", "em", "a", "ul", "li", "details", "summary", "ol", "br", "hr",
}  # fmt: skip
evil_names = pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL)


def outcome(evil: str) -> RunReport:
    records = tuple(
        dataclasses.replace(each, name=evil, module=evil, category=evil)
        for each in factory.hotspots()
    )
    hotspot, _ = verdicts.share(evil, 0.1, 0.2, "costs_more", "regressed")
    verdict = dataclasses.replace(
        verdicts.regressed(), hotspots=(hotspot,), reasons=(Reason("E_X", evil),)
    )
    evidence = factory.evidence(records=records)
    return RunReport(evil, verdict, headline(verdict), factory.receipt(), evidence, (evil,))


def assert_inert(text: str, longest: int) -> None:
    """No terminal obeys anything in ``text``, nothing is hidden, no line is endless."""
    categories = {unicodedata.category(char) for char in text.replace("\n", "")}
    assert not categories & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert max(map(len, text.split("\n"))) <= longest


@evil_names
def test_the_summary_keeps_its_lines(evil: str) -> None:
    lines = summary([outcome(evil)], width=120, directory="x", accept=evil)
    assert len(lines) == len(summary([outcome("plain")], width=120, directory="x", accept="x"))
    assert_inert("\n".join(lines), 2000)


@evil_names
def test_the_failed_test_keeps_its_lines(evil: str) -> None:
    def section(name: str) -> str:
        shown = outcome(name)
        assert shown.verdict is not None
        return failure_section(
            shown.verdict, shown.evidence, shown.evidence, paths=[name], again=name, accept=name
        )

    assert_inert(section(evil), 3000)
    assert len(section(evil).splitlines()) == len(section("plain").splitlines())


@evil_names
def test_the_line_before_is_one_line(evil: str) -> None:
    line = preamble(profiler=evil, note=evil, cpu=evil, cores=2, noise_pct=None)
    assert "\n" not in line
    assert_inert(line, 2000)


@evil_names
def test_the_annotation_is_one_command(evil: str) -> None:
    assert_inert(error_annotation(evil, 3, evil, evil), 200_000)


@evil_names
def test_markdown_shows_text_and_nothing_else(evil: str) -> None:
    shown = outcome(evil)
    assert shown.evidence is not None
    assert shown.receipt is not None
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    pages = [
        run_markdown(dataclasses.replace(shown, picture="flamegraph.svg", again=evil)),
        step_summary([shown]),
    ]
    for page in pages:
        html = str(parser.render(page))
        assert set(re.findall(r"<([a-z][a-z0-9]*)", html)) <= TAGS
        assert not re.search(r'(?:href|src)="(?:javascript|https?)', unescape(html))
        assert not set(page) & set("\x00\x1b\u202e\u2066\x9b\udcff")
        rows = [re.findall(r"<t[dh]", row) for row in html.split("<tr>")[1:]]
        assert rows
        assert len(page) < 100_000
