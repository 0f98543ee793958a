"""The published schemas have every field that is written, described and with examples."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.json import schema as generate_schema

from pytest_flamegate.core.json import encode_plain
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate.rule import FieldDifference
from pytest_flamegate.receipt.artifacts import RunLine
from pytest_flamegate.receipt.baseline import BaselineRecord
from pytest_flamegate.receipt.imports.imported import ImportedFile
from pytest_flamegate.receipt.types import Evidence, Receipt
from tests.receipt.documents import SCHEMAS, load_schema
from tests.report import verdicts

WRITTEN = {
    "receipt": Receipt,
    "evidence": Evidence,
    "baseline": BaselineRecord,
    "history": RunLine,
    "imported": ImportedFile,
}
DIFFERENCES = (FieldDifference("model", "a", "b", "E_MODEL_DIFFERS"),)
VERDICT = replace(verdicts.in_pairs(), differences=DIFFERENCES)
KINDS = sorted(path.name.partition("-")[0] for path in SCHEMAS.iterdir())
FREE = (".environment.", ".model.", ".workload.", ".bricks.*.decisions.")
"""Objects that may have any names, of which the schema or the document has a few."""


def sketch(value: Any) -> dict[str, Any]:
    """Return a schema with the names in a document."""
    if isinstance(value, dict):
        return {"properties": {name: sketch(each) for name, each in value.items()}}
    if isinstance(value, list | tuple):
        return {"items": {"anyOf": [sketch(each) for each in value]}}
    return {}


def expand(node: dict[str, Any], root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node, that to which it refers, and its alternatives."""
    yield node
    if "$ref" in node:
        yield from expand(root["$defs"][node["$ref"].removeprefix("#/$defs/")], root)
    for each in node.get("anyOf", ()):
        yield from expand(each, root)


def find_fields(
    node: dict[str, Any], root: dict[str, Any], at: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the schema of each field; ``*`` stands for items and unnamed ones."""
    for each in expand(node, root):
        for name, field in each.get("properties", {}).items():
            if not f"{at}.{name}".startswith(FREE):
                yield f"{at}.{name}", field
            yield from find_fields(field, root, f"{at}.{name}")
        values = each.get("items", each.get("additionalProperties"))
        if isinstance(values, dict):
            yield from find_fields(values, root, f"{at}.*")


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_has_the_fields_that_are_written(kind: str) -> None:
    if kind == "verdict":
        written = sketch(encode_plain(verdict_document(VERDICT)))
    else:
        written = generate_schema(WRITTEN[kind], schema_hook=lambda _: {"type": "object"})
    published = load_schema(kind)
    ours, theirs = ({path for path, _ in find_fields(each, each)} for each in (written, published))
    assert sorted(ours ^ theirs) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_has_a_description_and_valid_examples(kind: str) -> None:
    published = load_schema(kind)
    validator = Draft202012Validator(published)
    for path, field in [("", published), *find_fields(published, published)]:
        found = {key: each[key] for each in expand(field, published) for key in each}
        assert found["description"], path
        assert found["examples"], path
        assert all(map(validator.evolve(schema=field).is_valid, found["examples"])), path
