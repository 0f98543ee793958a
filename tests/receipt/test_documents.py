"""Receipts and evidence as bytes, and as their published schema describes them.

jsonschema checks the schema here as an independent reader.
"""

import hashlib
import json
import math
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator, FormatChecker, validators

from pytest_flamegate.core.errors import ReceiptError, ToolError
from pytest_flamegate.core.json import parse_timestamp, replace
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.receipt import documents
from pytest_flamegate.receipt.documents import (
    FIELDS,
    decode_receipt,
    encode_evidence,
    encode_receipt,
    find_faults,
)
from tests.made import bundle
from tests.receipt.documents import document, encoded, load_schema

SCHEMA = load_schema()


def make_validator() -> Any:
    """Return jsonschema's validator, for which 128.0 is no integer and NaN no number."""

    def is_integer(_: object, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def is_number(_: object, value: object) -> bool:
        return is_integer(_, value) or (isinstance(value, float) and math.isfinite(value))

    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": is_integer, "number": is_number}
    )
    formats = FormatChecker(formats=())
    formats.checks("date-time", raises=ValueError)(
        lambda value: not isinstance(value, str) or bool(parse_timestamp(value))
    )
    strict = cast("Any", validators.extend)(Draft202012Validator, type_checker=types)
    return strict(SCHEMA, format_checker=formats)


VALIDATOR = make_validator()


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("E_SCHEMA_VERSION", {"schema_version": "1.0.1"}, 'and is "1.0.1"'),
    ("E_SCHEMA", {"timestamp": "2025-10-13T12:00:00Z\n"}, "RFC 3339 timestamp"),
    ("E_SCHEMA", {"timestamp": "2025-02-30T12:00:00Z"}, "RFC 3339 timestamp"),
    ("E_COMPUTE_PATH", {"compute_path": "real\n"}, "compute_path"),
    ("E_SCHEMA", {"backend": "gpu"}, 'cpu or cuda in any case, and is "gpu"'),
    ("E_SCHEMA", {"deterministic": 1}, "must be true or false, and is 1"),
    ("E_SCHEMA", {"tokens_generated": 128.0}, "must be an integer, and is 128.0"),
    ("E_TPS", {"tokens_per_second": 0}, "and is 0"),
    ("E_KERNELS", {"kernels": []}, "is a list of 0"),
    ("E_KERNELS", {"kernels": ["i2s_gemv", " \t"]}, '"kernels[1]" must'),
    ("E_SCHEMA", {"environment": {"BITNET_VERSION": "0.1.0"}}, '"environment.OS" is missing'),
    ("E_SCHEMA", {"environment": {"OS": "linux", "THREADS": 1}}, "must be a string, and is 1"),
    ("E_SCHEMA", {"environment": {"OS": "linux", "FLAMEGATE_ENGINE": ""}}, "FLAMEGATE_ENGINE"),
    ("E_SCHEMA", {"model": {"path": "x", "sha256": 1}}, '"model.sha256" must be a string'),
    ("E_SCHEMA", {"schema_version": "1.1.0", "kernel_path": "fast"}, '"kernel_path" must'),
    (
        "E_SCHEMA",
        {"schema_version": "1.1.0", "quantization": {"fallback_count": -1}},
        "fallback_count",
    ),
]


@pytest.mark.parametrize(("code", "changes", "words"), WRONG, ids=range(len(WRONG)))
def test_a_fault_has_the_code_of_its_field(code: str, changes: dict[str, Any], words: str) -> None:
    changed = document(**changes)
    ((field, refusal),) = find_faults(changed).items()
    assert (field in changes, refusal.code) == (True, code)
    assert words in refusal.message
    assert not VALIDATOR.is_valid(changed)


def test_a_document_has_one_fault_for_each_field() -> None:
    assert [find_faults(example) for example in SCHEMA["examples"]] == [{}]
    faults = find_faults(document(kernels=[1] * 100_000, environment={"OS": 1}, model={}))
    assert [each.code for each in faults.values()] == ["E_KERNELS", "E_SCHEMA", "E_SCHEMA"]
    wholes: list[object] = [None, [], "receipt", 1]
    for whole in wholes:
        ((field, refusal),) = find_faults(whole).items()
        assert (field, refusal.code) == ("", "E_SCHEMA")
        assert refusal.message.startswith("The receipt must be an object, and is ")


def test_a_receipt_is_held_to_types_and_schema_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receipt = decode_receipt(encoded())
    assert json.loads(encode_receipt(receipt))["kernels"] == list(receipt.kernels)
    with pytest.raises(ReceiptError, match=r'E_KERNELS.*"kernels"'):
        encode_receipt(replace(receipt, kernels=()))
    # A fault that the types let through: the schema still rejects it.
    monkeypatch.setattr(documents, "find_faults", lambda _: {})
    with pytest.raises(ReceiptError, match=r"E_SCHEMA: .*tokens_generated"):
        encode_receipt(replace(receipt, tokens_generated=-1))


def test_equal_data_gives_equal_bytes_in_the_order_of_the_schema() -> None:
    one = bundle()
    assert tuple(json.loads(encode_receipt(one.receipt))) == FIELDS
    environment = dict(reversed(list(one.receipt.environment.items())))
    assert encode_receipt(replace(one.receipt, environment=environment)) == encode_receipt(
        one.receipt
    )
    assert encode_evidence(bundle().evidence) == encode_evidence(one.evidence)


def test_the_digest_of_tokens_keeps_their_borders() -> None:
    assert token_digest(["52", "10"]) == hashlib.sha256(b"2:52,2:10,").hexdigest()
    assert token_digest(["1", "2"]) != token_digest(["12"])
    with pytest.raises(ToolError, match="E_NO_TOKENS"):
        token_digest([])
