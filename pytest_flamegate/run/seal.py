"""What is about to be written, without what looks like a secret.

It is taken out where text still is text: before it is encoded, escaped or digested. What
is made of that afterwards is looked through once more as a whole.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.config import thresholds
from pytest_flamegate.core.errors import FlamegateError, NoBaselineError, ToolError, UndecidedError
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.engines.tokens import generated
from pytest_flamegate.gate import Reason, refused
from pytest_flamegate.models.files import require_unchanged
from pytest_flamegate.observe.redact import Redactor
from pytest_flamegate.profile.folded import fold_profile
from pytest_flamegate.profile.stacks import require_stacks
from pytest_flamegate.receipt import Verification, verify_receipt
from pytest_flamegate.receipt.artifacts import (
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
from pytest_flamegate.receipt.compose import Subject, compose
from pytest_flamegate.receipt.documents import encode_evidence, encode_receipt
from pytest_flamegate.receipt.metrics import cost_of
from pytest_flamegate.report import (
    flamegraph,
    flamegraph_html,
    flamegraph_markdown,
    picture_subtitle,
)
from pytest_flamegate.report.markdown import decode_picture
from pytest_flamegate.run.bricks import bricks_of, with_roofline
from pytest_flamegate.run.decode import document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.bricks.record import Recorded
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.figures import Report
    from pytest_flamegate.gate import Verdict
    from pytest_flamegate.observe.observation import Observation
    from pytest_flamegate.profile.decode import DecodeProfile
    from pytest_flamegate.profile.difference import ProfileDifference
    from pytest_flamegate.profile.model import Frame, Profile, Stack
    from pytest_flamegate.profile.profilers.instructions import InstructionCount
    from pytest_flamegate.receipt.types import Evidence, Receipt
    from pytest_flamegate.run.measure import Measuring


def of_profile(profile: Profile, redactor: Redactor) -> Profile:
    """Return ``profile`` without secrets in the names of its functions and files."""
    frames = {frame for stack in profile.stacks for frame in stack}
    whole = "\n".join(f"{frame.name}\n{frame.module}" for frame in frames)
    if redactor.surely(whole, "profile") == whole:
        return profile
    clean = {frame: _frame(frame, redactor) for frame in frames}
    stacks: Counter[Stack] = Counter()
    for stack, count in profile.stacks.items():
        stacks[tuple(clean[frame] for frame in stack)] += count
    return replace(profile, stacks=dict(stacks))


def _frame(frame: Frame, redactor: Redactor) -> Frame:
    name, module = (redactor.surely(each, "profile") for each in (frame.name, frame.module))
    return frame._replace(name=name, module=module)


def of_reports(seen: Observation, redactor: Redactor) -> Observation:
    """Return ``seen`` without secrets in what engines say of themselves: names, all of it.

    Two names that are the same without their secrets count together, of figures the last stays.
    """
    runs = tuple(
        replace(run, reported=tuple(_report(report, redactor) for report in run.reported))
        if run.reported
        else run
        for run in seen.runs
    )
    return seen if runs == seen.runs else replace(seen, runs=runs)


def _report(report: Report, redactor: Redactor) -> Report:
    def clean(name: str) -> str:
        return redactor.surely(name, "evidence.runs.reported")

    kernels: Counter[str] = Counter()
    for name, count in report.kernels.items():
        kernels[clean(name)] += count
    figures = {clean(name): value for name, value in report.figures.items()}
    return replace(report, source=clean(report.source), figures=figures, kernels=dict(kernels))


def of_claim(
    receipt: Receipt | None, evidence: Evidence, redactor: Redactor
) -> tuple[Receipt | None, Evidence]:
    """Return both without secrets; the evidence says where one was taken out.

    ``ToolError`` ``E_SECRET_IN_OUTPUT`` where the engine itself wrote one: without it the
    tokens would not be those that were seen.
    """
    text = generated(evidence.tokens, evidence.token_source)
    if Redactor(redactor.values).surely(text, "") != text:
        raise ToolError(
            "E_SECRET_IN_OUTPUT",
            f"The output of {evidence.workload.get('name')!r} holds what looks like a secret: a "
            "token of a known form, or the value of a variable with a name like a secret's.",
            "Keep it out of what the engine writes, or out of its environment.",
        )
    receipt = redactor.clean(receipt, "receipt")
    evidence = redactor.clean(evidence, "evidence")
    return receipt, replace(evidence, redacted=tuple(redactor.places))


def of_verdict(verdict: Verdict, redactor: Redactor) -> Verdict:
    """Return ``verdict`` without secrets; its reasons may quote what a program said."""
    reasons = tuple(
        replace(each, message=redactor.text(each.message, "verdict")) for each in verdict.reasons
    )
    return redactor.clean(replace(verdict, reasons=reasons), "verdict")


def verdict_on(error: FlamegateError, workload: Workload) -> Verdict:
    """Return the verdict of a run that failed; what a program said stands in it without secrets."""
    redactor = Redactor.of(os.environ, workload.env)
    name: Literal["no_baseline", "inconclusive", "error"] = "error"
    if isinstance(error, UndecidedError):
        name = "no_baseline" if isinstance(error, NoBaselineError) else "inconclusive"
    return refused(
        name,
        [Reason(error.code, redactor.text(f"{error.problem} {error.remedy}", "verdict"))],
        grade="SELF_REPORTED",
    )


def require_none(files: Mapping[str, bytes], redactor: Redactor) -> None:
    """Look through the very bytes that will be written.

    ``ToolError`` ``E_SECRET``: what is found here came by a way that nobody thought of.
    """
    for name, data in files.items():
        text = data.decode("utf-8", "replace")
        if Redactor(redactor.values).surely(text, "") != text:
            raise ToolError(
                "E_SECRET",
                f"Nothing was written: {name} would hold what looks like a secret.",
                "Unset the variable that holds it while measuring, and report this.",
            )


STACK_FLOOR = thresholds.STACK_FLOOR


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
    pool = [of_profile(each, redactor) for each in measuring.pool]
    pooled = pooled and of_profile(pooled, redactor)
    seen = of_reports(measuring.observation, redactor)
    recorded = redactor.clean(measuring.recorded, "bricks")
    told = compose(subject, seen, pool, pooled, measuring.overhead_pct(), measuring.bricks)
    receipt, evidence = of_claim(*told, redactor)
    files: dict[str, bytes] = {}
    if receipt is not None:
        files[RECEIPT] = encode_receipt(receipt)
        evidence = replace(evidence, receipt_sha256=hashlib.sha256(files[RECEIPT]).hexdigest())
    files[EVIDENCE] = encode_evidence(evidence)
    if recorded is not None:
        files[BRICKS] = _brick_document(recorded, evidence)
    verification = None
    if pooled is not None:
        files[FOLDED] = fold_profile(pooled).encode()
    if receipt is not None:
        verification = verify_receipt(
            files[RECEIPT], evidence=files[EVIDENCE], profile_folded=files[FOLDED]
        )
    return Sealed(receipt, evidence, pooled, files, verification, redactor)


def _brick_document(recorded: Recorded, evidence: Evidence) -> bytes:
    """Return the content of ``bricks.json``: the calls of one token, and what they belong to."""
    return encode_json(
        {
            "schema_version": evidence.schema_version,
            "nonce": evidence.nonce,
            "workload": evidence.workload.get("name"),
            "wall_ns": recorded.wall_ns,
            "sync": recorded.sync,
            "lanes": recorded.lanes,
            "calls": recorded.calls,
        }
    )


def pictures(
    workload: Workload,
    sealed: Sealed,
    verdict: Verdict,
    *,
    again: str,
    decode: DecodeProfile | None = None,
    difference: ProfileDifference | None = None,
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
    told = sealed.files.get(BRICKS)
    bricks, _ = bricks_of(sealed.evidence, told, all_of_it=f"flamegate bricks {BRICKS}")
    page = flamegraph_markdown(
        sealed.evidence,
        sealed.receipt,
        verdict,
        regenerate=again,
        decode=decode,
        difference=None if difference is None else DIFFERENCE,
        bricks=bricks and with_roofline(bricks, sealed.evidence, measure=True),
    )
    files = {PICTURE: picture.encode(), INTERACTIVE: explored.encode(), PAGE: page.encode()}
    if decode is not None:
        files[DECODE] = document(decode, sealed.evidence)
        files[DECODE_FOLDED] = fold_profile(decode.profile).encode()
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
    return {
        INSTRUCTIONS: fold_profile(count.profile).encode(),
        INSTRUCTIONS_PICTURE: picture.encode(),
    }
