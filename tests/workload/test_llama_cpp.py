"""llama.cpp's engine: what is declared, and what is read of the libraries' answers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.child.llama_cpp import Ledger
from pytest_flamegate.child.llama_cpp import Served as Asked
from pytest_flamegate.config.workload import Sampling, Workload
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.engines import engine, llama_cpp
from pytest_flamegate.engines.base import Choosy, Served

GGUF = Path("model.gguf")
PLAIN = Sampling()


def declared(prompt: str = "2+2=", sampling: Sampling = PLAIN, **options: Any) -> Workload:
    return Workload(
        "w",
        "llama-cpp",
        prompt,
        4,
        "test",
        options=MappingProxyType(options),
        sampling=sampling,
    )


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"library": "llama.cpp"}, "llama-cpp-python"),
        ({"context": 0}, "from 1"),
        ({"batch": -1}, "from 1"),
        ({"gpu_layers": -1}, "from 0"),
        ({"gpu_layers": 2**31}, "from 0"),
    ],
)
def test_an_option_that_llama_cpp_has_no_use_for_is_refused(
    options: dict[str, Any], word: str
) -> None:
    with pytest.raises(UsageError, match=word) as caught:
        engine("llama-cpp").validate(declared(**options))
    assert caught.value.code == "E_BAD_VALUE"


def test_options_reach_the_plan() -> None:
    plan = engine("llama-cpp").plan(
        declared(library="xllamacpp", context=64, batch=8, gpu_layers=2), GGUF
    )
    assert isinstance(plan, Served)
    assert plan.token_unit == "text"
    kept = {"library": "xllamacpp", "context": 64, "batch": 8, "gpu_layers": 2}
    assert kept.items() <= plan.load.items()


@pytest.mark.parametrize(
    ("prompt", "context"), [("", 256), ("x" * 237, 512), ("é" * 200, 512), ("x" * 10**6, 8192)]
)
def test_a_context_holds_prompt_and_answer_up_to_a_limit(prompt: str, context: int) -> None:
    assert llama_cpp.context_for(declared(prompt)) == context


def test_the_library_is_the_first_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"xllamacpp", "llama_cpp"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in there else None)
    assert llama_cpp.installed() == "xllamacpp"
    there.remove("xllamacpp")
    plan = engine("llama-cpp").plan(declared(), GGUF)
    assert isinstance(plan, Served)
    assert (plan.load["library"], plan.token_unit) == ("llama-cpp-python", "id")
    there.clear()
    with pytest.raises(ToolError, match="pip install xllamacpp") as caught:
        engine("llama-cpp").plan(declared(), GGUF)
    assert caught.value.code == "E_NO_LIBRARY"


@pytest.mark.parametrize(
    ("library", "profiler", "native", "blind"),
    [
        ("xllamacpp", "perf", False, False),
        ("xllamacpp", "py-spy", True, True),
        ("llama-cpp-python", "py-spy", True, False),
        ("llama-cpp-python", "py-spy", False, True),
    ],
)
def test_a_profiler_that_would_see_nothing_is_refused(
    library: str, profiler: str, native: bool, blind: bool
) -> None:
    chosen = engine("llama-cpp")
    assert isinstance(chosen, Choosy)
    workload = declared(sampling=Sampling(native=native), library=library)
    if not blind:
        chosen.check_profiler(workload, profiler)
        return
    with pytest.raises(ToolError, match="--flamegate-profiler=perf") as caught:
        chosen.check_profiler(workload, profiler)
    assert caught.value.code == "E_PROFILER_BLIND"


class Server:
    """Answers as the library does: it calls back, and swallows what the callback raises."""

    def __init__(self, *chunks: Any) -> None:
        self.chunks = chunks
        self.request: dict[str, Any] = {}

    def handle_completions(self, request: dict[str, Any], callback: Any) -> None:
        self.request = request
        for chunk in self.chunks:
            if callback(chunk):
                return


def said(text: str, made: int, finish: str | None = None, prompt: int = 5) -> dict[str, Any]:
    timings = {"prompt_n": prompt, "prompt_ms": 2.0, "predicted_n": made, "predicted_ms": 8.0}
    return {"choices": [{"text": text, "finish_reason": finish}], "timings": timings}


def asked(*chunks: Any) -> tuple[list[str], Asked, Server]:
    server = Server(*chunks)
    served = Asked(server, {"seed": 42}, {})
    tokens: list[str] = []
    served.stream("2+2=", 4, tokens.append)
    return tokens, served, server


@pytest.mark.parametrize(
    ("chunks", "tokens"),
    [
        (
            [said("a", 1), said("b", 2), said("c", 3), said("d", 4), said("", 4, "length")],
            "a b c d",
        ),
        # The token that ends the sequence has a chunk of its own, or none.
        ([said("a", 1), said("", 2), said("", 2, "stop")], "a"),
        ([said("a", 1), said("", 2, "stop")], "a"),
        # Half a character has no chunk: the next one tells of both tokens.
        ([said("a", 1), said("é", 3), said("b", 4), said("", 4, "length")], "a  é b"),
        # A token without text has an empty chunk, and counts.
        ([said("", 1), said("b", 2), said("", 3, "stop")], " b"),
        # Half a character at the very end.
        ([said("a", 1), said("", 4, "length")], "a   "),
        ([said("a", 1), said("", 3, "stop")], "a "),
    ],
)
def test_every_token_counts_and_the_end_is_none(chunks: list[Any], tokens: str) -> None:
    assert asked(*chunks)[0] == tokens.split(" ")


def test_the_request_is_greedy_and_caches_nothing() -> None:
    _, served, server = asked(said("a", 1), said("", 2, "stop"))
    wanted = {"temperature": 0, "cache_prompt": False, "n_predict": 4, "seed": 42}
    assert wanted.items() <= server.request.items()
    figures = {
        "tokens": 1,
        "prompt_tokens": 5,
        "prefill_ms": 2.0,
        "decode_ms": 8.0,
        "decode_tokens": 0,
    }
    assert served.reports() == [{"source": "llama.cpp:timings", "figures": figures, "kernels": {}}]
    assert served.reports() == []


@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ([said("a", 1), said("b", 1)], "E_SOURCES_DISAGREE"),
        ([said("a", 1), said("b", 2), said("", 1, "length")], "E_SOURCES_DISAGREE"),
        ([said("a", 1), said("", 3, "length")], "E_CONTEXT_FULL"),
        ([said("", 0, "length", prompt=0)], "E_BAD_PROMPT"),
        ([said("a", 1)], "E_ENGINE_REFUSED"),
        ([], "E_ENGINE_REFUSED"),
        ([{"error": {"message": "no slot."}}], "E_ENGINE_REFUSED"),
        (
            [{"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}}],
            "E_CONTEXT_FULL",
        ),
    ],
)
def test_an_answer_that_cannot_be_counted_is_refused(chunks: list[Any], code: str) -> None:
    with pytest.raises(FlamegateError) as caught:
        asked(*chunks)
    assert caught.value.code == code


def test_what_the_pipe_raises_ends_the_sequence_and_is_not_swallowed() -> None:
    def closed(_: str) -> None:
        raise BrokenPipeError

    server = Server(said("a", 1), said("b", 2), said("", 2, "length"))
    with pytest.raises(BrokenPipeError):
        Asked(server, {"seed": 42}, {}).stream("2+2=", 2, closed)


def test_one_sequence_of_a_block_is_told_about() -> None:
    ledger = Ledger("clock")
    for decode_ms in (9.0, 1.0, 3.0, 2.0):
        ledger.add({"tokens": 4, "decode_ms": decode_ms})
    assert [each["figures"]["decode_ms"] for each in ledger.drained()] == [2.0]
    assert ledger.drained() == []


def test_facts_are_the_librarys_own_words() -> None:
    from pytest_flamegate.child.llama_cpp import facts_xllamacpp as facts

    library: Any = SimpleNamespace(
        __version__="2026.1",
        BUILD_INFO={
            "build_number": 7,
            "commit": "abc",
            "compiler": "GNU 10",
            "build_target": "Linux",
        },
        get_system_info=lambda: "CPU : AVX2 = 1 | \n FMA = 1 | ",
    )
    assert facts(library) == {
        "library": "xllamacpp 2026.1",
        "build": "llama.cpp 7 (abc), GNU 10, Linux",
        "system": "CPU : AVX2 = 1 | FMA = 1",
    }
