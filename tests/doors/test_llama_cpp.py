"""llama.cpp through ``flamegate.toml``: a real model, profiled, gated and compared in pairs."""

import importlib.util
import json
import shutil
from typing import Any

import pytest

from pytest_flamegate.engines.gguf import SHIPPED_MODEL
from pytest_flamegate.profile.profilers import make_profilers
from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.receipt import verify_receipt
from tests.doors.project import JUDGED, Project
from tests.tools import require, smollm2
from tests.workload.repositories import git

pytestmark = pytest.mark.measures


DECLARED = """\
[workloads.{name}]
engine = "llama-cpp"
library = "xllamacpp"
model = "{model}"
prompt = "{prompt}"
max_tokens = {max_tokens}
"""

AGAINST = (
    "--flamegate",
    "--flamegate-budget=4",
    "--flamegate-profiler=none",
    "--flamegate-against=HEAD",
)


@pytest.fixture(autouse=True)
def xllamacpp() -> None:
    require(importlib.util.find_spec("xllamacpp") is not None, "xllamacpp is not installed")


def evidence(project: Project, name: str, file: str = "evidence.json") -> dict[str, Any]:
    text = (project.artifacts / "latest" / name / file).read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_real_model_is_profiled_by_its_kernels(project: Project) -> None:
    probe = make_profilers(Setup())["perf"].probe()
    require(probe.usable, f"perf cannot be used: {probe.code}: {probe.reason}")
    project.declare(
        DECLARED.format(name="smol", model=smollm2(), prompt="Once upon a time", max_tokens=4)
    )
    result = project.run("--flamegate", "--flamegate-budget=1", "--flamegate-profiler=perf")
    result.assert_outcomes(passed=1)
    seen = evidence(project, "smol")
    assert (len(seen["tokens"]), seen["differs_at"], seen["token_source"]) == (
        4,
        None,
        "yielded:text",
    )
    assert len({run["token_digest"] for run in seen["runs"]}) == 1
    assert seen["engine"]["library"].startswith("xllamacpp ")
    assert any(kernel["name"].startswith("ggml_vec_dot_") for kernel in seen["kernels"])
    timed = next(run for run in seen["runs"] if run["role"] == "timed")
    assert timed["reported"][0]["source"] == "llama.cpp:timings"
    verified = verify_receipt(project.artifacts / "latest" / "smol" / "receipt.json")
    assert verified.ok, verified.refusals
    assert (verified.grade.name, verified.policy) == ("OBSERVED", "ggml")


def commit_a_model(project: Project) -> None:
    shutil.copy(SHIPPED_MODEL, project.path / "model.gguf")
    project.declare(
        DECLARED.format(name="own", model="model.gguf", prompt="What is 2+2?", max_tokens=10)
    )
    project.write(".gitignore", "stdout\nstderr\nrunpytest-*\n__pycache__\n.pytest_cache\n")
    git(project.path, "init", "-q", "-b", "main")
    git(project.path, "add", "-A")
    git(project.path, "commit", "-q", "-m", "a model")


def test_two_revisions_run_in_pairs_each_with_its_own_model(project: Project) -> None:
    commit_a_model(project)
    renamed = SHIPPED_MODEL.read_bytes().replace(b"flamegate embedded", b"flamegate retitled", 1)
    (project.path / "model.gguf").write_bytes(renamed)
    project.run(*AGAINST)
    assert project.verdict("own")["verdict"] in JUDGED, project.verdict("own")
    base, head = evidence(project, "own", "base-evidence.json"), evidence(project, "own")
    assert (base["side"], head["side"]) == ("base", "head")
    assert base["tokens"] == head["tokens"] == list(" 2+2 is 4.")
    assert base["engine"] == head["engine"] != {}
