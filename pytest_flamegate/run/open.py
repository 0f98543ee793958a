"""A profile by any of its names: a run's directory, one of its files, or a profile alone.

Evidence beside a folded profile says how it was taken, but only if it names the very
bytes that stand there.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import ReceiptError, UsageError
from pytest_flamegate.core.files import read_bounded
from pytest_flamegate.core.json import EVIDENCE_MAX_BYTES
from pytest_flamegate.core.paths import is_file
from pytest_flamegate.profile.folded import fold_profile, parse_folded
from pytest_flamegate.profile.formats.registry import parse_profile, read_file
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.receipt.artifacts import (
    BASE_EVIDENCE,
    BASE_FOLDED,
    BASE_INSTRUCTIONS,
    DECODE_FOLDED,
    DESCRIBED,
    EVIDENCE,
    FOLDED,
    INSTRUCTIONS,
    RECEIPT,
)
from pytest_flamegate.receipt.documents import decode_evidence, decode_receipt
from pytest_flamegate.receipt.metrics import cost_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_flamegate.profile.model import Unit
    from pytest_flamegate.receipt.types import Evidence, ProfileRecord


_PAIRS = {FOLDED: EVIDENCE, BASE_FOLDED: BASE_EVIDENCE}
_UNITS: dict[str, Unit] = {
    INSTRUCTIONS: "instructions",
    BASE_INSTRUCTIONS: "instructions",
    DECODE_FOLDED: "nanoseconds",
}
"""What counts stand for in a run's other profiles: folded stacks themselves do not say."""
_DOCUMENTS = frozenset({RECEIPT, EVIDENCE, BASE_EVIDENCE})
_OURS = re.compile(rb'\s*\{\s*"(?:schema_version|nonce)"')
_AGAIN = "Restore it from version control, or measure again."


@dataclass(frozen=True, slots=True)
class Opened:
    """A profile, what to call it, and what is known of the run that it was taken in.

    ``cpu_s_per_token`` is the CPU time of one token in seconds, of the phase that the
    profile covers; it and ``evidence`` are None where no evidence stands beside.
    """

    profile: Profile
    name: str
    cpu_s_per_token: float | None
    evidence: Evidence | None


def open_profile(path: Path, roots: Sequence[str] = ()) -> Opened:
    """Open the profile that ``path`` leads to.

    A run's directory, its receipt, evidence or folded profile, or any file that
    ``read_profile`` reads; ``roots`` are for foreign paths, as there. Raises ``UsageError``
    ``E_NO_RUN`` for a directory without a profile, ``ReceiptError`` ``E_NO_PROFILE`` for a
    run that was not profiled, ``E_PROFILE_CHANGED`` or ``E_RECEIPT_CHANGED`` where evidence
    names other bytes than stand beside it, and what reading raises.
    """
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
        return _directory(path)
    data = read_file(path)
    if path.name in _DOCUMENTS or _OURS.match(data):
        return _beside(path, data)
    if evidence := _evidence_of(path, data):
        return _run(evidence, data, path)
    profile = _described(path, data) or parse_profile(data, roots)
    if path.name in _UNITS and is_file(path.with_name(EVIDENCE)):
        profile = replace(profile, unit=_UNITS[path.name])
    return Opened(profile, path.stem, None, None)


def _directory(path: Path) -> Opened:
    folded = path / FOLDED
    if not is_file(folded):
        raise UsageError(
            "E_NO_RUN",
            f"{str(path)!a} holds no {FOLDED}.",
            "Give the directory of a run, a receipt, or a profile.",
        )
    opened = open_profile(folded)
    if opened.evidence is not None:
        return opened
    return Opened(opened.profile, path.resolve().name, None, None)


def _beside(path: Path, data: bytes) -> Opened:
    """Open the profile of a receipt or of evidence, whose own bytes are ``data``."""
    if path.name in _PAIRS.values() or b'"receipt_sha256"' in data:
        evidence = decode_evidence(data)
        folded = next((ours for ours, its in _PAIRS.items() if its == path.name), FOLDED)
    else:
        decode_receipt(data)
        evidence = decode_evidence(read_bounded(path.with_name(EVIDENCE), EVIDENCE_MAX_BYTES))
        _same("E_RECEIPT_CHANGED", "receipt", evidence.receipt_sha256, data)
        folded = FOLDED
    if evidence.profile is None:
        raise ReceiptError(
            "E_NO_PROFILE",
            f"The run of {str(path)!a} was not profiled.",
            "Measure with a profiler (--flamegate-profiler=auto).",
        )
    beside = path.with_name(folded)
    return _run(evidence, read_file(beside), beside)


def _evidence_of(path: Path, data: bytes) -> Evidence | None:
    """Return the evidence beside a folded profile; a file of another name need not have any."""
    beside = path.with_name(_PAIRS.get(path.name, EVIDENCE))
    if not is_file(beside):
        return None
    evidence = decode_evidence(read_bounded(beside, EVIDENCE_MAX_BYTES))
    if path.name in _PAIRS or _sha256(data) == _recorded(evidence):
        return evidence
    return None


def _described(path: Path, data: bytes) -> Profile | None:
    """Return an imported profile with what was known of it, None where it was not imported."""
    beside = path.with_name(DESCRIBED)
    if path.name != FOLDED or not is_file(beside):
        return None
    described = parse_profile(read_file(beside))
    if fold_profile(described).encode() != data:
        raise ReceiptError(
            "E_PROFILE_CHANGED",
            f"{str(path)!a} holds other stacks than {DESCRIBED} beside it.",
            "Import the profile again.",
        )
    return described


def _run(evidence: Evidence, data: bytes, path: Path) -> Opened:
    record = evidence.profile
    _same("E_PROFILE_CHANGED", "profile", _recorded(evidence), data)
    assert record is not None  # without one no digest would have been the same
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ReceiptError("E_FOLDED", f"{str(path)!a} is not UTF-8.", _AGAIN) from None
    profile = _profile(record, text)
    name = str(evidence.workload.get("name") or path.resolve().parent.name)
    return Opened(profile, name, cost_of(profile.covers, evidence.metrics), evidence)


def _profile(record: ProfileRecord, text: str) -> Profile:
    """Return the profile as it was pooled; how long it took is not recorded, and so 0."""
    stacks = parse_folded(text)
    known = {each.name for each in fields(record)} & {each.name for each in fields(Profile)}
    return Profile(
        **{name: getattr(record, name) for name in known},
        stacks=stacks,
        complete=round(record.completeness * sum(stacks.values())),
        duration_ns=0,
        pids=tuple(process.pid for process in record.processes),
        started_ticks=tuple(process.started_ticks for process in record.processes),
    )


def _recorded(evidence: Evidence) -> str:
    return "" if evidence.profile is None else evidence.profile.folded_sha256


def _same(code: str, what: str, recorded: str, data: bytes) -> None:
    if (found := _sha256(data)) != recorded:
        raise ReceiptError(
            code,
            f"The evidence belongs to the {what} {recorded[:12] or 'of no file'}, and the one "
            f"beside it is {found[:12]}.",
            _AGAIN,
        )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
