"""One receipt in, one answer out: whether its numbers may be believed, and how far."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.json import RECEIPT_LIMITS, parse_json
from pytest_flamegate.core.text import Notice, Refusal
from pytest_flamegate.receipt.documents import decode_evidence
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.policies import DEFAULT_POLICY, policy_for, policy_of_engine
from pytest_flamegate.receipt.rules import CHECKS, NOTICES, RULES, SHORTFALLS, SUSPICIONS, replay
from pytest_flamegate.receipt.rules import replay as rules_replay
from pytest_flamegate.receipt.rules.fitness import NO_EVIDENCE, REASONS, Candidate
from pytest_flamegate.receipt.rules.subject import Claim, Submission, read_folded
from pytest_flamegate.receipt.schema import find_faults
from pytest_flamegate.receipt.sign import OTHER_FILES, check_signature
from pytest_flamegate.receipt.sources import Sources, read_sources

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_flamegate.receipt.policies import Policy
    from pytest_flamegate.receipt.replayed import Replayed
    from pytest_flamegate.receipt.rules.rule import Breach
    from pytest_flamegate.receipt.sources import Source
    from pytest_flamegate.receipt.types import Evidence


@dataclass(frozen=True, slots=True)
class Verification:
    """The answer about one receipt.

    ``grade`` is the highest one reached, whether or not that was enough; ``policy``
    names the kernel policy that was used; ``ceiling`` says in one sentence what a green
    answer at the grade reached (or asked for) would prove. ``honest`` says that no rule of
    honesty is broken, whatever else the reader asked for; ``unfit`` why an honest receipt
    is not to be gated on (codes ``F_...``), empty for one that is not honest.
    ``signed_by`` is the keyid of the trusted key that signed exactly these files, None if
    none did or no key was given.
    ``replayed`` is the replay that was handed in, if any; ``obtained_again`` says that it holds.
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

    @property
    def fit(self) -> bool:
        """Whether the receipt is fit to gate on: honest, and nothing speaks against it."""
        return self.honest and not self.unfit


class Findings:
    """Collects refusals and notices, and how low they push the grade."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self.warnings: list[Notice] = []
        self.suspicions: list[str] = []
        self.honest = True
        self.case: Submission | None = None
        self.grade = Grade.OBSERVED

    def refuse(self, refusal: Refusal, protects: Grade | None) -> None:
        """Add a refusal; the grade falls below the one it ``protects``.

        One that protects none is the reader's wish, and no matter of honesty.
        """
        self.refusals.append(refusal)
        self.honest = self.honest and protects is None
        self.lower(protects)

    def broken(self, breach: Breach) -> None:
        """Add a broken rule as a refusal."""
        self.refuse(Refusal(breach.code, breach.message, breach.remedy), breach.protects)

    def noticed(self, breach: Breach) -> None:
        """Add a broken rule as a notice; it may still lower the grade."""
        self.warnings.append(Notice(breach.code, breach.message, breach.remedy))
        self.lower(breach.protects)

    def unfit(self) -> tuple[Notice, ...]:
        """Return what speaks against gating on an honest receipt."""
        if not self.honest:
            return ()
        if self.case is None:
            return (NO_EVIDENCE,)
        candidate = Candidate(self.case, tuple(self.suspicions))
        reasons = REASONS.find_breaches(candidate)
        return tuple(Notice(each.code, each.message, each.remedy) for each in reasons)

    def lower(self, protects: Grade | None) -> None:
        """Let the grade fall below ``protects``."""
        if protects is not None:
            self.grade = min(self.grade, Grade(protects - 1))


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the reader asks for beyond honesty."""

    policy: str | None
    require_gpu_kernels: bool
    require_grade: Grade | None
    max_age_s: float | None
    now: datetime
    keys: Sequence[Source] = ()
    replay: Replayed | None = None


_FOREIGN = Refusal(
    "E_IMPORTED",
    "It is another tool's result and no receipt: nobody here saw it measured, and it tells neither "
    "that a real model ran nor with which kernels.",
    "Measure with flamegate where a figure is to be believed.",
)


def verify_receipt(
    data: bytes | Path,
    *,
    evidence: bytes | Path | None = None,
    profile_folded: bytes | Path | None = None,
    policy: str | None = None,
    require_gpu_kernels: bool = False,
    require_grade: Grade | None = None,
    max_age_s: float | None = None,
    now: datetime | None = None,
    attestation: bytes | Path | None = None,
    keys: Sequence[bytes | Path] = (),
    replay: Replayed | None = None,
) -> Verification:
    """Say whether the receipt ``data`` is honest as far as can be seen, and how far that is.

    Where ``data`` is a path and nothing else is given, ``evidence.json``,
    ``profile.folded`` and ``attestation.dsse.json`` beside it are read too. ``policy``
    names a kernel policy; without it the engine that the evidence (or else the receipt)
    names decides, and ``bitnet`` where none is named. ``max_age_s`` is the allowed age in
    seconds at ``now`` (default: the clock). ``keys`` are the public keys, in PEM, of
    signers who are trusted: where there are any, one of them must have signed. ``replay`` is
    what came of running the workload again, which is done elsewhere: nothing is run here.
    Every refusal is reported, not only the first. Never raises on bad input.
    """
    moment = now if now is not None else datetime.now(UTC)
    wishes = Wishes(
        policy,
        require_gpu_kernels,
        require_grade,
        max_age_s,
        moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC),
        keys,
        replay,
    )
    try:
        return _verify(read_sources(data, evidence, profile_folded, attestation), wishes)
    except Exception as error:
        # A verifier that fails must refuse: whoever crashes it would else go unverified.
        refusal = Refusal(
            "E_INTERNAL",
            f"The verifier itself failed: {type(error).__name__}.",
            "Report this with the receipt that caused it.",
        )
        ceiling = Grade.SELF_REPORTED.ceiling
        return Verification(False, Grade.SELF_REPORTED, (refusal,), (), DEFAULT_POLICY, ceiling)


def _verify(sources: Sources, wishes: Wishes) -> Verification:
    found = Findings()
    document, malformed = _read_receipt(sources.receipt, found)
    evidence = _read_evidence(sources.evidence, found)
    policy = _choose_policy(document, malformed, evidence, wishes, found)
    if document is not None:
        claim = Claim(document, policy, wishes.now, wishes.require_gpu_kernels, wishes.max_age_s)
        for breach in RULES.find_breaches(claim, malformed):
            found.broken(breach)
        for breach in NOTICES.find_breaches(claim, malformed):
            found.noticed(breach)
        if evidence is not None:
            _crosscheck(claim, malformed, evidence, sources, found)
            if wishes.replay is not None and found.case is not None:
                _replayed(replay.Replay(found.case, wishes.replay), malformed, found)
    obtained_again = found.grade is Grade.REPLAYED
    signed_by = _attest(sources, wishes, found)
    # ATTESTED stands above REPLAYED, and does not say that anything was run again.
    unseen = wishes.require_grade is Grade.REPLAYED and not obtained_again
    if wishes.require_grade is not None and (unseen or found.grade < wishes.require_grade):
        wanted = wishes.require_grade
        message = f"The grade is {found.grade.name}, wanted {wanted.name}."
        found.refuse(Refusal("E_GRADE", message, wanted.remedy), None)
    return Verification(
        ok=not found.refusals,
        grade=found.grade,
        refusals=tuple(found.refusals),
        warnings=tuple(found.warnings),
        policy=policy.name,
        ceiling=max(found.grade, wishes.require_grade or found.grade).ceiling,
        signed_by=signed_by,
        honest=found.honest,
        unfit=found.unfit(),
        replayed=wishes.replay,
        obtained_again=obtained_again,
    )


def _attest(sources: Sources, wishes: Wishes, found: Findings) -> str | None:
    """Award ATTESTED to what was observed and signed; return who signed."""
    attested = check_signature(sources.attestation, wishes.keys, sources.files)
    for refusal in attested.refusals:
        found.refuse(refusal, Grade.ATTESTED if refusal.code == OTHER_FILES else None)
    found.warnings.extend(attested.notices)
    if attested.signed_by is not None and found.grade >= Grade.OBSERVED:
        found.grade = Grade.ATTESTED
    return attested.signed_by


def _read_receipt(
    raw: bytes | Refusal, found: Findings
) -> tuple[dict[str, object] | None, frozenset[str]]:
    """Return the document and the names of its malformed fields; None if it is no object."""
    if isinstance(raw, Refusal):
        found.refuse(raw, Grade.CONSISTENT)
        return None, frozenset()
    try:
        document = parse_json(raw, RECEIPT_LIMITS, subject="The receipt")
    except FlamegateError as error:
        found.refuse(Refusal(error.code, error.problem, error.remedy), Grade.CONSISTENT)
        return None, frozenset()
    if isinstance(document, dict) and document.get("kind") == "imported":
        found.refuse(_FOREIGN, Grade.CONSISTENT)
        return None, frozenset()
    faults = find_faults(document)
    for fault in faults:
        found.refuse(fault.refusal, Grade.CONSISTENT)
    if not isinstance(document, dict):
        return None, frozenset()
    return document, frozenset(fault.field for fault in faults if fault.field is not None)


def _read_evidence(raw: bytes | Refusal | None, found: Findings) -> Evidence | None:
    if raw is None:
        found.lower(Grade.OBSERVED)
        return None
    if isinstance(raw, Refusal):
        found.refuse(raw, Grade.OBSERVED)
        return None
    try:
        return decode_evidence(raw)
    except FlamegateError as error:
        found.refuse(Refusal(error.code, error.problem, error.remedy), Grade.OBSERVED)
        return None


def _choose_policy(
    document: dict[str, object] | None,
    malformed: frozenset[str],
    evidence: Evidence | None,
    wishes: Wishes,
    found: Findings,
) -> Policy:
    try:
        if wishes.policy is not None:
            return policy_for(wishes.policy)
        if evidence is not None:
            return policy_of_engine(str(evidence.workload["engine"]))
        if document is not None and "environment" not in malformed:
            environment = document["environment"]
            assert isinstance(environment, dict)  # the schema says so
            return policy_of_engine(environment.get("FLAMEGATE_ENGINE"))
    except FlamegateError as error:
        protects = None if wishes.policy is not None else Grade.CONSISTENT
        found.refuse(Refusal(error.code, error.problem, error.remedy), protects)
    return policy_for(None)


def _crosscheck(
    claim: Claim,
    malformed: frozenset[str],
    evidence: Evidence,
    sources: Sources,
    found: Findings,
) -> None:
    folded = sources.folded
    if isinstance(folded, Refusal):
        found.refuse(folded, Grade.OBSERVED)
        folded = None
    assert isinstance(sources.receipt, bytes)  # there is a claim, so there were bytes
    case = Submission(
        claim,
        hashlib.sha256(sources.receipt).hexdigest(),
        evidence,
        None if folded is None else read_folded(folded),
        None if folded is None else hashlib.sha256(folded).hexdigest(),
    )
    found.case = case
    for breach in CHECKS.find_breaches(case, malformed):
        found.broken(breach)
    for breach in SUSPICIONS.find_breaches(case, malformed):
        found.noticed(breach)
        found.suspicions.append(breach.code)
    for breach in SHORTFALLS.find_breaches(case, malformed):
        found.noticed(breach)


def _replayed(replay: replay.Replay, malformed: frozenset[str], found: Findings) -> None:
    """Let a replay that holds raise the grade: only of what was observed and is not refused."""
    if found.grade is Grade.OBSERVED and not found.refusals:
        found.grade = Grade.REPLAYED
    for breach in rules_replay.CHECKS.find_breaches(replay, malformed):
        found.broken(breach)
    for breach in rules_replay.SHORTFALLS.find_breaches(replay, malformed):
        found.noticed(breach)
