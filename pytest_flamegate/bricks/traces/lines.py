"""What engines print of themselves: ``timing:`` lines, and ``quant_dispatch`` lines."""

from __future__ import annotations

import statistics
from collections import Counter
from io import BytesIO
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.durations import bucket
from pytest_flamegate.bricks.names import category_of
from pytest_flamegate.bricks.record import BrickTotals
from pytest_flamegate.bricks.strict import Refused
from pytest_flamegate.bricks.traces.ingested import Ingested, no_bricks
from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.profile.text import decode
from pytest_flamegate.workload.sources.base import Heard
from pytest_flamegate.workload.sources.quant_dispatch import QuantDispatch
from pytest_flamegate.workload.sources.timing import phases_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEAST_RUNS = 3
"""Two figures have no middle."""
_TIMING, _DISPATCH = b"timing:", b"quant_dispatch"
_BRICKS = {
    "embed_us": "Embedding",
    "forward_us": "Forward",
    "logits_us": "LmHead",
    "sample_us": "Sampling",
}
_NS = 1000
_MOST_US = 1e15
_LONGEST_BYTES = 1 << 14

_malformed = Refused("E_TRACE", "The trace")


def is_lines(data: bytes) -> bool:
    """Return whether ``data`` is text with lines of the kind."""
    return data.lstrip()[:1] not in (b"{", b"[") and (_TIMING in data or _DISPATCH in data)


def read_lines(data: bytes) -> Ingested:
    """Return the phases, each of them a brick, and how often each kernel was dispatched.

    The phases of a line come one after the other, so that each is its own time; nothing says
    what else passed. ``UndecidedError``: ``E_TOO_FEW_RUNS`` where a phase is told fewer than
    three times, ``E_NO_BRICKS``. ``ToolError``: ``E_BAD_FIGURE``, ``E_BAD_SOURCE``.
    """
    said = phases_us(_with(_TIMING, data))
    told = QuantDispatch().read(Heard(lines=tuple(_with(_DISPATCH, data))))
    if not said and told is None:
        raise no_bricks("The text")
    for name, values in said.items():
        if len(values) < LEAST_RUNS:
            raise UndecidedError(
                "E_TOO_FEW_RUNS",
                f"{name} is told {len(values)} times, and {LEAST_RUNS} is the least.",
                "Have the engine generate more tokens, or put the lines of more runs in one file.",
            )
        if max(values) > _MOST_US:
            raise _malformed(f"{name} is out of range")
    return Ingested(
        "timing" if said else QuantDispatch.name,
        None,
        tuple(_totals(_BRICKS[name], values) for name, values in said.items()),
        kernels=told.report.kernels if told is not None else {},
        medians_us={name: statistics.median(values) for name, values in said.items()},
    )


def _with(mark: bytes, data: bytes) -> Iterator[str]:
    """Yield the lines in which ``mark`` stands."""
    for line in BytesIO(data):
        if mark in line:
            if len(line) > _LONGEST_BYTES:
                raise _malformed(f"a line has more than {_LONGEST_BYTES:,} bytes")
            yield decode(line)


def _totals(brick: str, values_us: Sequence[float]) -> BrickTotals:
    values_ns = [round(value * _NS) for value in values_us]
    durations = Counter(str(bucket(value)) for value in values_ns)
    return BrickTotals(
        brick,
        category_of(brick),
        len(values_ns),
        sum(values_ns),
        sum(values_ns),
        min(values_ns),
        max(values_ns),
        durations=dict(durations),
        provenance="ingested",
    )
