"""Bytes in, one document or a coded refusal out."""

from __future__ import annotations

import json as json_
import math
import random
import sys
from typing import Any

import pytest

from pytest_flamegate.core import json_old
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import Refusal, quote
from pytest_flamegate.receipt import verify_receipt
from tests.receipt.documents import document

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
    ("E_JSON_SIZE", b'"' + b"x" * json_old.RECEIPT_MAX_BYTES + b'"'),
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
    refusal = json_old.parse(data)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code
    assert refusal.message.isascii()
    assert refusal.message.isprintable()
    assert len(refusal.message) < 300
    with pytest.raises(ReceiptError) as raised:
        json_old.loads(data)
    assert raised.value.code == code


@pytest.mark.parametrize(("data", "document"), TAKEN, ids=range(len(TAKEN)))
def test_taken(data: bytes, document: Any) -> None:
    found = json_old.parse(data)
    assert not isinstance(found, Refusal)
    if document is not None:
        assert found == document


ODD = {
    "depth of a million": (b"[" * 1_000_000, "E_JSON_DEPTH"),
    "depth of objects": (b'{"a":' * 170_000, "E_JSON_DEPTH"),
    "a million brackets": (b"[" + b"[]," * 340_000 + b"[]]", "E_JSON_SIZE"),
    "brackets in text and out": (b"[" + b'["]"],' * 140_000 + b'"["]', "E_JSON_SIZE"),
    "brackets in text": (b"[" + b'"[{",' * 100_000 + b'"}"]', None),
    "a tiny number": (b"[1e-999999999]", None),
    "a huge number": (b"[1e999999999]", "E_JSON_NUMBER"),
    "a huge number below zero": (b"[-1E+400]", "E_JSON_NUMBER"),
    "zeros": (b"[-0, -0.0, 0e0, -0e-5, 0.0e999999]", None),
    "a million digits": (b"9" * 1_000_000, "E_JSON_NUMBER"),
    "a million digits below zero": (b"-" + b"9" * 1_000_000, "E_JSON_NUMBER"),
    "a million decimals": (b"0." + b"3" * 1_000_000, "E_JSON_NUMBER"),
    "a million digits of exponent": (b"1e" + b"9" * 1_000_000, "E_JSON_NUMBER"),
    "an escaped zero": (rb'{"\u0000": "\u0000"}', None),
    "a zero byte": (b'{"a": "\x00"}', "E_JSON_SYNTAX"),
    "a zero byte after the end": (b"{}\x00", "E_JSON_SYNTAX"),
    "a zero byte in a key": (b'{"a\x00": 1}', "E_JSON_SYNTAX"),
    "zero bytes": (bytes(1_000_000), "E_JSON_SYNTAX"),
    "a long key": (b'{"' + b"k" * 1_000_000 + b'": 1}', None),
    "a long key twice": (b'{"%b": 1, "%b": 2}' % (b"k" * 400_000, b"k" * 400_000), "E_JSON_DUP"),
    "many keys": (b"{" + b",".join(b'"%x":1' % n for n in range(100_000)) + b"}", None),
    "many keys, the last one twice": (
        b"{" + b",".join(b'"%x":1' % min(n, 99_998) for n in range(100_000)) + b"}",
        "E_JSON_DUP",
    ),
    "a long text": (b'"' + b"x" * 1_000_000 + b'"', None),
    "a long text without an end": (b'"' + b"x" * 1_000_000, "E_JSON_SYNTAX"),
    "many escapes": (b'"' + rb"\u0041" * 170_000 + b'"', None),
    "many pairs": (b'"' + rb"\ud83d\ude00" * 80_000 + b'"', None),
    "many pairs and a half": (b'"' + rb"\ud83d\ude00" * 80_000 + rb'\ud83d"', "E_JSON_ENCODING"),
    "half a pair at the edge of a text": (rb'["\ud83d", "\ude00"]', "E_JSON_ENCODING"),
    **{
        f"half a pair, {half}": (rb'"a\%b"' % half.encode(), "E_JSON_ENCODING")
        for low in ("d8ff", "d900", "db7f", "dc00", "dd12", "de00", "dfff")
        for half in (f"u{low}", f"u{low.upper()}", f"uD{low[1:]}")
    },
    "an escape of nothing": (rb'"\x41"', "E_JSON_SYNTAX"),
    "half an escape": (rb'"\u00"', "E_JSON_SYNTAX"),
    "an escape with a sign": (rb'"\u+041"', "E_JSON_SYNTAX"),
    "an escaped end": (b'"' + b"\\" * 999_999 + b'"', "E_JSON_SYNTAX"),
    "an overlong slash": (b'"\xc0\xaf"', "E_JSON_ENCODING"),
    "beyond Unicode": (b'"\xf4\x90\x80\x80"', "E_JSON_ENCODING"),
    "a cut letter": (b'"\xe2\x82', "E_JSON_ENCODING"),
    "another order mark": (b"\xff\xfe{}", "E_JSON_ENCODING"),
    "an order mark inside": ('["\ufeff"]'.encode(), None),
    "digits that are not ASCII": ("[١٢]".encode(), "E_JSON_SYNTAX"),
    "a space that is not JSON's": ("[1,\u00a02]".encode(), "E_JSON_SYNTAX"),
    "a comment": (b"[1] // one", "E_JSON_SYNTAX"),
    "white space alone": (b" \n" * 500_000, "E_JSON_SYNTAX"),
}


@pytest.mark.parametrize("digits", [0, 640, 4300])
@pytest.mark.parametrize("name", ODD)
def test_odd_bytes_get_an_answer_whatever_python_allows(name: str, digits: int) -> None:
    data, code = ODD[name]
    allowed = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(digits)
    try:
        found = json_old.parse(
            data, max_bytes=2 * json_old.MIB, max_containers=json_old.RECEIPT_MAX_CONTAINERS
        )
    finally:
        sys.set_int_max_str_digits(allowed)
    assert isinstance(found, Refusal) is (code is not None)
    if isinstance(found, Refusal):
        assert code is not None
        assert found.code.startswith(code)
        assert found.message.isascii()
        assert len(found.message) < 350


def depth_of(document: object) -> int:
    if isinstance(document, dict):
        return 1 + max(map(depth_of, document.values()), default=0)
    if isinstance(document, list):
        return 1 + max(map(depth_of, document), default=0)
    return 0


def test_depth_by_brackets_is_depth() -> None:
    """Brackets that are text, escapes and quotes do not fool it."""
    source = random.Random(5)

    def value(levels: int) -> object:
        if levels == 0 or source.random() < 0.2:
            return source.choice([1, "", "a", "[", "]]", '"', "\\", '[\\"', '"]', "{}", None])
        if source.random() < 0.5:
            return [value(levels - 1) for _ in range(source.randrange(4))]
        return {source.choice('ab[]"\\'): value(levels - 1) for _ in range(source.randrange(4))}

    sure = 0
    for _ in range(3000):
        document = value(source.randrange(7))
        depth = depth_of(document)
        data = json_.dumps(document).encode()
        for most in (depth - 1, depth, depth + 1):
            if most >= 0:
                refused = isinstance(json_old.parse(data, max_depth=most), Refusal)
                assert refused is (depth > most)
                shallow = json_old._is_surely_shallow(data, most)
                assert not (shallow and depth > most)
                sure += shallow
    assert sure > 1000


def test_a_receipt_has_a_bounded_number_of_objects_and_lists() -> None:
    most = 3
    for data in (b"[[], {}]", b'{"a": [{}]}', b'[["[[[[{{{{"]]', b"[[],[1,2,3,4,5,6,7,8]]"):
        assert not isinstance(json_old.parse(data, max_containers=most), Refusal)
    for data in (b"[[],[],[]]", b'[["\\"[", {}, {}]]', b'{"a":{"b":{"c":[]}}}'):
        refusal = json_old.parse(data, max_containers=most)
        assert isinstance(refusal, Refusal)
        assert refusal.code == "E_JSON_SIZE"


def test_the_standard_parser_would_have_taken_them() -> None:
    """The refusals above are needed: Python's own parser lets these pass."""
    for data in (b'{"a": 1, "a": 2}', b"NaN", b"[1e999]", rb'{"a": "\ud800"}'):
        json_.loads(data)


def test_depth_does_not_depend_on_the_stack_left() -> None:
    def below(levels: int) -> object:
        return json_old.parse(b"[" * 900 + b"]" * 900) if not levels else below(levels - 1)

    refusal = below(sys.getrecursionlimit() // 2)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "E_JSON_DEPTH"


def test_limits_are_parameters() -> None:
    assert json_old.parse(b"[[1]]", max_depth=2) == [[1]]
    assert isinstance(json_old.parse(b"[[1]]", max_depth=1), Refusal)
    assert isinstance(json_old.parse(b"[[1]]", max_bytes=4), Refusal)


def test_dumps_is_stable_ascii_and_reads_back() -> None:
    document = {
        "b": "é\u202e\n\U0001f600",
        "a": [1.0, 0.1, 1e-300, -0.0, 2**60],
        "n": {"x": None, "y": [], "z": {}},
        "times": [[1, 2, 3], [4, 5, 6]],
    }
    data = json_old.dumps(document)
    assert data == json_old.dumps(document)
    assert data.isascii()
    assert data.endswith(b"}\n")
    assert json_old.parse(data) == document
    assert list(json_.loads(data)) == ["b", "a", "n", "times"]
    assert b"    [1, 2, 3],\n" in data
    assert json_.loads(data) == document


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
        json_old.dumps(document)
    assert raised.value.code == "E_CANNOT_ENCODE"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\x1b\n\u202e\x7f", r'"a\u001b\n\u202e\u007f"'),
        ("x" * 100, '"' + "x" * 80 + '..."'),
        ("\U0001f600" * 80, '"' + r"\ud83d\ude00" * 20 + '..."'),
        (10**90, "1" + "0" * 79 + "..."),
        (True, "true"),
        (None, "null"),
        ([1, 2], "a list of 2"),
        ({"a": 1}, "an object of 1 fields"),
        (b"x", "a bytes"),
    ],
)
def test_shown_is_one_short_printable_line(value: object, text: str) -> None:
    assert quote(value) == text


@pytest.mark.parametrize("text", ["", ",", "a,b", '\\",', "\\\\", ',"'])
def test_commas_are_counted_between_values_alone(text: str) -> None:
    for entries in (1, 11, 12):
        data = json_.dumps([{"a": text}, *[text] * (entries - 1)]).encode()
        found = json_old.parse(data, max_commas=10)
        assert isinstance(found, Refusal) is (entries > 11)
        if isinstance(found, Refusal):
            assert found.code == "E_JSON_SIZE"
    assert not isinstance(json_old.parse(json_.dumps([text] * 99).encode()), Refusal)


HOSTILE: dict[str, dict[str, Any]] = {
    "environment": {"environment": {"OS": "linux", **{f"N{n}": "v" for n in range(60_000)}}},
    "model": {"model": {"path": "x", **{f"N{n}": "v" for n in range(60_000)}}},
    "unknown fields": {f"N{n}": "v" for n in range(60_000)},
    "figures": {"x": [1.25] * 150_000},
    "tests": {"test_results": [{"failed": 1, "total": 3}] * 2_000},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_receipt_of_more_values_than_can_be_looked_through_is_refused(name: str) -> None:
    data = json_.dumps(document(**HOSTILE[name])).encode()
    answer = verify_receipt(data)
    assert [refusal.code for refusal in answer.refusals] == ["E_JSON_SIZE"]


def test_ten_thousand_kernels_are_no_hostile_receipt() -> None:
    data = json_.dumps(document(kernels=[f"i2s_gemv_{n}" for n in range(10_000)])).encode()
    assert verify_receipt(data).ok
