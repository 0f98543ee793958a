from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.child.embedded.weights import BOS, EOS, decode, encode
from pytest_flamegate.core.errors import UsageError


@given(st.text())
def test_text_comes_back(text: str) -> None:
    tokens = encode(text)
    assert tokens[0] == BOS
    assert decode([*tokens, EOS]).decode() == text


def test_bytes_of_a_command_line_come_back() -> None:
    assert encode("a\udcff") == [BOS, 0x61, 0xFF]


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(UsageError, match="character 1 ") as caught:
        encode("a\ud800")
    assert caught.value.code == "E_PROMPT_ENCODING"
