"""Characters that make a text read as something else than it is."""

from __future__ import annotations

import pytest

from pytest_flamegate.core.text import find_control_character, find_hidden_character


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
