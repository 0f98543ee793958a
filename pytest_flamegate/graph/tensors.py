"""Digests of the tensors that an engine computes, and the first tensor in which two runs differ.

Record each result under its name, layer and position; write the digests of a run to a file; and
compare two runs, by bytes or within a tolerance::

    digests = Digests()
    digests.record("RmsNorm", h, layer=3, position=0)
    print(sentence(divergence(digests, read_digests(Path("before.json").read_bytes()))))
"""

import hashlib
import math
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.json import Sha256, convert, decode_json
from pytest_flamegate.core.json_parser import Limits
from pytest_flamegate.core.text import escape_name, list_some

MAX_NAME_CHARACTERS = 200
MAX_BYTES = 512 << 20
"""Limit for a file: base64 makes 342 MiB of 256 MiB of values."""
_NAMED = 3

Values = npt.NDArray[Any]
Index = Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None


class TensorKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of the code that computed a tensor, its layer and its position in the sequence."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
    layer: Index = None
    position: Index = None

    def __str__(self) -> str:
        places = {"layer": self.layer, "position": self.position}
        parts = [f"{name} {index}" for name, index in places.items() if index is not None]
        return ", ".join([escape_name(self.name, MAX_NAME_CHARACTERS), *parts])


class TensorDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor of a run, in memory and in a file.

    ``sha256`` is of ``float32 [2, 3]``, a line feed, and the values, little-endian and in C order.
    ``values`` are their bytes (base64 in a file), None if they were not kept. ``trueno`` is
    trueno's own checksum, for comparison with that tool; None for integers.
    """

    key: TensorKey
    dtype: str
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(max_length=64)]
    sha256: Sha256
    trueno: int | None = None
    values: bytes | None = None

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)} {self.sha256[:16]}"


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
        """Digest all of ``array``: of NumPy, of torch (on any device), or a buffer.

        Raises:
            UsageError: ``E_TENSOR`` if it is no array of numbers, if the key is invalid or was
                recorded before, and if there are more values than ``values_bytes``.
        """
        values = read_tensor(array)
        key = _make_key(name, layer, position)
        dtype, data = values.dtype.name, values.tobytes()
        trueno = trueno_checksum(values) if values.dtype.kind == "f" else None
        digest = TensorDigest(key, dtype, values.shape, _hash(dtype, values.shape, data), trueno)
        with self._lock:
            if key in self.tensors:
                raise _tensor_error(f"one was recorded as {key} before")
            if self._keeps_values:
                self._left_bytes -= len(data)
                if self._left_bytes < 0:  # and so from here on: a run is complete or it fails
                    raise _tensor_error("the run has more bytes of values than values_bytes")
                digest = msgspec.structs.replace(digest, values=data)
            self.tensors[key] = digest
        return digest


def read_tensor(value: Any) -> Values:
    """Return the numbers of an array, little-endian and in C order; bfloat16 as float32.

    Raises ``UsageError`` ``E_TENSOR`` if ``value`` is no array of numbers.
    """
    try:
        if hasattr(value, "detach"):  # a tensor of torch, whose bfloat16 NumPy does not know
            value = value.detach().cpu()
            value = value.float() if "bfloat16" in str(value.dtype) else value
        is_array = hasattr(value, "__array__")
        array = np.asarray(value) if is_array else np.asarray(memoryview(value))
    except Exception as error:
        # Whatever an object of another package raises when it is asked for its values.
        raise _tensor_error(f"{type(value).__name__} is not an array ({error})") from error
    if isinstance(value, np.ma.MaskedArray):
        raise _tensor_error("some values of a masked array do not count")
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > 16 or array.dtype == np.longdouble:
        raise _tensor_error(f"values of the type {array.dtype} have more than one form in bytes")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(array.shape)


def trueno_checksum(values: Values) -> int:
    """Return trueno's checksum: FNV-1a over the first 64 floats as float32, and nothing else."""
    with np.errstate(over="ignore"):  # values beyond float32 become infinite
        data = values.reshape(-1)[:64].astype("<f4").tobytes()
    checksum = 0xCBF29CE484222325
    for byte in data:
        checksum = ((checksum ^ byte) * 0x100000001B3) & (1 << 64) - 1
    return checksum


def _hash(dtype: str, shape: tuple[int, ...], data: bytes) -> str:
    return hashlib.sha256(f"{dtype} {list(shape)}\n".encode() + data).hexdigest()


def _tensor_error(why: str) -> UsageError:
    return UsageError("E_TENSOR", f"This tensor cannot be recorded: {why}.")


def _make_key(name: Any, layer: Any, position: Any) -> TensorKey:
    try:
        indices = [None if each is None else each.__index__() for each in (layer, position)]
        fields = {"name": str.encode(name).decode(), "layer": indices[0], "position": indices[1]}
        return convert(fields, TensorKey)
    except (AttributeError, TypeError, UnicodeEncodeError, msgspec.ValidationError) as error:
        raise _tensor_error(f"its key is invalid ({error})") from None


class _DigestFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema_version: Literal["3.0.0"]
    tensors: tuple[TensorDigest, ...]


def write_digests(digests: Digests) -> bytes:
    """Return ``digests`` as JSON, one tensor per line; equal digests give equal bytes."""
    lines = b",\n".join(map(msgspec.json.encode, digests.tensors.values()))
    return b'{"schema_version": "3.0.0", "tensors": [\n' + lines + b"\n]}\n"


_NUMBERS = frozenset(np.dtype(code).name for code in "?bBhHiIlLqQefdFD")


def read_digests(data: bytes) -> Digests:
    """Return the digests in ``data``, with values checked against their digests.

    Raises ``ReceiptError`` ``E_DIGESTS`` or ``E_JSON_…`` for a malformed file.
    """
    limits = Limits(MAX_BYTES)
    file = decode_json(data, _DigestFile, limits, subject="The file of digests", code="E_DIGESTS")
    digests = Digests()
    for digest in file.tensors:
        values, key = digest.values, digest.key
        is_number = digest.dtype in _NUMBERS
        is_changed = (
            is_number
            and values is not None
            and (
                len(values) != math.prod(digest.shape) * np.dtype(digest.dtype).itemsize
                or _hash(digest.dtype, digest.shape, values) != digest.sha256
            )
        )
        if is_changed or key in digests.tensors or not is_number:
            raise ReceiptError(
                "E_DIGESTS",
                f"The file of digests is malformed: {key} has two entries, an unknown type, or "
                "other values than its digest says.",
            )
        digests.tensors[key] = digest
    return digests


# --- the comparison of two runs ------------------------------------------------------------


class Tolerance(NamedTuple):
    """Two floats agree if they differ by at most ``atol + rtol × |first|``."""

    atol: float = 0.0
    rtol: float = 0.0


@dataclass(frozen=True, slots=True)
class Divergence:
    """The comparison of two runs.

    ``differing`` are the tensors that differ, in the order of the first run, and ``difference``
    describes that of the first one. ``missing`` are only in the first run, ``extra`` only in the
    second.
    """

    compared: int
    differing: tuple[TensorKey, ...]
    difference: str
    missing: tuple[TensorKey, ...]
    extra: tuple[TensorKey, ...]


def sentence(found: Divergence) -> str:
    """Return the comparison in one or more sentences."""
    parts = [f"All {found.compared:,} tensors that both runs have are the same."]
    if not found.compared:
        parts = ["The runs have no tensor in common."]
    elif found.differing:
        count = f"{len(found.differing):,} of {found.compared:,} tensors differ"
        first = found.differing[0]
        parts = [f"The runs differ from {first} on: {found.difference}; {count}."]
    for run, keys in (("first", found.missing), ("second", found.extra)):
        if keys:
            named = list_some(keys, _NAMED, "; ")
            parts.append(f"{len(keys):,} are only in the {run} run: {named}.")
    return " ".join(parts)


def divergence(a: Digests, b: Digests, *, tolerance: Tolerance | None = None) -> Divergence:
    """Compare run ``b`` with run ``a``.

    Without a tolerance, type, shape and every byte must be equal. With one, floats of one shape
    and any width must agree within it; other types are compared by their bytes.

    Raises:
        UndecidedError: ``E_NO_DIGESTS`` if a run has no tensor, or a tolerance needs values that
            were not kept.
    """
    one, other = a.tensors, b.tensors
    if not one or not other:
        raise UndecidedError(
            "E_NO_DIGESTS", f"The {'second' if one else 'first'} run has no tensors."
        )
    both = [key for key in one if key in other]
    found = {key: _compare_tensors(one[key], other[key], tolerance) for key in both}
    differing = {key: difference for key, difference in found.items() if difference}
    return Divergence(
        compared=len(both),
        differing=tuple(differing),
        difference=next(iter(differing.values()), ""),
        missing=tuple(key for key in one if key not in other),
        extra=tuple(key for key in other if key not in one),
    )


def _compare_tensors(first: TensorDigest, second: TensorDigest, tolerance: Tolerance | None) -> str:
    """Describe the difference of two tensors; empty if they agree."""
    are_floats = "float" in first.dtype and "float" in second.dtype
    if tolerance is None or not are_floats or first.shape != second.shape:
        same = (first.sha256, first.shape) == (second.sha256, second.shape)
        return "" if same else f"{first} in the first run, {second} in the second"
    if first.values is None or second.values is None:
        raise UndecidedError(
            "E_NO_DIGESTS", f"A tolerance needs the values of {first.key}, which were not kept."
        )
    one, other = (
        np.frombuffer(each.values or b"", np.dtype(each.dtype).newbyteorder("<")).astype(np.float64)
        for each in (first, second)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        within = np.isclose(other, one, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)
        differences = np.where(within, 0.0, np.abs(one - other))
    if within.all():
        return ""
    differences[np.isnan(differences)] = math.inf
    at = int(differences.argmax())
    place = [int(index) for index in np.unravel_index(at, first.shape)]
    return (
        f"{int((~within).sum()):,} values, at most {differences[at]:.3g} ({one[at]:.9g} against "
        f"{other[at]:.9g}) at {place}"
    )
