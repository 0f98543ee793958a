"""The tables of rules and kernel policies in ``docs/receipts.md``, made from the registries.

``python -m tests.receipt.rules_table`` writes them anew.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.rules import CHECKS, NOTICES, RULES, SHORTFALLS, SUSPICIONS, replay
from pytest_flamegate.receipt.rules.fitness import REASONS
from pytest_flamegate.receipt.rules.rule import Rule

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "receipts.md"
PACKAGE = ROOT / "pytest_flamegate"
RECEIPT = PACKAGE / "receipt"
READERS = (
    "core/json",
    "receipt/schema",
    "receipt/documents",
    "receipt/imports/document",
    "core/files",
    "receipt/sources",
    "receipt/policies",
    "receipt/verify",
)
"""Modules that refuse before any rule is asked."""
_WRITING = frozenset({"E_BAD_NAME", "E_CANNOT_WRITE", "E_CANNOT_ENCODE", "E_NO_SCHEMA"})
_CODE = re.compile(r"[EW](?:_[A-Z0-9]+)+")


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def told(rule: Rule[Any], broken: str) -> str:
    grade = "–" if rule.protects is None else f"below {Grade(rule.protects).name}"
    return row(f"`{rule.code}`", rule.sentence, broken, grade)


BOOKS: list[tuple[Iterable[Rule[Any]], str]] = [
    (RULES, "refused"),
    (NOTICES, "a notice"),
    (CHECKS, "refused"),
    (SHORTFALLS, "a notice"),
    (SUSPICIONS, "a suspicion"),
    (replay.CHECKS, "refused"),
    (replay.SHORTFALLS, "a notice"),
]


def rules() -> str:
    """Every rule of the registries, in the order in which breaches are reported."""
    head = [row("code", "what holds where it is kept", "broken", "grade"), row(*["---"] * 4)]
    return "\n".join([*head, *(told(rule, broken) for book, broken in BOOKS for rule in book)])


def reasons() -> str:
    """Why an honest receipt is not fit to gate on."""
    lines = [row("code", "what holds where it is fit"), row(*["---"] * 2)]
    return "\n".join([*lines, *(row(f"`{each.code}`", each.sentence) for each in REASONS)])


def policies() -> str:
    """Every kernel policy that is shipped."""
    lines = [row("policy", "engines", "vocabulary"), row(*["---"] * 3)]
    for path in sorted((RECEIPT / "kernel_policies").glob("*.toml")):
        data = tomllib.loads(path.read_text("utf-8"))
        engines = ", ".join(f"`{each}`" for each in data["engines"]) or "by name alone"
        lines.append(row(f"`{path.stem}`", engines, data["summary"]))
    return "\n".join(lines)


def codes_of_readers() -> Iterator[str]:
    """The codes with which a file is refused before its rules are looked at."""
    for name in READERS:
        tree = ast.parse((PACKAGE / f"{name}.py").read_text("utf-8"))
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and _CODE.fullmatch(text) and text not in _WRITING:
                yield text


TABLES = {"rules": rules, "reasons": reasons, "policies": policies}


def filled(text: str) -> str:
    """Return the document with its tables as they should be."""
    for name, table in TABLES.items():
        begin, end = (
            f"<!-- {name}: made by tests/receipt/rules_table.py -->",
            f"<!-- {name} end -->",
        )
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table()}\n{end}{after}"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text("utf-8")), "utf-8")
