"""llama.cpp in a process of its own: both libraries for real, and libraries that fail."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest

from pytest_flamegate.child.embedded.transformer import Transformer, load
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.embedded import SHIPPED_MODEL, WORKLOADS
from pytest_flamegate.engines.llama_cpp import MODULES
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.observe.observer import Observer
from tests.tools import require
from tests.workload.fake_llama import TALKS

pytestmark = pytest.mark.measures

WITHIN_S = 120.0


def workload(prompt: str = "2+2=", max_tokens: int = 2, **given: object) -> Workload:
    env = given.pop("env", {})
    assert isinstance(env, dict)
    model = str(given.pop("model", SHIPPED_MODEL))
    return Workload(
        "w",
        "llama-cpp",
        prompt,
        max_tokens,
        "test",
        model=model,
        env=MappingProxyType(env),
        timeout_s=WITHIN_S,
        options=MappingProxyType(given),
    )


def observer(declared: Workload) -> Observer:
    chosen = engine("llama-cpp")
    return Observer(declared, chosen.plan(declared, chosen.model(declared)))


def seen(declared: Workload) -> Observation:
    watching = observer(declared)
    for _ in range(2):
        with watching.serve() as served:
            block = served.block(2)
            watching.keep("timed", served, [block], served.counters())
    return watching.observation()


def refusal(declared: Workload) -> FlamegateError:
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    with pytest.raises(FlamegateError) as caught:
        seen(declared)
    left = {each.pid for each in psutil.Process().children(recursive=True)} - before
    assert not left
    return caught.value


@pytest.fixture(params=MODULES)
def library(request: pytest.FixtureRequest) -> str:
    """A library that is here."""
    name = str(request.param)
    if name == "llama-cpp-python" and importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed: it is built for a quarter of an hour")
    require(importlib.util.find_spec(MODULES[name]) is not None, f"{name} is not installed")
    return name


@pytest.fixture(scope="module")
def ours() -> Transformer:
    return load(SHIPPED_MODEL)


def as_bytes(tokens: tuple[str, ...], library: str) -> list[int]:
    """Return tokens of a model whose tokens are bytes."""
    return [int(each) if library == "llama-cpp-python" else ord(each) for each in tokens]


def test_tokens_are_those_of_the_embedded_engine(library: str, ours: Transformer) -> None:
    for _, prompt, max_tokens in WORKLOADS:
        max_tokens = min(max_tokens, 48)
        found = seen(workload(prompt, max_tokens, library=library))
        assert as_bytes(found.tokens, library) == list(ours.generate(prompt, max_tokens))
        assert found.differs_at is None
        assert found.engine["library"].startswith(library)
        assert "CPU" in found.engine["system"]


def test_the_engines_own_figures_are_reported(library: str) -> None:
    found = seen(workload("What is 2+2?", 10, library=library))
    for run in found.runs:
        clocks, *counts = run.reported
        assert clocks.figures["tokens"] == run.tokens_per_sequence == 10
        assert clocks.figures["prompt_tokens"] == len("What is 2+2?") + 1
        assert (
            0
            < clocks.figures["decode_ms"] * 1e6
            < sum(sum(each) for each in run.blocks[0].sequences_ns)
        )
        assert [each.source for each in counts] == (
            ["ggml:cb_eval"] if library == "llama-cpp-python" else []
        )
        for each in counts:  # four layers of seven matrices each, and the head
            assert each.kernels["MUL_MAT"] == 4 * 7 + 1
            # Of one token, and no word on how long the answer was: that would be a contradiction.
            assert "tokens" not in each.figures


@pytest.mark.parametrize(
    ("prompt", "max_tokens"),
    [("x" * 500, 8), ("x" * 1_000_000, 8), (WORKLOADS[-1][1], 270)],
    ids=["long prompt", "a megabyte", "long answer"],
)
def test_what_does_not_fit_into_the_context_is_refused(
    library: str, prompt: str, max_tokens: int
) -> None:
    error = refusal(workload(prompt, max_tokens, library=library, context=256))
    assert error.code == "E_CONTEXT_FULL"


@pytest.mark.parametrize("prompt", ["a\0b\nc\"'$(x)`", "", "é"], ids=["odd", "empty", "two bytes"])
def test_any_text_is_a_prompt(library: str, prompt: str) -> None:
    found = seen(workload(prompt, 8, library=library))
    assert 1 <= len(found.tokens) <= 8
    assert found.runs[0].reported[0].figures["prompt_tokens"] == len(prompt.encode()) + 1


@pytest.mark.parametrize("kind", ["cut", "no architecture", "no gguf", "empty"])
def test_a_broken_model_is_refused_by_the_library(library: str, kind: str, tmp_path: Path) -> None:
    whole = SHIPPED_MODEL.read_bytes()
    made = {
        "cut": whole[: len(whole) // 2],
        "no architecture": whole.replace(b"bitnet", b"bitnex"),
        "no gguf": b"hello\n",
        "empty": b"",
    }[kind]
    path = tmp_path / "broken.gguf"
    path.write_bytes(made)
    error = refusal(workload(library=library, model=path))
    assert error.code == "E_MODEL_REFUSED"
    assert "broken.gguf" in error.problem
    if kind == "no architecture":
        assert "unknown model architecture: 'bitnex'" in error.problem


BROKEN = {
    "raise OSError('libllama.so: cannot open')": ("E_LIBRARY_BROKEN", "cannot open"),
    "import no_such_module_at_all": ("E_LIBRARY_BROKEN", "no_such_module_at_all"),
    "anything = 1": ("E_LIBRARY_BROKEN", "CommonParams"),
    "import os, sys; print('ggml: boom', file=sys.stderr, flush=True); os.abort()": (
        "E_ENGINE_DIED",
        "ggml: boom",
    ),
    "import ctypes; ctypes.string_at(0)": ("E_ENGINE_DIED", "signal 11"),
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_library_that_fails_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text(_UNUSED + text)
    code, word = BROKEN[text]
    error = refusal(workload(library="xllamacpp", env={"PYTHONPATH": str(tmp_path)}))
    assert (error.code, word in error.problem) == (code, True), error.problem


def test_a_library_that_is_missing_is_told() -> None:
    if importlib.util.find_spec("llama_cpp") is not None:
        pytest.skip("llama-cpp-python is installed here")
    error = refusal(workload(library="llama-cpp-python"))
    assert error.code == "E_NO_LIBRARY"
    assert "pip install llama-cpp-python" in error.remedy


_UNUSED = """\
class Server:
    pass
BUILD_INFO = {}
"""


def test_a_library_may_write_to_standard_output(tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text(TALKS.replace("DIES", "pass"))
    found = seen(workload(library="xllamacpp", env={"PYTHONPATH": str(tmp_path)}))
    assert found.tokens == ("1", "2")
    assert found.engine["build"] == "llama.cpp 1 (c), C, T"


def test_a_crash_amid_a_sequence_is_told(tmp_path: Path) -> None:
    crash = "import ctypes; ctypes.string_at(0)"
    (tmp_path / "xllamacpp.py").write_text(TALKS.replace("DIES", crash))
    error = refusal(workload(library="xllamacpp", env={"PYTHONPATH": str(tmp_path)}))
    assert (error.code, "signal 11" in error.problem) == ("E_ENGINE_DIED", True)


def test_a_library_that_is_replaced_while_it_is_measured_is_told(tmp_path: Path) -> None:
    fake = tmp_path / "xllamacpp.py"
    text = TALKS.replace("DIES", "pass")
    fake.write_text(text)
    env = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    watching = observer(workload(library="xllamacpp", env=env))
    with watching.serve() as served:
        served.block(1)
    fake.write_text(text.replace('__version__ = "1"', '__version__ = "1.1"'))
    with pytest.raises(FlamegateError) as caught, watching.serve():
        pass
    assert caught.value.code == "E_ENGINE_CHANGED"
