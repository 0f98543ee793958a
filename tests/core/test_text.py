import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.text import (
    NAME_BYTES,
    decode_name,
    escape_name,
    find_control_character,
    find_hidden_character,
    is_clean,
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


@pytest.mark.parametrize(
    "name",
    [
        "a\x00b", "a\tb", "a\nb", "a\x1cb", "a\x7fb", "a\x9bb", "a\u00adb", "a\u061cb", "a\u200db",
        "a\u200eb", "a\u202db", "a\u2066b", "a\u2028b", "a\u2029b", "a\ufeffb", "a\ue000b",
        "a\u0378b", "a\u00a0b", "a\u2003b", "a\u3000b", "a\u034fb", "a\u115fb", "a\u2800b",
        "a\u3164b", "a\uffa0b", "a\ufe0fb", "a\U000e0101b", " a", "a ", "\u3000a",
    ],
    ids=ascii,
)  # fmt: skip
def test_hidden_in_a_name(name: str) -> None:
    hidden = find_hidden_character(name)
    assert hidden is not None
    assert hidden.isascii()


@pytest.mark.parametrize(
    "name", ["i2s_gemv", "void gemm<float, 4>(int)", "é", "matmul_µ", "行列", "a\u0301", "~!{}"]
)
def test_visible_in_a_name(name: str) -> None:
    assert find_hidden_character(name) is None


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\u202eexe", "\u2067x", "\x85", "\u2028"])
def test_steering_text(text: str) -> None:
    assert find_control_character(text) is not None


@pytest.mark.parametrize("text", ["", " ", "NVIDIA® GeForce™", "a\u00a0b", "\U0001f469\u200d"])
def test_harmless_text(text: str) -> None:
    assert find_control_character(text) is None
