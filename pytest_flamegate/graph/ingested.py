"""Bricks that another tool summed: profiles of trueno and realizar, and lines of engines."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec

from pytest_flamegate.bricks.record import (
    BrickCall,
    BrickTotals,
    ThreadTotals,
    find_bucket,
    find_category,
    resolve_alias,
)
from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.core.json import Limits, decode_json
from pytest_flamegate.core.text import decode_name, escape_name
from pytest_flamegate.engines.figure_sources import QuantDispatch, read_phases
from pytest_flamegate.engines.figures import ProgramOutput
from pytest_flamegate.profile.formats.traces import TraceError

MAX_NAMES = 10_000
"""Different bricks of one file."""
TOLERANCE = 0.01
"""By how much the time spent may exceed the wall time: clocks are read a little apart."""
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class IngestedTrace:
    """The bricks in another tool's file. They are ``ingested``, so they are never gated.

    ``wall_ns`` and ``tokens`` are None if the file does not contain them. ``calls`` are there if
    it contains single calls; their times count from the start of the first. ``kernels`` is how
    often each kernel was dispatched, ``medians_us`` the median of each phase over all lines.
    """

    source: str
    wall_ns: int | None
    totals: tuple[BrickTotals, ...]
    tokens: int | None = None
    calls: tuple[BrickCall, ...] = ()
    lanes: tuple[ThreadTotals, ...] = ()
    kernels: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    medians_us: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    provenance: Literal["ingested"] = "ingested"


def contradiction_error(why: str) -> ReceiptError:
    """Build the error for a file whose figures cannot all be true."""
    return ReceiptError(
        "E_TRACE_CONTRADICTS",
        f"The trace contradicts itself: {escape_name(why, _SHOWN)}.",
        "Record it again, with a profiler that times each thread by itself and counts the time of "
        "a call within another only once.",
    )


def no_bricks_error(subject: str) -> UndecidedError:
    """Build the error for a file without any brick."""
    return UndecidedError(
        "E_NO_BRICKS", f"{subject} contains no brick.", "Record while the engine generates."
    )


def normalize_name(name: str) -> str:
    """Return the known brick of that name or alias, else the name, escaped."""
    return resolve_alias(escape_name(name.strip())) or "(no name)"


MIN_LINES = 3
"""Of two figures the median is a guess."""
_TIMING, _DISPATCH = b"timing:", b"quant_dispatch"
_PHASE_BRICKS = {
    "embed_us": "Embedding",
    "forward_us": "Forward",
    "logits_us": "LmHead",
    "sample_us": "Sampling",
}
_NS_PER_US = 1000
_MAX_US = 1e15
_MAX_LINE_BYTES = 1 << 14


def has_lines(data: bytes) -> bool:
    """Whether ``data`` is text with ``timing:`` or ``quant_dispatch`` lines."""
    return data.lstrip()[:1] not in (b"{", b"[") and (_TIMING in data or _DISPATCH in data)


def read_lines(data: bytes) -> IngestedTrace:
    """Return the phases of a token as bricks, and how often each kernel was dispatched.

    The phases of a line follow each other, so the time of each is self time. The lines say nothing
    about the time outside of them, so the wall time is not known.

    Raises:
        UndecidedError: ``E_TOO_FEW_RUNS`` if a phase is on fewer than ``MIN_LINES`` lines,
            ``E_NO_BRICKS`` if there is neither a phase nor a kernel.
        ToolError: ``E_BAD_FIGURE`` or ``E_BAD_SOURCE`` for an invalid line.
        ReceiptError: ``E_TRACE`` for a line or a figure that is too large.
    """
    phases = read_phases(_iter_lines(_TIMING, data))
    dispatched = QuantDispatch().read(ProgramOutput(lines=tuple(_iter_lines(_DISPATCH, data))))
    if not phases and dispatched is None:
        raise no_bricks_error("The text")
    for name, values_us in phases.items():
        if len(values_us) < MIN_LINES:
            raise UndecidedError(
                "E_TOO_FEW_RUNS",
                f"{name} is on {len(values_us)} lines, and at least {MIN_LINES} are needed.",
                "Let the engine generate more tokens, or put the lines of more runs in one file.",
            )
        if max(values_us) > _MAX_US:
            raise TraceError(f"{name} is out of range")
    return IngestedTrace(
        "timing" if phases else QuantDispatch.name,
        None,
        tuple(_sum_phase(_PHASE_BRICKS[name], values_us) for name, values_us in phases.items()),
        kernels=dispatched.report.kernels if dispatched is not None else {},
        medians_us={name: statistics.median(values_us) for name, values_us in phases.items()},
    )


def _iter_lines(marker: bytes, data: bytes) -> Iterator[str]:
    for line in BytesIO(data):
        if marker in line:
            if len(line) > _MAX_LINE_BYTES:
                raise TraceError(f"a line has more than {_MAX_LINE_BYTES:,} bytes")
            yield decode_name(line)


def _sum_phase(brick: str, values_us: Sequence[float]) -> BrickTotals:
    values_ns = [round(value * _NS_PER_US) for value in values_us]
    return BrickTotals(
        brick,
        find_category(brick),
        len(values_ns),
        sum(values_ns),
        sum(values_ns),
        min(values_ns),
        max(values_ns),
        durations=dict(Counter(str(find_bucket(value)) for value in values_ns)),
        provenance="ingested",
    )


_LIMITS = Limits(16 << 20)
_TRUENO_KEYS = (b'"bricks"', b'"total_ns"')
_ROUNDING_NS = 6
"""Half of a microsecond's second decimal, and a little for the other tool's own arithmetic."""
_SHARE_ROUNDING_PP = 0.051

_Amount = Annotated[int, msgspec.Meta(ge=0, le=10**18)]
_Figure = Annotated[float, msgspec.Meta(ge=0, le=1e18)] | None


class TruenoBrick(msgspec.Struct, frozen=True):
    """One brick of a profile of trueno, by the names of the file."""

    name: str
    count: _Amount
    total_ns: _Amount
    avg_us: _Figure = None
    min_us: _Figure = None
    max_us: _Figure = None
    pct: _Figure = None
    total_bytes: _Amount = 0


class TruenoProfile(msgspec.Struct, frozen=True):
    """A profile of trueno or realizar, as far as it is read."""

    bricks: Annotated[tuple[TruenoBrick, ...], msgspec.Meta(max_length=MAX_NAMES)]
    total_ns: _Amount
    total_tokens: _Amount | None = None


def is_trueno(data: bytes) -> bool:
    """Whether ``data`` looks like a profile of trueno."""
    return data.lstrip()[:1] == b"{" and all(key in data for key in _TRUENO_KEYS)


def read_trueno(data: bytes) -> IngestedTrace:
    """Return the sums of bricks, after checking them against each other.

    Raises:
        ReceiptError: ``E_TRACE`` or ``E_JSON_…`` for a malformed file, ``E_TRACE_CONTRADICTS`` if
            figures do not fit each other, shares sum to more than 100 %, or bricks took longer
            than the whole.
        UndecidedError: ``E_NO_BRICKS`` if there is no call.
    """
    profile = decode_json(data, TruenoProfile, _LIMITS, subject="The trace", code="E_TRACE")
    bricks, total_ns = profile.bricks, profile.total_ns
    if len({normalize_name(brick.name) for brick in bricks}) < len(bricks):
        raise contradiction_error("it has one brick twice")
    for brick in bricks:
        _check_brick(brick)
    if not any(brick.count for brick in bricks):
        raise no_bricks_error("The trace")
    spent_ns = sum(brick.total_ns for brick in bricks)
    notes = _check_shares(bricks, total_ns)
    if spent_ns > total_ns * (1 + TOLERANCE):
        raise contradiction_error(f"its bricks took {spent_ns:,} ns of {total_ns:,} ns")
    is_sum = spent_ns >= total_ns
    if is_sum:
        notes.append("total_ns is the sum of its bricks, and so no wall time")
    if profile.total_tokens is not None:
        notes.append(
            f"total_tokens ({profile.total_tokens:,}) sums elements of all bricks: it is no tokens"
        )
    return IngestedTrace(
        "trueno", None if is_sum else total_ns, tuple(map(_convert, bricks)), notes=tuple(notes)
    )


def _check_brick(brick: TruenoBrick) -> None:
    """Raise ``E_TRACE_CONTRADICTS`` if figures differ by more than rounding."""
    calls, total_ns, name = brick.count, brick.total_ns, brick.name
    if not calls and total_ns:
        raise contradiction_error(f"{name} took {total_ns:,} ns without a call")
    slack_ns = calls * _ROUNDING_NS + total_ns * 1e-9
    average, least, most = (
        None if figure is None else figure * _NS_PER_US * calls
        for figure in (brick.avg_us, brick.min_us, brick.max_us)
    )
    if average is not None and abs(average - total_ns) > slack_ns:
        raise contradiction_error(
            f"{calls:,} calls of {name} at {brick.avg_us:g} us are not {total_ns:,} ns"
        )
    if least is not None and least > total_ns + slack_ns:
        raise contradiction_error(f"the average call of {name} is shorter than its shortest")
    if most is not None and most < total_ns - slack_ns:
        raise contradiction_error(f"the average call of {name} is longer than its longest")


def _check_shares(bricks: Sequence[TruenoBrick], total_ns: int) -> list[str]:
    """Return a note if shares differ from the times; raise if they sum to more than 100 %."""
    shares = [
        (brick.pct, 100 * brick.total_ns / max(total_ns, 1))
        for brick in bricks
        if brick.pct is not None
    ]
    sum_pct = math.fsum(share for share, _ in shares)
    if sum_pct > 100 + len(shares) * _SHARE_ROUNDING_PP:
        raise contradiction_error(f"the shares of its bricks sum to {sum_pct:.1f} %")
    wrong = sum(abs(share - computed) > _SHARE_ROUNDING_PP for share, computed in shares)
    return [f"{wrong} shares of the file differ from those of its times"] if wrong else []


def _convert(brick: TruenoBrick) -> BrickTotals:
    name, average_ns = normalize_name(brick.name), round(brick.total_ns / max(brick.count, 1))
    return BrickTotals(
        name,
        find_category(name),
        brick.count,
        brick.total_ns,
        brick.total_ns,
        average_ns if brick.min_us is None else round(brick.min_us * _NS_PER_US),
        average_ns if brick.max_us is None else round(brick.max_us * _NS_PER_US),
        bytes=brick.total_bytes,
        provenance="ingested",
    )
