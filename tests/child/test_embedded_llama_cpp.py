"""llama.cpp, given the same file, must generate the same tokens."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from pytest_flamegate.child.embedded.transformer import Transformer
from pytest_flamegate.engines.embedded import SHIPPED_MODEL, WORKLOADS
from tests.tools import require

pytestmark = pytest.mark.measures

# A process of its own: its native threads and its log would disturb the tests.
PROGRAM = """
import json, sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.n_gpu_layers = 512, 1, 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
for prompt, max_tokens in json.loads(sys.argv[2]):
    answer = server.handle_completions({
        "prompt": prompt, "n_predict": max_tokens, "temperature": 0, "cache_prompt": False,
        "logprobs": 1,
    })
    if "choices" not in answer:
        raise SystemExit(f"llama.cpp refused: {answer}")
    print(json.dumps([token["id"] for token in answer["choices"][0]["logprobs"]["content"]]))
"""


def test_llama_cpp_generates_the_same_tokens(model: Transformer) -> None:
    require(importlib.util.find_spec("xllamacpp") is not None, "xllamacpp is not installed")
    questions = [(prompt, max_tokens) for _, prompt, max_tokens in WORKLOADS]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(SHIPPED_MODEL), json.dumps(questions)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [list(model.generate(prompt, max_tokens)) for prompt, max_tokens in questions]
    assert [len(tokens) for tokens in theirs] == [max_tokens for _, max_tokens in questions]
    assert theirs == ours


@pytest.mark.parametrize(("required", "outcome"), [("1", "Failed"), ("0", "Skipped")])
def test_a_missing_tool_skips_unless_it_was_promised(
    monkeypatch: pytest.MonkeyPatch, required: str, outcome: str
) -> None:
    monkeypatch.setenv("FLAMEGATE_REQUIRE_TOOLS", required)
    require(True, "never seen")
    with pytest.raises(BaseException, match="no such tool") as caught:
        require(False, "no such tool")
    assert caught.typename == outcome
