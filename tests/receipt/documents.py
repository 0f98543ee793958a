"""Receipts as plain documents, for tests that change them."""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
VALID = sorted((DATA / "valid").glob("*.json"))
INVALID = sorted((DATA / "invalid").glob("*.json"))
SCHEMAS = Path(__file__).parents[2] / "schemas"


def load_schema(kind: str = "receipt") -> dict[str, Any]:
    """Return a published schema."""
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{kind}-1.0.0.schema.json").read_text("utf-8"))
    return schema


def document(**changes: Any) -> dict[str, Any]:
    """Return an honest BitNet CPU receipt with ``changes``; a change to ... leaves out."""
    fields: dict[str, Any] = json.loads((DATA / "valid" / "v01_cpu_i2s.json").read_text())
    fields.update(changes)
    return {name: value for name, value in fields.items() if value is not ...}


def encoded(**changes: Any) -> bytes:
    """Return ``document`` as bytes, with whatever JSON cannot hold written Python's way."""
    return json.dumps(document(**changes)).encode("utf-8", "surrogatepass")
