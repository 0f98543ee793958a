"""GitHub's attestation of a check: the judge's workflow signed that these files passed.

``gh`` verifies the signature and its origin; the statement is compared with the files here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_flamegate.core import errors, process
from pytest_flamegate.core.json import decode_json
from pytest_flamegate.core.json_parser import EVIDENCE_LIMITS
from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt import Verification
from pytest_flamegate.receipt.baseline import EVIDENCE, RECEIPT
from pytest_flamegate.run.required_check import CHECK_VERSION, CheckAnswer

_PREDICATE = f"urn:pytest-flamegate:check:{CHECK_VERSION}"
_GH_S = 120.0
_WORKFLOW = re.compile(r"[\w.-]+/[\w.-]+/\.github/workflows/[\w.-]+\.ya?ml")


@dataclass(frozen=True, slots=True)
class _AttestedFile:
    """A subject of the statement, with its digests by algorithm."""

    digest: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Attestation:
    """An in-toto statement, in the names that it has there."""

    predicateType: str  # noqa: N815
    predicate: CheckAnswer
    subject: tuple[_AttestedFile, ...]

    def covers(self, digests: Collection[str], revision: str, workload: object) -> bool:
        """Whether it says that files with these SHA-256 were judged and their check passed."""
        judged = self.predicate
        return (
            self.predicateType == _PREDICATE
            and {each.digest.get("sha256") for each in self.subject}.issuperset(digests)
            and judged.passed
            and judged.head == revision
            and workload in [each.workload for each in judged.required]
        )


@dataclass(frozen=True, slots=True)
class _Result:
    """The signed statement, as far as it is read."""

    statement: _Attestation


@dataclass(frozen=True, slots=True)
class _Attested:
    """One entry of what ``gh attestation verify --format json`` prints."""

    verificationResult: _Result  # noqa: N815


def find_attestation_problem(
    receipt: Path, verified: Verification, workflow: str, ref: str
) -> str | None:
    """Return why ``workflow`` at ``ref`` did not attest that a run passed; None if it did.

    Receipt and evidence must both be among the attested files; the evidence names the profile's
    digest.

    Raises ToolError ``E_CANNOT_START`` without gh, UsageError ``E_BAD_OPTION`` for a bad name.
    """
    if not _WORKFLOW.fullmatch(workflow):
        raise errors.UsageError(
            "E_BAD_OPTION",
            f"--signer-workflow is {workflow!a}.",
            "Write OWNER/REPO/.github/workflows/FILE.yml.",
        )
    measured = verified.evidence
    if measured is None or RECEIPT not in verified.files:
        return "The receipt or its evidence was not read."
    called = process.run(
        [
            *("gh", "attestation", "verify", str(receipt.absolute())),
            *("--repo", "/".join(workflow.split("/")[:2])),
            *("--signer-workflow", workflow, "--source-ref", ref),
            *("--predicate-type", _PREDICATE, "--format", "json"),
        ],
        timeout_s=_GH_S,
    )
    if called.returncode != 0:
        lines = called.stderr.decode("utf-8", "replace").strip().splitlines()
        reported = quote(lines[-1]) if lines else f"status {called.returncode}"
        return f"gh attestation verify found no valid attestation: {reported}"
    try:
        found = decode_json(called.stdout, tuple[_Attested, ...], EVIDENCE_LIMITS, subject="gh")
    except errors.ReceiptError as error:
        return f"It cannot be read: {error.problem}"
    revision = measured.commit.revision if measured.commit is not None else ""
    attested = (RECEIPT, EVIDENCE)
    digests = {hashlib.sha256(verified.files[name]).hexdigest() for name in attested}
    statements = (each.verificationResult.statement for each in found)
    if any(each.covers(digests, revision, measured.workload.get("name")) for each in statements):
        return None
    return (
        "The attested check did not pass this workload of this commit with this receipt and "
        "evidence."
    )
