"""Every code of the package is documented once, and every documented code is used."""

import ast
import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from pytest_flamegate.core.errors import ToolError, reason_of
from pytest_flamegate.core.text import Notice

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def codes() -> ModuleType:
    """Return the script that writes the page."""
    spec = importlib.util.spec_from_file_location("make_codes", ROOT / "docs/make_codes.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018 - one fact
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def uses(codes: ModuleType) -> dict[str, set[str]]:
    """Return the rooms that use each code."""
    found: dict[str, set[str]] = codes.find_uses()
    return found


def test_the_page_is_the_one_that_the_script_writes(codes: ModuleType) -> None:
    written = codes.PAGE.read_text("utf-8")
    assert written == codes.render(codes.read_rows()), "run python docs/make_codes.py"


def test_codes_in_use_rows_and_mentions_are_the_same(
    codes: ModuleType, uses: dict[str, set[str]]
) -> None:
    rows = Counter(row.code for row in codes.read_rows())
    assert {code for code, count in rows.items() if count > 1} == set()
    assert {code: rooms for code, rooms in uses.items() if code not in rows} == {}
    assert [code for code in rows if code not in uses] == []
    elsewhere = [row for row in codes.read_rows() if row.source not in uses[row.code]]
    assert elsewhere == [], "a row stands in codes.toml of a room that uses its code"
    assert {code: files for code, files in codes.find_mentions().items() if code not in uses} == {}


def test_cause_and_remedy_are_sentences(codes: ModuleType) -> None:
    for row in codes.read_rows():
        for text in (row.cause, row.remedy):
            assert text[:1].isupper() or not text[:1].isalpha(), row
            assert text.rstrip("`)\"'").endswith((".", "?", "…")), row


def test_an_error_without_a_remedy_of_its_own_has_the_one_of_its_code(codes: ModuleType) -> None:
    row = next(row for row in codes.read_rows() if row.code == "E_PORT_TAKEN")
    remedy = row.remedy.replace("`", "")
    assert row.remedy != remedy
    assert str(ToolError("E_PORT_TAKEN", "Port 7 is taken.")) == (
        f"E_PORT_TAKEN: Port 7 is taken. {remedy}"
    )
    assert ToolError("E_PORT_TAKEN", "Port 7 is taken.", "Take port 8.").remedy == "Take port 8."
    assert Notice("E_PORT_TAKEN", "Port 7 is taken.").remedy == remedy
    assert Notice("E_PORT_TAKEN", "Port 7 is taken.", "Take port 8.").remedy == "Take port 8."


def test_a_remedy_that_is_always_the_same_stands_in_the_table(codes: ModuleType) -> None:
    """At its only site a code has a remedy of its own only if that names values of the run."""
    sites: dict[str, list[bool]] = {}
    for path in codes.PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
                place = 3 if ast.unparse(call.func).endswith("trap") else 2
                remedy = call.args[place] if len(call.args) > place else None
                code = str(call.args[0].value)
                sites.setdefault(code, []).append(isinstance(remedy, ast.Constant))
    rows = {row.code for row in codes.read_rows()}
    assert [code for code, constant in sites.items() if constant == [True] and code in rows] == []


def test_the_tables_are_read_only_for_an_error_that_is_shown() -> None:
    script = """
import sys
from pytest_flamegate.core.errors import ToolError, reason_of
error = ToolError("E_PORT_TAKEN", "Port 7 is taken.")
loaded = "tomllib" in sys.modules
print(loaded, bool(error.remedy), "tomllib" in sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert shown.stdout.split() == ["False", "True", "True"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(2, "No such file"), "No such file"),
        (OSError("it is no plain file"), "it is no plain file"),
        (EOFError(), "EOFError"),
    ],
)
def test_an_error_always_has_a_reason(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
