"""A real server and a real model, from flamegate.toml to the receipt."""

import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_flamegate.core import process_system
from pytest_flamegate.core.locks import LOCK_DIRECTORY
from pytest_flamegate.profile.profilers import perf
from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.profile.profilers.tools import try_profiler
from pytest_flamegate.run import schedule
from tests.commands.asked import Command
from tests.tools import require, smollm2

SERVER = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_parallel, params.n_ctx, params.warmup = 1, 1024, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
time.sleep(600)
"""


@pytest.mark.measures
@pytest.mark.nightly
def test_a_real_model_behind_a_server_that_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    pytest.importorskip("xllamacpp")
    probe = try_profiler(perf.make_profiler(Setup(python_engine=False)))
    require(probe.usable, f"perf cannot be used: {probe.reason}")
    declared = {
        "engine": "openai",
        "model": str(smollm2()),
        "prompt": "Once upon a time",
        "max_tokens": 8,
        "timeout": 120,
        "serve": [sys.executable, "-c", SERVER, "{model}", "{port}"],
        "frames": "native",
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in declared.items()]
    lines.append("profile = { rate_hz = 499 }")
    (tmp_path / "flamegate.toml").write_text("\n".join(["[workloads.real]", *lines, ""]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LOCK_DIRECTORY, str(tmp_path))
    monkeypatch.setattr(schedule, "MIN_TIMED", 3)
    # No baseline was accepted: that is the only objection.
    assert "receipts OBSERVED" in command(4, "run", "real", "--budget=4").out
    latest = tmp_path / ".flamegate" / "latest" / "real"
    assert json.loads((latest / "verdict.json").read_text())["verdict"] == "no_baseline"
    found: dict[str, Any] = json.loads((latest / "evidence.json").read_text())
    assert found["differs_at"] is None
    assert {each["token_digest"] for each in found["runs"]} == {found["token_digest"]}
    assert any(each["name"].startswith("ggml_vec_dot_") for each in found["kernels"])
    assert {each["source"] for each in found["kernels"]} == {"profile"}
    assert found["profile"]["profiler"] == "perf"
    assert len(found["tokens"]) == 8
    assert len({each["pid"] for each in found["runs"]}) == len(found["runs"])
    for each in found["runs"]:
        assert not process_system.is_alive(each["pid"])
        figures = {report["source"]: report["figures"] for report in each["reported"]}
        assert figures["llama.cpp:timings"]["tokens"] == 8
        assert figures["llama.cpp:timings"]["prompt_tokens"] > 1
    assert not psutil.Process().children(recursive=True)
