"""Recording digests, and their file: it comes back as it was, and anything else is an error."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.graph import tensors
from pytest_flamegate.graph.tensors import Digests, read_digests, write_digests

ONES = np.ones((2, 3), np.float32)
LAYER: Any = np.int64(0)


def recorded(*, values_bytes: int = 0) -> Digests:
    found = Digests(values_bytes=values_bytes)
    found.record("Embedding", ONES, position=0)
    found.record("RmsNorm", 2 * ONES, layer=LAYER, position=0)
    found.record("tokens", np.array([1, 2], np.int64))
    return found


def test_digests_keep_the_order_of_recording() -> None:
    found = recorded()
    assert [str(key) for key in found.keys] == [
        "Embedding, position 0",
        "RmsNorm, layer 0, position 0",
        "tokens",
    ]
    first, _, last = found
    assert (first.dtype, first.shape, first.values) == ("float32", (2, 3), None)
    assert first.trueno is not None
    assert last.trueno is None


def test_key_is_recorded_once() -> None:
    found = recorded()
    with pytest.raises(UsageError, match=r"E_DIGEST_KEY.*RmsNorm, layer 0, position 0"):
        found.record("RmsNorm", ONES, layer=0, position=0)
    assert len(found) == 3


@pytest.mark.parametrize(
    "key",
    [
        {"name": ""},
        {"name": "x" * 201},
        {"name": "\ud800"},
        {"name": 3},
        {"name": "a", "layer": -1},
        {"name": "a", "position": 1.0},
        {"name": "a", "position": 2**60},
    ],
    ids=str,
)
def test_invalid_key_raises(key: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as error:
        Digests().record(array=ONES, **key)
    assert error.value.code == "E_DIGEST_KEY"


def test_tensors_and_values_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Digests(values_bytes=30)
    found.record("a", ONES)
    with pytest.raises(UsageError, match=r"E_DIGEST_LIMIT.*values"):
        found.record("b", ONES)
    monkeypatch.setattr(tensors, "MAX_TENSORS", 2)
    two = Digests()
    two.record("a", ONES)
    two.record("b", ONES)
    with pytest.raises(UsageError, match=r"E_DIGEST_LIMIT.*2 tensors"):
        two.record("c", ONES)


def test_kept_values_are_a_copy() -> None:
    array = ONES.copy()
    found = Digests(values_bytes=100)
    kept = found.record("a", array)
    array[:] = 5
    assert kept.values == ONES.tobytes()


@pytest.mark.parametrize("values_bytes", [0, 1000])
def test_file_holds_the_record(values_bytes: int) -> None:
    found = recorded(values_bytes=values_bytes)
    data = write_digests(found)
    again = read_digests(data)
    assert tuple(again) == tuple(found)
    assert write_digests(again) == data
    assert write_digests(read_digests(write_digests(Digests()))) == write_digests(Digests())


def changed(**fields: Any) -> bytes:
    document = json.loads(write_digests(recorded(values_bytes=1000)))
    document["tensors"][0].update(fields)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"key": {"name": ""}},
        {"key": {"name": "a", "layer": True}},
        {"key": {"name": "a", "layer": -1}},
        {"key": {"name": "a", "position": 0.5}},
        {"key": ["a"]},
        {"dtype": "float31"},
        {"dtype": ["float32"]},
        {"sha256": "0" * 63},
        {"sha256": "0" * 64},
        {"trueno": 0},
        {"trueno": None},
        {"shape": [3, 3]},
        {"shape": [3, 2]},
        {"shape": [-1]},
        {"shape": [1] * 65},
        {"values": "AAA"},
        {"values": "AAAA"},
        {"values": 7},
        {"values": "é"},
        {"more": 1},
    ],
    ids=str,
)
def test_invalid_tensor_raises(fields: dict[str, Any]) -> None:
    assert code_of(changed(**fields)) == "E_DIGESTS"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "E_JSON_SYNTAX"),
        (b"[" * 100_000, "E_JSON_DEPTH"),
        (
            b'{"schema_version":"2.0.0","schema_version":"2.0.0","tensors":[]}',
            "E_JSON_DUPLICATE_KEY",
        ),
        (b"[]", "E_DIGESTS"),
        (b'{"schema_version":"1.0.0","tensors":[]}', "E_DIGESTS"),
        (b'{"schema_version":"2.0.0","tensors":{}}', "E_DIGESTS"),
        (b'{"schema_version":"2.0.0","tensors":[{}]}', "E_DIGESTS"),
    ],
)
def test_malformed_file_raises(data: bytes, code: str) -> None:
    assert code_of(data) == code


def test_size_of_a_file_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_digests(recorded())
    monkeypatch.setattr(tensors, "MAX_BYTES", 100)
    assert code_of(data) == "E_JSON_SIZE"
    with pytest.raises(UsageError, match=r"E_DIGEST_LIMIT.* 100 are read"):
        write_digests(recorded())


def test_file_has_room_for_256_mib_of_values() -> None:
    """The documentation keeps as many; base64 makes four characters of three bytes."""
    assert tensors.MAX_BYTES > (256 << 20) * 4 / 3 + 100_000 * 400


def test_rejected_tensor_takes_no_room() -> None:
    one, other = np.ones(4, np.float32), np.zeros(4, np.float32)
    digests = Digests(values_bytes=one.nbytes + other.nbytes)
    digests.record("a", one)
    with pytest.raises(UsageError, match="E_DIGEST_KEY"):
        digests.record("a", other)
    assert digests.record("b", other).values == bytes(16)


def test_key_that_is_twice_in_a_file_raises() -> None:
    document = json.loads(write_digests(recorded()))
    document["tensors"].append(document["tensors"][0])
    assert code_of(json.dumps(document).encode()) == "E_DIGESTS"


FILE = write_digests(recorded(values_bytes=1000))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    start=st.integers(0, len(FILE)),
    length=st.integers(0, 60),
    new=st.one_of(st.binary(max_size=12), st.sampled_from([b"NaN", b"null", b"-1", b"[]", b'"'])),
)
def test_any_change_is_read_or_raises(start: int, length: int, new: bytes) -> None:
    assert re.fullmatch(
        r"read|E_DIGESTS|E_JSON_[A-Z_]+", code_of(FILE[:start] + new + FILE[start + length :])
    )


def code_of(data: bytes) -> str:
    try:
        read_digests(data)
    except FlamegateError as refused:
        return refused.code
    return "read"
