"""Verify a receipt: whether it is honest, and how far that was checked."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.json_parser import RECEIPT_LIMITS, parse_json
from pytest_flamegate.core.text import Notice, Refusal, quote
from pytest_flamegate.receipt.documents import decode_evidence, find_faults
from pytest_flamegate.receipt.imports.imported import is_imported
from pytest_flamegate.receipt.policies import DEFAULT_POLICY, Policy, policy_for, policy_of_engine
from pytest_flamegate.receipt.rules import CHECKS, NOTICES, RULES, SHORTFALLS, SUSPICIONS
from pytest_flamegate.receipt.rules.fitness import NO_EVIDENCE, REASONS
from pytest_flamegate.receipt.rules.replay import CHECKS as REPLAY_CHECKS
from pytest_flamegate.receipt.rules.replay import SHORTFALLS as REPLAY_SHORTFALLS
from pytest_flamegate.receipt.rules.replay import Replay, Replayed
from pytest_flamegate.receipt.rules.rule import Claim, Rulebook, Submission, read_folded
from pytest_flamegate.receipt.sign import OTHER_FILES, check_signature
from pytest_flamegate.receipt.sources import Source, Sources, make_refusal, read_sources
from pytest_flamegate.receipt.types import Evidence, Grade

SHORTEST_HASH = 7
"""Digits of a commit that may stand for all of them."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The answer about one receipt.

    Attributes:
        ok: Nothing was rejected: neither by a rule of honesty nor by an option of the reader.
        grade: The highest grade reached, whether or not that is enough.
        refusals: Every reason to reject the receipt.
        warnings: Notices, none of which rejects it.
        lowered_by: Those of them that keep it below a grade.
        policy: The kernel policy that was used.
        ceiling: One sentence about the proof that acceptance at this grade would give.
        signed_by: The keyid of the trusted key that signed exactly these files, if any.
        honest: No rule of honesty is broken, whatever else the reader asked for.
        unfit: Why an honest receipt is not usable as a baseline (codes ``F_...``).
        replayed: The replay that was handed in, if any.
        obtained_again: The replay agrees.
        evidence: The decoded evidence, even if it contradicts the receipt; None if there is none
            or it is malformed.
        files: The content of receipt, evidence and profile by name, as far as they were read.
    """

    ok: bool
    grade: Grade
    refusals: tuple[Refusal, ...]
    warnings: tuple[Notice, ...]
    policy: str
    ceiling: str
    signed_by: str | None = None
    honest: bool = False
    unfit: tuple[Notice, ...] = ()
    replayed: Replayed | None = None
    obtained_again: bool = False
    lowered_by: tuple[Notice, ...] = ()
    evidence: Evidence | None = field(default=None, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def fit(self) -> bool:
        """Whether the receipt is usable as a baseline: honest, and without a reason against it."""
        return self.honest and not self.unfit

    @property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against the receipt as a baseline, in a line each."""
        return tuple(f"A doubtful baseline. {each.code}: {each.message}" for each in self.unfit)


@dataclass
class _Findings:
    """The findings so far, and the grade that is left."""

    refusals: list[Refusal] = field(default_factory=list)
    warnings: list[Notice] = field(default_factory=list)
    lowered_by: list[Notice] = field(default_factory=list)
    honest: bool = True
    submission: Submission | None = None
    grade: Grade = Grade.OBSERVED

    def reject(self, refusal: Refusal, protects: Grade | None) -> None:
        """Add a refusal; the grade falls below the one it ``protects``.

        A refusal that protects no grade concerns an option of the reader, not honesty.
        """
        self.refusals.append(refusal)
        self.honest = self.honest and protects is None
        self.lower(protects)

    def lower(self, protects: Grade | None) -> None:
        if protects is not None:
            self.grade = min(self.grade, Grade(protects - 1))

    def apply(self, rules: Rulebook[Any], subject: object, *, rejects: bool) -> tuple[str, ...]:
        """Add each breach of ``rules`` as a refusal or as a notice; return the codes."""
        breaches = list(rules.find_breaches(subject))
        for rule, message in breaches:
            if rejects:
                self.reject(Refusal(rule.code, message), rule.protects)
            else:
                self.warnings.append(Notice(rule.code, message))
                self.lower(rule.protects)
                if rule.protects is not None:
                    self.lowered_by.append(self.warnings[-1])
        return tuple([rule.code for rule, _ in breaches])


_IMPORTED = Refusal(
    "E_IMPORTED",
    "It is a result of another tool and no receipt: flamegate did not observe it, and nothing in "
    "it shows that a real model ran, or with which kernels.",
)


def verify_receipt(
    data: Source | Sources,
    *,
    evidence: bytes | Path | None = None,
    profile_folded: bytes | Path | None = None,
    policy: str | None = None,
    require_gpu_kernels: bool = False,
    require_grade: Grade | None = None,
    max_age_s: float | None = None,
    commit: str | None = None,
    workload: str | None = None,
    now: datetime | None = None,
    attestation: bytes | Path | None = None,
    keys: Sequence[bytes | Path] = (),
    replay: Replayed | None = None,
) -> Verification:
    """Return whether the receipt ``data`` is honest, and the grade that it reaches.

    Every reason to reject it is reported, not only the first. Never raises on bad input.

    Args:
        data: the receipt, as bytes or as a path; or all of its files, already read.
        evidence: by default ``evidence.json`` next to the receipt's path.
        profile_folded: by default ``profile.folded`` next to the receipt's path.
        policy: the name of a kernel policy; by default that of the engine which the evidence, or
            else the receipt, names, and ``bitnet`` if none is named.
        require_gpu_kernels: reject claims of a CPU.
        require_grade: reject a lower grade.
        max_age_s: the allowed age in seconds at ``now``.
        commit: reject a run of another commit, or with uncommitted files; a hash, or its first
            seven digits or more.
        workload: reject a run of a workload with another name.
        now: by default the time of the clock.
        attestation: by default ``attestation.dsse.json`` next to the receipt's path.
        keys: public keys in PEM of trusted signers; if there are any, one of them must have signed.
        replay: the result of running the workload again. Nothing is run here.
    """
    moment = now if now is not None else datetime.now(UTC)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    found = _Findings()
    try:
        sources = data
        if not isinstance(sources, Sources):
            sources = read_sources(sources, evidence, profile_folded, attestation)
        document, malformed = _read_receipt(sources.receipt, found)
        observed = _read_evidence(sources.evidence, found)
        chosen = _choose_policy(document, malformed, observed, policy, found)
        if document is not None:
            requested = (require_gpu_kernels, max_age_s)
            claim = Claim(document, chosen, moment, *requested, malformed)
            found.apply(RULES, claim, rejects=True)
            found.apply(NOTICES, claim, rejects=False)
            if observed is not None:
                _crosscheck(claim, observed, sources, found)
                if replay is not None and found.submission is not None:
                    if found.grade is Grade.OBSERVED and not found.refusals:
                        found.grade = Grade.REPLAYED
                    again = Replay(found.submission, replay)
                    found.apply(REPLAY_CHECKS, again, rejects=True)
                    found.apply(REPLAY_SHORTFALLS, again, rejects=False)
        _require_subject(observed, commit, workload, found)
        obtained_again = found.grade is Grade.REPLAYED
        signed_by = _check_signer(sources, keys, found)
        # ATTESTED is above REPLAYED, but does not mean that anything was run again.
        missing = require_grade is Grade.REPLAYED and not obtained_again
        if require_grade is not None and (missing or found.grade < require_grade):
            message = describe_shortfall(found.grade, require_grade, found.lowered_by)
            found.reject(Refusal("E_GRADE", message, require_grade.remedy), None)
        return Verification(
            ok=not found.refusals,
            grade=found.grade,
            refusals=tuple(found.refusals),
            warnings=tuple(found.warnings),
            policy=chosen.name,
            ceiling=max(found.grade, require_grade or found.grade).ceiling,
            signed_by=signed_by,
            honest=found.honest,
            unfit=_find_unfit(found) if found.honest else (),
            replayed=replay,
            obtained_again=obtained_again,
            lowered_by=tuple(found.lowered_by),
            evidence=observed,
            files=sources.files,
        )
    except Exception as error:
        # A verifier that fails must reject: otherwise a receipt that crashes it goes unverified.
        refusal = Refusal("E_INTERNAL", f"The verifier itself failed: {type(error).__name__}.")
        ceiling = Grade.SELF_REPORTED.ceiling
        return Verification(False, Grade.SELF_REPORTED, (refusal,), (), DEFAULT_POLICY, ceiling)


def describe_shortfall(grade: Grade, wanted: Grade, lowered_by: Sequence[Notice]) -> str:
    """Describe why the grade is too low."""
    reasons = "".join(f" {each.code}: {each.message}" for each in lowered_by)
    return f"The grade is {grade.name}, wanted {wanted.name}.{reasons}"


def _read_receipt(
    raw: bytes | Refusal, found: _Findings
) -> tuple[dict[str, object] | None, frozenset[str]]:
    """Return the document and the names of its malformed fields; None if it is no object."""
    if isinstance(raw, Refusal):
        found.reject(raw, Grade.CONSISTENT)
        return None, frozenset()
    try:
        document = parse_json(raw, RECEIPT_LIMITS, subject="The receipt")
    except FlamegateError as error:
        found.reject(make_refusal(error), Grade.CONSISTENT)
        return None, frozenset()
    if is_imported(document):
        found.reject(_IMPORTED, Grade.CONSISTENT)
        return None, frozenset()
    faults = find_faults(document)
    for refusal in faults.values():
        found.reject(refusal, Grade.CONSISTENT)
    return document if isinstance(document, dict) else None, frozenset(faults)


def _read_evidence(raw: bytes | Refusal | None, found: _Findings) -> Evidence | None:
    if raw is None:
        found.lower(Grade.OBSERVED)
    elif isinstance(raw, Refusal):
        found.reject(raw, Grade.OBSERVED)
    else:
        try:
            return decode_evidence(raw)
        except FlamegateError as error:
            found.reject(make_refusal(error), Grade.OBSERVED)
    return None


def _choose_policy(
    document: dict[str, Any] | None,
    malformed: frozenset[str],
    evidence: Evidence | None,
    asked: str | None,
    found: _Findings,
) -> Policy:
    try:
        if asked is not None:
            return policy_for(asked)
        if evidence is not None:
            return policy_of_engine(str(evidence.workload["engine"]))
        if document is not None and "environment" not in malformed:
            return policy_of_engine(document["environment"].get("FLAMEGATE_ENGINE"))
    except FlamegateError as error:
        found.reject(make_refusal(error), None if asked is not None else Grade.CONSISTENT)
    return policy_for(None)


def _crosscheck(claim: Claim, evidence: Evidence, sources: Sources, found: _Findings) -> None:
    """Apply the rules about receipt, evidence and profile together."""
    folded = sources.folded
    if isinstance(folded, Refusal):
        found.reject(folded, Grade.OBSERVED)
        folded = None
    assert isinstance(sources.receipt, bytes)  # there is a claim, so there were bytes
    submission = Submission(
        claim,
        hashlib.sha256(sources.receipt).hexdigest(),
        evidence,
        None if folded is None else read_folded(folded),
        None if folded is None else hashlib.sha256(folded).hexdigest(),
    )
    found.apply(CHECKS, submission, rejects=True)
    codes = found.apply(SUSPICIONS, submission, rejects=False)
    found.submission = replace(submission, suspicions=codes) if codes else submission
    found.apply(SHORTFALLS, submission, rejects=False)


def _require_subject(
    evidence: Evidence | None, commit: str | None, workload: str | None, found: _Findings
) -> None:
    """Reject a run that is not the one which the reader asked for; it may be honest."""
    name = None if evidence is None else evidence.workload.get("name")
    if workload is not None and name != workload:
        message = f"The workload is {quote(name) if name else 'unknown'}, wanted {workload!r}."
        found.reject(Refusal("E_OTHER_WORKLOAD", message), None)
    if commit is None:
        return
    seen = evidence.commit if evidence is not None else None
    is_short = len(commit) < SHORTEST_HASH
    if seen is None or seen.uncommitted or is_short or not seen.revision.startswith(commit):
        name = "an unknown commit" if seen is None else seen.revision[:12]
        more = f" and {seen.uncommitted} uncommitted files" if seen and seen.uncommitted else ""
        message = f"The run is of {name}{more}, wanted {commit[:12]}."
        found.reject(Refusal("E_OTHER_COMMIT", message), None)


def _find_unfit(found: _Findings) -> tuple[Notice, ...]:
    """Return the reasons against comparing with an honest receipt."""
    if found.submission is None:
        return (NO_EVIDENCE,)
    reasons = REASONS.find_breaches(found.submission)
    return tuple(Notice(rule.code, message) for rule, message in reasons)


def _check_signer(sources: Sources, keys: Sequence[Source], found: _Findings) -> str | None:
    """Award ATTESTED to an observed receipt that is signed; return the signer's keyid."""
    checked = check_signature(sources.attestation, keys, sources.files)
    for refusal in checked.refusals:
        found.reject(refusal, Grade.ATTESTED if refusal.code == OTHER_FILES else None)
    found.warnings.extend(checked.notices)
    if checked.signed_by is not None and found.grade >= Grade.OBSERVED:
        found.grade = Grade.ATTESTED
    return checked.signed_by
