"""Where a verification reads from: bytes handed over, or files that stand together."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.files import OpenDirectory, open_directory, read_bounded
from pytest_flamegate.core.json import EVIDENCE_LIMITS, RECEIPT_LIMITS
from pytest_flamegate.core.text import Refusal, quote

if TYPE_CHECKING:
    from collections.abc import Iterator


RECEIPT_NAME = "receipt.json"
EVIDENCE_NAME = "evidence.json"
FOLDED_NAME = "profile.folded"
ATTESTATION_NAME = "attestation.dsse.json"
FOLDED_MAX_BYTES = 64 << 20

Source: TypeAlias = bytes | Path


@dataclass(frozen=True, slots=True)
class Sources:
    """Raw bytes, or why they could not be read; None where nothing stands there.

    The ``attestation`` is only found: nobody reads it who has no key.
    """

    receipt: bytes | Refusal
    evidence: bytes | Refusal | None
    folded: bytes | Refusal | None
    attestation: Source | None = None

    @property
    def files(self) -> dict[str, bytes]:
        """Name to content of what could be read."""
        parts = {
            RECEIPT_NAME: self.receipt,
            EVIDENCE_NAME: self.evidence,
            FOLDED_NAME: self.folded,
        }
        return {name: raw for name, raw in parts.items() if isinstance(raw, bytes)}


def read_sources(
    receipt: Source,
    evidence: Source | None = None,
    folded: Source | None = None,
    attestation: Source | None = None,
) -> Sources:
    """Read what was given; look beside a receipt's path for what was not. Never raises.

    The folded profile is also looked for beside the evidence. What stands beside a file is
    read through the same open directory as the file itself: nobody swaps it in between.
    """
    with _place(receipt) as by_receipt, _place(evidence) as by_evidence:
        read = _read(by_receipt, receipt, RECEIPT_LIMITS.max_bytes)
        if evidence is not None:
            seen: bytes | Refusal | None = _read(by_evidence, evidence, EVIDENCE_LIMITS.max_bytes)
        else:
            seen = _beside(by_receipt, EVIDENCE_NAME, EVIDENCE_LIMITS.max_bytes)
        if folded is not None:
            stacks: bytes | Refusal | None = read_source(folded, FOLDED_MAX_BYTES)
        else:
            stacks = _beside(by_receipt, FOLDED_NAME, FOLDED_MAX_BYTES)
            if stacks is None:
                stacks = _beside(by_evidence, FOLDED_NAME, FOLDED_MAX_BYTES)
        # Found and not read: it signs the bytes above, so another one would not fit them.
        if attestation is None and by_receipt is not None and by_receipt.holds(ATTESTATION_NAME):
            attestation = by_receipt.path / ATTESTATION_NAME
        return Sources(read, seen, stacks, attestation)


def read_source(source: Source, limit: int) -> bytes | Refusal:
    """Return at most ``limit`` raw bytes from ``source``, or why there are none. Never raises."""
    with _place(source) as place:
        return _read(place, source, limit)


@contextmanager
def _place(source: Source | None) -> Iterator[OpenDirectory | None]:
    """Open the directory that a path stands in; None for bytes, and where there is none."""
    with ExitStack() as stack:
        directory = None
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            with suppress(FlamegateError):
                directory = stack.enter_context(open_directory(path.parent if path.name else path))
        yield directory


def _beside(place: OpenDirectory | None, name: str, limit: int) -> bytes | Refusal | None:
    # A dangling or foreign link is there too: reading it is refused, not skipped.
    if place is None or not place.holds(name):
        return None
    try:
        return place.read(name, limit)
    except FlamegateError as error:
        return Refusal(error.code, error.problem, error.remedy)


def _read(place: OpenDirectory | None, source: Source, limit: int) -> bytes | Refusal:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if not isinstance(source, (str, os.PathLike)):
        return Refusal(
            "E_BAD_INPUT", f"Bytes or a path are wanted, not {quote(source)}.", "Give one of them."
        )
    path = Path(source)
    try:
        if place is None or path.name in ("", ".."):
            return read_bounded(path, limit)
        return place.read(path.name, limit)
    except FlamegateError as error:
        return Refusal(error.code, error.problem, error.remedy)
