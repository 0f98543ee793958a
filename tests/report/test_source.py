"""Sources with the cost of each line: a unified diff in a terminal, two columns on a page."""

import re
from dataclasses import replace

from pytest_flamegate.report.page import render_section
from pytest_flamegate.report.run_report import RunReport, run_sections
from pytest_flamegate.report.source import SourceView, source_lines, source_section
from tests.report import factory

PAIR = factory.source_view()
ALONE = replace(
    PAIR,
    base=None,
    files=tuple(
        replace(
            file,
            excerpts=tuple(
                replace(each, rows=tuple(replace(row, base=None) for row in each.rows if row.head))
                for each in file.excerpts
            ),
        )
        for file in PAIR.files
    ),
)


def markup(view: SourceView) -> str:
    return render_section(source_section(view, "decode"), "flame-1")


def test_a_change_is_a_unified_diff_with_the_cost_before_and_after() -> None:
    assert source_lines(PAIR, 80) == [
        "base → head · µs/token",
        "self includes calls into libraries, total all calls",
        "A sentence.",
        "",
        "src/a.py",
        "  A note.",
        "self before →   after   share   total   line",
        "                                2,000      2 def a():",
        "        500 →       0  50.0 %     500 -    2     x",
        "          1 →       0   0.1 %     200 -    3     gone",
        "          0 →   2,000 100.0 %   2,000 +    3     y",
        "                                           4",
    ]


def test_a_run_without_a_base_has_one_cost() -> None:
    shown = source_lines(ALONE, 80)
    assert "     self   share   total   line" in shown
    assert "    2,000 100.0 %   2,000 +    3     y" in shown
    assert "base" not in "".join(shown)
    assert "base" not in markup(ALONE)


def test_shares_stand_for_costs_that_are_not_known() -> None:
    unknown = replace(ALONE, head=replace(ALONE.head, s_per_token=None))
    assert "  100.0 % 100.0 % 100.0 % +    3     y" in source_lines(unknown, 80)
    assert "share of the samples" in source_lines(unknown, 80)[0]


def test_the_indentation_that_all_lines_share_is_left_out() -> None:
    (file,) = PAIR.files
    (excerpt,) = file.excerpts
    inner = replace(excerpt, rows=excerpt.rows[1:])
    found = source_lines(replace(PAIR, files=(replace(file, excerpts=(inner, inner)),)), 80)
    assert "        500 →       0  50.0 %     500 -    2 x" in found
    assert found.count("    ⋮") == 1


def test_excerpts_of_one_file_have_one_indentation() -> None:
    (file,) = PAIR.files
    (excerpt,) = file.excerpts
    inner = replace(excerpt, rows=excerpt.rows[1:])
    found = source_lines(replace(PAIR, files=(replace(file, excerpts=(excerpt, inner)),)), 80)
    method = "        500 →       0  50.0 %     500 -    2     x"
    assert found.count(method) == 2


def test_a_page_has_both_sides_next_to_each_other_and_heat() -> None:
    found = markup(PAIR)
    rows = re.findall(r'<tr class="(same|changed)">(.*?)</tr>', found)
    assert [kind for kind, _ in rows] == ["same", "changed", "changed", "same"]
    # Every row fills the four columns of both sides.
    assert {row.count("<td") + 3 * row.count('colspan="4"') for _, row in rows} == {8}
    assert '<td class="base own heat4" title="50.0 % of the samples">500</td>' in found
    assert 'class="head own heat9" title="100.0 % of the samples">2,000</td>' in found
    # Too little to be coloured.
    assert '<td class="base own" title="0.1 % of the samples">1</td>' in found
    assert ">−2</td>" in found
    assert ">+3</td>" in found
    assert 'data-functions="swiglu_ffn"' in found


def test_a_report_has_the_section_if_there_are_sources() -> None:
    titles = [section.title for section in run_sections(RunReport("a", None, source=PAIR))]
    assert "Source" in titles
    assert "Source" not in [section.title for section in run_sections(RunReport("a", None))]
