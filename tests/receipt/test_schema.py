"""The published schemas: they describe themselves, and they are applied to the letter."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, get_args

import pytest

from pytest_flamegate.core import schema
from pytest_flamegate.core.json import dumps
from pytest_flamegate.core.schema import Kind
from pytest_flamegate.receipt.compose import decode_evidence, decode_receipt
from tests.made import bundle
from tests.receipt.documents import document

if TYPE_CHECKING:
    from collections.abc import Iterator


KINDS: tuple[Kind, ...] = get_args(Kind)


def parts(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every subschema that describes something, with its place."""
    if isinstance(node, dict):
        if "description" in node and isinstance(node["description"], str):
            yield path, node
        for name, child in node.items():
            if name not in ("examples", "const", "enum", "required"):
                yield from parts(child, f"{path}/{name}")


def codes(changed: dict[str, Any]) -> set[str]:
    return {refusal.code for refusal in schema.validate(changed, "receipt")}


@pytest.mark.parametrize("kind", KINDS)
def test_whole_examples_are_valid(kind: Kind) -> None:
    examples = schema.load(kind)["examples"]
    assert examples
    for example in examples:
        assert schema.validate(example, kind) == []


@pytest.mark.parametrize("kind", KINDS)
def test_examples_of_parts_are_valid(kind: Kind) -> None:
    whole = schema.load(kind)
    validator: Any = schema._validator(kind)
    checked = 0
    for path, part in parts(whole):
        for example in part.get("examples", []):
            rooted = {"$defs": whole.get("$defs", {}), **part}
            errors = list(validator.evolve(schema=rooted).iter_errors(example))
            assert errors == [], f"{path}: {errors}"
            checked += 1
    assert checked > 10


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described_and_shown(kind: Kind) -> None:
    for name, field in schema.load(kind)["properties"].items():
        assert field["description"].endswith("."), name
        assert field.get("examples") or "$ref" in field, name


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_field_is_named(kind: Kind) -> None:
    example = schema.load(kind)["examples"][0]
    for name in schema.load(kind)["required"]:
        changed = {key: value for key, value in example.items() if key != name}
        faults = schema.faults(changed, kind)
        assert [fault.field for fault in faults] == [name]
        assert f'"{name}" is missing' in faults[0].refusal.message


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("E_SCHEMA_VERSION", {"schema_version": 1.0}),
        ("E_SCHEMA_VERSION", {"schema_version": "1.0.1"}),
        ("E_TIMESTAMP", {"timestamp": "2025-10-13T12:00:00Z\n"}),
        ("E_TIMESTAMP", {"timestamp": "2025-10-13"}),
        ("E_TIMESTAMP", {"timestamp": "2025-10-13T12:00:00"}),
        ("E_TIMESTAMP", {"timestamp": "2025-02-30T12:00:00Z"}),
        ("E_TIMESTAMP", {"timestamp": "not a date"}),
        ("E_TIMESTAMP", {"timestamp": 1_760_000_000}),
        ("E_COMPUTE_PATH", {"compute_path": "Real"}),
        ("E_COMPUTE_PATH", {"compute_path": "real\n"}),
        ("E_BACKEND", {"backend": "gpu"}),
        ("E_BACKEND", {"backend": "rocm"}),
        ("E_BACKEND", {"backend": None}),
        ("E_BACKEND", {"backend": "cpu\n"}),
        ("E_BACKEND", {"backend": " cuda"}),
        ("E_DETERMINISTIC", {"deterministic": "true"}),
        ("E_DETERMINISTIC", {"deterministic": 1}),
        ("E_TOKENS", {"tokens_generated": 128.0}),
        ("E_TOKENS", {"tokens_generated": True}),
        ("E_TOKENS", {"tokens_generated": 0}),
        ("E_TOKENS", {"tokens_requested": -1}),
        ("E_TPS", {"tokens_per_second": 0}),
        ("E_TPS", {"tokens_per_second": -1.0}),
        ("E_TPS", {"tokens_per_second": float("nan")}),
        ("E_TPS", {"tokens_per_second": float("inf")}),
        ("E_TPS", {"tokens_per_second": "15.5"}),
        ("E_TPS", {"tokens_per_second": True}),
        ("E_KERNELS", {"kernels": "i2s_gemv"}),
        ("E_KERNELS", {"kernels": ["i2s_gemv", ""]}),
        ("E_KERNELS", {"kernels": ["i2s_gemv", " \t"]}),
        ("E_KERNELS", {"kernels": ["i" * 129]}),
        ("E_KERNELS", {"kernels": ["i2s_gemv"] * 10_001}),
        ("E_ENVIRONMENT", {"environment": {"BITNET_VERSION": "0.1.0"}}),
        ("E_ENVIRONMENT", {"environment": {"OS": "linux", "THREADS": 1}}),
        ("E_ENVIRONMENT", {"environment": []}),
        ("E_MODEL", {"model": {}}),
        ("E_MODEL", {"model": "tiny.gguf"}),
        ("E_SCHEMA", {"schema_version": "1.1.0", "kernel_path": "fast"}),
        ("E_SCHEMA", {"schema_version": "1.1.0", "quantization": {"fallback_count": -1}}),
    ],
)
def test_a_receipt_is_held_to_its_schema(code: str, changes: dict[str, Any]) -> None:
    assert codes(document(**changes)) == {code}


@pytest.mark.parametrize(
    "changes",
    [
        {"kernels": ["i2s_gemv"] * 10_000},
        {"timestamp": "2025-10-15T19:41:18.920441642+00:00"},
        {"timestamp": "2024-02-29T23:59:59.1-23:59"},
        {"timestamp": "2025-10-13t12:00:00z"},
        {"tokens_per_second": 16},
        {"backend": "CuDa"},
        {"extra": {"anything": [1, None]}},
    ],
)
def test_what_the_schema_allows(changes: dict[str, Any]) -> None:
    assert codes(document(**changes)) == set()


@pytest.mark.parametrize("whole", [None, [], "receipt", 1])
def test_a_document_that_is_no_object(whole: object) -> None:
    assert [fault.field for fault in schema.faults(whole, "receipt")] == [None]


def test_a_megabyte_of_faults_is_a_handful() -> None:
    """And the faults of other fields are still found."""
    many = document(kernels=[1] * 100_000, environment={"OS": 1}, model={})
    refusals = schema.validate(many, "receipt")
    assert len(refusals) < 20
    assert {refusal.code for refusal in refusals} == {"E_KERNELS", "E_ENVIRONMENT", "E_MODEL"}
    strangers = document(environment={"OS": "linux", **{f"V{i}": i for i in range(100_000)}})
    assert len(schema.validate(strangers, "receipt")) < 20


def evidence_document() -> dict[str, Any]:
    example: dict[str, Any] = copy.deepcopy(schema.load("evidence")["examples"][0])
    return example


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("runs", 0, "blocks", 0, "sequences_ns"), [[1.0]]),
        (("runs", 0, "blocks", 0, "sequences_ns"), [[True]]),
        (("runs", 0, "blocks", 0, "sequences_ns"), [[-1]]),
        (("runs", 0, "blocks", 0, "sequences_ns"), [7]),
        (("runs", 0, "blocks", 0, "interval", "wall_ns"), "1"),
        (("runs", 0, "role"), "idle"),
        (("runs", 0, "started_at"), "yesterday"),
        (("runs",), []),
        (("commit",), {"revision": 1}),
        (("profile", "folded_sha256"), "0" * 63),
        (("receipt_sha256",), "A" * 64),
        (("clock_scope",), "thread"),
        (("workload",), {}),
        (("machine",), {}),
        (("schema_version",), "2.0.0"),
    ],
)
def test_evidence_is_held_to_its_schema(place: tuple[Any, ...], value: object) -> None:
    example = evidence_document()
    part = example
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    refusals = schema.validate(example, "evidence")
    assert {refusal.code for refusal in refusals} == {"E_EVIDENCE_SCHEMA"}
    assert str(place[0]) in refusals[0].message


def test_a_fault_behind_this_or_null_is_told() -> None:
    example = evidence_document()
    example["profile"]["rate_hz"] = "fast"
    (refusal,) = schema.validate(example, "evidence")
    assert refusal.message == '"profile.rate_hz" must be integer, and is "fast".'


def test_what_is_built_satisfies_the_schemas() -> None:
    triple = bundle()
    assert decode_receipt(triple.files["receipt.json"]) == triple.receipt
    assert decode_evidence(triple.files["evidence.json"]) == triple.evidence


@pytest.mark.parametrize(
    "name",
    ["pass", "improved", "regressed", "inconclusive", "not_comparable", "no_baseline", "dishonest"],
)
def test_a_verdict_with_nothing_known(name: str) -> None:
    figures = dict.fromkeys(
        ("baseline", "current", "change_pct", "ci_low_pct", "ci_high_pct", "threshold_pct")
    )
    verdict: dict[str, Any] = {
        "verdict": name,
        "reasons": [{"code": "E_X", "message": "x", "extra": 1}],
        "signals": [
            {
                "name": "tokens_per_second",
                "unit": "tokens/s",
                "direction": "higher_is_better",
                "decision": "none",
                **figures,
            }
        ],
        "smallest_detectable_pct": None,
        "false_alarm_rate": None,
        "comparability": {},
        "grade": "CONSISTENT",
        "extra": [1],
    }
    assert schema.validate(verdict, "verdict") == []
    verdict["signals"] = [{"name": "tokens_per_second"}]
    assert schema.validate(verdict, "verdict")
    assert dumps(verdict)
