"""Markdown: pieces that keep text text, the page of a run, the guide of a folder."""

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.report import sections
from pytest_flamegate.report.flame import PALETTE
from pytest_flamegate.report.markdown import (
    block,
    check_markdown,
    code,
    code_cell,
    escape,
    guide_readme,
    link,
    render_section,
    run_markdown,
    step_summary,
    table,
)
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.report.text import visible
from tests.report import factory, verdicts
from tests.report.factory import AGAIN, report

HOSTILE = st.one_of(
    st.text(alphabet="`|\\*_[]()<>#+-.!~&=:1 a\n\x00\u202e'\"/", max_size=25),
    st.sampled_from(
        ["<script>alert(1)</script>", "| a | b |", "```\n# head", "![x](http://e)", "-->", "&lt;"]
    ),
)
PATHS: dict[str, Any] = {"picture": "flamegraph.svg", "difference": "diff.svg", "drawn": None}


def render(markdown: str) -> str:
    return str(MarkdownIt("commonmark").enable("table").render(markdown))


# Pieces


@given(HOSTILE)
def test_escaped_text_is_a_paragraph_of_itself(text: str) -> None:
    html = render(escape(text)).strip().replace("\u200b", "")
    shown = visible(text).strip()
    plain = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    expected = re.sub(r"\s+", " ", plain.replace('"', "&quot;"))
    assert re.sub(r"\s+", " ", html) == (f"<p>{expected}</p>" if shown else "")


@given(HOSTILE, HOSTILE)
def test_a_table_keeps_its_cells_and_code_its_text(one: str, other: str) -> None:
    html = render(table(["a", "b", "c"], [[code_cell(one), escape(other) or "–", "end"]]))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html, re.DOTALL)
    assert len(cells) == 3
    assert cells[2] == "end"
    found = re.fullmatch(r"<code>(.*)</code>", cells[0], re.DOTALL)
    assert (found is not None) == bool(visible(one).strip())


def test_a_bar_in_code_has_a_backslash_in_tables_alone() -> None:
    section = sections.Section(
        "t", (sections.Paragraph(("run ", sections.Code("a | b"))),
              sections.Table(("f",), [(sections.Code("a | b"),)]))
    )  # fmt: skip
    html = render(render_section(section))
    assert html.count("<code>a | b</code>") == 2
    assert len(re.findall("<td>", html)) == 1


@given(st.lists(HOSTILE, max_size=4))
def test_a_block_cannot_be_closed_from_inside(lines: list[str]) -> None:
    html = render(block("\n".join(lines), "bash") + "\n\nafter")
    assert html.count("<pre>") == 1
    assert html.endswith("<p>after</p>\n")


def test_links_are_relative_and_not_made_by_themselves() -> None:
    assert escape("see https://evil.example and www.evil.example") == (
        r"see https\://evil.example and www\.evil.example"
    )
    assert link("x", "a/b_1.svg") == "[x](a/b_1.svg)"
    assert link("x", "javascript:alert(1)") == "[x](javascript%3Aalert%281%29)"
    assert link("x", "a b.svg") == "[x](a%20b.svg)"


def test_figures_are_on_the_right_and_keep_their_unit() -> None:
    assert table(["a b", "c d"], [["x y", "1 %"]], right=[1]) == (
        "| a b | c d |\n| --- | ---: |\n| x y | 1\u00a0% |"
    )


@pytest.mark.parametrize(
    "text", ["@org/team", "closes #1", "org/repo#12", "see !12", "epic &12", "gh-12", "#12 first"]
)
def test_no_mention_and_no_reference_is_left(text: str) -> None:
    scanned = unescape(re.sub(r"<[^>]*>", "", render(escape(text))))
    assert not re.search(r"[@#!&]\w|gh-\d", scanned)
    assert scanned.replace("\u200b", "").strip() == text
    assert code(text) == f"`{text}`"  # hosts leave code alone


def test_a_heading_stays_one_and_a_hash_alone_is_none() -> None:
    assert render("# " + escape("a #1")).startswith("<h1>a #\u200b1")
    assert render(escape("# a")) == "<p># a</p>\n"


# The page of a run


def test_the_answer_comes_first_then_the_change_then_the_picture() -> None:
    compared = report(verdicts.in_pairs(), pairs_pct=(-6.0, -7.0), **PATHS)
    page = run_markdown(compared)
    assert page == run_markdown(compared)
    lines = page.splitlines()
    assert lines[0] == "# Flame graph: decode"
    assert lines[2].startswith("**regressed: 6.2 % slower (5.1 … 7.4 %, threshold 5 %)")
    assert lines[4:7] == ["## What changed", "", "![What changed in decode](diff.svg)"]
    assert re.findall(r"^(?:## |<details><summary>)(.*?)(?:</summary>)?$", page, re.MULTILINE) == [
        "What changed", "Where it went (µs/token)", "Lines (µs/token)", "Calls (exact)",
        "Where the time goes", "The pairs", "Compared", "Phases (not gated)", "Reasons", "Next",
        "How sure it is", "Throughput and latency", "What ran, and on what", "Evidence",
        "How to view and read it",
    ]  # fmt: skip
    assert "![Flame graph of decode](flamegraph.svg)" in page
    assert f"Measure it again:\n\n```bash\n{AGAIN}\n```" in page
    assert "Width is the share of the samples" in page


def test_missing_parts_are_named() -> None:
    evidence = factory.evidence(profile=None, commit=None)
    page = run_markdown(RunReport("decode", None, evidence=evidence, picture="flamegraph.svg"))
    assert "No profile was taken." in page
    assert "This run was not judged." in page
    assert "| commit | not in a repository |" in page
    assert "| grade | not judged |" in page
    assert "complete stacks" not in page
    assert "diff.svg" not in page.split("## How to view")[0]


# The summary page of a job


def test_the_job_summary_is_a_table_with_every_headline() -> None:
    broke = Verdict("error", (Reason("E_X", "It <b>broke</b>."),), grade="NONE")
    passed = replace(verdicts.regressed(), verdict="pass")
    rows = [
        report(verdicts.regressed(), "decode|x"),
        RunReport("1tok", broke, headline(broke)),
        RunReport("a", passed, headline(passed)),
    ]
    lines = step_summary(rows).replace("\u00a0", " ").splitlines()
    assert lines[4:7] == [
        r"| `decode\|x` | -6.2 % (-7.4 … -5.1 %) | 2.06 ms/tok | 486 | **regressed** "
        r"| ternary\_gemv 71.6 %, quantize 16.0 %, softmax 4.3 % |",
        "| `1tok` | – | – | – | **error** |  |",
        "| `a` | -6.2 % (-7.4 … -5.1 %) | 2.06 ms/tok | 486 | pass |  |",
    ]
    assert lines[8].startswith("- `decode|x` regressed: 6.2 % slower")
    assert lines[9] == "- `1tok` error: It &lt;b&gt;broke&lt;/b&gt;."
    assert lines[10].startswith("- `a` pass: 6.2 % slower (5.1 … 7.4")
    assert lines[12] == (
        "gated: the quiet clock (wall time less waiting for a CPU), mean of processes "
        "· receipts OBSERVED (the machine's owner could still have forged them)"
    )
    assert step_summary([]) == "## flamegate\n\nNo workload was measured.\n"


# The guide of a folder


def entry(name: str) -> RunReport:
    return RunReport(name, None, evidence=factory.evidence(), picture=f"{name}.svg")


def test_the_guide_lists_its_pictures_by_name() -> None:
    command = "flamegate flamegraph model.gguf"
    readme = guide_readme([entry("1tok"), entry("10tok")], regenerate=command)
    found = re.findall(r"^\| \[(\w+)\]\((\S+)\) \| \[page\]\((\S+)\) (.*)", readme, re.MULTILINE)
    assert [row[:3] for row in found] == [
        ("10tok", "10tok.svg", "10tok.md"), ("1tok", "1tok.svg", "1tok.md"),
    ]  # fmt: skip
    assert found[0][3] == (
        r"| embedded engine, tiny.gguf, prompt “What is 2+2?”, 10 tokens "
        "| `2025-10-13T12:00:00Z` | AMD EPYC, 2 cores |"
    )
    assert readme == guide_readme([entry("10tok"), entry("1tok")], regenerate=command)
    assert f"```bash\n{command}\n```" in readme
    assert all(f"| `{name}` | `{tone.light}` |" in readme for name, tone in PALETTE.items())
    assert "## Current baselines\n\nNone yet." in guide_readme([])


def test_the_page_of_a_check_has_the_warnings_of_what_passes() -> None:
    row = replace(report(verdicts.regressed()), warnings=("W_WHOLE_UNCERTAIN: It <looks> slower.",))
    html = render(
        check_markdown("passed", [row, report(verdicts.regressed(), "other")], [], [], ())
    )
    said = "<li><code>decode</code> W_WHOLE_UNCERTAIN: It &lt;looks&gt; slower.</li>"
    assert html.count(said) == html.count("W_WHOLE_UNCERTAIN") == 1


def test_the_page_of_a_check_says_how_to_accept_what_failed_and_nothing_of_what_is_new() -> None:
    regressed = report(verdicts.regressed(), accept="flamegate accept decode --until DATE")
    rows = [
        regressed,
        replace(regressed, name="accepted"),
        report(verdicts.no_baseline(), "new"),
    ]
    evil = "a | b <script>alert(1)</script> **bold** [x](http://e)"
    page = check_markdown("check failed: decode", rows, [evil], [evil], {"decode"}, {"accepted"})
    answers = re.findall(r"^\| `(\w+)` \|.*?\|.*?\|.*?\| (.*?) \|", page, re.MULTILINE)
    assert answers[:3] == [
        *(("decode", "**regressed**"), ("accepted", "regressed, accepted")),
        ("new", "**no baseline**"),
    ]
    html = render(page)
    assert html.startswith("<p><strong>check failed: decode</strong></p>")
    assert re.findall("<h3>(.*?)</h3>", html) == [
        *("decode", "accepted", "Changed policy", "Accepted"),
    ]
    assert re.findall("flamegate accept .*", html) == ["flamegate accept decode --until DATE"]
    assert html.count("<table>") == 3
    plain = "a | b &lt;script&gt;alert(1)&lt;/script&gt; **bold** [x](http://e)"
    assert html.count(f"<li>{plain}</li>") == 2
