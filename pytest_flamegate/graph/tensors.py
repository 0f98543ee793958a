"""A tensor as bytes that are the same everywhere: its type, its shape, little-endian, C order.

No framework is imported here: arrays are taken by the protocols they offer.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import operator
import re
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import UndecidedError, UsageError
from pytest_flamegate.core.json_old import Refused, loads_strict
from pytest_flamegate.core.text import escape_name
from pytest_flamegate.profile.profilers import perf as profilers_perf
from pytest_flamegate.profile.profilers import trial

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from pytest_flamegate.bricks.record import Provenance


L2_EVENTS = (
    ("l2_rqsts.references", "l2_rqsts.miss"),
    ("all_l2_cache_accesses", "all_l2_cache_misses"),
    ("l2_request_g1.all_no_prefetch", "l2_cache_req_stat.ic_dc_miss_in_l2"),
    ("l2d_cache", "l2d_cache_refill"),
)
"""Pairs of events, looked up and missed: Intel's, two generations of AMD's, Arm's."""
_COUNT = re.compile(r"([0-9]{1,18}|<not supported>|<not counted>)")
_TODO = "Install perf of this kernel's version."


@dataclass(frozen=True, slots=True)
class Counter:
    """One event and how often it was counted; None where it could not be.

    ``running_pct`` is for how much of the time the counter was on.
    """

    event: str
    count: int | None
    running_pct: float


@dataclass(frozen=True, slots=True)
class HitRate:
    """The part of look-ups that found their line, 0 to 1, and the events it was counted by."""

    rate: float
    lookups: int
    misses: int
    lookup_event: str
    miss_event: str


def read_perf_stat(text: str) -> tuple[Counter, ...]:
    """Read what ``perf stat -x,`` writes: count, unit, event, time on, part of the time on.

    Lines that are no counter's, as what the program itself wrote, are passed over.
    """
    found = []
    for line in text.splitlines():
        count, *fields = line.split(",")
        if len(fields) < 4 or not _COUNT.fullmatch(count) or not fields[1]:
            continue
        try:
            running_pct = float(fields[3])
        except ValueError:
            continue
        if 0 <= running_pct <= 100:
            known = int(count) if count.isdecimal() else None
            found.append(Counter(fields[1], known, running_pct))
    return tuple(found)


def l2_hit_rate(counters: Sequence[Counter]) -> HitRate | None:
    """Return the rate of the first pair of events that was counted all the time."""
    # An unprivileged perf counts user mode alone, and says so.
    counts = {
        each.event.removesuffix(":u"): each.count for each in counters if each.running_pct == 100
    }
    for lookup_event, miss_event in L2_EVENTS:
        lookups, misses = counts.get(lookup_event), counts.get(miss_event)
        if lookups and misses is not None and misses <= lookups:
            return HitRate(1 - misses / lookups, lookups, misses, lookup_event, miss_event)
    return None


def count_l2(argv: Sequence[str], *, timeout_s: float) -> HitRate | None:
    """Run a program once for each pair of events until one counts it; None where none does.

    A program that fails has no rate. Raises ``ProfilerError`` E_PROFILER_ABSENT without perf.
    """
    perf = trial.find_program("perf", _TODO)
    for pair in L2_EVENTS:
        command = [perf, "stat", "-x,", "-e", ",".join(pair), "--", *argv]
        done = process.run(command, timeout_s=timeout_s, env=profilers_perf.perf_environment())
        counted = read_perf_stat(done.stderr.decode("utf-8", "replace"))
        if not done.returncode and (rate := l2_hit_rate(counted)) is not None:
            return rate
    return None


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


def fnv1a(data: bytes) -> int:
    """Return the FNV-1a hash of ``data``, 64 bits."""
    found = 0xCBF29CE484222325
    for byte in data:
        found = ((found ^ byte) * 0x100000001B3) & (1 << 64) - 1
    return found


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


MAX_TENSORS = 200_000
MAX_NAME_CHARACTERS = 200
_LARGEST_INDEX = 2**53


class Key(NamedTuple):
    """Which tensor it is: ``name`` of what computed it, its layer, its position in the sequence.

    ``layer`` and ``position`` are None where there is none.
    """

    name: str
    layer: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        told = [escape_name(self.name, MAX_NAME_CHARACTERS)]
        if self.layer is not None:
            told.append(f"layer {self.layer}")
        if self.position is not None:
            told.append(f"position {self.position}")
        return ", ".join(told)


@dataclass(frozen=True, slots=True)
class TensorDigest:
    """One tensor. ``sha256`` is over type, shape and all bytes.

    ``trueno`` is trueno's own checksum of the first 64 values, None for what is no float.
    ``values`` are the bytes themselves, None where they were not kept.
    """

    key: Key
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    trueno: int | None = None
    values: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)} {self.sha256[:16]}"


class Digests:
    """The digests of one run, in the order in which they were recorded.

    ``values_bytes`` is how much of the values may be kept, of all tensors together: only what
    has its values can be compared with a tolerance. Recording is safe from several threads.
    """

    def __init__(self, *, values_bytes: int = 0) -> None:
        self._left_bytes = values_bytes
        self._keeps = values_bytes > 0
        self._found: dict[Key, TensorDigest] = {}
        self._adding = threading.Lock()

    def record(
        self, name: str, array: Any, *, layer: int | None = None, position: int | None = None
    ) -> TensorDigest:
        """Digest ``array``, all of it, under its key.

        ``UsageError``: ``E_TENSOR`` for what is no tensor, ``E_DIGEST_KEY`` for a key that is
        none, ``E_DIGEST_DUPLICATE`` for one that was recorded before, ``E_DIGEST_LIMIT`` where
        there are too many, or more values than may be kept.
        """
        tensor = tensor_of(array)
        digest = TensorDigest(
            key_of(name, layer, position),
            tensor.dtype,
            tensor.shape,
            tensor.sha256,
            trueno_checksum(tensor) if "float" in tensor.dtype else None,
        )
        with self._adding:
            self._check(digest.key)  # what is refused takes no room
            if self._keeps:
                digest = replace(digest, values=self._kept(tensor.data))
            self._found[digest.key] = digest
        return digest

    def add(self, digest: TensorDigest) -> None:
        """Add a digest that was made before; refused as by ``record``."""
        with self._adding:
            self._check(digest.key)
            self._found[digest.key] = digest

    def get(self, key: Key) -> TensorDigest | None:
        """Return the digest of ``key``; None where there is none."""
        return self._found.get(key)

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys, in the order of recording."""
        return tuple(self._found)

    def __iter__(self) -> Iterator[TensorDigest]:
        return iter(tuple(self._found.values()))

    def __len__(self) -> int:
        return len(self._found)

    def _check(self, key: Key) -> None:
        if len(self._found) >= MAX_TENSORS:
            raise _beyond(f"more than {MAX_TENSORS:,} tensors")
        if key in self._found:
            raise UsageError(
                "E_DIGEST_DUPLICATE",
                f"Two tensors are recorded as {key}.",
                "Give each its own name, layer and position; one run, one recorder.",
            )

    def _kept(self, data: memoryview) -> bytes:
        self._left_bytes -= len(data)
        if self._left_bytes < 0:  # and so from here on: nothing is thinned out
            raise _beyond("more bytes of values than may be kept")
        return bytes(data)


def key_of(name: Any, layer: Any = None, position: Any = None) -> Key:
    """Return the key, with whole numbers of any type; ``UsageError`` ``E_DIGEST_KEY``."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise _no_key(f"its name is no text of 1 to {MAX_NAME_CHARACTERS} characters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise _no_key("its name holds half a surrogate pair") from None
    return Key(name, _index(layer, "layer"), _index(position, "position"))


def _index(value: Any, what: str) -> int | None:
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        raise _no_key(f"its {what} is no whole number") from None
    if isinstance(value, bool) or not 0 <= number <= _LARGEST_INDEX:
        raise _no_key(f"its {what} is no number from 0")
    return number


def _no_key(why: str) -> UsageError:
    return UsageError(
        "E_DIGEST_KEY",
        f"A tensor cannot be recorded under its key: {why}.",
        "Give the name of what computed it, and its layer and position as whole numbers.",
    )


def _beyond(what: str) -> UsageError:
    return UsageError(
        "E_DIGEST_LIMIT",
        f"A run was to be recorded with {what}.",
        "Record fewer layers or positions, or give Digests a larger values_bytes.",
    )


SCHEMA_VERSION = "1.0.0"
MAX_BYTES = 512 << 20
"""Of a file: values of 256 MiB take a third more as text."""
MAX_DIMENSIONS = 64
_FIELDS = ("name", "layer", "position", "dtype", "shape", "sha256", "trueno", "values")
_SHA256, _TRUENO = re.compile(r"[0-9a-f]{64}"), re.compile(r"0x[0-9a-f]{16}")
_LARGEST = 2**62

_refused_digest_file = Refused("E_DIGESTS", "The file of digests")


def write_digests(digests: Digests) -> bytes:
    """Return ``digests`` as JSON, a tensor a line; the same digests give the same bytes.

    ``UsageError`` ``E_DIGEST_LIMIT`` where their values make more bytes than are read again.
    """
    lines = ",\n".join(json.dumps(_document(each)) for each in digests)
    data = f'{{"schema_version": "{SCHEMA_VERSION}", "tensors": [\n{lines}\n]}}\n'.encode()
    if len(data) > MAX_BYTES:
        raise UsageError(
            "E_DIGEST_LIMIT",
            f"The file of digests would have {len(data):,} bytes, and {MAX_BYTES:,} are read.",
            "Record fewer layers or positions, or give Digests a smaller values_bytes.",
        )
    return data


def read_digests(data: bytes) -> Digests:
    """Return the digests that ``data`` holds, in their order.

    Values are held against their digest. ``ReceiptError`` ``E_DIGESTS`` for what is malformed,
    ``UsageError`` ``E_DIGEST_DUPLICATE`` where one key stands there twice.
    """
    document = loads_strict(data, _refused_digest_file, max_bytes=MAX_BYTES)
    if not isinstance(document, dict) or document.keys() != {"schema_version", "tensors"}:
        raise _refused_digest_file("it has not just schema_version and tensors")
    if document["schema_version"] != SCHEMA_VERSION:
        raise _refused_digest_file(f"its schema_version is not {SCHEMA_VERSION}")
    tensors = document["tensors"]
    if not isinstance(tensors, list) or len(tensors) > MAX_TENSORS:
        raise _refused_digest_file(f"its tensors are no list of at most {MAX_TENSORS:,}")
    digests = Digests()
    for each in tensors:
        digests.add(_digest(each))
    return digests


def _document(digest: TensorDigest) -> dict[str, Any]:
    values = digest.values
    return {
        **digest.key._asdict(),
        "dtype": digest.dtype,
        "shape": list(digest.shape),
        "sha256": digest.sha256,
        "trueno": None if digest.trueno is None else f"0x{digest.trueno:016x}",
        "values": None if values is None else base64.b64encode(values).decode(),
    }


def _digest(value: Any) -> TensorDigest:
    if not isinstance(value, dict) or value.keys() != set(_FIELDS):
        raise _refused_digest_file(f"a tensor has not just the fields {', '.join(_FIELDS)}")
    for name in ("layer", "position"):
        if type(value[name]) not in (int, type(None)):
            raise _refused_digest_file(f"a {name} is no whole number")
    try:
        key = key_of(value["name"], value["layer"], value["position"])
    except UsageError as error:
        raise _refused_digest_file(error.problem) from None
    dtype, sha256, trueno = value["dtype"], value["sha256"], value["trueno"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise _refused_digest_file(f"{key} has values of a type that is not known")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise _refused_digest_file(f"{key} has a sha256 that is none")
    if (trueno is None) == ("float" in dtype) or (
        trueno is not None and not (isinstance(trueno, str) and _TRUENO.fullmatch(trueno))
    ):
        raise _refused_digest_file(f"{key} has a checksum of trueno's that is none")
    digest = TensorDigest(
        key,
        dtype,
        _shape(value["shape"]),
        sha256,
        None if trueno is None else int(trueno, 16),
        _values(value["values"]),
    )
    _check_values(digest)
    return digest


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        raise _refused_digest_file(f"a shape is no list of at most {MAX_DIMENSIONS} lengths")
    if not all(type(each) is int and 0 <= each <= _LARGEST for each in value):
        raise _refused_digest_file("a shape holds what is no length")
    return tuple(value)


def _values(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _refused_digest_file("the values of a tensor are no base64") from None


def _check_values(digest: TensorDigest) -> None:
    """Hold the values against what the file says of them."""
    values = digest.values
    if values is None:
        return
    if len(values) != prod(digest.shape) * DTYPES[digest.dtype]:
        raise _refused_digest_file(f"{digest.key} has not as many values as its shape says")
    if sha256_of(digest.dtype, digest.shape, values) != digest.sha256:
        raise _refused_digest_file(f"{digest.key} has other values than its digest says")
    if digest.trueno is not None:
        bits = "uint16" if digest.dtype == "bfloat16" else digest.dtype
        tensor = Tensor(digest.dtype, digest.shape, decoded(bits, values))
        if trueno_checksum(tensor) != digest.trueno:
            raise _refused_digest_file(
                f"{digest.key} has other values than its checksum of trueno's says"
            )


TileLevel = Literal["macro", "midi", "micro"]
LEVELS: tuple[TileLevel, ...] = get_args(TileLevel)


@dataclass(frozen=True, slots=True)
class TileStats:
    """All tiles of one level. ``flops`` and ``bytes`` are None where a call told none.

    Times are nanoseconds of the process's monotonic clock. Threads that work side by side are
    added up, so ``gflops`` is that of one thread.
    """

    level: TileLevel
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
    flops: int | None
    bytes: int | None
    provenance: Provenance = "measured_wall"

    @property
    def gflops(self) -> float | None:
        """10⁹ operations a second, derived; None where they were not told or took no time."""
        return None if self.flops is None or not self.total_ns else self.flops / self.total_ns

    @property
    def arithmetic_intensity(self) -> float | None:
        """Operations a byte, derived; None where either was not told, or no byte was."""
        return None if self.flops is None or not self.bytes else self.flops / self.bytes


@dataclass(slots=True)
class _Level:
    """What one thread's tiles of one level came to; ``depth`` is how many of them are open."""

    depth: int = 0
    calls: int = 0
    total_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0
    flops: int | None = 0
    bytes: int | None = 0

    def add(self, took_ns: int, flops: int | None, nbytes: int | None) -> None:
        self.min_ns = min(self.min_ns, took_ns) if self.calls else took_ns
        self.max_ns = max(self.max_ns, took_ns)
        self.calls += 1
        self.total_ns += took_ns
        self.flops = None if flops is None or self.flops is None else self.flops + flops
        self.bytes = None if nbytes is None or self.bytes is None else self.bytes + nbytes


@dataclass
class TileRecorder:
    """Records the tiles of all threads while it is on, in memory that does not grow with them.

    One at a time in a process: ``UsageError`` E_TILES_ON for a second.
    """

    _own: threading.local = field(default_factory=threading.local, repr=False)
    _all: list[dict[TileLevel, _Level]] = field(default_factory=list, repr=False)

    def __enter__(self) -> TileRecorder:
        """Turn the marks on."""
        global _on
        with _turning:
            if _on is not None:
                raise UsageError(
                    "E_TILES_ON",
                    "Tiles are recorded already.",
                    "Leave the first recorder before a second is entered.",
                )
            _on = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Turn the marks off."""
        global _on
        _on = None

    def stats(self) -> tuple[TileStats, ...]:
        """Return what each level with an ended call came to, the largest tiles first."""
        found = []
        for level in LEVELS:
            parts = [own[level] for own in tuple(self._all) if own[level].calls]
            if parts:
                found.append(
                    TileStats(
                        level,
                        calls=sum(part.calls for part in parts),
                        total_ns=sum(part.total_ns for part in parts),
                        min_ns=min(part.min_ns for part in parts),
                        max_ns=max(part.max_ns for part in parts),
                        flops=_sum([part.flops for part in parts]),
                        bytes=_sum([part.bytes for part in parts]),
                    )
                )
        return tuple(found)

    def level(self, level: TileLevel) -> _Level:
        """Return the calling thread's figures of a level."""
        own: dict[TileLevel, _Level] | None = getattr(self._own, "levels", None)
        if own is None:
            own = self._own.levels = {each: _Level() for each in LEVELS}
            self._all.append(own)
        return own[level]


_on: TileRecorder | None = None
_turning = threading.Lock()
_OFF: AbstractContextManager[None] = nullcontext()


def tile(
    level: TileLevel,
    *,
    flops: int | None = None,
    bytes: int | None = None,  # noqa: A002 - its name in every profiler
) -> AbstractContextManager[None]:
    """Mark a tile of synchronous work that does ``flops`` operations on ``bytes`` bytes.

    A tile within one of its own level is part of that one: its operations too. While nothing
    records, no clock is read. Raises ``UsageError``, when on: E_TILE_LEVEL for no known level,
    E_TILE_FIGURE for a figure that is no count.
    """
    recorder = _on  # read once: another thread may turn the marks off meanwhile
    return _OFF if recorder is None else _marked(recorder, level, flops, bytes)


@contextmanager
def _marked(
    recorder: TileRecorder, level: TileLevel, flops: int | None, nbytes: int | None
) -> Iterator[None]:
    if level not in LEVELS:
        raise UsageError(
            "E_TILE_LEVEL", f"There is no tile level {level!r}.", f"Use {', '.join(LEVELS)}."
        )
    for name, value in (("flops", flops), ("bytes", nbytes)):
        if value is not None and (type(value) is not int or value < 0):
            raise UsageError(
                "E_TILE_FIGURE",
                f"A tile of level {level} told {name} of {value!r}.",
                "Give a whole number from 0 up, or leave it out.",
            )
    own = recorder.level(level)
    own.depth += 1
    began_ns = time.perf_counter_ns()
    try:
        yield
    finally:
        took_ns = time.perf_counter_ns() - began_ns
        own.depth -= 1
        if not own.depth:
            own.add(took_ns, flops, nbytes)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


Values = npt.NDArray[Any]


class Tolerance(NamedTuple):
    """Two values agree where they differ by at most ``atol + rtol × |the first|``."""

    atol: float = 0.0
    rtol: float = 0.0

    def check(self) -> None:
        """Raise ``UsageError`` ``E_TOLERANCE`` for limits that are none."""
        if not all(math.isfinite(each) and each >= 0 for each in self):
            raise UsageError(
                "E_TOLERANCE",
                f"atol = {self.atol} and rtol = {self.rtol} are no tolerance.",
                "Give two finite numbers of at least 0.",
            )


class Largest(NamedTuple):
    """Where two tensors differ most: the place of the value, both values, their difference.

    The difference is infinite where one is not finite and the other is something else.
    """

    key: Key
    place: tuple[int, ...]
    first: str
    second: str
    difference: float


class Comparison(NamedTuple):
    """``beyond`` values differ by more than allowed; ``not_finite`` are the same in both."""

    beyond: int
    not_finite: int
    largest: Largest | None


def compared(a: TensorDigest, b: TensorDigest, tolerance: Tolerance) -> Comparison:
    """Compare two tensors of one shape, both with their values.

    NaN agrees with NaN and an infinity with the same infinity, at the same place, and with
    nothing else. Whole numbers are compared exactly, and so are real and imaginary parts.
    ``UndecidedError`` ``E_NO_VALUES`` where the values of one were not kept.
    """
    first, second = _values_tolerance(a), _values_tolerance(b)
    alike = (first == second) | ((first != first) & (second != second))
    with np.errstate(over="ignore", invalid="ignore"):
        differences = _differences(first, second)
        allowed = tolerance.atol + tolerance.rtol * np.abs(first.astype(np.float64))
        within = alike | (np.isfinite(differences) & (differences <= allowed))
    differences[alike] = 0.0
    differences[np.isnan(differences)] = math.inf
    beyond = int(np.count_nonzero(~within))
    not_finite = int(np.count_nonzero(alike & ~np.isfinite(first)))
    if not differences.size or not differences.max():
        return Comparison(beyond, not_finite, None)
    # Of those that are too far apart, where there are any: the largest may be allowed elsewhere.
    at = int(np.argmax(np.where(within, -1.0, differences) if beyond else differences))
    parts = first.size // max(math.prod(a.shape), 1)
    place = tuple(int(each) for each in np.unravel_index(at // parts, a.shape))
    return Comparison(
        beyond,
        not_finite,
        Largest(a.key, place, _shown(first[at]), _shown(second[at]), float(differences[at])),
    )


def _differences(first: Values, second: Values) -> npt.NDArray[np.float64]:
    if first.dtype.kind in "iu":
        # The difference of two whole numbers of 64 bits fits 64 bits, though not as a signed one.
        larger, smaller = np.maximum(first, second), np.minimum(first, second)
        unsigned = larger.astype(np.uint64) - smaller.astype(np.uint64)
        return unsigned.astype(np.float64)
    wide: npt.NDArray[np.float64] = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return wide


def _values_tolerance(digest: TensorDigest) -> Values:
    if digest.values is None:
        raise UndecidedError(
            "E_NO_VALUES",
            f"The values of {digest.key} were not kept, so that no tolerance can be applied.",
            "Record both runs with Digests(values_bytes=...), or compare without a tolerance.",
        )
    values = decoded(digest.dtype, digest.values)
    if values.dtype.kind == "b":
        return values.view(np.uint8)
    if values.dtype.kind == "c":
        return values.view(f"<f{values.itemsize // 2}")
    return values


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, np.integer) else f"{float(value):.9g}"


_NAMED = 3


@dataclass(frozen=True, slots=True)
class Differing:
    """One tensor that the runs do not agree on.

    ``comparison`` is there where values were held against each other with a tolerance.
    """

    key: Key
    first: TensorDigest
    second: TensorDigest
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """What the comparison of two runs says.

    ``first`` is the first tensor of the first run that differs, ``differing`` how many do of
    the ``compared`` that both have. ``missing`` stand in the first run alone, ``extra`` in the
    second alone. ``reordered`` is the first that the second run recorded in another order.
    ``largest`` is the largest difference of all values, ``not_finite`` counts values that are
    NaN or infinite in both; both only with a tolerance.
    """

    compared: int
    differing: int
    first: Differing | None
    missing: tuple[Key, ...]
    extra: tuple[Key, ...]
    reordered: Key | None
    tolerance: Tolerance | None = None
    largest: Largest | None = None
    not_finite: int = 0

    @property
    def same(self) -> bool:
        """Whether both runs computed the same: the same tensors, all of them agreeing."""
        return not (self.differing or self.missing or self.extra)


def divergence(a: Digests, b: Digests, *, tolerance: Tolerance | None = None) -> Divergence:
    """Compare two runs; ``a`` is the one that ``b`` is held against.

    Without a tolerance type, shape and every byte have to be the same. With one, values of the
    same shape and kind have to agree within it. ``UndecidedError``: ``E_NO_DIGESTS`` for a run
    of which nothing was recorded, ``E_NO_VALUES`` where a tolerance needs values that were not
    kept. ``UsageError`` ``E_TOLERANCE``.
    """
    for run, which in ((a, "first"), (b, "second")):
        if not len(run):
            raise UndecidedError(
                "E_NO_DIGESTS",
                f"Nothing was recorded of the {which} run, and nothing equals nothing.",
                "Record digests in both runs.",
            )
    if tolerance is not None:
        tolerance.check()
    differing: list[Differing] = []
    largest: Largest | None = None
    count = not_finite = 0
    for left in a:
        right = b.get(left.key)
        if right is None:
            continue
        count += 1
        found = None
        if tolerance is not None and _comparable(left, right):
            found = compared(left, right, tolerance)
            not_finite += found.not_finite
            largest = _larger(largest, found.largest)
            differs = found.beyond > 0
        else:
            differs = (left.sha256, left.dtype, left.shape) != (
                right.sha256,
                right.dtype,
                right.shape,
            )
        if differs:
            differing.append(Differing(left.key, left, right, found))
    return Divergence(
        compared=count,
        differing=len(differing),
        first=differing[0] if differing else None,
        missing=tuple(key for key in a.keys if b.get(key) is None),
        extra=tuple(key for key in b.keys if a.get(key) is None),
        reordered=_reordered(a, b),
        tolerance=tolerance,
        largest=largest,
        not_finite=not_finite,
    )


def sentence(found: Divergence) -> str:
    """Say in a line or more what ``found`` holds."""
    told = [_agreement(found)]
    for keys, which in ((found.missing, "first"), (found.extra, "second")):
        if keys:
            told.append(f"{len(keys):,} stand in the {which} run alone: {_named(keys)}.")
    if found.reordered is not None:
        told.append(f"The order of recording differs from {found.reordered} on.")
    if found.largest is not None:
        told.append(f"The largest difference is {_most(found.largest)} of {found.largest.key}.")
    if found.not_finite:
        told.append(f"{found.not_finite:,} values are NaN or infinite in both.")
    return " ".join(told)


def _agreement(found: Divergence) -> str:
    within = "" if found.tolerance is None else " within the tolerance"
    first = found.first
    if first is None:
        if not found.compared:
            return "The runs have no tensor in common."
        return f"All {found.compared:,} tensors that both runs have are the same{within}."
    if first.comparison is None or first.comparison.largest is None:
        how = f"{first.first} in the first run, {first.second} in the second"
    else:
        how = f"{first.comparison.beyond:,} values, most {_most(first.comparison.largest)}"
    return (
        f"The runs part at {first.key}: {how}; "
        f"{found.differing:,} of {found.compared:,} tensors differ{within and ' beyond it'}."
    )


def _most(largest: Largest) -> str:
    at = f"[{', '.join(map(str, largest.place))}]"
    return f"{largest.difference:.3g} ({largest.first} against {largest.second}) at {at}"


def _named(keys: Sequence[Key]) -> str:
    more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
    return "; ".join(map(str, keys[:_NAMED])) + more


def _comparable(left: TensorDigest, right: TensorDigest) -> bool:
    """Whether values can be held against each other: floats of any width, else one type."""
    alike = left.dtype == right.dtype or ("float" in left.dtype and "float" in right.dtype)
    return alike and left.shape == right.shape


def _larger(one: Largest | None, other: Largest | None) -> Largest | None:
    if one is None or other is None:
        return one or other
    return other if other.difference > one.difference else one


def _reordered(a: Digests, b: Digests) -> Key | None:
    first = (key for key in a.keys if b.get(key) is not None)
    second = (key for key in b.keys if a.get(key) is not None)
    return next((left for left, right in zip(first, second, strict=True) if left != right), None)
