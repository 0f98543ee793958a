"""llama.cpp as a program: any command line, with a real model, counted by its own word."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.profile.profilers.choose import make_profilers
from tests.doors.project import Project
from tests.tools import require, smollm2

pytestmark = pytest.mark.measures


SCRIPT = Path(__file__).parents[1] / "engines" / "llama_cli.py"
SAYS = (
    r"made (?P<tokens>\d+) tokens, (?P<decode_ms>[\d.]+) ms decode, (?P<prompt_tokens>\d+) tokens"
)


def gated(project: Project, model: Path, prompt: str, tokens: int, **more: Any) -> dict[str, Any]:
    declared = {
        "model": str(model),
        "prompt": prompt,
        "max_tokens": tokens,
        "token_unit": "engine",
        **more,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in declared.items()]
    lines.append("profile = { rate_hz = 999 }")  # runs are short
    project.declare("\n".join(["[workloads.real]", *lines, ""]))
    result = project.run("--flamegate", "--flamegate-budget=4", "--flamegate-profiler=perf")
    assert result.ret == 0, result.stdout.str()
    assert "receipts OBSERVED" in result.stdout.str()
    path = project.artifacts / "latest" / "real" / "evidence.json"
    found: dict[str, Any] = json.loads(path.read_text())
    assert found["differs_at"] is None
    assert (found["token_source"], len(found["tokens"])) == ("stdout:engine", tokens)
    assert any(each["name"].startswith("ggml_vec_dot_") for each in found["kernels"])
    return found


@pytest.fixture(autouse=True)
def perf() -> None:
    probe = make_profilers(Setup())["perf"].probe()
    require(probe.usable, f"perf cannot be used: {probe.code}: {probe.reason}")


def test_llama_cpp_out_of_a_wheel_as_a_program(project: Project) -> None:
    require(importlib.util.find_spec("xllamacpp") is not None, "xllamacpp is not installed")
    command = [sys.executable, str(SCRIPT), "{model}", "{prompt}", "{max_tokens}", "{threads}"]
    found = gated(project, smollm2(), "Once upon a time", 64, command=command, pattern=SAYS)
    for run in found["runs"]:
        (report,) = run["reported"]
        assert report["source"] == "pattern"
        assert report["figures"]["tokens"] == 64
        took_ms = sum(map(sum, run["blocks"][0]["sequences_ns"])) / 1e6
        assert 0 < report["figures"]["decode_ms"] < took_ms
