"""Bytes in, one document or a coded refusal out."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.receipt import strict_json
from pytest_flamegate.receipt.findings import Refusal, shown

REFUSED = [
    ("E_JSON_SYNTAX", b""),
    ("E_JSON_SYNTAX", b"{"),
    ("E_JSON_SYNTAX", b"{} {}"),
    ("E_JSON_SYNTAX", b"{'a': 1}"),
    ("E_JSON_SYNTAX", b'{"a": 1,}'),
    ("E_JSON_SYNTAX", b'{"a": "\n"}'),
    ("E_JSON_SYNTAX", b"[01]"),
    ("E_JSON_ENCODING", b"\xef\xbb\xbf{}"),
    ("E_JSON_ENCODING", "{}".encode("utf-16")),
    ("E_JSON_ENCODING", b'{"a": "\xff"}'),
    ("E_JSON_ENCODING", b'{"a": "\xed\xa0\x80"}'),
    ("E_JSON_ENCODING", rb'{"a": "\ud800"}'),
    ("E_JSON_ENCODING", rb'{"a": "\udc00"}'),
    ("E_JSON_ENCODING", rb'{"a": "\udfff x"}'),
    ("E_JSON_ENCODING", rb'{"\uDFFF": 1}'),
    ("E_JSON_ENCODING", rb'[{"a": ["x", "\udc00\ud800"]}]'),
    ("E_JSON_DUPLICATE_KEY", b'{"a": 1, "a": 2}'),
    ("E_JSON_DUPLICATE_KEY", rb'{"x": [{"a": 1, "\u0061": 1}]}'),
    ("E_JSON_NUMBER", b"NaN"),
    ("E_JSON_NUMBER", b'{"a": Infinity}'),
    ("E_JSON_NUMBER", b"[-Infinity]"),
    ("E_JSON_NUMBER", b"[1e999]"),
    ("E_JSON_NUMBER", b"[-1e999]"),
    ("E_JSON_NUMBER", b"[" + b"9" * 65 + b"]"),
    ("E_JSON_NUMBER", b"[" + b"9" * 5000 + b"]"),
    ("E_JSON_NUMBER", b"[0." + b"1" * 100 + b"]"),
    ("E_JSON_DEPTH", b"[" * 65 + b"]" * 65),
    ("E_JSON_DEPTH", b'{"a":' * 65 + b"1" + b"}" * 65),
    ("E_JSON_DEPTH", b"[" * 200_000 + b"]" * 200_000),
    ("E_JSON_SIZE", b'"' + b"x" * strict_json.RECEIPT_MAX_BYTES + b'"'),
]

TAKEN: list[tuple[bytes, Any]] = [
    (b" {} \n", {}),
    (b"1", 1),
    (b"-0.0", -0.0),
    (b'"\xc3\xa9"', "é"),
    (rb'"\ud83d\ude00"', "\U0001f600"),
    (rb'"\\ud800"', "\\ud800"),
    (b"[" + b"9" * 64 + b"]", [10**64 - 1]),
    (b'["' + b"9" * 5000 + b'"]', ["9" * 5000]),
    (b"[" * 64 + b"]" * 64, None),
    (b"[1e-400, true, false, null]", [0.0, True, False, None]),
]


@pytest.mark.parametrize(
    ("code", "data"), REFUSED, ids=[f"{c}-{i}" for i, (c, _) in enumerate(REFUSED)]
)
def test_refused(code: str, data: bytes) -> None:
    refusal = strict_json.parse(data)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code
    assert refusal.message.isascii()
    assert refusal.message.isprintable()
    assert len(refusal.message) < 300
    with pytest.raises(ReceiptError) as raised:
        strict_json.loads(data)
    assert raised.value.code == code


@pytest.mark.parametrize(("data", "document"), TAKEN, ids=range(len(TAKEN)))
def test_taken(data: bytes, document: Any) -> None:
    found = strict_json.parse(data)
    assert not isinstance(found, Refusal)
    if document is not None:
        assert found == document


def test_the_standard_parser_would_have_taken_them() -> None:
    """The refusals above are needed: Python's own parser lets these pass."""
    for data in (b'{"a": 1, "a": 2}', b"NaN", b"[1e999]", rb'{"a": "\ud800"}'):
        json.loads(data)


def test_depth_does_not_depend_on_the_stack_left() -> None:
    def below(levels: int) -> object:
        return strict_json.parse(b"[" * 900 + b"]" * 900) if not levels else below(levels - 1)

    refusal = below(sys.getrecursionlimit() // 2)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "E_JSON_DEPTH"


def test_limits_are_parameters() -> None:
    assert strict_json.parse(b"[[1]]", max_depth=2) == [[1]]
    assert isinstance(strict_json.parse(b"[[1]]", max_depth=1), Refusal)
    assert isinstance(strict_json.parse(b"[[1]]", max_bytes=4), Refusal)


def test_dumps_is_stable_ascii_and_reads_back() -> None:
    document = {
        "b": "é\u202e\n\U0001f600",
        "a": [1.0, 0.1, 1e-300, -0.0, 2**60],
        "n": {"x": None, "y": [], "z": {}},
        "times": [[1, 2, 3], [4, 5, 6]],
    }
    data = strict_json.dumps(document)
    assert data == strict_json.dumps(document)
    assert data.isascii()
    assert data.endswith(b"}\n")
    assert strict_json.parse(data) == document
    assert list(json.loads(data)) == ["b", "a", "n", "times"]
    assert b"    [1, 2, 3],\n" in data
    assert json.loads(data) == document


@pytest.mark.parametrize(
    "document",
    [
        [math.nan],
        {"a": math.inf},
        [1, -math.inf],
        "\ud800",
        {"\udc00": 1},
        {1: 2},
        [object()],
        {"a": b"bytes"},
        {"a": {1, 2}},
    ],
    ids=range(9),
)
def test_dumps_refuses_what_parse_would(document: object) -> None:
    with pytest.raises(ReceiptError) as raised:
        strict_json.dumps(document)
    assert raised.value.code == "E_CANNOT_ENCODE"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\x1b\n\u202e\x7f", r'"a\u001b\n\u202e\u007f"'),
        ("x" * 100, '"' + "x" * 80 + '..."'),
        (10**90, "1" + "0" * 79 + "..."),
        (True, "true"),
        (None, "null"),
        ([1, 2], "a list of 2"),
        ({"a": 1}, "an object of 1 fields"),
        (b"x", "a bytes"),
    ],
)
def test_shown_is_one_short_printable_line(value: object, text: str) -> None:
    assert shown(value) == text
