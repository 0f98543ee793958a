"""The published schemas: receipts are held to theirs, the others are generated from types."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_flamegate.receipt import documents
from pytest_flamegate.receipt.documents import find_faults, load_schema
from tests.receipt.documents import document


def parts(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every part of the schema that describes something, with its place."""
    if isinstance(node, dict):
        if isinstance(node.get("description"), str):
            yield path, node
        for name, child in node.items():
            if name not in ("examples", "const", "enum", "required"):
                yield from parts(child, f"{path}/{name}")


def codes(changed: dict[str, Any]) -> set[str]:
    return {fault.refusal.code for fault in find_faults(changed)}


def test_examples_are_valid() -> None:
    whole = load_schema()
    validator: Any = documents._validator()
    for path, part in parts(whole):
        for example in part.get("examples", []):
            assert list(validator.evolve(schema=part).iter_errors(example)) == [], path
    for example in whole["examples"]:
        assert find_faults(example) == []


def test_every_field_is_described_and_has_an_example() -> None:
    for name, field in load_schema()["properties"].items():
        assert field["description"].endswith("."), name
        assert field["examples"], name


def test_a_missing_field_is_named() -> None:
    example = load_schema()["examples"][0]
    for name in load_schema()["required"]:
        changed = {key: value for key, value in example.items() if key != name}
        (fault,) = find_faults(changed)
        assert fault.field == name
        assert fault.refusal.message == f'"{name}" is missing.'


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("E_SCHEMA_VERSION", {"schema_version": 1.0}, '"1.0.0", "1.0", "1.1.0", and is 1.0'),
    ("E_SCHEMA_VERSION", {"schema_version": "1.0.1"}, 'and is "1.0.1"'),
    ("E_TIMESTAMP", {"timestamp": "2025-10-13T12:00:00Z\n"}, "must be an RFC 3339 timestamp"),
    ("E_TIMESTAMP", {"timestamp": "2025-10-13T12:00:00"}, "must be an RFC 3339 timestamp"),
    ("E_TIMESTAMP", {"timestamp": "2025-02-30T12:00:00Z"}, "must be an RFC 3339 timestamp"),
    ("E_TIMESTAMP", {"timestamp": 1_760_000_000}, "must be string, and is 1760000000"),
    ("E_COMPUTE_PATH", {"compute_path": "Real"}, 'must be "real", and is "Real"'),
    ("E_COMPUTE_PATH", {"compute_path": "real\n"}, 'must be "real"'),
    ("E_BACKEND", {"backend": "gpu"}, 'must look like "cpu", "cuda", "CPU", and is "gpu"'),
    ("E_BACKEND", {"backend": None}, "must be string, and is null"),
    ("E_BACKEND", {"backend": "cpu\n"}, "must look like"),
    ("E_BACKEND", {"backend": " cuda"}, "must look like"),
    ("E_DETERMINISTIC", {"deterministic": "true"}, 'must be boolean, and is "true"'),
    ("E_DETERMINISTIC", {"deterministic": 1}, "must be boolean, and is 1"),
    ("E_TOKENS", {"tokens_generated": 128.0}, "must be integer, and is 128.0"),
    ("E_TOKENS", {"tokens_generated": True}, "must be integer, and is true"),
    ("E_TOKENS", {"tokens_generated": 0}, "must be at least 1, and is 0"),
    ("E_TOKENS", {"tokens_requested": -1}, "must be at least 1, and is -1"),
    ("E_TPS", {"tokens_per_second": 0}, "must be greater than 0, and is 0"),
    ("E_TPS", {"tokens_per_second": -1.0}, "must be greater than 0, and is -1.0"),
    ("E_TPS", {"tokens_per_second": float("nan")}, "must be number, and is NaN"),
    ("E_TPS", {"tokens_per_second": "15.5"}, 'must be number, and is "15.5"'),
    ("E_TPS", {"tokens_per_second": True}, "must be number, and is true"),
    ("E_KERNELS", {"kernels": "i2s_gemv"}, "must be array"),
    ("E_KERNELS", {"kernels": []}, "must not be empty, and is a list of 0"),
    ("E_KERNELS", {"kernels": ["i2s_gemv", ""]}, '"kernels.1" must'),
    ("E_KERNELS", {"kernels": ["i2s_gemv", " \t"]}, '"kernels.1" must look like "i2s_gemv"'),
    ("E_KERNELS", {"kernels": ["i" * 129]}, "must have at most 128 characters"),
    ("E_KERNELS", {"kernels": ["i2s_gemv"] * 10_001}, "must have at most 10000 entries"),
    ("E_ENVIRONMENT", {"environment": {"BITNET_VERSION": "0.1.0"}}, '"environment.OS" is missing'),
    ("E_ENVIRONMENT", {"environment": {"OS": ""}}, '"environment.OS" must not be empty'),
    ("E_ENVIRONMENT", {"environment": {"OS": "linux", "THREADS": 1}}, "must be string, and is 1"),
    ("E_ENVIRONMENT", {"environment": {"OS": "linux", "FLAMEGATE_ENGINE": ""}}, "not be empty"),
    ("E_ENVIRONMENT", {"environment": []}, "must be object, and is a list of 0"),
    ("E_MODEL", {"model": {}}, '"model.path" is missing'),
    ("E_MODEL", {"model": {"path": ""}}, '"model.path" must not be empty'),
    ("E_MODEL", {"model": {"path": "x", "sha256": 1}}, '"model.sha256" must be string'),
    ("E_MODEL", {"model": "tiny.gguf"}, "must be object"),
    (
        "E_SCHEMA",
        {"schema_version": "1.1.0", "kernel_path": "fast"},
        '"kernel_path" must be one of',
    ),
    ("E_SCHEMA", {"schema_version": "1.1.0", "quantization": {"fallback_count": -1}}, "at least 0"),
]


@pytest.mark.parametrize(("code", "changes", "words"), WRONG, ids=range(len(WRONG)))
def test_a_receipt_is_held_to_its_schema(code: str, changes: dict[str, Any], words: str) -> None:
    faults = find_faults(document(**changes))
    assert {fault.refusal.code for fault in faults} == {code}
    assert {fault.field for fault in faults} <= changes.keys()
    assert words in faults[0].refusal.message


@pytest.mark.parametrize(
    "changes",
    [
        {"kernels": ["i2s_gemv"] * 10_000},
        {"timestamp": "2025-10-15T19:41:18.920441642+00:00"},
        {"timestamp": "2025-10-13t12:00:00z"},
        {"tokens_per_second": 16},
        {"backend": "CuDa"},
        {"schema_version": "1.1.0", "kernel_path": "unknown"},
        {"kernel_path": 5},
        {"model": {"path": "x", "layers": 2.5}},
        {"extra": {"anything": [1, None]}},
    ],
)
def test_the_schema_allows_it(changes: dict[str, Any]) -> None:
    assert codes(document(**changes)) == set()


@pytest.mark.parametrize("whole", [None, [], "receipt", 1])
def test_a_document_that_is_no_object(whole: object) -> None:
    (fault,) = find_faults(whole)
    assert (fault.field, fault.refusal.code) == (None, "E_SCHEMA")
    assert fault.refusal.message.startswith("The receipt must be object, and is ")


def test_a_megabyte_of_faults_is_a_handful() -> None:
    """And the faults of other fields are still found."""
    many = document(kernels=[1] * 100_000, environment={"OS": 1}, model={})
    faults = find_faults(many)
    assert len(faults) < 20
    assert {each.refusal.code for each in faults} == {"E_KERNELS", "E_ENVIRONMENT", "E_MODEL"}
    strangers = document(environment={"OS": "linux", **{f"V{i}": i for i in range(10_000)}})
    assert len(find_faults(strangers)) < 20


ODD: list[Any] = [
    *(None, True, 0, 1, -1, 1.0, 0.5, [], {}, ["x"], [1]),
    *("", " ", "x", "cpu", "CPU", "1.0", "1.1.0"),
]


def test_the_type_accepts_nothing_that_the_schema_rejects() -> None:
    """Receipts like our own are accepted by their type alone, without jsonschema."""
    source = random.Random(3)
    validator: Any = documents._validator()
    accepted = 0
    for _ in range(3000):
        changed: Any = json.loads(json.dumps(document()))
        part = changed
        for _ in range(source.randrange(1, 3)):
            key = source.choice([*part, "more"])
            if source.random() < 0.3:
                part.pop(key, None)
            elif isinstance(part.get(key), dict) and source.random() < 0.6:
                part = part[key]
            else:
                part[key] = source.choice(ODD)
        if documents._is_plain_receipt(changed):
            accepted += 1
            assert validator.is_valid(changed), changed
    assert accepted > 200
