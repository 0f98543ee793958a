"""A real server and a real model, from flamegate.toml to the receipt."""

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import process, process_system
from pytest_flamegate.core.locks import LOCK_DIRECTORY
from pytest_flamegate.profile.profilers import perf
from pytest_flamegate.profile.profilers.base import Setup
from tests.tools import require, smollm2

pytestmark = pytest.mark.measures

SCRIPT = Path(__file__).with_name("llama.py")
TIMEOUT_S = 400
START = "from pytest_flamegate.cli import main; raise SystemExit(main())"
KERNEL = "ggml_vec_dot_"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    probe = perf.make_perf(Setup(python_engine=False)).probe()
    require(probe.usable, f"perf cannot be used: {probe.reason}")
    yield tmp_path
    left = [
        pid
        for pid in process_system.find_descendants(os.getpid())
        if str(SCRIPT).encode() in command(pid)
    ]
    assert left == []


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    require(found is not None, f"{name} is not installed")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def xllamacpp() -> list[str]:
    package("xllamacpp")
    return [sys.executable, str(SCRIPT), "{model}", "{port}"]


def run(project: Path, model: Path, prompt: str, tokens: int, **options: Any) -> dict[str, Any]:
    """Gate one workload by the command line; return its evidence."""
    declared = {
        "engine": "openai",
        "model": str(model),
        "prompt": prompt,
        "max_tokens": tokens,
        "timeout": 120,
        **options,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in declared.items()]
    (project / "flamegate.toml").write_text("\n".join(["[workloads.real]", *lines, ""]))
    done = process.run(
        [sys.executable, "-c", START, "run", "real", "--budget", "20"],
        timeout_s=TIMEOUT_S,
        env={**os.environ, LOCK_DIRECTORY: str(project)},
        cwd=project,
    )
    told = (done.stdout + done.stderr).decode()
    # No baseline was accepted: that is all there is to say against it.
    assert done.returncode == 4, told
    assert "receipts OBSERVED" in told
    latest = project / ".flamegate" / "latest" / "real"
    assert json.loads((latest / "verdict.json").read_text())["verdict"] == "no_baseline"
    found: dict[str, Any] = json.loads((latest / "evidence.json").read_text())
    assert found["differs_at"] is None
    assert {each["token_digest"] for each in found["runs"]} == {found["token_digest"]}
    assert any(each["name"].startswith(KERNEL) for each in found["kernels"])
    assert {each["source"] for each in found["kernels"]} == {"profile"}
    assert found["profile"]["profiler"] == "perf"
    return found


def test_a_real_model_behind_a_server_that_is_started(project: Path) -> None:
    found = run(project, smollm2(), "Once upon a time", 16, serve=xllamacpp(), frames="native")
    assert len(found["tokens"]) == 16
    assert len({each["pid"] for each in found["runs"]}) == len(found["runs"])
    for each in found["runs"]:
        assert not process_system.is_alive(each["pid"])
        told = {report["source"]: report["figures"] for report in each["reported"]}
        assert told["llama.cpp:timings"]["tokens"] == 16
        assert told["llama.cpp:timings"]["prompt_tokens"] > 1
