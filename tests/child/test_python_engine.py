"""Targets of the engine python in a process of their own: tokens, errors, and nothing left."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pytest_flamegate.child import inject
from pytest_flamegate.child.python import KERNEL_TRACE, load_engine
from pytest_flamegate.child.serve import shuffle_heap
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from pytest_flamegate.observe.observer import Observer
from tests.observe.workloads import (
    assert_nothing_left,
    command_workload,
    make_workload,
    observer,
)
from tests.workload.declared import read_file

TARGET = """
import os, subprocess, sys, threading, time
from hashlib import sha256
import numpy as np

def numbers(prompt, max_tokens):
    yield from np.arange(max_tokens)

def whole(prompt, max_tokens):
    return list(range(max_tokens))

def exits(prompt, max_tokens):
    yield 1
    sys.exit(3)

def loses_its_child(prompt, max_tokens):
    yield 1
    child = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    child.wait()
    os.write(child.stdin.fileno(), b"work")

def none(prompt, max_tokens):
    return None

def unstable(prompt, max_tokens):
    yield object()

def chatters(prompt, max_tokens):
    for stream in (sys.stdout, sys.stderr):
        stream.write("word " * 20_000)
    os.write(1, b"more" * 20_000)
    yield 7

def leaves(prompt, max_tokens):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    threading.Thread(target=time.sleep, args=(600,)).start()
    yield 7

def digest(prompt, max_tokens):
    yield sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
"""


def observe(directory: Path, target: str, **given: Any) -> Observer:
    (directory / "toy.py").write_text(TARGET)
    (directory / "bad_import.py").write_text("raise RuntimeError('no weights')\n")
    (directory / "bad_exit.py").write_text("import sys; sys.exit(5)\n")
    return observer(make_workload(directory, "python", target=target, **given))


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert_nothing_left()


@pytest.mark.parametrize(
    ("target", "tokens"),
    [("whole", "0123"), ("chatters", "7"), ("leaves", "7")],
)
def test_tokens_are_the_same_in_each_process(tmp_path: Path, target: str, tokens: str) -> None:
    """Output and processes of a target do no harm."""
    watched = observe(tmp_path, f"toy:{target}", max_tokens=len(tokens))
    for _ in range(2):
        watched.run_timed(0.02)
    assert watched.observation().tokens == tuple(tokens)
    assert watched.observation().differs_at is None


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("absent:generate", "E_TARGET_NOT_FOUND", "absent"),
        ("toy:TARGET", "E_TARGET_NOT_FOUND", "TARGET"),
        ("toy:whol", "E_TARGET_NOT_FOUND", "Did you mean 'whole'"),
        ("bad_import:generate", "E_ENGINE_RAISED", "no weights"),
        ("bad_exit:generate", "E_ENGINE_RAISED", "5"),
        ("toy:exits", "E_ENGINE_RAISED", "3"),
        ("toy:loses_its_child", "E_ENGINE_RAISED", "BrokenPipeError"),
        ("toy:none", "E_BAD_TOKEN", "None"),
        ("toy:unstable", "E_BAD_TOKEN", "'object'"),
    ],
)
def test_errors_of_targets(tmp_path: Path, target: str, code: str, words: str) -> None:
    with pytest.raises(FlamegateError, match=rf"(?s){code}.*{words}"):
        observe(tmp_path, target).run_timed(0.02)


@pytest.mark.parametrize(
    "prompt",
    ["'\"; touch pwned; $(id)\r\n", "nul\0inside", "lone \udc80", "x" * (1 << 20)],
    ids=["quotes", "nul", "surrogate", "megabyte"],
)
def test_a_prompt_reaches_a_target_unchanged(tmp_path: Path, prompt: str) -> None:
    watched = observe(tmp_path, "toy:digest", prompt=prompt, max_tokens=1)
    watched.run_timed(0.02)
    expected = sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
    assert watched.observation().tokens == (expected,)
    assert "pwned" not in os.listdir(tmp_path)


def test_a_prompt_too_long_for_a_command_line(tmp_path: Path) -> None:
    watched = observer(command_workload(tmp_path, "", prompt="x" * (1 << 20)))
    with pytest.raises(FlamegateError, match=r"E_ARGUMENTS_TOO_LONG: .*128 KiB"):
        watched.run_timed(0.1)


RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
NAMES = sorted(each.name for each in RECIPES.iterdir() if (each / "engine.py").is_file())
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


@pytest.mark.parametrize("way", ["inject", "kernel_trace"])
def test_an_engine_that_is_wrapped_keeps_its_facts_reports_and_bricks(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "with_facts.py").write_text(
        "def generate(prompt, max_tokens):\n    yield 1\n\n\n"
        "generate.facts = {'weights_bytes_per_token': '1000'}\n"
        "generate.reports, generate.mark_bricks = list, dict\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(inject, "slow", Mock())
    monkeypatch.setitem(sys.modules, "torch", Mock())
    monkeypatch.setenv(KERNEL_TRACE, "")
    how = {"inject": ("generate", 5.0), "kernel_trace": ("torch", str(tmp_path))}
    given = {"target": "with_facts:generate", "directory": str(tmp_path), "max_tokens": 1}
    engine: Any = load_engine({**given, way: how[way]})
    monkeypatch.delitem(sys.modules, "with_facts")
    assert engine.facts == {"weights_bytes_per_token": "1000"}
    assert (engine.reports, engine.mark_bricks) == (list, dict)
    assert not hasattr(engine, "stream")


def test_processes_have_heaps_of_different_layouts() -> None:
    kept = [shuffle_heap() for _ in range(4)]
    assert len({len(each) for each in kept}) > 1
    assert all(sum(map(sys.getsizeof, each)) < 20_000_000 for each in kept)


SOURCE = "import copied.parts\n\ndef generate(prompt, max_tokens):\n    yield 1\n"


@pytest.mark.parametrize(
    ("place", "installed", "parts", "refused"),
    [
        ("src", "installed", "x = 1\n", False),
        ("src", "installed", "x = 2\n", True),
        (".", "installed", "x = 2\n", True),
        ("docs", "installed", "x = 2\n", False),
        ("src", ".venv/site-packages", "x = 2\n", True),
        # A build writes its version, and git may have other ends of lines.
        ("src", "installed", "__version__ = '1.2'\r\n\r\n__git__commit__ = 'g'\nx = 1\r\n", False),
    ],
)
@pytest.mark.parametrize("below", ["", "bench"])
def test_a_copy_of_the_project_that_differs_from_it_is_not_measured(
    place: str,
    installed: str,
    parts: str,
    below: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    refused: bool,
) -> None:
    """As of an old installation, or an editable one of another clone; the target imports it."""
    top = tmp_path / "project"
    (top / ".git").mkdir(parents=True)
    (top / below).mkdir(exist_ok=True)
    (top / below / "gates.py").write_text("from copied.model import generate\n")
    for directory, own in ((top / place, "x = 1\n"), (top / installed, parts)):
        (directory / "copied").mkdir(parents=True)
        (directory / "__main__.py").write_text("raise SystemExit\n")
        (directory / "copied/__init__.py").touch()
        (directory / "copied/_version.py").write_text(f"place = {str(directory)!r}\n")
        (directory / "copied/model.py").write_text(SOURCE)
        (directory / "copied/parts.py").write_bytes(b"import copied._version\n" + own.encode())
    copy = top / installed
    if installed == "installed":
        copy = copy.rename(tmp_path / "installed")
    monkeypatch.setattr(sys, "path", [str(copy), *sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    importlib.import_module("copied.model")
    late = importlib.util.spec_from_file_location("copied.late", top / "copied/late.py")
    assert late is not None
    assert late.loader is not None
    late.loader = importlib.util.LazyLoader(late.loader)
    sys.modules["copied.late"] = importlib.util.module_from_spec(late)
    late.loader.exec_module(sys.modules["copied.late"])  # not before something asks for it
    load = {"target": "gates:generate", "directory": str(top / below)}
    # At the top of a repository may be a directory of the same name that is no package.
    if not refused or (below and place == "."):
        assert [*load_engine(load)("", 1)] == [1]
        return
    with pytest.raises(ToolError, match=r"E_OTHER_CODE.*copied/parts\.py, which differs"):
        load_engine(load)
