"""Where a verification reads from: bytes handed over, or files that stand together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pytest_flamegate.errors import FlamegateError
from pytest_flamegate.receipt.disk import read_bounded
from pytest_flamegate.receipt.findings import Refusal, shown
from pytest_flamegate.receipt.strict_json import EVIDENCE_MAX_BYTES, RECEIPT_MAX_BYTES

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

    The folded profile is also looked for beside the evidence.
    """
    if evidence is None:
        evidence = _beside(receipt, EVIDENCE_NAME)
    if folded is None:
        folded = _beside(receipt, FOLDED_NAME)
    if folded is None and evidence is not None:
        folded = _beside(evidence, FOLDED_NAME)
    if attestation is None:
        attestation = _beside(receipt, ATTESTATION_NAME)
    return Sources(
        read_source(receipt, RECEIPT_MAX_BYTES),
        None if evidence is None else read_source(evidence, EVIDENCE_MAX_BYTES),
        None if folded is None else read_source(folded, FOLDED_MAX_BYTES),
        attestation,
    )


def _beside(source: Source, name: str) -> Path | None:
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = Path(source).with_name(name) if Path(source).name else Path(source) / name
    # A dangling or foreign link is there too: reading it is refused, not skipped.
    return path if os.path.lexists(path) else None


def read_source(source: Source, limit: int) -> bytes | Refusal:
    """Return at most ``limit`` raw bytes from ``source``, or why there are none. Never raises."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if not isinstance(source, (str, os.PathLike)):
        return Refusal(
            "E_BAD_INPUT", f"Bytes or a path are wanted, not {shown(source)}.", "Give one of them."
        )
    try:
        return read_bounded(Path(source), limit)
    except FlamegateError as error:
        return Refusal(error.code, error.what, error.todo)
