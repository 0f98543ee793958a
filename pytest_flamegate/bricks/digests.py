"""What an engine computed, tensor by tensor, as digests: to find where two runs part."""

from __future__ import annotations

import operator
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_flamegate.bricks.tensors import tensor_of, trueno_checksum
from pytest_flamegate.errors import UsageError
from pytest_flamegate.profile.text import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        told = [escape(self.name, MAX_NAME_CHARACTERS)]
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
