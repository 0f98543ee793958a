"""What ``docs/receipts.md`` and ``SECURITY.md`` say is what the code holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.policies import policy_for
from tests.receipt.forgeries.__main__ import DOCUMENT as PAGE
from tests.receipt.forgeries.__main__ import listed
from tests.receipt.rules_table import BOOKS, DOCUMENT, ROOT, codes_of_readers, filled

TEXT = DOCUMENT.read_text("utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text("utf-8")


def test_the_tables_are_those_of_the_registries() -> None:
    assert filled(TEXT) == TEXT, "run python -m tests.receipt.rules_table"


def test_every_rule_is_in_them() -> None:
    for book, _ in BOOKS:
        for rule in book:
            assert f"| `{rule.code}` |" in TEXT


def test_every_kind_of_forgery_is_told() -> None:
    assert PAGE.read_text("utf-8") == listed(), "run python -m tests.receipt.forgeries --list"


def test_a_missing_rule_would_be_seen() -> None:
    assert filled(TEXT.replace("E_TPS_MISMATCH", "E_OTHER")) != TEXT.replace("E_TPS_M", "E_OTHER_")


@pytest.mark.parametrize("code", sorted(set(codes_of_readers())))
def test_every_refusal_of_the_readers_is_told(code: str) -> None:
    assert f"`{code}`" in TEXT


@pytest.mark.parametrize("grade", Grade)
@pytest.mark.parametrize("text", [TEXT, SECURITY], ids=["receipts", "security"])
def test_every_grade_is_explained(grade: Grade, text: str) -> None:
    assert f"**{grade.name}**" in text


def test_the_default_policy_is_told() -> None:
    assert f"`{policy_for(None).name}` where none is named" in TEXT


@pytest.mark.parametrize("text", [TEXT, SECURITY], ids=["receipts", "security"])
def test_every_test_that_is_named_exists(text: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert named
    for path, test in named:
        source = Path(ROOT, path).read_text("utf-8")
        assert not test or f"def {test}(" in source, f"{path}::{test}"
