"""Profiles from files: ours and those of other tools, recognised by what is in them.

What a file does not hold (rate, event, version of Python) stays empty, 0 or "unknown",
and ``degraded`` says so. A new format is one new module and one line in ``FORMATS``.
"""

from __future__ import annotations

import gzip
import re
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.core.errors import ReceiptError, ToolError, UsageError
from pytest_flamegate.core.text import decode_name
from pytest_flamegate.profile.folded import fold_profile, parse_folded
from pytest_flamegate.profile.formats.collapsed import is_folded, is_foreign, parse_foreign_folded
from pytest_flamegate.profile.formats.imported import foreign_profile
from pytest_flamegate.profile.formats.pprof import write_pprof
from pytest_flamegate.profile.formats.speedscope_profile import read_speedscope, write_speedscope
from pytest_flamegate.profile.formats.traces import (
    is_onnx_trace,
    is_torch_trace,
    read_onnx_trace,
    read_torch_trace,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_flamegate.profile.model import Profile


MAX_BYTES = 256 << 20
"""Of a file, and of what a compressed one holds."""
_PIECE_BYTES = 1 << 20
_SURELY_BYTES, _MOST_PACKED = 32 << 20, 64
"""Up to so many bytes nothing is asked; more are taken only of what is packed no tighter."""
_GZIP, _BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
_JSON = re.compile(rb'\s*(?:\{\s*["}]|\[\s*[\[{"\]])')


class ProfileFormat(NamedTuple):
    """A format: whether bytes are of it, and how they are read."""

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[bytes, Sequence[str]], Profile]


def read_profile(path: Path, roots: Sequence[str] = ()) -> Profile:
    """Read the profile that the file ``path`` holds, whoever wrote it.

    Raises what ``parse_profile`` raises, and ``ToolError`` ``E_CANNOT_READ``.
    """
    return parse_profile(read_file(path), roots)


def read_file(path: Path) -> bytes:
    """Return the content of ``path``: ``E_CANNOT_READ`` or ``E_TOO_LARGE`` where it cannot be."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ToolError(
            "E_CANNOT_READ",
            f"{str(path)!a} cannot be read: {why}.",
            "Check the path and its permissions.",
        ) from None
    return _bounded(data)


def parse_profile(data: bytes, roots: Sequence[str] = ()) -> Profile:
    """Return the profile that ``data`` holds; paths below one of ``roots`` become relative.

    Raises ``ReceiptError`` ``E_UNKNOWN_FORMAT`` for what is none of ``FORMATS``,
    ``E_TOO_LARGE``, ``E_FOLDED`` or ``E_SPEEDSCOPE`` for what is malformed, and
    ``UndecidedError`` ``E_NO_SAMPLES`` where nothing was sampled.
    """
    data = unpack(data)
    found = detect_format(data)
    if found is None:
        raise unknown_format_error(data)
    return found.read(data, roots)


def detect_format(data: bytes) -> ProfileFormat | None:
    """Return the format of ``data``, which is unpacked; None for what is none of them."""
    return next((each for each in FORMATS if each.recognises(data)), None)


def _folded(data: bytes, roots: Sequence[str]) -> Profile:
    text = decode_name(data)
    return _own_folded(text) or parse_foreign_folded(text, roots)


def _own_folded(text: str) -> Profile | None:
    """Return what our own notation says, None where another tool wrote the text."""
    try:
        stacks = dict(parse_folded(text))
    except ReceiptError:
        return None
    if any(is_foreign(frame) for frame in set().union(*stacks)):
        return None
    return foreign_profile(
        stacks, ["folded stacks alone tell neither profiler, event, rate nor unit"]
    )


def _is_folded(data: bytes) -> bool:
    if _JSON.match(data) or b"\0" in data or data.startswith(tuple(mark for mark, *_ in _KNOWN)):
        return False
    return is_folded(decode_name(data))


def _is_speedscope(data: bytes) -> bool:
    if not _JSON.match(data):
        return False
    return b"speedscope.app" in data or (b'"profiles"' in data and b'"shared"' in data)


FORMATS = (
    ProfileFormat("speedscope", _is_speedscope, read_speedscope),
    ProfileFormat("torch.profiler", is_torch_trace, read_torch_trace),
    ProfileFormat("onnxruntime", is_onnx_trace, read_onnx_trace),
    ProfileFormat("folded", _is_folded, _folded),
)


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The profile has more than the {MAX_BYTES:,} bytes allowed.",
            "Record a shorter time or at a lower rate, or fold its stacks first.",
        )
    return data


def unpack(data: bytes) -> bytes:
    """Return ``data`` without gzip's compression and without a byte order mark.

    Raises ``ReceiptError`` ``E_UNKNOWN_FORMAT`` where it is damaged or cut off, and
    ``E_TOO_LARGE`` as soon as more comes out of it than a profile can be.
    """
    if not data.startswith(_GZIP):
        return data.removeprefix(_BOM)
    pieces: list[bytes] = []
    size = 0
    try:
        with gzip.open(BytesIO(data)) as stream:
            while piece := stream.read(_PIECE_BYTES):
                pieces.append(piece)
                size += len(piece)
                _not_a_bomb(size, len(data))
    except (EOFError, OSError, zlib.error):
        raise ReceiptError(
            "E_UNKNOWN_FORMAT",
            "The file is compressed, and damaged or cut off.",
            "Copy it again, or record again.",
        ) from None
    return _bounded(b"".join(pieces)).removeprefix(_BOM)


def _not_a_bomb(size: int, packed: int) -> None:
    """Refuse what is no text: text is seldom packed so tightly, and zeros are to a thousandth."""
    if size > MAX_BYTES or (size > _SURELY_BYTES and size > _MOST_PACKED * packed):
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The profile is compressed, and {packed:,} bytes of it hold more than {size:,}.",
            "Record a shorter time or at a lower rate, or give it uncompressed.",
        )


_FORMS = (
    "Give folded stacks, a speedscope file, or a trace of torch.profiler or onnxruntime; results "
    "of other benchmarks (llama-bench, vLLM, GuideLLM, inference-perf, AIPerf) are read by "
    "flamegate import."
)
_KNOWN = (
    (b"PERFILE2", "perf's own recording", "Type: perf script | stackcollapse-perf.pl > FILE"),
    (b"# callgrind format", "callgrind's own file", _FORMS),
    (b'"traceEvents"', "a trace of events", "Open it at speedscope.app and export it from there."),
)


def unknown_format_error(data: bytes) -> ReceiptError:
    """Return the refusal of ``data``, which is unpacked, saying what it looks like."""
    what, remedy = _guess(data)
    return ReceiptError(
        "E_UNKNOWN_FORMAT", f"The file is no profile that can be read: {what}.", remedy
    )


def _guess(data: bytes) -> tuple[str, str]:
    if not data.strip():
        return "it is empty", "Record again."
    for mark, what, remedy in _KNOWN:
        if mark in data[:65536]:
            return f"it is {what}", remedy
    if _JSON.match(data):
        return "it is JSON and no speedscope file", _FORMS
    if b"\0" in data:
        return "it holds binary data", _FORMS
    return "its first line does not end in a count", _FORMS


WRITERS: dict[str, Callable[[Profile, str], bytes]] = {
    "folded": lambda profile, _: fold_profile(profile).encode(),
    "speedscope": write_speedscope,
    "pprof": write_pprof,
}
"""By name of the format: from a profile and what to call it to the bytes of the file."""
BINARY = frozenset({"pprof"})
"""Formats that no terminal shows."""


def export_profile(profile: Profile, form: str, name: str) -> bytes:
    """Return ``profile``, called ``name``, in the format ``form``; equal ones give equal bytes.

    Raises ``UsageError`` ``E_UNKNOWN_FORMAT`` for a format that there is not.
    """
    writer = WRITERS.get(form)
    if writer is None:
        raise UsageError(
            "E_UNKNOWN_FORMAT",
            f"There is no format {form!r} to write.",
            f"Use one of: {', '.join(WRITERS)}.",
        )
    return writer(profile, name)
