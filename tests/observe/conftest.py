"""Measurements in tests of the observer are short."""

import pytest

from pytest_flamegate.observe import observer


@pytest.fixture(autouse=True)
def short_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the reference kernel a few times only."""
    monkeypatch.setattr(observer, "REFERENCE_TIMES", 2)
