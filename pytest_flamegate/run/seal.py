"""From a measurement to the bytes that are written: composed, without secrets, verified.

Secrets are removed while text still is text: before it is encoded, escaped or digested. The
files are searched once more as a whole before they are written.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_flamegate.bricks.record import Recorded
from pytest_flamegate.config.thresholds import STACK_FLOOR
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import encode_json, replace
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.gate.lines import LineSamples, count_lines
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.models.files import require_unchanged
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.observe.redact import Redactor
from pytest_flamegate.profile.calls import CallCounts, NativeWork, name_calls
from pytest_flamegate.profile.frames import fold_profile, path_prefixes
from pytest_flamegate.profile.model import LineStack, Profile, SourceLine, Stack
from pytest_flamegate.profile.source_lines import fold_lines
from pytest_flamegate.profile.stacks import cut_stacks_error
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.baseline import BRICKS, EVIDENCE, FOLDED, LINES, RECEIPT
from pytest_flamegate.receipt.compose import compose as compose_claim
from pytest_flamegate.receipt.documents import encode_evidence, encode_receipt
from pytest_flamegate.receipt.types import Evidence, Receipt
from pytest_flamegate.receipt.verify import describe_shortfall
from pytest_flamegate.run.stages import Measured, MeasuredSide, Prepared


@dataclass(frozen=True, slots=True)
class ComposedSide:
    """One side without secrets, which ``redactor`` knows; no ``receipt`` if profiling is off.

    Once it is sealed it has ``files``, and if there is a receipt a ``verification`` and its digest
    in the evidence.
    """

    receipt: Receipt | None
    evidence: Evidence
    profile: Profile | None
    recorded: Recorded | None
    redactor: Redactor
    files: Mapping[str, bytes] = field(default_factory=dict)
    verification: Verification | None = None

    @property
    def grade(self) -> str:
        """The grade reached; without a receipt the run is only reported by itself."""
        return self.verification.grade.name if self.verification else "SELF_REPORTED"


@dataclass(frozen=True, slots=True)
class ComposedRun:
    """A measured workload as it can be judged. ``base`` is None if it was measured alone.

    ``notes`` say what has to be known about how it was measured, ``lines`` are the samples of both
    sides by line, ``calls`` the calls of functions on both sides.
    """

    measured: Measured
    head: ComposedSide
    base: ComposedSide | None = None
    notes: tuple[Reason, ...] = ()
    lines: LineSamples | None = None
    calls: tuple[CallCounts, CallCounts] | None = None

    @property
    def prepared(self) -> Prepared:
        """The sides and the baseline that it was planned with."""
        return self.measured.prepared

    @property
    def instructions(self) -> tuple[Mapping[str, NativeWork], Mapping[str, NativeWork]] | None:
        """Instructions per token by function of base and head, if both were counted."""
        counts = [each.count.by_function for each in self.prepared.sides if each.count is not None]
        return (counts[0], counts[1]) if len(counts) > 1 else None

    @property
    def errors(self) -> tuple[Reason, ...]:
        """Why the receipts are not honest; empty if they are, and before the run is sealed."""
        found: list[Reason] = []
        for name, verification in self._verifications:
            for error in verification.refusals:
                message = error.message if self.base is None else f"{name}: {error.message}"
                found.append(Reason(error.code, message))
        return tuple(found)

    def find_low_grades(self, wanted: Grade) -> tuple[Reason, ...]:
        """Return the receipts of a comparison below a grade; none before it is sealed.

        A head without samples has no receipt. It needs one if the base has one.
        """
        found = []
        for name, each in self._verifications if self.base is not None else ():
            if each.grade < wanted and not each.refusals:
                message = describe_shortfall(each.grade, wanted, each.lowered_by)
                found.append(Reason.advise("E_GRADE", f"{name}: {message}"))
        if self.base is not None and self.base.verification and not self.head.verification:
            message = "head: There is no receipt: the profiler took samples of the base alone."
            found.append(Reason.advise("E_GRADE", message))
        return tuple(found)

    @property
    def _verifications(self) -> list[tuple[str, Verification]]:
        sides = ("base", self.base), ("head", self.head)
        return [(name, side.verification) for name, side in sides if side and side.verification]


def compose(measured: Measured) -> ComposedRun:
    """Compose receipt and evidence of every side, and remove every text that looks like a secret.

    Raises:
        ToolError: ``E_MODEL_CHANGED`` or ``E_ENGINE_CHANGED`` if a file did while it was
            measured, ``E_SECRET`` if the engine itself generated a secret: without
            it the tokens would not be those that were observed.
    """
    sides = [_compose_side(side) for side in measured.sides]
    head, base = sides[-1], sides[0] if len(sides) > 1 else None
    notes = [*measured.prepared.notes]
    for side in measured.sides:
        before = "Of the base: " if side.side.role == "base" else ""
        notes += [Reason(code, f"{before}{text}") for code, text in side.notes.items()]
        cut = cut_stacks_error(side.pooled, STACK_FLOOR) if side.pooled is not None else None
        if cut is not None:
            notes.append(Reason(cut.code, f"{before}{cut.problem} {cut.remedy}"))
    clean = tuple(
        Reason(note.code, head.redactor.redact_text(note.message, "verdict"))
        for note in (*notes, *measured.notes)
    )
    lines, changes = None, measured.prepared.changes
    if base is not None and changes is not None:
        lines = count_lines(measured.sides[0].profiles, measured.sides[1].profiles, changes)
    return ComposedRun(measured, head, base, clean, lines, _name_calls(measured, head.redactor))


def _name_calls(measured: Measured, redactor: Redactor) -> tuple[CallCounts, CallCounts] | None:
    """Return the calls of base and head by the names of functions; None without both."""
    sides = measured.sides
    roots = {root for side in sides for root in side.side.moved or ()}
    prefixes = {prefix for root in roots for prefix in path_prefixes(root)}
    longest_first = sorted(prefixes, key=lambda prefix: (-len(prefix), prefix))
    found = [
        name_calls(redactor.clean(side.calls, "verdict"), longest_first)
        for side in sides
        if side.calls is not None
    ]
    return (found[0], found[1]) if len(found) > 1 else None


def seal(run: ComposedRun) -> ComposedRun:
    """Encode a run as it will be written, and verify it. Nothing more will be measured."""
    return replace(run, head=_seal_side(run.head), base=run.base and _seal_side(run.base))


def require_no_secret(files: Mapping[str, bytes], redactor: Redactor) -> None:
    """Search the very bytes that will be written; ``ToolError`` ``E_SECRET`` if one has any."""
    for name, data in files.items():
        if redactor.holds_secret(data.decode("utf-8", "replace")):
            raise ToolError(
                "E_SECRET",
                f"Nothing was written: {name} would hold a text that looks like a secret.",
            )


def _compose_side(measured: MeasuredSide) -> ComposedSide:
    subject, pooled = measured.side.subject, measured.pooled
    if subject.program is not None:
        subject.program.require_unchanged()
    require_unchanged(measured.side.stamps)
    redactor = Redactor.from_environments(os.environ, subject.workload.env)
    pooled = pooled and redacted_profile(pooled, redactor)
    receipt, evidence = compose_claim(
        subject,
        redacted_reports(measured.observation, redactor),
        [redacted_profile(each, redactor) for each in measured.profiles],
        pooled,
        measured.overhead_pct,
        measured.bricks,
    )
    recorded = redactor.clean(measured.recorded, "bricks")
    if redactor.holds_secret(evidence.text):
        raise ToolError(
            "E_SECRET",
            f"The output of {subject.workload.name!r} holds a text that looks like a "
            "secret: a token of a known form, or the value of a variable with a name like a "
            "secret's.",
        )
    receipt, evidence = redactor.clean(receipt, "receipt"), redactor.clean(evidence, "evidence")
    evidence = replace(evidence, redacted=tuple(redactor.places))
    return ComposedSide(receipt, evidence, pooled, recorded, redactor)


def _seal_side(side: ComposedSide) -> ComposedSide:
    files: dict[str, bytes] = {}
    verification = None
    if side.receipt is not None:
        files[RECEIPT] = encode_receipt(side.receipt)
        digest = hashlib.sha256(files[RECEIPT]).hexdigest()
        side = replace(side, evidence=replace(side.evidence, receipt_sha256=digest))
    files[EVIDENCE] = encode_evidence(side.evidence)
    if (recorded := side.recorded) is not None:
        files[BRICKS] = encode_json(
            {
                "schema_version": side.evidence.schema_version,
                "nonce": side.evidence.nonce,
                "workload": side.evidence.workload.get("name"),
                "wall_ns": recorded.wall_ns,
                "sync": recorded.sync,
                "lanes": recorded.lanes,
                "calls": recorded.calls,
            }
        )
    if side.profile is not None:
        files[FOLDED] = fold_profile(side.profile).encode()
        if side.profile.lines:
            files[LINES] = fold_lines(side.profile.lines).encode()
    if side.receipt is not None:
        verification = verify_receipt(
            files[RECEIPT], evidence=files[EVIDENCE], profile_folded=files[FOLDED]
        )
    return replace(side, files=files, verification=verification)


def redacted_profile(profile: Profile, redactor: Redactor) -> Profile:
    """Return ``profile`` without secrets in the names of its functions and files."""
    frames = {frame for stack in profile.stacks for frame in stack}
    files = {line.file for stack in profile.lines for line in stack}
    whole = "\n".join([*(f"{frame.name}\n{frame.module}" for frame in frames), *files])
    if not redactor.holds_secret(whole):
        return profile
    clean = {
        frame: frame._replace(
            name=redactor.redact_certain(frame.name, "profile"),
            module=redactor.redact_certain(frame.module, "profile"),
        )
        for frame in frames
    }
    stacks: Counter[Stack] = Counter()
    for stack, count in profile.stacks.items():
        stacks[tuple(clean[frame] for frame in stack)] += count
    names = {file: redactor.redact_certain(file, "profile") for file in files}
    lines: Counter[LineStack] = Counter()
    for passed, count in profile.lines.items():
        lines[tuple(SourceLine(names[line.file], line.line) for line in passed)] += count
    return replace(profile, stacks=dict(stacks), lines=dict(lines))


def redacted_reports(observation: Observation, redactor: Redactor) -> Observation:
    """Return ``observation`` without secrets in the figures that the engine reported.

    Kernels whose names are equal without their secrets are counted together; of figures the
    last one stays.
    """
    runs = tuple(
        replace(run, reported=tuple(_redacted_report(each, redactor) for each in run.reported))
        for run in observation.runs
    )
    return replace(observation, runs=runs)


def _redacted_report(report: Report, redactor: Redactor) -> Report:
    def clean(name: str) -> str:
        return redactor.redact_certain(name, "evidence.runs.reported")

    kernels: Counter[str] = Counter()
    for name, count in report.kernels.items():
        kernels[clean(name)] += count
    figures = {clean(name): value for name, value in report.figures.items()}
    return replace(report, source=clean(report.source), figures=figures, kernels=dict(kernels))
