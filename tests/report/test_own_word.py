"""The engine's own word is shown as its own: beside what was observed, and by whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flamegate.gate.document import StoredVerdict
from pytest_flamegate.receipt.types import Evidence, KernelSighting
from pytest_flamegate.report.markdown import flamegraph_markdown
from pytest_flamegate.report.run_page import Reported, run_page
from pytest_flamegate.report.sections import metric_value, observed, own_lines, own_rows
from pytest_flamegate.report.terminal import Outcome, summary
from tests.made import bundle
from tests.report import factory, verdicts

TOLD = bundle().with_reports(kernels={"MUL_MAT": 9}, sample_us=12.0)
SILENT = bundle()


def row(evidence: Evidence, title: str) -> tuple[str, str, str, str, str]:
    return next(each for each in own_rows(evidence) if each[0] == title)


def test_each_figure_stands_beside_the_observers() -> None:
    by_name = {metric.name: metric for metric in TOLD.evidence.metrics}
    _, source, told, seen, what = row(TOLD.evidence, "decode rate")
    assert source == "llama.cpp:perf"
    assert told == metric_value(by_name["engine_decode_tokens_per_second"])
    assert seen == metric_value(by_name["decode_tokens_per_second"])
    assert what == (
        "engine: tokens but the first ÷ the engine's decode time; "
        "observer: 1 ÷ the median time per output token"
    )
    assert row(TOLD.evidence, "tokens generated")[2:] == ("3 tokens", "–", "")
    assert row(TOLD.evidence, "sampling")[2:] == (
        "12.0 µs",
        "–",
        "engine: what the engine took to choose tokens",
    )
    assert len(own_rows(TOLD.evidence)) + len(observed(TOLD.evidence)) == len(by_name)


def test_who_tells_nothing_is_not_mentioned() -> None:
    assert own_rows(SILENT.evidence) == []
    assert own_lines(SILENT.evidence, SILENT.receipt) == []
    assert observed(SILENT.evidence) == list(SILENT.evidence.metrics)
    page = flamegraph_markdown(SILENT.evidence, SILENT.receipt, None, regenerate="x")
    assert "own figures" not in page


def test_of_very_many_figures_the_first_are_shown_and_the_rest_counted() -> None:
    triple = SILENT
    for number in range(30):
        triple = triple.with_reports(f"source-{number}")
    rows = own_rows(triple.evidence)
    told = len(triple.evidence.metrics) - len(observed(triple.evidence))
    assert told > 100
    assert len(rows) < 100
    assert rows[-1][0] == f"{told - len(rows) + 1} more, in evidence.json"


def test_the_terminal_has_one_line_of_it() -> None:
    verdict = verdicts.no_baseline()
    lines = summary([Outcome("4tok", verdict, TOLD.receipt, TOLD.evidence)])
    (line,) = [line for line in lines if "own word" in line]
    assert line.startswith("4tok: the engine's own word (llama.cpp:perf, not gated): ")
    assert ", observed " in line
    silent = summary([Outcome("4tok", verdict, SILENT.receipt, SILENT.evidence)])
    assert len(silent) == len(lines) - 1


def test_kernels_that_no_profiler_saw_are_said_plainly() -> None:
    claimed = replace(TOLD.receipt, kernels=(*TOLD.receipt.kernels, *map(str, range(6))))
    *_, line = own_lines(TOLD.evidence, claimed)
    assert line == "kernels by the engine's word alone, seen by no profiler: 0, 1, 2, 3 and 2 more"
    assert len(own_lines(TOLD.evidence, TOLD.receipt)) == 1
    assert own_lines(replace(TOLD.evidence, metrics=()), None) == []


def test_the_page_beside_the_picture_has_a_table() -> None:
    page = flamegraph_markdown(TOLD.evidence, TOLD.receipt, None, regenerate="x")
    _, _, section = page.partition("## The engine's own figures")
    section = section.partition("## Against")[0]
    assert "| decode rate | llama.cpp:perf |" in section
    assert "never gated" in section
    assert page.count("decode rate") == 1
    assert "`MUL_MAT` (llama.cpp:perf, " in page


def test_the_page_of_the_run_has_a_table() -> None:
    verdict = verdicts.no_baseline()
    pages = [
        run_page(
            [Reported("4tok", StoredVerdict.of(verdict), each.receipt, each.evidence)],
            title="run",
        )
        for each in (TOLD, SILENT)
    ]
    assert ["what the two are" in page for page in pages] == [True, False]
    assert "llama.cpp:perf" in pages[0]


@pytest.mark.parametrize("source", ["<script>alert(1)</script>", "a|b\n# c", "\x1b[31m", "\u202ex"])
def test_a_source_is_foreign_text(source: str) -> None:
    told = SILENT.with_reports(source)
    page = run_page(
        [Reported("w", StoredVerdict.of(verdicts.no_baseline()), told.receipt, told.evidence)],
        title="run",
    )
    text = flamegraph_markdown(told.evidence, told.receipt, None, regenerate="x")
    lines = own_lines(told.evidence, told.receipt)
    assert "<script>alert" not in page + text
    for shown in (page, text, *lines):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\n# c" not in shown


def test_a_kernel_is_foreign_text() -> None:
    evidence = factory.evidence()
    sighting = KernelSighting("a|<b>", "engine", 1, "c|<d>")
    page = flamegraph_markdown(
        replace(evidence, kernels=(sighting,)), factory.receipt(), None, regenerate="x"
    )
    assert "c|<d>" not in page
