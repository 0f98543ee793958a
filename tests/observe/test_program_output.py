"""Output is split into tokens, each with the time of its first byte, in linear time."""

import time

import pytest

from pytest_flamegate.observe.program_output import MAX_TOKEN_BYTES, TokenSplitter


@pytest.mark.parametrize(
    ("unit", "pieces", "tokens", "began"),
    [
        ("byte", [b"ab", b"c"], ["97", "98", "99"], [0, 0, 1]),
        ("word", [b"one two ", b"three"], ["one", " two", " three"], [0, 0, 1]),
        ("word", [b"one", b" two", b" three\n"], ["one", " two", " three"], [0, 1, 2]),
        ("word", [b"o", b"n", b"e", b" "], ["one"], [0]),
        ("word", [b"one ", b" ", b"two"], ["one", "  two"], [0, 2]),
        ("word", [b" \n "], [], []),
        ("line", [b"a b\nc", b"d\n", b"e"], ["a b\n", "cd\n", "e"], [0, 0, 2]),
        ("line", [b"\n\nx\n"], ["\n", "\n", "x\n"], [0, 0, 0]),
        ("word", [b"\xff\xfe x"], ["\\xff\\xfe", " x"], [0, 0]),
    ],
)
def test_a_token_has_the_time_of_its_first_byte(
    unit: str, pieces: list[bytes], tokens: list[str], began: list[int]
) -> None:
    splitter: TokenSplitter[int] = TokenSplitter(unit)
    found = [token for at, piece in enumerate(pieces) for token in splitter.feed(piece, at)]
    found += splitter.finish()
    assert [text for text, _ in found] == tokens
    assert [at for _, at in found] == began


@pytest.mark.parametrize("unit", ["word", "line"])
@pytest.mark.parametrize("filler", [b"x", b" "])
def test_an_endless_token_overflows_before_it_costs_much(unit: str, filler: bytes) -> None:
    splitter: TokenSplitter[int] = TokenSplitter(unit)
    began_s = time.process_time()
    for _ in range(MAX_TOKEN_BYTES // 64 + 1):
        assert not splitter.overflows
        assert splitter.feed(filler * 64, 0) == []
    assert splitter.overflows
    # Quadratic searching would take minutes.
    assert time.process_time() - began_s < 10.0
