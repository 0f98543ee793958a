from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.gate import Reason, Verdict
from pytest_flamegate.report.ci import error_annotation, step_summary
from pytest_flamegate.report.terminal import Outcome
from tests.report import factory, verdicts


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


def test_the_job_summary_is_a_table_and_says_why() -> None:
    outcomes = [
        Outcome("decode|x", verdicts.regressed(), factory.receipt(), factory.evidence()),
        Outcome(
            "1tok", Verdict.unjudged("error", [Reason("E_X", "It <b>broke</b>.")], grade="NONE")
        ),
    ]
    lines = step_summary(outcomes).replace("\u00a0", " ").splitlines()
    assert lines[4:6] == [
        r"| `decode\|x` | **regressed** | 518 tokens/s | 486 tokens/s | -6.2 % | -7.4 … -5.1 % "
        "| 5 % | 1.9 % | OBSERVED |",
        "| `1tok` | **error** | – | – | – | – | – | – | NONE |",
    ]
    assert lines[7].startswith(r"- `decode\|x` regressed: 6.2 % slower")
    assert lines[8] == "- `1tok` error: It &lt;b&gt;broke&lt;/b&gt;."


def test_green_verdicts_need_no_words() -> None:
    passed = Verdict(
        "pass", (Reason("I_X", "Fine."),), "OBSERVED", signals=(verdicts.rate("pass"),)
    )
    summary = step_summary([Outcome("a", passed)])
    assert "| `a` | pass |" in summary
    assert "\n- " not in summary
    assert step_summary([]) == "## flamegate\n\nNothing was measured.\n"
