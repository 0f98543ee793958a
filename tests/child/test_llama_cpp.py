"""The engine llama-cpp: its declaration, the library's answers, and xllamacpp for real."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from pytest_flamegate.child.embedded.transformer import Transformer
from pytest_flamegate.child.llama_cpp import LlamaCppServer
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.engines import engine, gguf
from pytest_flamegate.engines.base import Served
from pytest_flamegate.engines.gguf import SHIPPED_MODEL, WORKLOADS
from tests.observe.workloads import observer, run_error
from tests.tools import require
from tests.workload.declared import read_file


def declare(prompt: str = "2+2=", max_tokens: int = 4, **given: Any) -> Workload:
    env, model = given.pop("env", {}), str(given.pop("model", SHIPPED_MODEL))
    return Workload(
        "w", "llama-cpp", prompt, max_tokens, "test", model=model, env=env, options=given
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("library = 'llama-cpp-python'", "recipe of the engine python"),
        ("context = 0", "context"),
        ("batch = -1", "batch"),
        ("gpu_layers = 2147483648", "gpu_layers"),
    ],
)
def test_invalid_options(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "flamegate.toml"
    path.write_text(f"[workloads.w]\nengine = 'llama-cpp'\nprompt = 'p'\nmax_tokens = 4\n{line}\n")
    with pytest.raises(UsageError, match=f"E_BAD_VALUE.*{words}"):
        read_file(path)


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: SimpleNamespace())


@pytest.mark.usefixtures("_installed")
def test_plan_and_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = engine("llama-cpp")
    plan = chosen.plan(declare(context=64, batch=8, gpu_layers=2), SHIPPED_MODEL)
    assert isinstance(plan, Served)
    assert plan.token_unit == "text"
    assert {"context": 64, "batch": 8, "gpu_layers": 2}.items() <= plan.load.items()
    chosen.check_profiler(declare(), "perf")
    with pytest.raises(ToolError, match=r"E_PROFILER_BLIND.*--flamegate-profiler=perf"):
        chosen.check_profiler(declare(), "py-spy")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ToolError, match=r"E_NO_LIBRARY.*pip install xllamacpp"):
        chosen.plan(declare(), SHIPPED_MODEL)


@pytest.mark.parametrize(
    ("prompt", "context"), [("", 256), ("x" * 237, 512), ("é" * 200, 512), ("x" * 10**6, 8192)]
)
def test_default_context_holds_prompt_and_answer_up_to_a_limit(prompt: str, context: int) -> None:
    assert gguf.context_for(declare(prompt)) == context


class FakeServer:
    """Answers as the library does: it calls back, and swallows exceptions of the callback."""

    def __init__(self, *chunks: Any) -> None:
        self.chunks = chunks
        self.request: dict[str, Any] = {}

    def handle_completions(self, request: dict[str, Any], callback: Any) -> None:
        self.request = request
        for chunk in self.chunks:
            if callback(chunk):
                return


def chunk(text: str, count: int, finish: str | None = None, prompt: int = 5) -> dict[str, Any]:
    timings = {"prompt_n": prompt, "prompt_ms": 2.0, "predicted_n": count, "predicted_ms": 8.0}
    return {"choices": [{"text": text, "finish_reason": finish}], "timings": timings}


def generate(*chunks: Any) -> tuple[list[str], LlamaCppServer, FakeServer]:
    fake = FakeServer(*chunks)
    server = LlamaCppServer(fake, 42, {})
    tokens: list[str] = []
    server.stream("2+2=", 4, tokens.append)
    return tokens, server, fake


@pytest.mark.parametrize(
    ("chunks", "tokens"),
    [
        (
            [chunk("a", 1), chunk("b", 2), chunk("c", 3), chunk("d", 4), chunk("", 4, "length")],
            "a b c d",
        ),
        # The token that ends the sequence has a chunk of its own, or none.
        ([chunk("a", 1), chunk("", 2), chunk("", 2, "stop")], "a"),
        ([chunk("a", 1), chunk("", 2, "stop")], "a"),
        # Half a character has no chunk: the next one counts both tokens.
        ([chunk("a", 1), chunk("é", 3), chunk("b", 4), chunk("", 4, "length")], "a  é b"),
        # A token without text has an empty chunk, and counts.
        ([chunk("", 1), chunk("b", 2), chunk("", 3, "stop")], " b"),
        # Half a character at the very end.
        ([chunk("a", 1), chunk("", 4, "length")], "a   "),
        ([chunk("a", 1), chunk("", 3, "stop")], "a "),
    ],
)
def test_every_token_counts_except_the_end(chunks: list[Any], tokens: str) -> None:
    assert generate(*chunks)[0] == tokens.split(" ")


def test_request_is_greedy_and_without_a_cache() -> None:
    _, server, fake = generate(chunk("a", 1), chunk("", 2, "stop"))
    wanted = {"temperature": 0, "cache_prompt": False, "n_predict": 4, "seed": 42}
    assert wanted.items() <= fake.request.items()
    figures = {"tokens": 1, "prompt_tokens": 5, "prefill_ms": 2.0, "decode_ms": 8.0}
    figures["decode_tokens"] = 0
    assert server.reports() == [{"source": "llama.cpp:timings", "figures": figures, "kernels": {}}]
    assert server.reports() == []
    # The report of a block is its median sequence.
    server._figures = [{"decode_ms": each} for each in (9.0, 1.0, 3.0, 2.0)]
    assert [each["figures"]["decode_ms"] for each in server.reports()] == [2.0]


@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ([chunk("a", 1), chunk("b", 1)], "E_SOURCES_DISAGREE"),
        ([chunk("a", 1), chunk("b", 2), chunk("", 1, "length")], "E_SOURCES_DISAGREE"),
        ([chunk("a", 1), chunk("", 3, "length")], "E_CONTEXT_FULL"),
        ([chunk("", 0, "length", prompt=0)], "E_BAD_PROMPT"),
        ([chunk("a", 1)], "E_ENGINE_RAISED"),
        ([], "E_ENGINE_RAISED"),
        ([{"error": {"message": "no slot."}}], "E_ENGINE_RAISED"),
        (
            [{"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}}],
            "E_CONTEXT_FULL",
        ),
    ],
)
def test_answers_that_cannot_be_counted(chunks: list[Any], code: str) -> None:
    with pytest.raises(FlamegateError) as caught:
        generate(*chunks)
    assert caught.value.code == code


def test_a_closed_pipe_ends_the_sequence() -> None:
    closed = Mock(side_effect=BrokenPipeError)
    server = LlamaCppServer(FakeServer(chunk("a", 1), chunk("", 1, "length")), 42, {})
    with pytest.raises(BrokenPipeError):
        server.stream("p", 2, closed)


@pytest.fixture(scope="module")
def _xllamacpp() -> None:
    require(importlib.util.find_spec("xllamacpp") is not None, "xllamacpp is not installed")


@pytest.mark.measures
@pytest.mark.usefixtures("_xllamacpp")
def test_tokens_and_figures_are_those_of_the_embedded_engine(model: Transformer) -> None:
    for _, prompt, max_tokens in WORKLOADS:
        max_tokens = min(max_tokens, 48)
        watching = observer(declare(prompt, max_tokens))
        for _ in range(2):
            watching.run_timed(0.05)
        found = watching.observation()
        assert [ord(each) for each in found.tokens] == list(model.generate(prompt, max_tokens))
        assert found.differs_at is None
        assert found.engine["library"].startswith("xllamacpp")
        for run in found.runs:
            (report,) = run.reported
            assert report.figures["tokens"] == run.tokens_per_sequence == max_tokens
            assert report.figures["prompt_tokens"] == len(prompt) + 1
            longest_ns = max(sum(each) for b in run.blocks for each in b.sequences_ns)
            assert 0 <= report.figures["decode_ms"] * 1e6 < longest_ns


@pytest.mark.usefixtures("_xllamacpp")
def test_what_the_library_rejects_is_named(tmp_path: Path) -> None:
    assert run_error(observer(declare("x" * 500, 8, context=256))).code == "E_CONTEXT_FULL"
    data, path = SHIPPED_MODEL.read_bytes(), tmp_path / "broken.gguf"
    for content, words in (
        (data[: len(data) // 2], "broken.gguf"),
        (data.replace(b"bitnet", b"bitnex"), "unknown model architecture: 'bitnex'"),
    ):
        path.write_bytes(content)
        error = run_error(observer(declare(model=path)))
        assert error.code == "E_MODEL_UNSUPPORTED"
        assert "broken.gguf" in error.problem
        assert words in error.problem


# A module like xllamacpp that computes nothing and prints: its answers are always the same.
TALKS = """\
__version__ = "1"
BUILD_INFO = {"build_number": 1, "commit": "c", "compiler": "C", "build_target": "T"}
def get_system_info():
    return "CPU : AVX2 = 1 | \\n FMA = 1 | "
class Params:
    def __init__(self):
        self.model = Params.__new__(Params)
        self.cpuparams = Params.__new__(Params)
        self.cpuparams_batch = Params.__new__(Params)
CommonParams = Params
class Server:
    def __init__(self, params):
        print("loaded", params.model.path)
    def handle_completions(self, request, callback):
        for made in (1, 2):
            print("token", made, flush=True)
            callback(chunk(str(made), made, None))
        DIES
        callback(chunk("", 2, "length"))
def chunk(text, made, finish):
    timings = {"prompt_n": 5, "prompt_ms": 1.0, "predicted_n": made, "predicted_ms": 1.0}
    return {"choices": [{"text": text, "finish_reason": finish}], "timings": timings}
"""


# The library's log is written by a thread of its own, maybe after the error has come back.
LATE = """import os, threading
        threading.Timer(0.2, os.write, (2, b"error loading model: too odd")).start()
        raise RuntimeError("no server")"""
BROKEN = [
    ("raise OSError('libllama.so: cannot open')", "E_NO_LIBRARY", "cannot open"),
    ("import no_such_module_at_all", "E_NO_LIBRARY", "no_such_module_at_all"),
    ("class Server: pass\nBUILD_INFO = {}", "E_NO_LIBRARY", "CommonParams"),
    (TALKS.replace('print("loaded", params.model.path)', LATE), "E_MODEL_UNSUPPORTED", "too odd"),
    ("import os; os.write(2, b'ggml: boom'); os.abort()", "E_ENGINE_DIED", "ggml: boom"),
    (TALKS.replace("DIES", "import ctypes; ctypes.string_at(0)"), "E_ENGINE_DIED", "signal 11"),
]


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(("source", "code", "words"), BROKEN, ids=range(len(BROKEN)))
def test_failing_libraries(source: str, code: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text(source)
    error = run_error(observer(declare(env={"PYTHONPATH": str(tmp_path)})))
    assert (error.code, words in error.problem) == (code, True), error.problem


@pytest.mark.usefixtures("_installed")
def test_library_may_print_and_must_not_change(tmp_path: Path) -> None:
    fake = tmp_path / "xllamacpp.py"
    text = TALKS.replace("DIES", "pass")
    fake.write_text(text)
    env = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    watching = observer(declare(max_tokens=2, env=env))
    with watching.serve() as served:
        served.block(1)
        assert served.facts == {
            "library": "xllamacpp 1",
            "build": "llama.cpp 1 (c), C, T",
            "system": "CPU : AVX2 = 1 | FMA = 1",
        }
    fake.write_text(text.replace('__version__ = "1"', '__version__ = "1.1"'))
    with pytest.raises(FlamegateError, match="E_ENGINE_CHANGED"), watching.serve():
        pass
