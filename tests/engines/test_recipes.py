"""The recipes of docs/recipes: each is a declaration, and a target that loads only when called."""

import os
import sys
from pathlib import Path

import pytest

from pytest_flamegate.child.python import load_engine
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from pytest_flamegate.engines.declare import read_file
from pytest_flamegate.observe.observer import Observer

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
NAMES = sorted(each.name for each in RECIPES.iterdir() if each.is_dir())
HEAVY = {"torch", "transformers", "onnxruntime_genai", "ctranslate2", "vllm", "llama_cpp", "numpy"}
MODELS = {
    "transformers": "FLAMEGATE_TEST_HF_MODEL",
    "onnxruntime-genai": "FLAMEGATE_TEST_ONNX_MODEL",
    "ctranslate2": "FLAMEGATE_TEST_CT2_MODEL",
    "vllm": "FLAMEGATE_TEST_HF_MODEL",
    "llama-cpp-python": "FLAMEGATE_TEST_MODEL",
}
"""Names the variable with the path of the model that the recipe reads."""
MODULES = {"llama-cpp-python": "llama_cpp"}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_a_declaration_for_its_own_engine(name: str) -> None:
    (declared,) = read_file(RECIPES / name / "flamegate.toml")
    assert (declared.name, declared.engine) == (name, "python")
    assert (RECIPES / name / "requirements.txt").read_text().strip()


@pytest.mark.parametrize("name", NAMES)
def test_a_target_is_found_without_its_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a mistake in the file is told at once, and only a call needs the library."""
    (declared,) = read_file(RECIPES / name / "flamegate.toml")
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


@pytest.mark.measures
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_yields_the_same_tokens_in_two_processes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(
        MODULES.get(name, name.replace("-", "_")),
        reason=f"{name} is not here: python docs/recipes/try_recipe.py {name} DIR",
    )
    if MODELS[name] not in os.environ:
        pytest.skip(f"{MODELS[name]} names no model")
    monkeypatch.setenv("RECIPE_MODEL", os.environ[MODELS[name]])
    (declared,) = read_file(RECIPES / name / "flamegate.toml")
    watched = Observer(declared, engine("python").plan(declared, None))
    for _ in range(2):
        watched.run_timed(0.1)
    seen = watched.observation()
    assert seen.differs_at is None
    assert 0 < len(seen.tokens) <= declared.max_tokens
    assert all(token.isdigit() for token in seen.tokens)
