"""llama.cpp through ``flamegate.toml``: a real model, profiled, gated and compared in pairs."""

import importlib.util
import shutil

import pytest

from pytest_flamegate.engines.gguf import SHIPPED_MODEL
from pytest_flamegate.receipt import verify_receipt
from tests.doors.project import JUDGED, Project, require_profiler
from tests.tools import require, smollm2

pytestmark = pytest.mark.measures

DECLARED = """\
[workloads.llama]
engine = "llama-cpp"
library = "xllamacpp"
model = "{model}"
prompt = "{prompt}"
max_tokens = {max_tokens}
"""


@pytest.fixture(autouse=True)
def xllamacpp() -> None:
    require(importlib.util.find_spec("xllamacpp") is not None, "xllamacpp is not installed")


@pytest.mark.nightly
def test_a_real_model_is_profiled_by_its_kernels(project: Project) -> None:
    require_profiler("perf")
    project.declare(DECLARED.format(model=smollm2(), prompt="Once upon a time", max_tokens=4))
    result = project.run("--flamegate", "--flamegate-budget=1", "--flamegate-profiler=perf")
    result.assert_outcomes(passed=1)
    seen = project.document("llama")
    assert (len(seen["tokens"]), seen["differs_at"]) == (4, None)
    assert seen["token_source"] == "yielded:text"
    assert len({run["token_digest"] for run in seen["runs"]}) == 1
    assert seen["engine"]["library"].startswith("xllamacpp ")
    assert any(kernel["name"].startswith("ggml_vec_dot_") for kernel in seen["kernels"])
    timed = next(run for run in seen["runs"] if run["role"] == "timed")
    assert timed["reported"][0]["source"] == "llama.cpp:timings"
    verified = verify_receipt(project.artifacts / "latest" / "llama" / "receipt.json")
    assert verified.ok, verified.refusals
    assert (verified.grade.name, verified.policy) == ("OBSERVED", "ggml")


def test_two_revisions_run_in_pairs_each_with_its_own_model(project: Project) -> None:
    shutil.copy(SHIPPED_MODEL, project.path / "model.gguf")
    project.declare(DECLARED.format(model="model.gguf", prompt="What is 2+2?", max_tokens=10))
    project.commit()
    renamed = SHIPPED_MODEL.read_bytes().replace(b"flamegate embedded", b"flamegate retitled", 1)
    (project.path / "model.gguf").write_bytes(renamed)
    options = ("--flamegate-budget=4", "--flamegate-profiler=none", "--flamegate-against=HEAD")
    project.ask("--flamegate", *options)
    assert project.verdict("llama")["verdict"] in JUDGED, project.verdict("llama")
    base, head = project.document("llama", "base-evidence.json"), project.document("llama")
    assert (base["side"], head["side"]) == ("base", "head")
    assert base["tokens"] == head["tokens"] == list(" 2+2 is 4.")
    assert base["engine"] == head["engine"] != {}
