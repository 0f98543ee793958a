"""From measurements to the exact bytes that will be written, and whether they verify."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_flamegate import withholding
from pytest_flamegate.bricks.telling import plain
from pytest_flamegate.decoding import document
from pytest_flamegate.paths import real, shown
from pytest_flamegate.profile import fold, require_stacks
from pytest_flamegate.receipt import Verification, verify_receipt
from pytest_flamegate.receipt.build import encode_evidence, encode_receipt
from pytest_flamegate.receipt.compose import Subject, compose
from pytest_flamegate.receipt.metrics import cost_of
from pytest_flamegate.receipt.shelves import (
    BRICKS,
    DECODE,
    DECODE_FOLDED,
    DECODE_PICTURE,
    DIFFERENCE,
    EVIDENCE,
    FOLDED,
    INSTRUCTIONS,
    INSTRUCTIONS_PICTURE,
    INTERACTIVE,
    PAGE,
    PICTURE,
    RECEIPT,
)
from pytest_flamegate.receipt.strict_json import dumps
from pytest_flamegate.report import (
    flamegraph,
    flamegraph_html,
    flamegraph_markdown,
    picture_subtitle,
)
from pytest_flamegate.report.decode import decode_picture
from pytest_flamegate.workload import floors
from pytest_flamegate.workload.model_digest import model_sha256
from pytest_flamegate.workload.model_files import require_unchanged, stamps
from pytest_flamegate.workload.model_reading import read_model
from pytest_flamegate.workload.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flamegate.bricks.record import Recorded
    from pytest_flamegate.gate import Verdict
    from pytest_flamegate.measuring import Measuring
    from pytest_flamegate.profile import Profile
    from pytest_flamegate.profile.difference import Difference
    from pytest_flamegate.profile.instructions import InstructionCount
    from pytest_flamegate.profile.subtraction import DecodeProfile
    from pytest_flamegate.receipt.types import Evidence, Receipt
    from pytest_flamegate.workload.spec import Workload

STACK_FLOOR = floors.STACK_FLOOR


@dataclass(frozen=True, slots=True)
class Sealed:
    """One look at the measurements: claim and evidence as bytes, and what they verify as.

    ``receipt`` and ``verification`` are None where profiling is off. ``redactor`` took out
    what looks like a secret, and knows where.
    """

    receipt: Receipt | None
    evidence: Evidence
    profile: Profile | None
    files: Mapping[str, bytes]
    verification: Verification | None
    redactor: Redactor = field(default_factory=Redactor)

    @property
    def grade(self) -> str:
        """The grade reached; without a receipt there is only this run's own word."""
        return self.verification.grade.name if self.verification else "SELF_REPORTED"


def seal(subject: Subject, measuring: Measuring) -> Sealed:
    """Turn what was measured so far into the exact bytes that will be written, and verify them.

    Secrets are taken out first: digests are made of what is written. ``ToolError``:
    ``E_MODEL_CHANGED`` where a file of the model did since it was digested,
    ``E_PROGRAM_CHANGED`` where the program was replaced meanwhile, ``E_SECRET_IN_OUTPUT``
    where the engine itself wrote a secret: without it the tokens would not be those that were
    seen.
    """
    if subject.look is not None:
        subject.look.require_unchanged()
    pooled = measuring.profile
    if pooled is not None:
        require_stacks(pooled, STACK_FLOOR)
    require_unchanged(subject.stamps)
    redactor = Redactor.of(os.environ, subject.workload.env)
    pool = [withholding.of_profile(each, redactor) for each in measuring.pool]
    pooled = pooled and withholding.of_profile(pooled, redactor)
    seen = withholding.of_reports(measuring.observation, redactor)
    recorded = redactor.clean(measuring.recorded, "bricks")
    told = compose(subject, seen, pool, pooled, measuring.overhead_pct(), measuring.bricks)
    receipt, evidence = withholding.of_claim(*told, redactor)
    files: dict[str, bytes] = {}
    if receipt is not None:
        files[RECEIPT] = encode_receipt(receipt)
        evidence = replace(evidence, receipt_sha256=hashlib.sha256(files[RECEIPT]).hexdigest())
    files[EVIDENCE] = encode_evidence(evidence)
    if recorded is not None:
        files[BRICKS] = _brick_document(recorded, evidence)
    verification = None
    if pooled is not None:
        files[FOLDED] = fold(pooled).encode()
    if receipt is not None:
        verification = verify_receipt(
            files[RECEIPT], evidence=files[EVIDENCE], profile_folded=files[FOLDED]
        )
    return Sealed(receipt, evidence, pooled, files, verification, redactor)


def _brick_document(recorded: Recorded, evidence: Evidence) -> bytes:
    """Return the content of ``bricks.json``: the calls of one token, and what they belong to."""
    told = plain(recorded)
    return dumps(
        {
            "schema_version": evidence.schema_version,
            "nonce": evidence.nonce,
            "workload": evidence.workload.get("name"),
            **{name: told[name] for name in ("wall_ns", "sync", "lanes", "calls")},
        }
    )


def pictures(
    workload: Workload,
    sealed: Sealed,
    verdict: Verdict,
    *,
    again: str,
    decode: DecodeProfile | None = None,
    difference: Difference | None = None,
) -> dict[str, bytes]:
    """Return the flame graph, still and to explore, and its page; nothing without a profile.

    ``again`` is the command that makes them again; ``decode`` the profile of decode alone,
    where it was asked for; ``difference`` is what changed, whose picture stands beside
    them.
    """
    if sealed.profile is None or sealed.receipt is None:
        return {}
    title = workload.node_name
    subtitle = picture_subtitle(sealed.evidence, sealed.receipt)
    cost = cost_of(sealed.profile.covers, sealed.evidence.metrics)
    picture = flamegraph(sealed.profile, title=title, subtitle=subtitle, cpu_s_per_token=cost)
    explored = flamegraph_html(
        sealed.profile,
        title=title,
        subtitle=subtitle,
        cpu_s_per_token=cost,
        difference=difference,
    )
    page = flamegraph_markdown(
        sealed.evidence,
        sealed.receipt,
        verdict,
        regenerate=again,
        decode=decode,
        difference=None if difference is None else DIFFERENCE,
    )
    files = {PICTURE: picture.encode(), INTERACTIVE: explored.encode(), PAGE: page.encode()}
    if decode is not None:
        files[DECODE] = document(decode, sealed.evidence)
        files[DECODE_FOLDED] = fold(decode.profile).encode()
        files[DECODE_PICTURE] = decode_picture(decode, workload.node_name).encode()
    return files


def counted_files(workload: Workload, sealed: Sealed, count: InstructionCount) -> dict[str, bytes]:
    """Return the counted instructions as folded stacks, and as a flame graph of their own."""
    per_token = f"{round(count.per_token):,} instructions a token, {count.profile.covers} counted"
    picture = flamegraph(
        count.profile,
        title=f"{workload.node_name}: instructions",
        subtitle=f"{picture_subtitle(sealed.evidence, None)} · {per_token}",
        cpu_s_per_token=None,
    )
    return {INSTRUCTIONS: fold(count.profile).encode(), INSTRUCTIONS_PICTURE: picture.encode()}


def model_facts(model: Path | None, workload: Workload) -> dict[str, str | int]:
    """Return what the receipt says of the model: its path, and what its header tells.

    ``bytes_per_token`` stands there only where the header says it for certain; of a split
    model all parts count, and its digest is that of all their bytes in order.
    """
    if model is None:
        return {"path": workload.model or workload.target or f"engine:{workload.engine}"}
    facts: dict[str, str | int] = {"path": _told_path(model, workload.directory)}
    if model.suffix == ".gguf":
        read = read_model(model)
        facts |= {
            "name": read.name,
            "architecture": read.architecture,
            "parameters": read.parameters,
            "quantisation": read.quantisation_words,
        }
        if read.bytes_per_token is not None:
            facts["bytes_per_token"] = read.bytes_per_token
    size_bytes = sum(each.size_bytes for each in stamps(model))
    return {**facts, "sha256": model_sha256(model), "size_bytes": size_bytes}


def _told_path(model: Path, directory: Path) -> str:
    """Return the path as it means something to others: inside the project, else its name."""
    try:
        return shown(real(model).relative_to(real(directory)).as_posix())
    except ValueError:
        return shown(model.name)
