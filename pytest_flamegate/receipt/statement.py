"""What a signer states: an in-toto Statement that names files by digest and holds the evidence.

The bytes follow from the files alone, with no time and no name of the signer in them: whoever
signs the same files signs the same bytes, and another signature can be added later.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.receipt import strict_json
from pytest_flamegate.receipt.dsse import PAYLOAD_MAX_BYTES
from pytest_flamegate.receipt.fields import FieldError, list_of, object_of, text_of
from pytest_flamegate.receipt.findings import Refusal
from pytest_flamegate.receipt.sources import EVIDENCE_NAME, FOLDED_NAME, RECEIPT_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:pytest-flamegate:evidence:1.0.0"
SUBJECTS = (RECEIPT_NAME, EVIDENCE_NAME, FOLDED_NAME)
MAX_SUBJECTS = 64


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as it was read.

    ``subjects`` are pairs of a name and a sha256 in hex, either empty where it was not given.
    """

    type: str
    subjects: tuple[tuple[str, str], ...]
    predicate_type: str
    predicate: Mapping[str, object]


def digests(files: Mapping[str, bytes]) -> tuple[tuple[str, str], ...]:
    """Return name and sha256 of the raw bytes of each subject among ``files``, in order."""
    return tuple(
        (name, hashlib.sha256(files[name]).hexdigest()) for name in SUBJECTS if name in files
    )


def predicate(files: Mapping[str, bytes]) -> bytes:
    """Return what is stated about the subjects: the evidence as it stands, or ``{}``."""
    return files.get(EVIDENCE_NAME, b"{}").strip(b" \t\r\n")


def encode(files: Mapping[str, bytes]) -> bytes:
    """Return the statement about ``files`` (name to content); the evidence stands as it is."""
    head = json.dumps(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": digest}} for name, digest in digests(files)
            ],
            "predicateType": PREDICATE_TYPE,
        },
        separators=(",", ":"),
    )
    return b'%b,"predicate":%b}' % (head[:-1].encode("ascii"), predicate(files))


def read(payload: bytes) -> Statement | Refusal:
    """Return the statement that ``payload`` holds, or why it holds none; never raises.

    Fields that the format does not know are ignored.
    """
    # The evidence, as deep as it may be, stands one level down.
    depth = strict_json.MAX_DEPTH + 1
    document = strict_json.parse(payload, max_bytes=PAYLOAD_MAX_BYTES, max_depth=depth)
    if isinstance(document, Refusal):
        return _refused(document.message)
    try:
        return _statement(document)
    except FieldError as error:
        return _refused(str(error))


def _statement(document: object) -> Statement:
    fields = object_of(document, "It")
    return Statement(
        text_of(fields.get("_type"), '"_type"'),
        tuple(map(_subject, list_of(fields.get("subject"), '"subject"', MAX_SUBJECTS))),
        text_of(fields.get("predicateType"), '"predicateType"'),
        object_of(fields.get("predicate", {}), '"predicate"'),
    )


def _subject(document: object) -> tuple[str, str]:
    fields = object_of(document, "A subject")
    digest = object_of(fields.get("digest"), '"digest"')
    return text_of(fields.get("name", ""), '"name"'), text_of(digest.get("sha256", ""), '"sha256"')


def _refused(message: str) -> Refusal:
    return Refusal(
        "E_SIGNATURE_STATEMENT",
        f"What was signed is no in-toto statement. {message}",
        "Sign the receipt again with flamegate sign.",
    )
