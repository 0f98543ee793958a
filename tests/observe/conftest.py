"""Measurements in tests of the observer are short."""

import pytest

from pytest_flamegate.observe import served


@pytest.fixture(autouse=True)
def short_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the reference kernel a few times only."""
    monkeypatch.setattr(served, "REFERENCE_TIMES", 2)
