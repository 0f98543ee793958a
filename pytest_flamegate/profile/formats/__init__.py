"""Read a profile file of any tool, recognised by its content, and write one for other tools.

A fact that a file does not state (rate, event, version of Python) stays empty, 0 or "unknown",
and ``degraded`` says so. A new format is one module, and one line in ``FORMATS``.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.files import read_error
from pytest_flamegate.core.text import decode_name
from pytest_flamegate.profile.formats import collapsed, traces
from pytest_flamegate.profile.formats.speedscope import read_speedscope, write_speedscope
from pytest_flamegate.profile.frames import CODE, fold_profile, parse_folded
from pytest_flamegate.profile.model import Profile

MAX_BYTES = 256 << 20
"""Limit of a file, and of the content of a compressed one."""
_PIECE_BYTES = 1 << 20
_TRUSTED_BYTES, _MOST_PACKED = 32 << 20, 64
"""More content than the first is only accepted if it is packed no tighter than the second."""
_GZIP, _BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
_JSON = re.compile(rb'\s*(?:\{\s*["}]|\[\s*[\[{"\]])')


def read_file(path: Path) -> bytes:
    """Return the content of ``path``. Raises ``E_CANNOT_READ`` or ``E_TOO_LARGE``."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise read_error(path, error) from None
    if len(data) > MAX_BYTES:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The profile has more than the {MAX_BYTES:,} bytes allowed.",
            "Record a shorter time or at a lower rate, or fold its stacks first.",
        )
    return data


def parse_profile(data: bytes, roots: Sequence[str] = ()) -> Profile:
    """Return the profile in ``data``; paths below one of ``roots`` become relative.

    Raises:
        ReceiptError: ``E_UNKNOWN_FORMAT`` if no format of ``FORMATS`` matches, ``E_TOO_LARGE``,
            ``E_PROFILE_FILE`` or ``E_TRACE`` if the file is malformed.
        UndecidedError: ``E_NO_SAMPLES`` if it holds no sample.
    """
    data = unpack(data)
    for matches, read in FORMATS:
        if matches(data):
            return read(data, roots)
    raise unknown_format_error(data)


def _read_folded(data: bytes, roots: Sequence[str]) -> Profile:
    """Read flamegate's own notation, or else that of other tools."""
    text = decode_name(data)
    try:
        stacks = dict(parse_folded(text))
    except ReceiptError:
        return collapsed.read_collapsed(text, roots)
    if any(map(collapsed.is_foreign_frame, set().union(*stacks))):
        return collapsed.read_collapsed(text, roots)
    limited = collapsed.WeightedStacks(CODE)
    for stack, samples in stacks.items():
        limited.add(stack, samples)
    return collapsed.make_foreign_profile(
        stacks, ["folded stacks alone do not state profiler, event, rate or unit"]
    )


def _is_folded(data: bytes) -> bool:
    known = tuple(mark for mark, *_ in _RECOGNISED)
    if _JSON.match(data) or b"\0" in data or data.startswith(known):
        return False
    return collapsed.is_collapsed(decode_name(data))


def _is_speedscope(data: bytes) -> bool:
    if not _JSON.match(data):
        return False
    return b"speedscope.app" in data or (b'"profiles"' in data and b'"shared"' in data)


FORMATS: tuple[tuple[Callable[[bytes], bool], Callable[[bytes, Sequence[str]], Profile]], ...] = (
    (_is_speedscope, read_speedscope),
    (traces.is_torch_trace, traces.read_torch_trace),
    (traces.is_onnx_trace, traces.read_onnx_trace),
    (_is_folded, _read_folded),
)
"""How each format is recognised and read; paths below one of the texts become relative."""


def export_profile(profile: Profile, form: str, title: str) -> bytes:
    """Return ``profile`` as ``speedscope`` or ``folded``; equal profiles give equal bytes."""
    if form == "speedscope":
        return write_speedscope(profile, title)
    return fold_profile(profile).encode()


def unpack(data: bytes) -> bytes:
    """Return ``data`` without gzip compression and byte order mark.

    Raises ``ReceiptError`` ``E_UNKNOWN_FORMAT`` if it is damaged or cut off, and ``E_TOO_LARGE``
    as soon as it unpacks to more than a profile can be.
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
                # Text is seldom packed so tightly, and zeros are packed to a thousandth.
                is_bomb = size > _TRUSTED_BYTES and size > _MOST_PACKED * len(data)
                if size > MAX_BYTES or is_bomb:
                    raise ReceiptError(
                        "E_TOO_LARGE",
                        f"The profile is compressed, and {len(data):,} bytes of it hold more than "
                        f"{size:,}.",
                        "Record a shorter time or at a lower rate, or give it uncompressed.",
                    )
    except (EOFError, OSError, zlib.error):
        raise ReceiptError(
            "E_UNKNOWN_FORMAT",
            "The file is compressed, and damaged or cut off.",
            "Copy it again, or record again.",
        ) from None
    return b"".join(pieces).removeprefix(_BOM)


_READABLE = (
    "Give folded stacks, a speedscope file, or a trace of torch.profiler or onnxruntime; results "
    "of other benchmarks are read by flamegate import: JSON of vLLM, GuideLLM, inference-perf and "
    "AIPerf, and JSON, CSV or Markdown of llama-bench."
)
_RECOGNISED = (
    (b"PERFILE2", "perf's own recording", "Type: perf script | stackcollapse-perf.pl > FILE"),
    (b"# callgrind format", "callgrind's own file", _READABLE),
    (b'"traceEvents"', "a trace of events", "Open it at speedscope.app and export it from there."),
)
"""Files that are recognised and cannot be read: their mark, kind and remedy."""


def unknown_format_error(data: bytes) -> ReceiptError:
    """Build the error for ``data`` (unpacked) that says what the file looks like."""
    kind, remedy = "it is in no known format", _READABLE
    if not data.strip():
        kind, remedy = "it is empty", "Record again."
    for mark, known, how in _RECOGNISED:
        if mark in data[:65536]:
            kind, remedy = f"it is {known}", how
            break
    return ReceiptError(
        "E_UNKNOWN_FORMAT", f"The file is no profile that can be read: {kind}.", remedy
    )
