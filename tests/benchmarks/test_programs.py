"""Each program of benchmarks/ can be imported: a rename elsewhere must not break one unnoticed."""

import importlib
from pathlib import Path

import pytest

NEEDS_MORE = {"train_embedded_model", "slower_engine"}
"""These need torch, or a file beside them."""
PROGRAMS = sorted(path.stem for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in NEEDS_MORE])
def test_import(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").__doc__
