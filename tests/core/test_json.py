"""Strict JSON: one document with one meaning, typed values, and errors that name the place."""

import json
import math
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import (
    Count,
    NonEmpty,
    Sha256,
    Timestamp,
    decode_json,
    decode_plain,
    encode_json,
    encode_plain,
    parse_timestamp,
)
from pytest_flamegate.core.json_parser import (
    MAX_DEPTH,
    MIB,
    SMALL_LIMITS,
    Limits,
    find_number,
    parse_json,
)
from tests.made import bundle


def nested(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * levels + closing * levels


def error_of(data: bytes, limits: Limits = SMALL_LIMITS) -> ReceiptError:
    with pytest.raises(ReceiptError) as raised:
        parse_json(data, limits, subject="The file")
    error = raised.value
    assert error.problem.startswith("The file ")
    assert error.problem.isascii()
    assert error.problem.isprintable()
    assert len(error.problem) < 350
    return error


REJECTED: dict[str, tuple[bytes, str, str]] = {
    "nothing": (b"", "E_JSON_SYNTAX", ""),
    "two documents": (b"{} {}", "E_JSON_SYNTAX", ""),
    "a trailing comma": (b'{"a": 1,}', "E_JSON_SYNTAX", "line 1, column "),
    "a line break in a string": (b'{"a": "\n"}', "E_JSON_SYNTAX", ""),
    "a leading zero": (b"[01]", "E_JSON_SYNTAX", ""),
    "an escape with a sign": (rb'"\u+041"', "E_JSON_SYNTAX", ""),
    "an escaped end": (b'"' + b"\\" * 9_999 + b'"', "E_JSON_SYNTAX", ""),
    "a zero byte after the end": (b"{}\x00", "E_JSON_SYNTAX", ""),
    "digits that are not ASCII": ("[١٢]".encode(), "E_JSON_SYNTAX", ""),
    "a string without an end": (b'"' + b"x" * 99_999, "E_JSON_SYNTAX", ""),
    "a byte order mark": (b"\xef\xbb\xbf{}", "E_JSON_ENCODING", ""),
    "Latin-1": (b'{"a": "\xff"}', "E_JSON_ENCODING", "byte 7 cannot be decoded"),
    "a surrogate in UTF-8": (b'{"a": "\xed\xa0\x80"}', "E_JSON_ENCODING", ""),
    "half a pair": (rb'{"a": "\ud800"}', "E_JSON_ENCODING", r"\ud800"),
    "a pair in two strings": (rb'["\ud83d", "\ude00"]', "E_JSON_ENCODING", ""),
    "a pair the wrong way round": (rb'[{"a": ["x", "\udc00\ud800"]}]', "E_JSON_ENCODING", ""),
    "a key twice": (b'{"a": 1, "a": 2}', "E_JSON_DUPLICATE_KEY", '"a"'),
    "once escaped": (rb'{"x": [{"a": 1, "\u0061": 1}]}', "E_JSON_DUPLICATE_KEY", '"a"'),
    "with a quote": (rb'{"a\"": 1, "a\"": 2}', "E_JSON_DUPLICATE_KEY", ""),
    "with a colon": (rb'{"a\":": 1, "a\":": 2}', "E_JSON_DUPLICATE_KEY", ""),
    "a long key": (b'{"%b": 1, "%b": 2}' % ((b"k" * 9999,) * 2), "E_JSON_DUPLICATE_KEY", ""),
    "NaN": (b"NaN", "E_JSON_NUMBER", "NaN"),
    "minus infinity": (b"[-Infinity]", "E_JSON_NUMBER", ""),
    "a float out of range": (b"[1e999]", "E_JSON_NUMBER", '"1e999"'),
    "65 digits": (b"[" + b"9" * 65 + b"]", "E_JSON_NUMBER", ""),
    "65 characters of a float": (b"[0." + b"3" * 63 + b"]", "E_JSON_NUMBER", ""),
    "a million digits": (b"9" * 999_999, "E_JSON_NUMBER", "999,999 characters; at most 64"),
    "65 lists": (nested(65), "E_JSON_DEPTH", "64 levels"),
    "65 objects": (nested(65, b'{"a":', b"}").replace(b":}", b":1}"), "E_JSON_DEPTH", ""),
    "200,000 lists": (nested(200_000), "E_JSON_DEPTH", ""),
    "large": (b'"' + b"x" * MIB + b'"', "E_JSON_SIZE", "1,048,578 bytes; at most 1,048,576"),
}
ACCEPTED: dict[str, tuple[bytes, Any]] = {
    "a scalar": (b" 1 \n", 1),
    "minus zero": (b"[-0, -0.0]", [0, -0.0]),
    "a number too small": (b"[1e-400, 1e-999999999]", [0.0, 0.0]),
    "an order mark inside": ('["\ufeff"]'.encode(), ["\ufeff"]),
    "a pair": (rb'"\ud83d\ude00"', "\U0001f600"),
    "an escaped backslash": (rb'"\\ud800"', "\\ud800"),
    "an escaped zero": (rb'{"\u0000": "\u0000"}', {"\0": "\0"}),
    "64 digits": (b"[" + b"9" * 64 + b"]", [10**64 - 1]),
    "64 characters of a float": (b"[0." + b"3" * 62 + b"]", [1 / 3]),
    "an integer beyond 64 bits": (b"[18446744073709551617]", [2**64 + 1]),
    "digits in a string": (b'["' + b"9" * 5000 + b'"]', ["9" * 5000]),
    "one key in two objects": (b'{"a": {"a": 1}}', {"a": {"a": 1}}),
    "keys that look like two": (rb'{"a": 1, "a\"": 2, "\":": 3}', {"a": 1, 'a"': 2, '":': 3}),
    "brackets in strings": (b'["' + b"[" * 99 + b'", "{"]', ["[" * 99, "{"]),
}


@pytest.mark.parametrize("digits", [0, 640])
@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str, digits: int) -> None:
    """Python's own limit on the digits of integers changes nothing."""
    data, code, words = REJECTED[name]
    allowed = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(digits)
    try:
        error = error_of(data)
    finally:
        sys.set_int_max_str_digits(allowed)
    assert error.code == code
    assert words in error.problem


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    data, document = ACCEPTED[name]
    found = parse_json(data)
    assert found == document
    assert repr(found) == repr(document)  # types, and the sign of zero


def test_the_key_that_has_two_values_is_named_among_many() -> None:
    keys = ",".join(f'"{number:x}":1' for number in range(50_000))
    assert '"c34f"' in error_of(f'{{{keys},"c34f":1}}'.encode()).problem


def test_depth_does_not_depend_on_the_stack_that_is_left() -> None:
    def below(levels: int) -> None:
        if levels:
            below(levels - 1)
        else:
            assert error_of(nested(900)).code == "E_JSON_DEPTH"
            assert parse_json(nested(64))

    below(sys.getrecursionlimit() // 2)


def random_document(source: random.Random, levels: int) -> object:
    if levels == 0 or source.random() < 0.2:
        return source.choice(
            [1, -2.5, "", "a", "[", "]]", '"', "\\", '[\\"', '":', ",", "{}", None]
        )
    if source.random() < 0.5:
        return [random_document(source, levels - 1) for _ in range(source.randrange(4))]
    keys = [source.choice('ab[]:,"\\') for _ in range(source.randrange(4))]
    return {key: random_document(source, levels - 1) for key in keys}


def sizes(document: object) -> tuple[int, int, int]:
    """Return depth, containers and commas of a document."""
    if not isinstance(document, (dict, list)):
        return 0, 0, 0
    inner = [sizes(v) for v in (document.values() if isinstance(document, dict) else document)]
    return (
        1 + max((depth for depth, _, _ in inner), default=0),
        1 + sum(containers for _, containers, _ in inner),
        max(len(inner) - 1, 0) + sum(commas for _, _, commas in inner),
    )


def test_limits_count_what_stands_outside_of_strings() -> None:
    source = random.Random(5)
    for _ in range(2000):
        document = random_document(source, source.randrange(7))
        for _ in range(MAX_DEPTH - sizes(document)[0]):
            document = [document]
        data = json.dumps(document, ensure_ascii=source.random() < 0.5).encode()
        _, containers, commas = sizes(document)
        assert parse_json(data, Limits(len(data), containers, commas)) == document
        for limits in (
            Limits(len(data) - 1),
            Limits(len(data), max_containers=containers - 1),
            Limits(len(data), max_commas=commas - 1),
        ):
            assert error_of(data, limits).code == "E_JSON_SIZE"
        for most in (None, containers):
            assert error_of(b"[%b]" % data, Limits(len(data) + 2, most)).code == "E_JSON_DEPTH"


@dataclass(frozen=True, slots=True)
class Leaf:
    name: NonEmpty
    count: Count = 1


@dataclass(frozen=True, slots=True)
class Twig(Leaf):
    length_mm: float = 2.0


@dataclass(frozen=True, slots=True)
class Tree:
    mode: Literal["a", "b"]
    share: float
    flag: bool
    leaf: Leaf | None
    leaves: tuple[Leaf, ...]
    nested: tuple[tuple[int, ...], ...]
    table: Mapping[str, str | int]
    anything: object
    tags: Annotated[tuple[str, ...], Meta(max_length=3)] = ()
    table_of_leaves: Mapping[str, Leaf] = field(default_factory=lambda: MappingProxyType({}))
    pair: tuple[str, float] = ("x", 1.0)
    digest: Sha256 | None = None
    created: Timestamp = "2025-10-13T12:00:00Z"
    keyed: Mapping[Annotated[str, Meta(max_length=2)], int] = field(default_factory=dict)
    schema_version: Literal["1.0.0"] = "1.0.0"

    def __post_init__(self) -> None:
        if self.share > 1:
            raise ValueError("share is no more than 1")


TREE = Tree(
    mode="a",
    share=0.5,
    flag=True,
    leaf=None,
    leaves=(Leaf("x"), Leaf("y", 2)),
    nested=((1, 2), ()),
    table={"b": 1, "a": "x"},
    anything={"list": [1, "two", None]},
    table_of_leaves=MappingProxyType({"l": Leaf("z")}),
)


def test_typed_objects_survive_encoding() -> None:
    plain = encode_plain(TREE)
    assert decode_plain(plain, Tree) == TREE
    assert (list(plain)[:4], list(plain["table"])) == (
        ["mode", "share", "flag", "leaf"],
        ["a", "b"],
    )
    assert decode_json(encode_json(TREE), Tree, versioned=True) == TREE
    assert decode_plain(encode_plain(Twig("x", 3, 4.5)), Twig) == Twig("x", 3, 4.5)
    assert decode_plain([[1], [2, 3]], tuple[tuple[int, ...], ...]) == ((1,), (2, 3))
    # Defaults fill in, unknown fields are ignored, and a whole number is a float too.
    assert decode_plain({"name": "x", "later": {"version": 2}}, Leaf) == Leaf("x", 1)
    assert type(decode_plain({**plain, "share": 1}, Tree).share) is float


WRONG: list[tuple[str, object, str]] = [
    ("mode", "c", 'mode|"a" or "b"|"c"'),
    ("share", True, "share|a number|true"),
    ("flag", 1, "flag|true or false|1"),
    ("leaf", [], "leaf|an object or null|a list of 0"),
    ("leaf", {"name": ""}, 'leaf.name|a string of length >= 1|""'),
    ("leaves", {}, "leaves|a list|an object of 0 fields"),
    ("leaves", [{"name": "x"}, {"name": "y", "count": 1.0}], "leaves[1].count|an integer|1.0"),
    ("leaves", [{"name": "x", "count": -1}], "leaves[0].count|an integer >= 0|-1"),
    ("nested", [[1], [2, True]], "nested[1][1]|an integer|true"),
    ("table", {"b": 1, "a": None}, "table.a|an integer or a string|null"),
    ("tags", ["x", 1], "tags[1]|a string|1"),
    ("tags", ["x"] * 4, "tags|a list of length <= 3|a list of 4"),
    ("table_of_leaves", {"l": {"name": 1}}, "table_of_leaves.l.name|a string|1"),
    ("pair", ["x"], "pair|a list of length 2|a list of 1"),
    ("pair", ["x", "y"], 'pair[1]|a number|"y"'),
    ("digest", "ABC", 'digest|64 lower-case hexadecimal digits|"ABC"'),
    ("created", "2025", 'created|an RFC 3339 timestamp with an offset|"2025"'),
    ("keyed", {"ab": 1, "abc": 1}, 'a key of keyed|a string of length <= 2|"abc"'),
    ("schema_version", "2.0.0", 'schema_version|"1.0.0"|"2.0.0"'),
]


@pytest.mark.parametrize(("name", "value", "words"), WRONG, ids=[f"{w[0]}-{w[1]}" for w in WRONG])
def test_a_wrong_value_is_named_with_its_path_and_what_is_expected(
    name: str, value: object, words: str
) -> None:
    place, expected, found = words.split("|")
    with pytest.raises(ReceiptError) as raised:
        decode_plain({**encode_plain(TREE), name: value}, Tree, subject="The tree")
    problem = f'The tree is malformed: "{place}" must be {expected}, and is {found}.'
    assert (raised.value.code, raised.value.problem) == ("E_WRONG_TYPE", problem)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("share", 2.0, "it is not accepted: share is no more than 1"),
        ("share", 10**400, '"share" is not accepted: Number out of range'),
        ("leaf", {}, '"leaf.name" is missing'),
        ("leaves", [{"name": "x"}, {"count": 1}], '"leaves[1].name" is missing'),
        ("table_of_leaves", {"k": {}}, '"table_of_leaves.k.name" is missing'),
        ("table_of_leaves", {"\u202e\n": 1}, ""),
    ],
)
def test_other_malformed_values(name: str, value: object, problem: str) -> None:
    with pytest.raises(ReceiptError, match="E_WRONG_TYPE") as raised:
        decode_plain({**encode_plain(TREE), name: value}, Tree)
    assert problem in raised.value.problem
    assert raised.value.problem.isascii()
    assert raised.value.problem.isprintable()


def test_a_code_of_its_own_and_a_version_that_must_be_stated() -> None:
    for document in ({}, {"name": 1}):
        with pytest.raises(ReceiptError, match="E_LEAF"):
            decode_plain(document, Leaf, code="E_LEAF")
    plain = encode_plain(TREE)
    del plain["schema_version"]
    assert decode_plain(plain, Tree) == TREE
    with pytest.raises(ReceiptError, match='"schema_version" is missing'):
        decode_plain(plain, Tree, versioned=True)


def test_encoding_is_stable_ascii_and_reads_back() -> None:
    document: dict[str, Any] = {
        "b": "é\u202e\n\U0001f600",
        "a": [1.0, 0.1, 1e-300, -0.0, 2**60],
        "n": {"x": None, "y": [], "z": {}},
        "times": [[1, 2, 3], [4, 5, 6]],
        "leaves": (Leaf("x"),),
    }
    data = encode_json(document)
    assert data == encode_json(document)
    assert data.isascii()
    assert data.endswith(b"}\n")
    assert parse_json(data) == {**document, "leaves": [{"name": "x", "count": 1}]}
    assert list(json.loads(data)) == ["b", "a", "n", "times", "leaves"]
    assert b"    [1, 2, 3],\n" in data
    assert b'"a": [1.0, 0.1, 1e-300, -0.0, 1152921504606846976],\n' in data


@pytest.mark.parametrize(
    "document",
    [[math.nan], {"a": math.inf}, "\ud800", {"\udc00": 1}, [["\ud800"]], {1: 2}, [object()]],
    ids=range(7),
)
def test_encoding_rejects_what_parsing_would(document: object) -> None:
    with pytest.raises(ReceiptError) as raised:
        encode_json(document)
    assert raised.value.code == "E_CANNOT_ENCODE"


MOMENTS = (
    "2025-10-13T12:00:00Z",
    "2025-10-15T19:41:18.920441642+00:00",
    "2025-10-13t12:00:00.1-23:59",
    "2024-02-29T23:59:59z",
    f"2025-10-13T12:00:00.{'1' * 43}Z",
)
NO_MOMENTS = (
    *("0000-01-01T00:00:00Z", "2025-10-13T24:00:00Z", "2025-10-13T12:60:00Z"),
    *("2025-10-13T12:00:60Z", "2025-10-13T12:00:00+24:00", "2025-10-13T12:00:00+10:60"),
    *("2025-10-13T12:00:00", "2025-10-13", "2025-10-13 12:00:00Z", "2025-10-13T12:00:00.Z"),
    *("2025-10-13T12:00:00,5Z", "2025-10-13T12:00:00Z\n", " 2025-10-13T12:00:00Z", ""),
    *("٢٠٢٥-10-13T12:00:00Z", f"2025-10-13T12:00:00.{'1' * 44}Z"),
)


def is_timestamp(text: str) -> bool:
    try:
        parse_timestamp(text)
    except ValueError:
        with pytest.raises(ReceiptError, match="E_WRONG_TYPE"):
            decode_plain(text, Timestamp)
        return False
    return decode_plain(text, Timestamp) == text


def test_timestamps() -> None:
    assert all(map(is_timestamp, MOMENTS))
    assert not any(map(is_timestamp, NO_MOMENTS))
    one, other = map(parse_timestamp, ("2025-10-13t12:00:00.5z", "2025-10-13T14:00:00.5+02:00"))
    assert one == other
    assert one.microsecond == 500_000


def test_every_day_is_a_timestamp_and_no_other() -> None:
    days = [f"{month:02}-{day:02}" for month in range(14) for day in range(33)]
    for year, count in ((1, 365), (4, 366), (1900, 365), (2000, 366), (2023, 365), (9999, 365)):
        assert sum(is_timestamp(f"{year:04}-{day}T00:00:00Z") for day in days) == count


FIRST_MEETING = """
import sys, threading
from dataclasses import make_dataclass
from pytest_flamegate.core.json import decode_plain

sys.setswitchinterval(1e-6)
for number in range(100):
    fields = [(f"f{each}", int) for each in range(8)]
    inner = [make_dataclass(f"Inner{number}_{each}", fields) for each in range(6)]
    outer = make_dataclass(f"Outer{number}", [(f"x{at}", each) for at, each in enumerate(inner)])
    document = {f"x{at}": {name: 1 for name, _ in fields} for at in range(6)}
    threads = [threading.Thread(target=decode_plain, args=(document, outer)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
"""


FIRST_RECEIPTS = """
import sys, threading
from pytest_flamegate.receipt import verify_receipt

sys.setswitchinterval(1e-6)
begin = threading.Barrier(6)

def verify():
    begin.wait()
    assert verify_receipt(sys.argv[1]).ok

for each in [threading.Thread(target=verify) for _ in range(6)]:
    each.start()
"""


def test_threads_that_meet_a_type_for_the_first_time_do_not_crash(tmp_path: Path) -> None:
    for name, data in bundle().sealed().files.items():
        (tmp_path / name).write_bytes(data)
    receipt = str(tmp_path / "receipt.json")
    for script in (FIRST_MEETING, *[FIRST_RECEIPTS] * 3):
        argv = [sys.executable, "-c", script, receipt]
        done = subprocess.run(argv, check=False, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")


def test_the_first_finite_number_is_found_among_other_values() -> None:
    fields = {"text": "1", "flag": True, "endless": math.inf, "huge": 10**400, "n": -2}
    assert find_number(fields, "absent", *fields) == -2.0
    assert find_number(fields, "flag", "huge") is None
