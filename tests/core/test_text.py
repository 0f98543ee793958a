import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.text import (
    NAME_BYTES,
    decode_name,
    escape_name,
    find_control_character,
    find_hidden_character,
    first_difference,
    is_clean,
    list_some,
    shorten,
)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("rms_norm", "rms_norm"),
        ("größe", "größe"),
        ("a;b", "a\\x3bb"),
        ("a\nb", "a\\x0ab"),
        ("a\\x3bb", "a\\x5cx3bb"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202egnp", "\\u202egnp"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("filler\u3164", "filler\\u3164"),
        ("line\u2028", "line\\u2028"),
        ("nbsp\xa0", "nbsp\\xa0"),
        ("\U000e0041", "\\U000e0041"),
        ("tag\ufe0f", "tag\\ufe0f"),
    ],
)
def test_unsafe_characters_are_escaped(raw: str, expected: str) -> None:
    assert escape_name(raw) == expected


def test_bytes_that_are_no_utf8_differ_from_the_characters_they_look_like() -> None:
    assert escape_name(decode_name(b"\xff")) == "\\udcff"
    assert escape_name("\xff") == "ÿ"


@given(st.text(), st.text())
def test_escaping_keeps_different_names_different(left: str, right: str) -> None:
    assert (escape_name(left) == escape_name(right)) == (left == right)


@given(st.text(min_size=0, max_size=400))
def test_what_is_escaped_is_clean_and_bounded(text: str) -> None:
    escaped = escape_name(text)
    assert is_clean(escaped)
    assert len(escaped.encode()) <= NAME_BYTES


def test_long_names_with_one_beginning_stay_two() -> None:
    left, right = escape_name("x" * 500 + "a"), escape_name("x" * 500 + "b")
    assert left != right
    assert len(left) == NAME_BYTES
    assert left[:100] == "x" * 100


def test_hidden_characters_of_names_are_found() -> None:
    for character in (
        *"\x00\t\n\x1c\x7f\x9b\u00ad\u061c\u200d\u200e\u202d\u2066\u2028\u2029\ufeff\ue000\u0378",
        *"\u00a0\u2003\u3000\u034f\u115f\u2800\u3164\uffa0\ufe0f\U000e0101",
    ):
        hidden = find_hidden_character(f"a{character}b")
        assert hidden is not None, ascii(character)
        assert hidden.isascii()
    assert all(find_hidden_character(name) for name in (" a", "a ", "\u3000a"))
    visible = ("i2s_gemv", "void gemm<float, 4>(int)", "matmul_µ", "行列", "a\u0301", "~!{}")
    assert not any(map(find_hidden_character, visible))


def test_steering_characters_of_text_are_found() -> None:
    steering = ("\x1b[2J", "a\nb", "\u202eexe", "\u2067x", "\x85", "\u2028")
    assert all(map(find_control_character, steering))
    harmless = ("", " ", "NVIDIA® GeForce™", "a\u00a0b", "\U0001f469\u200d")
    assert not any(map(find_control_character, harmless))


def test_only_the_names_that_are_listed_are_shown() -> None:
    def show(number: int) -> str:
        return str(1 // number)

    assert list_some([1, 1, 0], 2, "; ", show) == "1; 1 and 1 more"
    assert [list_some("abcd", most) for most in (3, 4, 5)] == [
        "a, b, c and 1 more",
        *["a, b, c, d"] * 2,
    ]
    assert list_some(["x"] * 1002, 1) == "x and 1,001 more"


@pytest.mark.parametrize(("most", "expected"), [(3, "ab…"), (4, "abcd")])
def test_a_longer_text_ends_in_an_ellipsis(most: int, expected: str) -> None:
    assert shorten("abcd", most) == expected


def test_the_first_difference_may_be_the_end_of_one_sequence() -> None:
    found = [first_difference("abc", other) for other in ("abc", "ab", "abcd", "axc", "")]
    assert found == [3, 2, 3, 1, 0]
