"""Tensors have the same digest wherever their values come from."""

from __future__ import annotations

import array
import hashlib
from typing import Any

import numpy as np
import pytest

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.graph.tensors import DTYPES, Tensor, read_tensor, trueno_checksum

ONES = np.arange(12, dtype=np.float32).reshape(3, 4)


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
    ids=["none", "one", "three"],
)
def test_checksum_is_that_of_trueno(values: list[float], expected: int) -> None:
    assert trueno_checksum(np.array(values, np.float32)) == expected
    assert trueno_checksum(np.array(values, ">f4")) == expected
    assert trueno_checksum(np.array(values, np.float64)) == expected


def test_checksum_covers_64_values() -> None:
    values = np.ones(65, np.float32)
    changed = values.copy()
    changed[64] = 2
    assert trueno_checksum(values) == trueno_checksum(changed) == trueno_checksum(values[:64])
    assert read_tensor(values).sha256 != read_tensor(changed).sha256
    changed[63] = 2
    assert trueno_checksum(values) != trueno_checksum(changed)


def test_digest_covers_type_shape_and_bytes() -> None:
    text = b"float32 [3, 4]\n" + ONES.tobytes()
    assert read_tensor(ONES).sha256 == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    "same",
    [
        ONES.astype(">f4"),
        np.asfortranarray(ONES),
        np.repeat(ONES, 2, axis=1)[:, ::2],
        WithArray(),
        WithDlpack(),
        memoryview(ONES.tobytes()).cast("B").cast("f", (3, 4)),
    ],
    ids=["big-endian", "fortran", "strided", "__array__", "dlpack", "buffer"],
)
def test_source_of_values_makes_no_difference(same: Any) -> None:
    assert read_tensor(same).sha256 == read_tensor(ONES).sha256


@pytest.mark.parametrize(
    "other",
    [
        ONES.astype(np.float64),
        ONES.reshape(4, 3),
        ONES.reshape(12),
        ONES.view(np.int32),
        -ONES,
    ],
    ids=["type", "shape", "flat", "read as another type", "sign of zero"],
)
def test_different_tensors_have_different_digests(other: Any) -> None:
    assert read_tensor(other).sha256 != read_tensor(ONES).sha256


def test_every_type_is_read() -> None:
    for name, size in DTYPES.items():
        if name != "bfloat16":
            tensor = read_tensor(np.zeros((2, 3), name))
            assert (tensor.dtype, tensor.shape, tensor.values.nbytes) == (name, (2, 3), 6 * size)


def test_empty_tensors_and_single_values_have_digests() -> None:
    found = [
        read_tensor(each).sha256
        for each in (np.float32(1), np.ones(1, np.float32), np.zeros((0, 3)), np.zeros((3, 0)))
    ]
    assert len(set(found)) == 4
    assert read_tensor(array.array("f", [1.0])).sha256 == found[1]


@pytest.mark.parametrize(
    "value",
    [
        [1.0, 2.0],
        3.0,
        "text",
        None,
        np.array(["a"]),
        np.array([{}]),
        np.array([(1, 2.0)], "i4,f4"),
        np.array(["2020"], "M8[s]"),
        np.zeros(2, np.longdouble),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        Raises(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_other_values_raise(value: Any) -> None:
    with pytest.raises(UsageError) as error:
        read_tensor(value)
    assert error.value.code == "E_TENSOR"


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
