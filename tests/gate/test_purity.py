"""The gate reads nothing but its arguments."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_flamegate import gate

SOURCES = sorted(Path(str(gate.__file__)).parent.glob("*.py"))
ALLOWED = {
    "__future__",
    "collections",
    "dataclasses",
    "functools",
    "hashlib",
    "math",
    "re",
    "statistics",
    "types",
    "typing",
}

PURE = (
    "pytest_flamegate.bricks.record",
    "pytest_flamegate.config.thresholds",
    "pytest_flamegate.core.clocks",  # the type of an interval, and its sum
    "pytest_flamegate.core.errors",
    "pytest_flamegate.core.json",
    "pytest_flamegate.core.text",
    "pytest_flamegate.gate",
    "pytest_flamegate.observe.observation",
    "pytest_flamegate.receipt.formulas",
    "pytest_flamegate.receipt.metrics",
    "pytest_flamegate.receipt.rules.replay",
    "pytest_flamegate.receipt.types",
)
"""Modules of types, arithmetic and text."""


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_imports_no_clock_file_process_or_environment(source: Path) -> None:
    tree = ast.parse(source.read_text(encoding="utf-8"))
    imported = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported.append(str(node.module))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "input", "print", "exec", "eval", "__import__"}
    for name in imported:
        assert name.startswith(PURE) or name.split(".")[0] in ALLOWED, name


def test_importing_the_gate_imports_nothing_heavy() -> None:
    code = (
        "import sys, pytest_flamegate.gate; "
        "heavy = {'numpy', 'jsonschema', 'rich', 'pytest'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
