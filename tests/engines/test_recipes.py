"""The recipes of docs/recipes: each is a declaration, and a target that loads only when called."""

import sys
from pathlib import Path

import pytest

from pytest_flamegate.child.python import load_engine
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from tests.workload.declared import read_file

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
NAMES = sorted(each.name for each in RECIPES.iterdir() if each.is_dir())
HEAVY = {"torch", "transformers", "onnxruntime_genai", "ctranslate2", "vllm", "llama_cpp", "numpy"}


@pytest.mark.parametrize("name", NAMES)
def test_a_target_is_found_without_its_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a mistake in the file is told at once, and only a call needs the library."""
    (declared,) = read_file(RECIPES / name / "flamegate.toml")
    assert (declared.name, declared.engine) == (name, "python")
    assert (RECIPES / name / "requirements.txt").read_text().strip()
    plan = engine("python").plan(declared, None)
    assert isinstance(plan, Served)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for heavy in HEAVY:
        monkeypatch.setitem(sys.modules, heavy, None)
    monkeypatch.delitem(sys.modules, "engine", raising=False)
    load = {key: value for key, value in plan.load.items() if key != "kernel_trace"}
    target = load_engine(load)
    monkeypatch.delitem(sys.modules, "engine", raising=False)
    assert callable(target)
