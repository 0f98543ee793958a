"""Tensors have the same digest wherever their values come from, and digests a strict file."""

from __future__ import annotations

import array
import hashlib
import json
from typing import Any

import numpy as np
import pytest

from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.graph import tensors
from pytest_flamegate.graph.tensors import (
    DTYPES,
    Digests,
    Tensor,
    read_digests,
    read_tensor,
    trueno_checksum,
    write_digests,
)

ONES = np.arange(12, dtype=np.float32).reshape(3, 4)
LAYER: Any = np.int64(0)


class WithArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return ONES


class WithDlpack:
    def __dlpack__(self, **options: Any) -> Any:
        return ONES.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return ONES.__dlpack_device__()


class Raises:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        raise ZeroDivisionError("on the device")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], 0xCBF29CE484222325),
        ([1.0], 0x4B72477F9C5C2F98),
        ([1.0, 2.0, 3.0], 0x1DE40D89811FE258),
    ],
)
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "f8"])
def test_checksum_is_that_of_trueno(values: list[float], expected: int, dtype: str) -> None:
    assert trueno_checksum(np.array(values, dtype)) == expected


def test_checksum_covers_64_values_and_the_digest_all() -> None:
    values = np.ones(65, np.float32)
    changed = values.copy()
    changed[64] = 2
    assert trueno_checksum(values) == trueno_checksum(changed)
    assert read_tensor(values).sha256 != read_tensor(changed).sha256
    changed[63] = 2
    assert trueno_checksum(values) != trueno_checksum(changed)


@pytest.mark.parametrize(
    "same",
    [
        ONES,
        ONES.astype(">f4"),
        np.asfortranarray(ONES),
        np.repeat(ONES, 2, axis=1)[:, ::2],
        WithArray(),
        WithDlpack(),
        memoryview(ONES.tobytes()).cast("B").cast("f", (3, 4)),
    ],
    ids=["itself", "big-endian", "fortran", "strided", "__array__", "dlpack", "buffer"],
)
def test_digest_is_of_type_shape_and_bytes_whatever_their_source(same: Any) -> None:
    text = b"float32 [3, 4]\n" + ONES.tobytes()
    assert read_tensor(same).sha256 == hashlib.sha256(text).hexdigest()


def test_every_type_is_read() -> None:
    for name, size in DTYPES.items():
        if name != "bfloat16":
            tensor = read_tensor(np.zeros((2, 3), name))
            assert (tensor.dtype, tensor.shape, tensor.values.nbytes) == (name, (2, 3), 6 * size)


def test_empty_tensors_and_single_values_have_digests() -> None:
    some = (np.float32(1), np.ones(1, np.float32), np.zeros((0, 3)), np.zeros((3, 0)))
    found = [read_tensor(each).sha256 for each in some]
    assert len(set(found)) == 4
    assert read_tensor(array.array("f", [1.0])).sha256 == found[1]


@pytest.mark.parametrize(
    "value",
    [
        [1.0, 2.0],
        None,
        np.array(["a"]),
        np.array([{}]),
        np.array([(1, 2.0)], "i4,f4"),
        np.zeros(2, np.longdouble),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        Raises(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_other_values_raise(value: Any) -> None:
    with pytest.raises(UsageError, match="E_TENSOR"):
        read_tensor(value)


def test_integers_have_no_checksum() -> None:
    with pytest.raises(UsageError, match=r"E_TENSOR.*int32"):
        trueno_checksum(np.ones(3, np.int32))


def test_bfloat16_is_digested_by_its_bits() -> None:
    tensor = Tensor("bfloat16", (2,), np.array([0x3F80, 0x4000], "<u2"))
    assert trueno_checksum(tensor) == trueno_checksum(np.array([1.0, 2.0], np.float32))
    assert tensor.sha256 == hashlib.sha256(b"bfloat16 [2]\n\x80\x3f\x00\x40").hexdigest()


def test_tensors_of_torch_are_read() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ours = torch.from_numpy(ONES).clone().requires_grad_()
    assert read_tensor(ours).sha256 == read_tensor(ONES).sha256
    narrow = read_tensor(ours.to(torch.bfloat16))
    assert (narrow.dtype, narrow.shape) == ("bfloat16", (3, 4))
    assert trueno_checksum(narrow) == trueno_checksum(ONES)  # small whole numbers are exact


# --- the record and its file ---------------------------------------------------------------


def recorded(*, values_bytes: int = 0) -> Digests:
    found = Digests(values_bytes=values_bytes)
    found.record("Embedding", ONES, position=0)
    found.record("RmsNorm", 2 * ONES, layer=LAYER, position=0)
    found.record("tokens", np.array([1, 2], np.int64))
    return found


def test_digests_keep_the_order_of_recording() -> None:
    found = recorded().tensors
    assert list(map(str, found)) == [
        "Embedding, position 0",
        "RmsNorm, layer 0, position 0",
        "tokens",
    ]
    first, _, last = found.values()
    assert (first.dtype, first.shape, first.values) == ("float32", (3, 4), None)
    assert first.trueno is not None
    assert last.trueno is None


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
        {"name": "RmsNorm", "layer": 0, "position": 0},
    ],
    ids=str,
)
def test_invalid_or_repeated_key_raises(key: dict[str, Any]) -> None:
    found = recorded()
    with pytest.raises(UsageError, match="E_DIGEST_KEY"):
        found.record(array=ONES, **key)
    assert len(found.tensors) == 3


def test_tensors_and_values_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Digests(values_bytes=2 * ONES.nbytes)
    found.record("a", ONES)
    with pytest.raises(UsageError, match="E_DIGEST_KEY"):
        found.record("a", ONES)  # takes no room
    copied = ONES.copy()
    kept = found.record("b", copied)
    copied[:] = 5
    assert kept.values == ONES.tobytes()
    with pytest.raises(UsageError, match=r"E_DIGEST_LIMIT.*values"):
        found.record("c", ONES)
    monkeypatch.setattr(tensors, "MAX_TENSORS", 3)
    with pytest.raises(UsageError, match=r"E_DIGEST_LIMIT.*3 tensors"):
        recorded().record("d", ONES)


@pytest.mark.parametrize("values_bytes", [0, 1000])
def test_file_holds_the_record(values_bytes: int) -> None:
    found = recorded(values_bytes=values_bytes)
    data = write_digests(found)
    again = read_digests(data)
    assert list(again.tensors.items()) == list(found.tensors.items())
    assert write_digests(again) == data
    assert read_digests(write_digests(Digests())).tensors == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"key": {"name": ""}},
        {"key": {"name": "a", "layer": -1}},
        {"key": {"name": "RmsNorm", "layer": 0, "position": 0}},
        {"dtype": "float31"},
        {"sha256": "0" * 63},
        {"sha256": "0" * 64},
        {"trueno": 0},
        {"trueno": None},
        {"shape": [4, 4]},
        {"shape": [4, 3]},
        {"shape": [-1]},
        {"values": "AAAA"},
        {"more": 1},
    ],
    ids=str,
)
def test_invalid_tensor_in_a_file_raises(fields: dict[str, Any]) -> None:
    document = json.loads(write_digests(recorded(values_bytes=1000)))
    document["tensors"][0].update(fields)
    assert code_of(json.dumps(document).encode()) == "E_DIGESTS"


def test_size_of_a_file_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    # The documentation keeps 256 MiB; base64 makes four characters of three bytes.
    assert tensors.MAX_BYTES > (256 << 20) * 4 / 3 + 100_000 * 400
    data = write_digests(recorded())
    monkeypatch.setattr(tensors, "MAX_BYTES", 100)
    assert code_of(data) == "E_JSON_SIZE"
    with pytest.raises(UsageError, match=r"E_DIGEST_LIMIT.* 100 are read"):
        write_digests(recorded())


FILE = write_digests(recorded(values_bytes=1000))
"""For the fuzzer of parsers."""


def code_of(data: bytes) -> str:
    try:
        read_digests(data)
    except FlamegateError as error:
        return error.code
    return "read"
