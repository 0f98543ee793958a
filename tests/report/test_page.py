"""The page of a whole run, and one list of sections rendered three times."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pytest_flamegate.gate import Reason, Verdict, headline
from pytest_flamegate.report import markdown, page
from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.page import run_page
from pytest_flamegate.report.run_report import RunReport, run_sections
from pytest_flamegate.report.sections import Table, cell_text
from pytest_flamegate.report.terminal import section_lines
from tests.report import factory, verdicts
from tests.report.differences import compared, slowed


def report(verdict: Verdict, name: str = "decode", **changes: object) -> RunReport:
    given: dict[str, object] = {
        "receipt": factory.receipt(),
        "evidence": factory.evidence(),
        "drawn": Drawn(name, factory.profile(), 1.93e-3, categorise=factory.categorise),
        "again": "pytest flamegate.toml::decode --flamegate",
        "accept": "pytest flamegate.toml::decode --flamegate --flamegate-update",
    } | changes
    return RunReport(name, verdict, headline(verdict), **given)  # type: ignore[arg-type]


def words(text: str) -> str:
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_the_answer_comes_first_then_the_change_then_the_picture() -> None:
    verdict = verdicts.in_pairs()
    shown = words(run_page([report(verdict, pairs_pct=(-6.0, -7.0))], title="run"))
    order = ["decode regressed", "6.2 % slower (5.1", "Where it went (µs/token)",
             "Where the time goes", "The pairs", "Compared", "tokens/s, quiet clock",
             "tokens/s, wall clock, not gated", "Phases (wall clock, not gated)", "Reasons",
             verdict.reasons[0].code, "Measure it again", "--flamegate-update",
             "How sure it is", "Throughput and latency", "time per output token (TPOT)",
             "What ran, and on what", "AMD EPYC 7B13"]  # fmt: skip
    places = [shown.index(part) for part in order[:-1]]
    assert places == sorted(places)
    assert order[-1] in shown


def test_every_cell_of_every_table_is_in_all_three_renderings() -> None:
    """One model: no renderer has a table, a column or a row of its own."""
    run = report(verdicts.in_pairs(), drawn=None)
    for section in run_sections(run):
        lines = " ".join(" ".join(section_lines(section)).split())
        html = words(page.render_section(section, "flame-1"))
        text = markdown.render_section(section).replace("\u00a0", " ").replace("\\", "")
        tables = [block for block in section.blocks if isinstance(block, Table)]
        for cell in (cell_text(cell) for table in tables for row in table.rows for cell in row):
            plain = " ".join(cell.split())
            assert plain in lines
            assert plain in text.replace("&gt;", ">") or "|" in plain
            assert plain in html.replace("&#39;", "'").replace("&gt;", ">")


@pytest.mark.parametrize("compares", [True, False])
def test_a_changed_run_opens_on_the_difference(compares: bool) -> None:
    difference = compared(slowed("rms_norm", 2.0))
    drawn = Drawn("t", difference.head.profile, 2e-3, difference, opens_compared=compares)
    shown = run_page([report(verdicts.regressed(), drawn=drawn)], title="run")
    assert ('class="flame compared"' in shown) is compares
    alone = replace(drawn, difference=None)
    assert 'class="flame compared"' not in run_page(
        [report(verdicts.regressed(), drawn=alone)], title="run"
    )


def test_the_top_has_the_facts_that_all_runs_share() -> None:
    first = factory.evidence()
    later = replace(
        first, created="2026-01-02T05:00:00Z", commit=None, machine={"cpu_model": "other"}
    )
    about = r'<h1>run</h1><p class="muted">(.*?)</p>'
    top = []
    for second in (first, later):
        runs = [report(verdicts.no_baseline(), evidence=each) for each in (first, second)]
        top.append(re.findall(about, run_page(runs, title="run"))[0].split(" · "))
    assert top == [
        ["2 workloads", "AMD EPYC 7B13, 2 cores", "4f2c91a + 2 uncommitted files", first.created,
         "flamegate 0.1.0"],
        ["2 workloads", "2 different machines", "2 different revisions",
         "2026-01-02T03:04:06Z to 2026-01-02T05:00:00Z", "flamegate 0.1.0"],
    ]  # fmt: skip


def test_each_workload_has_a_flame_graph_of_its_own() -> None:
    shown = run_page([report(verdicts.regressed(), name) for name in "ab"], title="run")
    assert re.findall(r'data-flame="([^"]+)"', shown) == ["flame-1", "flame-2"]
    assert re.findall(r'application/json" id="([^"]+)"', shown) == ["flame-1", "flame-2"]
    assert re.findall(r'href="#([^"]+)"', shown) == ["workload-1", "workload-2"]
    assert shown.count("<script>") == shown.count("<style>") == 1


def test_a_workload_that_was_never_measured_gives_its_reason() -> None:
    verdict = Verdict.unjudged(
        "error", [Reason("E_BUILD", "The build failed.")], grade="SELF_REPORTED"
    )
    warnings = ("The history does not have this run.",)
    bare = RunReport("decode", verdict, headline(verdict), warnings=warnings)
    shown = words(run_page([bare], title="run"))
    assert "E_BUILD The build failed." in shown
    assert warnings[0] in shown
    assert "Where the time goes" not in shown
    assert words(run_page([], title="run")).endswith("No workload was measured.")


def test_variants_come_before_each_of_them() -> None:
    pair = [
        report(verdicts.no_baseline(), f"decode[{name}]", family="decode", variant=name)
        for name in ("i2s", "qk256")
    ]
    shown = words(run_page([*pair, report(verdicts.no_baseline(), "other")], title="run"))
    assert shown.count("Variants of decode") == 1
    assert shown.index("decode[qk256] no baseline", shown.index("Variants of decode"))
