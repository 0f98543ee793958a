"""Modules of a user's, written for one test."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def module(
    directory: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str = "toy"
) -> ModuleType:
    """Load ``source`` as the module ``name``, forgotten again when the test ends."""
    path = directory / f"{name.replace('.', '/')}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    loaded = ModuleType(name)
    loaded.__file__ = str(path)
    monkeypatch.setitem(sys.modules, name, loaded)
    exec(compile(source, str(path), "exec"), vars(loaded))
    return loaded
