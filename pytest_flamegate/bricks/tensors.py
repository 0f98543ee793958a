"""A tensor as bytes that are the same everywhere: its type, its shape, little-endian, C order.

No framework is imported here: arrays are taken by the protocols they offer.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_flamegate.bricks.fnv import fnv1a
from pytest_flamegate.errors import UsageError

_BYTES = {
    1: "bool int8 uint8",
    2: "int16 uint16 float16 bfloat16",
    4: "int32 uint32 float32",
    8: "int64 uint64 float64 complex64",
    16: "complex128",
}
DTYPES = {name: size for size, names in _BYTES.items() for name in names.split()}
"""The types of values that can be digested, with the bytes of each."""
TRUENO_VALUES = 64


class Tensor(NamedTuple):
    """``values`` are little-endian, in C order and flat; those of bfloat16 are its 16 bits."""

    dtype: str
    shape: tuple[int, ...]
    values: npt.NDArray[Any]

    @property
    def data(self) -> memoryview:
        """The bytes, without a copy."""
        return self.values.view(np.uint8).data

    @property
    def sha256(self) -> str:
        """The digest over type, shape and bytes."""
        return sha256_of(self.dtype, self.shape, self.data)


def sha256_of(dtype: str, shape: tuple[int, ...], data: bytes | memoryview) -> str:
    """Return the sha256 of a tensor: of ``float32 [2, 3]``, a line feed, and its bytes."""
    digest = hashlib.sha256(f"{dtype} {list(shape)}\n".encode())
    digest.update(data)
    return digest.hexdigest()


def tensor_of(value: Any) -> Tensor:
    """Return ``value`` as a ``Tensor``: an array of NumPy or torch, a buffer, DLPack.

    A tensor of torch is taken without its gradient, and copied from its device. ``UsageError``
    ``E_TENSOR`` for what is no tensor, or one of other types than those in ``DTYPES``.
    """
    try:
        dtype, array = _array(value)
    except Exception as error:
        # Whatever an object of another package raises when it is asked for its values.
        raise _refused(f"{type(value).__name__} cannot be read as an array ({error})") from error
    if isinstance(value, np.ma.MaskedArray):
        raise _refused("a masked array has values that count and values that do not")
    if array.dtype.itemsize != DTYPES.get(dtype):
        raise _refused(f"values of the type {dtype} have no one form in bytes")
    flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
    return Tensor(dtype, tuple(map(int, array.shape)), flat)


def decoded(dtype: str, data: bytes) -> npt.NDArray[Any]:
    """Return the flat values that ``data`` holds; bfloat16 as float32, which holds all of them."""
    if dtype == "bfloat16":
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32)
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))


def trueno_checksum(value: Any) -> int:
    """Return what trueno calls the checksum: FNV-1a over the first 64 values as float32.

    It tells nothing of what comes after them, and nothing of shape and type: it is here for
    comparison with that tool. ``UsageError`` ``E_TENSOR`` for values that are no real floats.
    """
    tensor = value if isinstance(value, Tensor) else tensor_of(value)
    if "float" not in tensor.dtype:
        raise _refused(f"the checksum is of floats, and these values are {tensor.dtype}")
    first = decoded(tensor.dtype, tensor.values[:TRUENO_VALUES].tobytes())
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite in it
        return fnv1a(first.astype("<f4").tobytes())


def _array(value: Any) -> tuple[str, npt.NDArray[Any]]:
    """Return the name of the type, and the values; bfloat16, which NumPy has not, as its bits."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            return "bfloat16", value.contiguous().view(torch.int16).numpy().view(np.uint16)
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
        array = np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        array = np.from_dlpack(value)
    else:
        array = np.asarray(memoryview(value))
    if array.dtype.name == "bfloat16":
        return "bfloat16", array.view(np.uint16)
    return array.dtype.name, array


def _refused(why: str) -> UsageError:
    return UsageError(
        "E_TENSOR",
        f"This is no tensor that can be digested: {why}.",
        "Give an array of whole numbers or floats of at most 64 bits, "
        "or convert it to float32 first.",
    )
