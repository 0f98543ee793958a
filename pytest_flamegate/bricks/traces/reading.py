"""The formats of foreign clocks: a new one is one module and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.bricks.traces import chrome, lines, onnx, trueno
from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.profile.importing import unpacked
from pytest_flamegate.profile.onnx_trace import is_onnx_trace
from pytest_flamegate.profile.text import escape

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.bricks.traces.ingested import Ingested

MAX_BYTES = 64 << 20
_SHOWN = 200


class Format(NamedTuple):
    """A format: whether bytes are of it, and how they are read."""

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[bytes], Ingested]


FORMATS = (
    Format("trueno", trueno.is_trueno, trueno.read_trueno),
    Format("onnxruntime", is_onnx_trace, onnx.read_onnx),
    Format("chrome", chrome.is_chrome_trace, chrome.read_chrome),
    Format("lines", lines.is_lines, lines.read_lines),
)


def is_trace(data: bytes) -> bool:
    """Return whether ``data``, which is unpacked, looks like a trace that is known."""
    return any(each.recognises(data) for each in FORMATS)


def read_trace(data: bytes, name: str = "") -> Ingested:
    """Return what ``data`` tells of bricks; ``name`` is what the file is called in a refusal.

    gzip is unpacked. ``ReceiptError``: ``E_UNKNOWN_FORMAT``, ``E_TOO_LARGE``, ``E_TRACE`` for
    what is malformed, ``E_SELF_EXCEEDS_WALL``, ``E_TRACE_CONTRADICTS``, ``E_PERCENT_NESTED``.
    ``UndecidedError``: ``E_NO_BRICKS``, ``E_TOO_FEW_RUNS``. ``ToolError``: ``E_BAD_FIGURE``,
    ``E_BAD_SOURCE`` for what engines print.
    """
    data = unpacked(data)
    if len(data) > MAX_BYTES:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"{_called(name)} has more than the {MAX_BYTES:,} bytes allowed.",
            "Record a shorter time.",
        )
    found = next((each for each in FORMATS if each.recognises(data)), None)
    if found is None:
        raise ReceiptError(
            "E_UNKNOWN_FORMAT",
            f"{_called(name)} is no trace of bricks that is known.",
            "Give a trace of torch.profiler or of Chrome, a profile of onnxruntime or trueno, "
            "or text with timing: or quant_dispatch lines.",
        )
    return found.read(data)


def _called(name: str) -> str:
    return f"{escape(name, _SHOWN)!a}" if name else "The file"
