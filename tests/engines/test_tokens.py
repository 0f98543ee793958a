"""Tokenizers of whole outputs."""

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.engines.base import Streamed
from pytest_flamegate.engines.figure_sources import SourceSelection, Timing
from pytest_flamegate.engines.tokens import Tokenized, load
from pytest_flamegate.observe.program_output import (
    MAX_TOKEN_BYTES,
    TAIL_BYTES,
    AnswerReader,
    OwnLineFilter,
    TokenSplitter,
)
from tests.tools import require

PLAIN: dict[str, Any] = {"version": "1.0", "normalizer": None, "decoder": None, "added_tokens": []}


def word_level(path: Path, **more: object) -> Path:
    """Write a tokenizer of words, which skips the white space between them."""
    vocabulary = {"<unk>": 0, "one": 1, "two": 2, "né": 3}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    splitting = {"type": "WhitespaceSplit"}
    path.write_text(json.dumps({**PLAIN, "model": model, "pre_tokenizer": splitting, **more}))
    return path


def byte_level(path: Path) -> Path:
    """Write a tokenizer of bytes."""
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = {piece: number for number, piece in enumerate(sorted(ByteLevel.alphabet()))}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    splitting = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    path.write_text(json.dumps({**PLAIN, "model": model, "pre_tokenizer": splitting}))
    return path


def cut(path: Path, *pieces: bytes) -> list[tuple[str, int]]:
    tokens = Tokenized(path)
    for at, piece in enumerate(pieces):
        assert tokens.feed(piece, at) == []
    return tokens.finish()


@pytest.fixture
def _library() -> None:
    require(importlib.util.find_spec("tokenizers") is not None, "tokenizers is not installed")


@pytest.mark.usefixtures("_library")
def test_tokens_have_the_time_of_their_first_byte(tmp_path: Path) -> None:
    short = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    path = word_level(tmp_path / "tokenizer.json", truncation=short)  # which is ignored
    assert cut(path) == cut(path, b"\n\n") == []
    found = cut(path, b"on", b"e ", b"two", b" n\xc3", b"\xa9 one", b"\n\n")
    assert found == [("one", 0), (" two", 2), (" né", 3), (" one", 4)]


@pytest.mark.usefixtures("_library")
def test_bytes_of_several_tokens_and_of_no_text(tmp_path: Path) -> None:
    path = byte_level(tmp_path / "tokenizer.json")
    found = cut(path, b"a\xf0", b"\x9f", b"\x98\x80b")
    assert found == [("a", 0), *[(text, 0) for text in ("😀", "", "", "")], ("b", 2)]
    found = cut(path, b"a", b"\xff", b"b")
    assert (found[0], found[-1]) == (("a", 0), ("b", 2))
    assert "".join(text for text, _ in found) == "a�b"


@pytest.mark.usefixtures("_library")
def test_tokenizers_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, content in enumerate((b"", b"{}", b"\xff\xfe", b'{"model": {"type": "BPE"}}')):
        (tmp_path / f"{number}.json").write_bytes(content)
        with pytest.raises(FlamegateError, match=rf"E_BAD_TOKENIZER.*{number}\.json"):
            load(tmp_path / f"{number}.json")
    for name in ("absent.json", ".", "x" * 5000, "a\0b"):
        with pytest.raises(FlamegateError, match="E_TOKENIZER_MISSING"):
            load(tmp_path / name)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    word_level(tmp_path / "tokenizer.json")
    with pytest.raises(FlamegateError, match=r"E_NO_LIBRARY.*pytest-flamegate\[tokenizer\]"):
        load(tmp_path / "tokenizer.json")


# Pieces as they come in, what passes with the index of its piece, and what is taken.
LINES = [
    ([b"a b\n", b"c"], [(b"a b\n", 0), (b"c", 1)], b""),
    ([b"timing: x\na"], [(b"a", 0)], b"timing: x\n"),
    ([b"tim", b"e\n", b"t"], [(b"tim", 0), (b"e\n", 1), (b"t", 2)], b""),
    ([b"a\nt", b"iming: x", b" y\nb"], [(b"a\n", 0), (b"b", 2)], b"timing: x y\n"),
    ([b"timing: x"], [], b"timing: x"),
    ([b"a\r", b"timing: x\n"], [(b"a\r", 0), (b"timing: x\n", 1)], b""),
    ([b"\n", b"timing:\n\n"], [(b"\n", 0), (b"\n", 1)], b"timing:\n"),
]


@pytest.mark.parametrize(("pieces", "passes", "taken"), LINES, ids=range(len(LINES)))
def test_own_lines_are_removed(
    pieces: list[bytes], passes: list[tuple[bytes, int]], taken: bytes
) -> None:
    lines = OwnLineFilter([b"timing:", b"quant_dispatch"])
    found = [each for at, piece in enumerate(pieces) for each in lines.feed(piece, at)]
    found += lines.finish()
    assert (found, bytes(lines.removed)) == (passes, taken)


def test_tokens_come_from_the_remaining_lines() -> None:
    cutter = AnswerReader(Streamed(("x",), "word", sources=SourceSelection((Timing(),))))
    found = cutter.feed(b"timing: embed_us=1\n", 0)
    assert not cutter.begun
    found += cutter.feed(b"one two\n", 1)
    found += cutter.feed(b"timing: embed_us=2\nthree", 2)
    found += cutter.finish()
    assert found == [("one", 1), (" two", 1), ("\nthree", 2)]
    assert cutter.own_lines == b"timing: embed_us=1\ntiming: embed_us=2\n"
    assert cutter.tail.endswith(b"three")
    cutter.feed(b"x" * TAIL_BYTES, 3)
    assert cutter.tail == b"x" * TAIL_BYTES


@pytest.mark.parametrize(
    ("unit", "pieces", "tokens", "began"),
    [
        ("byte", [b"ab", b"c"], ["97", "98", "99"], [0, 0, 1]),
        ("word", [b"one", b" two ", b"th", b"ree"], ["one", " two", " three"], [0, 1, 2]),
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
    splitter = TokenSplitter(unit)
    found = [token for at, piece in enumerate(pieces) for token in splitter.feed(piece, at)]
    found += splitter.finish()
    assert [text for text, _ in found] == tokens
    assert [at for _, at in found] == began


@pytest.mark.parametrize(("unit", "filler"), [("word", b" "), ("line", b"x")])
def test_an_endless_token_overflows_before_it_costs_much(unit: str, filler: bytes) -> None:
    splitter = TokenSplitter(unit)
    began_s = time.process_time()
    for _ in range(MAX_TOKEN_BYTES // 64 + 1):
        assert not splitter.overflows
        assert splitter.feed(filler * 64, 0) == []
    assert splitter.overflows
    # Quadratic searching would take minutes.
    assert time.process_time() - began_s < 10.0
