"""Putting a name to a receipt: the envelope that stands beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.receipt import dsse, statement
from pytest_flamegate.receipt.dsse import Envelope, Signature
from pytest_flamegate.receipt.findings import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.receipt.keys import PrivateKey


def sign(files: Mapping[str, bytes], key: PrivateKey, present: bytes | None = None) -> bytes:
    """Return the envelope in which ``key`` signs ``files`` (name to raw bytes).

    ``present`` is the envelope that stands there already: its other signatures are kept.
    ReceiptError ``E_OTHER_ATTESTATION`` where it is not about exactly these files.
    """
    payload = statement.encode(files)
    others = () if present is None else _signatures(present, payload)
    others = tuple(each for each in others if each.keyid != key.public.keyid)
    if len(others) >= dsse.MAX_SIGNATURES:
        raise ReceiptError(
            "E_TOO_MANY_SIGNATURES",
            f"There are {len(others)} signatures already, and no more are read.",
            "Move the attestation away, and have those sign again who still count.",
        )
    message = dsse.pae(dsse.PAYLOAD_TYPE, payload)
    own = Signature(key.public.keyid, key.sign(message))
    return dsse.encode(Envelope(payload, dsse.PAYLOAD_TYPE, (*others, own)))


def _signatures(present: bytes, payload: bytes) -> tuple[Signature, ...]:
    envelope = dsse.read(present)
    if isinstance(envelope, Refusal):
        raise _other(envelope.message)
    if (envelope.payload_type, envelope.payload) != (dsse.PAYLOAD_TYPE, payload):
        raise _other("What was signed there are other files than these.")
    return envelope.signatures


def _other(why: str) -> ReceiptError:
    return ReceiptError(
        "E_OTHER_ATTESTATION",
        f"An attestation stands there already, and no signature can be added to it. {why}",
        "Move it away, and sign again.",
    )
