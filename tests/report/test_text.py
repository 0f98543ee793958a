from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from pytest_flamegate.report.text import cells, clip, clip_front, columns, visible, wrap

HOSTILE = st.text(alphabet=st.characters(), max_size=60)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("matmul_i2s", "matmul_i2s"),
        ("a\nb\rc\td", r"a\x0ab\x0dc\x09d"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("abc\u202eevil\u2066", r"abc\u202eevil\u2066"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("lone\ud800surrogate", r"lone\ud800surrogate"),
        ("\ufffe\U0001ffff", r"\ufffe\U0001ffff"),
        ("\u2028\u2029\x85", r"\u2028\u2029\x85"),
        ("µ 行列 é", "µ 行列 é"),
    ],
)
def test_what_is_hidden_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_long_text_is_cut_and_says_so() -> None:
    assert visible("x" * 10_000) == "x" * 300 + "… (10,000 characters)"
    assert visible("x" * 300) == "x" * 300


@given(HOSTILE)
def test_nothing_hidden_survives(text: str) -> None:
    assert not {unicodedata.category(char) for char in visible(text)} & {"Cc", "Cf", "Cs", "Zl"}


@given(st.text(max_size=40), st.integers(0, 20))
def test_clipped_text_fits(text: str, width: int) -> None:
    clipped = clip(visible(text), width)
    assert cell_len(clipped) <= width
    assert (clipped == visible(text)) == (cell_len(visible(text)) <= width)


@pytest.mark.parametrize(
    ("text", "width", "clipped"),
    [("ternary_gemv", 7, "ternar…"), ("行列積", 5, "行列…"), ("行列積", 4, "行…"), ("ab", 0, "")],
)
def test_clipping_counts_cells(text: str, width: int, clipped: str) -> None:
    assert clip(text, width) == clipped


@given(st.text(max_size=40), st.integers(0, 20))
def test_text_clipped_in_front_fits_and_keeps_its_end(text: str, width: int) -> None:
    clipped = clip_front(visible(text), width)
    assert cell_len(clipped) <= width
    assert visible(text).endswith(clipped.removeprefix("…"))


def test_names_of_tests_differ_at_their_end() -> None:
    assert clip_front("benchmarks.test_kernels.test_rope", 11) == "….test_rope"


def test_columns_align_whatever_the_width_of_a_character() -> None:
    assert cells("行a") == 3
    lines = columns([("name", "n"), ("行列", "10"), ("a", "7")], right=[1], indent=2)
    assert lines == ["  name    n", "  行列   10", "  a       7"]
    assert columns([]) == []


def test_columns_take_text_as_it_is_and_as_long_as_it_is() -> None:
    row = ("[red]x[/]", ":smile:", "y" * 3000)
    assert columns([row], gap=1) == [" ".join(row)]


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"TERM": "dumb", "COLUMNS": "20"}, {"FORCE_COLOR": "1"}]
)
def test_columns_are_the_same_in_every_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    rows = [(Text("行列", "bold red"), "x" * 100)]
    assert columns(rows) == ["行列   " + "x" * 100]
    assert columns(rows, colour=True) == ["\x1b[1;31m行列\x1b[0m   " + "x" * 100]


def test_wrapping_keeps_parts_whole() -> None:
    assert wrap(["aaa", "bbb", "ccc"], 9) == ["aaa · bbb", "ccc"]
    assert wrap(["a" * 20, "b"], 9) == ["aaaaaaaa…", "b"]
    assert wrap([], 9) == []
