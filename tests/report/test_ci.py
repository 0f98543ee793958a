from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.report.ci import error_annotation


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
