"""The line before the runs, the table after them, and annotations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pytest_flamegate.gate import Reason, Verdict, headline
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.report.terminal import (
    error_annotation,
    preamble,
    summary,
)
from tests.report import factory, verdicts


def outcome(name: str = "decode", verdict: Verdict | None = None) -> RunReport:
    given = verdict or verdicts.no_baseline()
    return RunReport(name, given, headline(given), factory.receipt(), factory.evidence())


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"note": "no perf", "cpu": "AMD EPYC", "cores": 2, "noise_pct": 1.9},
            "flamegate: py-spy 0.4.3 (no perf) · AMD EPYC, 2 cores · noise 1.9 %",
        ),
        (
            {"note": None, "cpu": " ", "cores": 1, "noise_pct": None},
            "flamegate: py-spy 0.4.3 · unknown CPU, 1 core",
        ),
        (
            {"note": None, "cpu": "A\nB", "cores": None, "noise_pct": None},
            r"flamegate: py-spy 0.4.3 · A\x0aB",
        ),
    ],
)
def test_the_line_before(given: dict[str, object], line: str) -> None:
    assert preamble(profiler="py-spy 0.4.3", **given) == line  # type: ignore[arg-type]


def test_the_gated_clock_stands_first_in_the_table() -> None:
    lines = summary(
        [outcome("1tok"), outcome("passage", verdicts.regressed())],
        width=120,
        accept="pytest --flamegate --flamegate-update",
    )
    assert lines == [
        "workload   quiet clock   wall tokens/s   verdict       hottest frames (share of CPU)",
        "1tok       2.33 ms/tok             427   no baseline   "
        "ternary_gemv 71.6 %  quantize 16.0 %  softmax 4.3 %",
        "passage    2.33 ms/tok             427   regressed     "
        "ternary_gemv 71.6 %  quantize 16.0 %  softmax 4.3 %",
        "gated: the quiet clock (wall time less the time spent waiting for a CPU)",
        "receipts OBSERVED (the machine's owner could still have forged them)"
        " · flame graphs in .flamegate/latest",
        "accept these as the baseline:  pytest --flamegate --flamegate-update",
    ]


@pytest.mark.parametrize("word", ["pass", "improved", "inconclusive", "not_comparable"])
def test_a_verdict_prints_its_change_and_interval(word: str) -> None:
    rate = verdicts.rate(word, change_pct=18.1, ci_low_pct=6.4, ci_high_pct=31.1)
    verdict = replace(verdicts.inconclusive(), verdict=word, signals=(rate,))  # type: ignore[arg-type]
    lines = summary([outcome("p", verdict), outcome("d", verdicts.regressed())], width=120)
    (line,) = [line for line in lines if line.startswith(("p: ", "d: "))]
    assert line.startswith(f"p: {word.replace('_', ' ')}: ")
    assert word == "not_comparable" or "31.1" in line


def test_wide_names_keep_the_columns_in_line() -> None:
    lines = summary([outcome("行列"), outcome("decode"), outcome("x" * 99)], width=160)
    starts = {cell_len(line[: line.index("ternary_gemv")]) for line in lines[1:4]}
    assert len(starts) == 1
    assert lines[3].startswith("…" + "x" * 52)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_rows_fit_the_terminal_and_no_frame_is_cut(width: int) -> None:
    lines = summary([outcome("1tok"), outcome("passage")], width=width)
    assert all(cell_len(line) <= max(width, 82) for line in lines[:5])
    frames = ["ternary_gemv 71.6 %", "quantize 16.0 %", "softmax 4.3 %"]
    if width > 100:
        assert lines[1].endswith("  ".join(frames))
    else:
        assert lines[3] == f"1tok: hottest frames {', '.join(frames)} of CPU"


def test_grades_are_counted_and_the_lowest_decides_the_remark() -> None:
    low = replace(verdicts.no_baseline(), grade="CONSISTENT")
    lines = summary([outcome("a"), outcome("b", low)], width=120)
    assert lines[4].startswith(
        "receipts OBSERVED (1), CONSISTENT (1) (some are only the word of their author)"
    )


def test_a_workload_that_never_ran_has_dashes() -> None:
    verdict = Verdict.unjudged("error", [Reason("E_X", "It broke.")], grade="SELF_REPORTED")
    lines = summary([RunReport("broken", verdict, warnings=("No history.",))])
    assert lines[1].split() == ["broken", "–", "–", "error"]
    assert lines[2:] == ["broken: No history."]
    assert summary([]) == ["no workload was measured"]


def test_without_a_receipt_the_rate_is_that_of_the_quiet_clock() -> None:
    evidence = replace(factory.evidence(), profile=None, kernels=())
    lines = summary([RunReport("decode", verdicts.no_baseline(), "", None, evidence)])
    assert lines[1].split() == ["decode", "2.33", "ms/tok", "429", "no", "baseline"]


def test_colour_on_request_alone() -> None:
    passed = replace(verdicts.inconclusive(), verdict="pass")
    outcomes = [outcome("a", verdicts.regressed()), outcome("b"), outcome("c", passed)]
    plain, painted = summary(outcomes), summary(outcomes, colour=True)
    assert "\x1b" not in "".join(plain)
    assert "\x1b[1;31mregressed\x1b[0m" in painted[1]
    for code in ("\x1b[0m", "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;32m"):
        assert code in "".join(painted)
        painted = [line.replace(code, "") for line in painted]
    assert painted == plain


@pytest.mark.parametrize(
    ("file", "line", "title", "message", "expected"),
    [
        (
            "flamegate.toml",
            12,
            "regressed: decode",
            "6.2 % slower\nin rms_norm",
            "::error file=flamegate.toml,line=12,title=regressed%3A decode"
            "::6.2 %25 slower%0Ain rms_norm",
        ),
        ("a,b:c%.py", None, "t", "m", "::error file=a%2Cb%3Ac%25.py,title=t::m"),
        ("", 3, "t", "m", "::error title=t::m"),
        ("f.py", 0, "t", "m", "::error file=f.py,line=1,title=t::m"),
        ("f.py", 1, "a\r\nb", "\x1b[31m", r"::error file=f.py,line=1,title=a\x0d\x0ab::\x1b[31m"),
    ],
)
def test_annotations(file: str, line: int | None, title: str, message: str, expected: str) -> None:
    assert error_annotation(file, line, title, message) == expected


@given(st.text(), st.text(), st.text())
def test_no_text_starts_another_command(file: str, title: str, message: str) -> None:
    annotation = error_annotation(file, 1, title, message)
    assert annotation.splitlines() == [annotation]
    head, _, _ = annotation.removeprefix("::error ").partition("::")
    assert all(part.split("=")[0] in {"file", "line", "title"} for part in head.split(","))
