"""A compiled program that computes and reports as bitnet's does, gated end to end."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.profile.profilers import make_profilers
from pytest_flamegate.profile.profilers.base import Setup
from tests.doors.project import Project
from tests.tools import require

pytestmark = pytest.mark.measures


SOURCE = Path(__file__).parents[1] / "workload" / "data" / "ternary.c"
TRACE = 'env = { BITNET_TRACE_TIMING = "1", BITNET_TRACE_QUANT = "1" }\n'


@pytest.fixture
def compiled(project: Project) -> Project:
    """A project with no Python of its own: a source, and what builds and runs it."""
    require(shutil.which("cc") is not None, "there is no C compiler (cc)")
    (project.path / "toy.py").unlink()
    shutil.copy(SOURCE, project.path / "ternary.c")
    return project


def declare(project: Project, more: str, tokens: int = 12) -> None:
    build = ["cc", "-O2", "-g", "-fno-omit-frame-pointer", "-o", "ternary", "ternary.c", "-lm"]
    run = ["./ternary", "--prompt", "{prompt}", "--max-tokens", "{max_tokens}"]
    project.declare(
        f"[workloads.ternary]\nbuild = {json.dumps(build)}\ncommand = {json.dumps(run)}\n"
        f'prompt = "2+2="\nmax_tokens = {tokens}\ntoken_unit = "word"\n{more}'
    )


def evidence(project: Project) -> dict[str, Any]:
    path = project.artifacts / "latest" / "ternary" / "evidence.json"
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def reports(document: dict[str, Any]) -> list[dict[str, dict[str, Any]]]:
    return [
        {each["source"]: each for each in run["reported"]}
        for run in document["runs"]
        if run["role"] == "timed"
    ]


def test_a_program_is_profiled_and_its_reports_are_stored(compiled: Project) -> None:
    probe = make_profilers(Setup())["perf"].probe()
    require(probe.usable, f"perf cannot be used: {probe.reason}")
    declare(compiled, TRACE, tokens=160)
    result = compiled.run("--flamegate", "--flamegate-budget=5", "--flamegate-profiler=perf")
    assert result.ret == 0, result.stdout.str()
    assert compiled.verdict("ternary")["verdict"] == "no_baseline"
    seen = evidence(compiled)
    assert (len(seen["tokens"]), seen["token_source"]) == (160, "stdout:word")
    assert "i2s_gemv" in [each["name"] for each in seen["kernels"]]
    assert "receipt.json" in compiled.latest("ternary")
    reported = reports(seen)
    assert len(reported) >= 3
    for run in reported:
        assert run["quant_dispatch"]["kernels"] == {"i2s_gemv": 6}
        phases = run["timing"]["figures"]
        assert set(phases) == {"embed_us", "forward_us", "logits_us", "sample_us"}
        assert phases["forward_us"] > phases["logits_us"] + phases["sample_us"]
