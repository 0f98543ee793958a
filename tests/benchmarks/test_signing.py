from __future__ import annotations

import pytest

from benchmarks.signing import table

pytestmark = pytest.mark.measures


def test_unsigned_and_signed_receipts_are_timed() -> None:
    shown = table(receipts=4, distinct=2)
    assert shown.title.startswith("4 receipts of ")
    assert [row[0] for row in shown.rows][:2] == ["verified, unsigned", "verified, signed"]
    assert all(float(row[2]) > 0 for row in shown.rows)
