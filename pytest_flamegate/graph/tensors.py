"""Digests of the tensors that an engine computes, and the first tensor in which two runs differ.

Record each result under its name, layer and position; write the digests of a run to a file; and
compare two runs, by bytes or within a tolerance::

    digests = Digests()
    digests.record("RmsNorm", h, layer=3, position=0)
    print(sentence(divergence(digests, read_digests(Path("before.json").read_bytes()))))
"""

from __future__ import annotations

import hashlib
import math
import operator
import sys
import threading
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_flamegate.core.errors import ReceiptError, UsageError
from pytest_flamegate.core.json import Limits, Sha256, decode_json
from pytest_flamegate.core.text import escape_name

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
MAX_TENSORS = 200_000
MAX_NAME_CHARACTERS = 200
MAX_BYTES = 512 << 20
"""Limit for a file: base64 makes 342 MiB of 256 MiB of values."""

Values = npt.NDArray[Any]


class Tensor(NamedTuple):
    """``values`` are flat, little-endian and in C order; those of bfloat16 are its 16 bits."""

    dtype: str
    shape: tuple[int, ...]
    values: Values

    @property
    def sha256(self) -> str:
        """The digest of type, shape and bytes: of ``float32 [2, 3]``, a line feed, the bytes."""
        digest = hashlib.sha256(f"{self.dtype} {list(self.shape)}\n".encode())
        digest.update(self.values.view(np.uint8).data)
        return digest.hexdigest()

    @property
    def numbers(self) -> Values:
        """The values as numbers: bfloat16 as float32, which holds all of them."""
        if self.dtype == "bfloat16":
            return (self.values.astype(np.uint32) << 16).view(np.float32)
        return self.values


def read_tensor(value: Any) -> Tensor:
    """Return an array of NumPy or torch, a buffer or a DLPack object as a ``Tensor``.

    A tensor of torch is taken without its gradient and copied from its device.

    Raises:
        UsageError: ``E_TENSOR`` if ``value`` is no tensor, or not of a type in ``DTYPES``.
    """
    try:
        dtype, array = _read_array(value)
    except Exception as error:
        # Whatever an object of another package raises when it is asked for its values.
        raise _tensor_error(f"{type(value).__name__} is not an array ({error})") from error
    if isinstance(value, np.ma.MaskedArray):
        raise _tensor_error("some values of a masked array do not count")
    if array.dtype.itemsize != DTYPES.get(dtype):
        raise _tensor_error(f"values of the type {dtype} have more than one form in bytes")
    flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
    return Tensor(dtype, tuple(map(int, array.shape)), flat)


def _read_array(value: Any) -> tuple[str, Values]:
    """Return the type's name and the array; NumPy has no bfloat16, so that comes as its bits."""
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


def _tensor_error(why: str) -> UsageError:
    return UsageError(
        "E_TENSOR",
        f"This is no tensor that can be digested: {why}.",
        "Pass an array of integers or floats of at most 64 bits, or convert it to float32 first.",
    )


def trueno_checksum(value: Any) -> int:
    """Return trueno's checksum: FNV-1a over the first 64 values as float32.

    It says nothing about the values after them, shape or type, and is here for comparison with
    that tool. Raises ``UsageError`` ``E_TENSOR`` if the values are no floats.
    """
    tensor = value if isinstance(value, Tensor) else read_tensor(value)
    if "float" not in tensor.dtype:
        raise _tensor_error(f"the checksum is of floats, and these values are {tensor.dtype}")
    first = tensor._replace(values=tensor.values[:TRUENO_VALUES]).numbers
    with np.errstate(over="ignore"):  # values beyond float32 become infinite
        data = first.astype("<f4").tobytes()
    checksum = 0xCBF29CE484222325
    for byte in data:
        checksum = ((checksum ^ byte) * 0x100000001B3) & (1 << 64) - 1
    return checksum


Index = Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]


class TensorKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of the code that computed a tensor, its layer and its position in the sequence."""

    name: Name
    layer: Index = None
    position: Index = None

    def __str__(self) -> str:
        parts = [escape_name(self.name, MAX_NAME_CHARACTERS)]
        if self.layer is not None:
            parts.append(f"layer {self.layer}")
        if self.position is not None:
            parts.append(f"position {self.position}")
        return ", ".join(parts)


class TensorDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor of a run, in memory and in a file.

    ``trueno`` is trueno's own checksum, None for integers. ``values`` are the bytes (base64 in a
    file), None if they were not kept.
    """

    key: TensorKey
    dtype: str
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(max_length=64)]
    sha256: Sha256
    trueno: int | None = None
    values: bytes | None = None

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)} {self.sha256[:16]}"

    @property
    def tensor(self) -> Tensor:
        """The tensor whose ``values`` were kept."""
        bits = np.dtype("uint16" if self.dtype == "bfloat16" else self.dtype).newbyteorder("<")
        return Tensor(self.dtype, self.shape, np.frombuffer(self.values or b"", bits))


class Digests:
    """The digests of one run by their key, in the order of recording. Several threads may record.

    ``values_bytes`` is how many bytes of values are kept, of all tensors together: a comparison
    with a tolerance needs the values.
    """

    def __init__(self, *, values_bytes: int = 0) -> None:
        self._left_bytes = values_bytes
        self._keeps_values = values_bytes > 0
        self._lock = threading.Lock()
        self.tensors: dict[TensorKey, TensorDigest] = {}

    def record(
        self, name: str, array: Any, *, layer: int | None = None, position: int | None = None
    ) -> TensorDigest:
        """Digest all of ``array``.

        Raises:
            UsageError: ``E_TENSOR`` if it is no tensor, ``E_DIGEST_KEY`` if the key is invalid or
                was recorded before, ``E_DIGEST_LIMIT`` if there are too many tensors, or more
                values than ``values_bytes``.
        """
        tensor = read_tensor(array)
        trueno = trueno_checksum(tensor) if "float" in tensor.dtype else None
        key = _make_key(name, layer, position)
        digest = TensorDigest(key, tensor.dtype, tensor.shape, tensor.sha256, trueno)
        with self._lock:
            if len(self.tensors) >= MAX_TENSORS:
                raise _limit_error(f"more than {MAX_TENSORS:,} tensors")
            if key in self.tensors:
                raise _key_error(f"a tensor was recorded as {key} before")
            if self._keeps_values:
                self._left_bytes -= tensor.values.nbytes
                if self._left_bytes < 0:  # and so from here on: a run is complete or it fails
                    raise _limit_error("more bytes of values than values_bytes")
                digest = msgspec.structs.replace(digest, values=tensor.values.tobytes())
            self.tensors[key] = digest
        return digest


def _make_key(name: Any, layer: Any, position: Any) -> TensorKey:
    try:
        # Indices may be integers of NumPy; the name must be UTF-8, for a file.
        fields = {
            "name": str.encode(name).decode(),
            "layer": None if layer is None else operator.index(layer),
            "position": None if position is None else operator.index(position),
        }
        return msgspec.convert(fields, TensorKey)
    except (TypeError, UnicodeEncodeError, msgspec.ValidationError) as error:
        raise _key_error(str(error)) from None


def _key_error(why: str) -> UsageError:
    return UsageError(
        "E_DIGEST_KEY",
        f"A tensor cannot be recorded under its key: {why}.",
        "Give each tensor of a run its own name, layer and position.",
    )


def _limit_error(excess: str) -> UsageError:
    return UsageError(
        "E_DIGEST_LIMIT",
        f"A run has {excess}.",
        "Record fewer layers or positions, or pass Digests a larger values_bytes.",
    )


class DigestFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of digests."""

    schema_version: Literal["2.0.0"]
    tensors: Annotated[tuple[TensorDigest, ...], msgspec.Meta(max_length=MAX_TENSORS)]


def write_digests(digests: Digests) -> bytes:
    """Return ``digests`` as JSON, one tensor per line; equal digests give equal bytes.

    Raises ``UsageError`` ``E_DIGEST_LIMIT`` if that is more than ``read_digests`` reads.
    """
    lines = b",\n".join(map(msgspec.json.encode, digests.tensors.values()))
    data = b'{"schema_version": "2.0.0", "tensors": [\n' + lines + b"\n]}\n"
    if len(data) > MAX_BYTES:
        raise _limit_error(f"a file of {len(data):,} bytes, of which {MAX_BYTES:,} are read")
    return data


def read_digests(data: bytes) -> Digests:
    """Return the digests in ``data``, with values checked against their digests.

    Raises:
        ReceiptError: ``E_DIGESTS`` or ``E_JSON_…`` for a malformed file.
    """
    limits = Limits(MAX_BYTES)
    file = decode_json(data, DigestFile, limits, subject="The file of digests", code="E_DIGESTS")
    digests = Digests()
    for digest in file.tensors:
        if (problem := _find_problem(digest)) or digest.key in digests.tensors:
            raise ReceiptError(
                "E_DIGESTS",
                f"The file of digests is malformed: {digest.key} has {problem or 'two entries'}.",
                "Write it again with write_digests(); do not edit it by hand.",
            )
        digests.tensors[digest.key] = digest
    return digests


def _find_problem(digest: TensorDigest) -> str:
    if digest.dtype not in DTYPES:
        return f"the unknown type {digest.dtype[:40]!a}"
    is_float = "float" in digest.dtype
    if is_float != (digest.trueno is not None):
        return "floats without a checksum of trueno, or integers with one"
    if digest.values is None:
        return ""
    if len(digest.values) != math.prod(digest.shape) * DTYPES[digest.dtype]:
        return "another number of values than its shape"
    tensor = digest.tensor
    if tensor.sha256 != digest.sha256 or (is_float and trueno_checksum(tensor) != digest.trueno):
        return "other values than its digest says"
    return ""
