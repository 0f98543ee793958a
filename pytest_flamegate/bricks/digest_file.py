"""Digests as a file, to compare a run with one of another commit or another machine."""

from __future__ import annotations

import base64
import binascii
import json
import re
from math import prod
from typing import Any

from pytest_flamegate.bricks.digests import MAX_TENSORS, Digests, TensorDigest, key_of
from pytest_flamegate.bricks.strict import Refused, loads
from pytest_flamegate.bricks.tensors import DTYPES, Tensor, decoded, sha256_of, trueno_checksum
from pytest_flamegate.errors import UsageError

SCHEMA_VERSION = "1.0.0"
MAX_BYTES = 512 << 20
"""Of a file: values of 256 MiB take a third more as text."""
MAX_DIMENSIONS = 64
_FIELDS = ("name", "layer", "position", "dtype", "shape", "sha256", "trueno", "values")
_SHA256, _TRUENO = re.compile(r"[0-9a-f]{64}"), re.compile(r"0x[0-9a-f]{16}")
_LARGEST = 2**62

_refused = Refused("E_DIGESTS", "The file of digests")


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
    document = loads(data, _refused, max_bytes=MAX_BYTES)
    if not isinstance(document, dict) or document.keys() != {"schema_version", "tensors"}:
        raise _refused("it has not just schema_version and tensors")
    if document["schema_version"] != SCHEMA_VERSION:
        raise _refused(f"its schema_version is not {SCHEMA_VERSION}")
    tensors = document["tensors"]
    if not isinstance(tensors, list) or len(tensors) > MAX_TENSORS:
        raise _refused(f"its tensors are no list of at most {MAX_TENSORS:,}")
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
        raise _refused(f"a tensor has not just the fields {', '.join(_FIELDS)}")
    for name in ("layer", "position"):
        if type(value[name]) not in (int, type(None)):
            raise _refused(f"a {name} is no whole number")
    try:
        key = key_of(value["name"], value["layer"], value["position"])
    except UsageError as error:
        raise _refused(error.what) from None
    dtype, sha256, trueno = value["dtype"], value["sha256"], value["trueno"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise _refused(f"{key} has values of a type that is not known")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise _refused(f"{key} has a sha256 that is none")
    if (trueno is None) == ("float" in dtype) or (
        trueno is not None and not (isinstance(trueno, str) and _TRUENO.fullmatch(trueno))
    ):
        raise _refused(f"{key} has a checksum of trueno's that is none")
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
        raise _refused(f"a shape is no list of at most {MAX_DIMENSIONS} lengths")
    if not all(type(each) is int and 0 <= each <= _LARGEST for each in value):
        raise _refused("a shape holds what is no length")
    return tuple(value)


def _values(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _refused("the values of a tensor are no base64") from None


def _check_values(digest: TensorDigest) -> None:
    """Hold the values against what the file says of them."""
    values = digest.values
    if values is None:
        return
    if len(values) != prod(digest.shape) * DTYPES[digest.dtype]:
        raise _refused(f"{digest.key} has not as many values as its shape says")
    if sha256_of(digest.dtype, digest.shape, values) != digest.sha256:
        raise _refused(f"{digest.key} has other values than its digest says")
    if digest.trueno is not None:
        bits = "uint16" if digest.dtype == "bfloat16" else digest.dtype
        tensor = Tensor(digest.dtype, digest.shape, decoded(bits, values))
        if trueno_checksum(tensor) != digest.trueno:
            raise _refused(f"{digest.key} has other values than its checksum of trueno's says")
