"""The recorder of digests, and its file: strict, bounded, and the same both ways."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.core.errors import FlamegateError, ReceiptError, UsageError
from pytest_flamegate.graph import tensors
from pytest_flamegate.graph.tensors import Digests, Key, read_digests, write_digests

ONES = np.ones((2, 3), np.float32)


def int_of_numpy(number: int) -> Any:
    return np.int64(number)


def recorded(*, values_bytes: int = 0) -> Digests:
    found = Digests(values_bytes=values_bytes)
    found.record("Embedding", ONES, position=0)
    found.record("RmsNorm", 2 * ONES, layer=int_of_numpy(0), position=0)
    found.record("tokens", np.array([1, 2], np.int64))
    return found


def test_digests_stand_in_the_order_of_recording() -> None:
    found = recorded()
    assert found.keys == (Key("Embedding", None, 0), Key("RmsNorm", 0, 0), Key("tokens"))
    first, _, last = found
    assert (first.dtype, first.shape, first.values) == ("float32", (2, 3), None)
    assert first.trueno is not None
    assert last.trueno is None
    assert str(found.keys[1]) == "RmsNorm, layer 0, position 0"


def test_a_key_is_recorded_once() -> None:
    found = recorded()
    with pytest.raises(UsageError, match=r"E_DIGEST_DUPLICATE.*RmsNorm, layer 0, position 0"):
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
        {"name": "a", "layer": True},
        {"name": "a", "position": 1.0},
        {"name": "a", "position": 2**60},
    ],
    ids=str,
)
def test_a_key_that_is_none_is_refused(key: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        Digests().record(array=ONES, **key)
    assert caught.value.code == "E_DIGEST_KEY"


def test_no_more_is_kept_than_was_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_values_are_kept_as_they_were_when_recorded() -> None:
    array = ONES.copy()
    found = Digests(values_bytes=100)
    kept = found.record("a", array)
    array[:] = 5
    assert kept.values == ONES.tobytes()


@pytest.mark.parametrize("values_bytes", [0, 1000])
def test_a_file_holds_what_was_recorded(values_bytes: int) -> None:
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
    ("data", "words"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "nested|no JSON"),
        (b"[]", "schema_version"),
        (b'{"schema_version":"1.0.0","schema_version":"1.0.0","tensors":[]}', "one name"),
        (b'{"schema_version":"2.0.0","tensors":[]}', "is not 1.0.0"),
        (b'{"schema_version":"1.0.0","tensors":{}}', "no list"),
        (b'{"schema_version":"1.0.0","tensors":[{}]}', "not just the fields"),
        (b'{"schema_version":"1.0.0","tensors":[NaN]}', "NaN"),
        (b'{"schema_version":"1.0.0","tensors":[%s]}' % (b"9" * 100), "characters"),
        (changed(name=""), "its name"),
        (changed(layer=True), "layer"),
        (changed(layer=-1), "layer"),
        (changed(position=0.5), "position"),
        (changed(dtype="float31"), "not known"),
        (changed(dtype=["float32"]), "not known"),
        (changed(sha256="0" * 63), "sha256"),
        (changed(sha256="0" * 64), "other values than its digest"),
        (changed(trueno="0x" + "0" * 16), "checksum of trueno"),
        (changed(trueno=None), "checksum of trueno"),
        (changed(shape=[3, 3]), "as many values"),
        (changed(shape=[3, 2]), "other values than its digest"),
        (changed(shape=[-1]), "no length"),
        (changed(shape=[1] * 65), "shape is no list"),
        (changed(values="AAA"), "base64"),
        (changed(values=7), "base64"),
        (changed(values="é"), "base64"),
        (changed(more=1), "not just the fields"),
    ],
)
def test_a_malformed_file_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ReceiptError, match=words) as caught:
        read_digests(data)
    assert caught.value.code == "E_DIGESTS"


def test_a_file_is_no_larger_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_digests(recorded())
    monkeypatch.setattr(tensors, "MAX_BYTES", 100)
    with pytest.raises(ReceiptError, match=r"E_DIGESTS.*100 bytes"):
        read_digests(data)
    with pytest.raises(UsageError, match=r"E_DIGEST_LIMIT.* 100 are read"):
        write_digests(recorded())


def test_a_file_holds_all_the_values_that_the_documentation_keeps() -> None:
    """Base64 makes four characters of three bytes, and each tensor has a line of its own."""
    assert tensors.MAX_BYTES > (256 << 20) * 4 / 3 + 100_000 * 400


def test_a_tensor_that_is_refused_takes_none_of_the_room_for_values() -> None:
    one, other = np.ones(4, np.float32), np.zeros(4, np.float32)
    digests = Digests(values_bytes=one.nbytes + other.nbytes)
    digests.record("a", one)
    with pytest.raises(UsageError, match="E_DIGEST_DUPLICATE"):
        digests.record("a", other)
    assert digests.record("b", other).values == bytes(16)


def test_a_key_that_stands_in_a_file_twice_is_refused() -> None:
    document = json.loads(write_digests(recorded()))
    document["tensors"].append(document["tensors"][0])
    with pytest.raises(UsageError, match="E_DIGEST_DUPLICATE"):
        read_digests(json.dumps(document).encode())


FILE = write_digests(recorded(values_bytes=1000))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    start=st.integers(0, len(FILE)),
    length=st.integers(0, 60),
    new=st.one_of(st.binary(max_size=12), st.sampled_from([b"NaN", b"null", b"-1", b"[]", b'"'])),
)
def test_any_file_is_read_or_refused(start: int, length: int, new: bytes) -> None:
    assert re.fullmatch(
        r"read|E_DIGESTS|E_DIGEST_DUPLICATE", code_of(FILE[:start] + new + FILE[start + length :])
    )


def code_of(data: bytes) -> str:
    try:
        read_digests(data)
    except FlamegateError as refused:
        return refused.code
    return "read"
