"""``imported.json``: a foreign result as we keep it, with where it came from.

It is no receipt and cannot be taken for one: ``kind`` says what it is, ``grade`` how far it may
be believed, whatever stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.receipt import schema, strict_json
from pytest_flamegate.receipt.codec import from_plain, to_plain
from pytest_flamegate.receipt.types import SCHEMA_VERSION

if TYPE_CHECKING:
    from typing import Final

    from pytest_flamegate.receipt.imports.types import Imported

KIND: Final = "imported"


@dataclass(frozen=True, slots=True)
class Source:
    """The file that a result was read from: its name, format and digest, and when it was read."""

    file: str
    format: str
    sha256: str
    imported: str


@dataclass(frozen=True, slots=True)
class _Document:
    kind: Literal["imported"]
    schema_version: str
    grade: Literal["SELF_REPORTED"]
    source: Source
    result: Imported


def encode_imported(result: Imported, source: Source) -> bytes:
    """Return the bytes of ``imported.json``."""
    whole = _Document(KIND, SCHEMA_VERSION, "SELF_REPORTED", source, result)
    return strict_json.dumps(to_plain(whole))


def decode_imported(data: bytes) -> tuple[Imported, Source]:
    """Return what ``imported.json`` holds; ReceiptError where it is malformed."""
    document = strict_json.loads(data)
    for refusal in schema.validate(document, KIND):
        raise ReceiptError(refusal.code, refusal.message, refusal.todo)
    found = from_plain(_Document, document)
    return found.result, found.source


def is_imported(document: object) -> bool:
    """Whether a document is a foreign result, or says that it is."""
    return isinstance(document, dict) and document.get("kind") == KIND
