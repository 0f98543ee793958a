"""Figures and text as reports show them."""

import math
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.report import text
from pytest_flamegate.report.text import cells, clip, clip_front, columns, paint, visible, wrap

HOSTILE = st.text(alphabet=st.characters(), max_size=60)


def test_hidden_characters_are_shown() -> None:
    for hidden, shown in (
        ("a\nb\rc\td", r"a\x0ab\x0dc\x09d"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("abc\u202eevil\u2066", r"abc\u202eevil\u2066"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("lone\ud800surrogate", r"lone\ud800surrogate"),
        ("\ufffe\U0001ffff", r"\ufffe\U0001ffff"),
        ("\u2028\u2029\x85", r"\u2028\u2029\x85"),
        ("main\u3164\u2800\U000e0101", r"main\u3164\u2800\U000e0101"),
        ("µ 行列 é", "µ 行列 é"),
    ):
        assert visible(hidden) == shown


@given(HOSTILE)
def test_nothing_hidden_survives(text: str) -> None:
    assert not {unicodedata.category(char) for char in visible(text)} & {"Cc", "Cf", "Cs", "Zl"}


@given(st.text(max_size=40), st.integers(0, 20))
def test_clipped_text_fits_and_keeps_its_start_or_its_end(text: str, width: int) -> None:
    shown = visible(text)
    clipped, ended = clip(shown, width), clip_front(shown, width)
    assert max(cells(clipped), cells(ended)) <= width
    assert (clipped == shown) == (cells(shown) <= width)
    assert shown.startswith(clipped.removesuffix("…"))
    assert shown.endswith(ended.removeprefix("…"))


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("", 0),
        ("µ → é …", 7),
        ("行列", 4),
        ("Ａ１", 4),
        ("ｱｲ", 2),
        ("한글", 4),
        ("🔥 hot", 6),
        ("e\u0301a\u20dd", 2),
        ("กี่", 1),
        ("\x1b[1;31m行é\x1b[0m", 3),
    ],
)
def test_wide_characters_take_two_columns_and_marks_none(text: str, width: int) -> None:
    assert cells(text) == width


def test_columns_align_whatever_the_width_of_a_character() -> None:
    assert cells("行a") == 3
    lines = columns([("name", "n"), ("行列", "10"), ("a", "7")], right=[1], indent=2)
    assert lines == ["  name    n", "  行列   10", "  a       7"]
    assert columns([]) == []
    assert columns([(paint("行列", "red"), "x"), ("abcde", "y")]) == [
        "\x1b[1;31m行列\x1b[0m    x", "abcde   y",
    ]  # fmt: skip


def test_wrapping_keeps_parts_whole() -> None:
    assert wrap(["aaa", "bbb", "ccc"], 9) == ["aaa · bbb", "ccc"]
    assert wrap(["a" * 20, "b"], 9) == ["aaaaaaaa…", "b"]
    assert wrap([], 9) == []


# Figures


@pytest.mark.parametrize(
    ("write", "figures"),
    [
        (
            text.seconds,
            {0.0: "0 s", 12.0: "12.0 s", 0.9996: "1.00 s", 0.9994: "999 ms", 1.95e-3: "1.95 ms",
             0.99996e-3: "1.00 ms", 62e-6: "62.0 µs", 181.4e-6: "181 µs", 9.2e-9: "9.20 ns",
             -3e-3: "-3.00 ms", math.nan: "not finite"},
        ),
        (
            text.share,
            {0.716: "71.6 %", 1.0: "100.0 %", 0.0: "0.0 %", 0.0004: "< 0.1 %", 0.0005: "0.1 %",
             math.inf: "not finite"},
        ),
        (
            text.tidy,
            {6.2: "6.2", 5.0: "5", -0.01: "0", 1000.0: "1,000", 60.0: "60", math.inf: "not finite",
             1e30: "1.00e+30"},
        ),
        (text.micros, {1383.4e-6: "1,383", 62e-6: "62", 9.87e-6: "9.9", 0.0: "0"}),
    ],
)  # fmt: skip
def test_figures(write: Callable[[float], str], figures: dict[float, str]) -> None:
    assert {value: write(value) for value in figures} == figures
