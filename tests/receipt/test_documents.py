"""Receipts and evidence as bytes."""

import hashlib
import json
import math
from dataclasses import replace

import pytest

from pytest_flamegate.core.errors import ReceiptError, ToolError
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.receipt.documents import (
    FIELD_CODES,
    decode_evidence,
    decode_receipt,
    encode_evidence,
    encode_receipt,
)
from tests.made import bundle
from tests.receipt.documents import encoded


def test_fields_stand_in_the_order_of_the_schema() -> None:
    triple = bundle()
    assert tuple(json.loads(encode_receipt(triple.receipt))) == tuple(FIELD_CODES)


def test_equal_data_gives_equal_bytes() -> None:
    one, other = bundle(), bundle()
    environment = dict(reversed(list(other.receipt.environment.items())))
    assert encode_receipt(replace(other.receipt, environment=environment)) == encode_receipt(
        one.receipt
    )
    assert encode_evidence(other.evidence) == encode_evidence(one.evidence)


def test_figures_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ReceiptError, match="E_CANNOT_ENCODE"):
        encode_receipt(replace(bundle().receipt, tokens_per_second=math.inf))
    metric = replace(bundle().evidence.metrics[0], value=math.nan)
    with pytest.raises(ReceiptError, match="E_CANNOT_ENCODE"):
        encode_evidence(replace(bundle().evidence, metrics=(metric,)))


def test_a_receipt_that_the_schema_rejects_is_not_written() -> None:
    with pytest.raises(ReceiptError, match=r'E_KERNELS.*"kernels"'):
        encode_receipt(replace(bundle().receipt, kernels=()))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", encoded(backend="gpu")])
def test_malformed_receipts_are_not_decoded(data: bytes) -> None:
    with pytest.raises(ReceiptError):
        decode_receipt(data)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", encoded()])
def test_malformed_evidence_is_not_decoded(data: bytes) -> None:
    with pytest.raises(ReceiptError):
        decode_evidence(data)


def test_evidence_without_a_receipt_reads_back() -> None:
    """Where no kernel was seen there is no receipt to name."""
    evidence = replace(bundle().evidence, receipt_sha256="", kernels=(), profile=None)
    assert decode_evidence(encode_evidence(evidence)) == evidence


def test_token_digest_keeps_tokens_apart() -> None:
    assert token_digest(["52", "10"]) == hashlib.sha256(b"2:52,2:10,").hexdigest()
    assert token_digest(["1", "2"]) != token_digest(["12"])
    assert token_digest(["1", "2"]) != token_digest(["2", "1"])
    assert token_digest(["a\n", "b"]) != token_digest(["a", "\nb"])
    with pytest.raises(ToolError, match="E_NO_TOKENS"):
        token_digest([])
