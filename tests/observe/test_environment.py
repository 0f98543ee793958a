"""The knobs of each engine, and what a process really had of them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.engines import ENGINES, engine
from pytest_flamegate.observe.environment import VARIABLES, make_environment, requested_variables
from pytest_flamegate.observe.observer import Observer
from tests.workload.knobs_table import table

pytestmark = pytest.mark.measures


def workload(kind: str, **changes: object) -> Workload:
    return Workload("w", kind, "p", 64, "test", **changes)  # type: ignore[arg-type]


def test_each_knob_stands_once_in_the_table_for_engines_that_there_are() -> None:
    assert len({knob.name for knob in VARIABLES}) == len(VARIABLES)
    known = {"embedded", "command", "openai", "llama-cpp", "python", "benchmark"}
    assert set(ENGINES) <= known
    assert all(knob.engines and knob.engines <= known for knob in VARIABLES)
    for knob in VARIABLES:
        assert f"`{knob.name}={knob.value}`" in table()


@pytest.mark.parametrize(
    ("kind", "has", "lacks"),
    [
        ("command", "BITNET_SEED", "VLLM_ENABLE_V1_MULTIPROCESSING"),
        ("openai", "LLAMA_ARG_THREADS", "VLLM_ENABLE_V1_MULTIPROCESSING"),
        ("python", "TOKENIZERS_PARALLELISM", "BITNET_SEED"),
        ("llama-cpp", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"),
        ("embedded", "OPENBLAS_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG"),
    ],
)
def test_an_engine_gets_its_own_knobs(kind: str, has: str, lacks: str) -> None:
    knobs = requested_variables(workload(kind))
    assert has in knobs
    assert lacks not in knobs


def test_threads_are_one_and_can_be_set_and_what_is_declared_wins() -> None:
    names = {knob.name for knob in VARIABLES if knob.value == "{threads}"}
    one, three = (
        requested_variables(workload("command")),
        requested_variables(workload("command", threads=3)),
    )
    assert {one[name] for name in names} == {"1"}
    assert {three[name] for name in names} == {"3"}
    own = workload("command", threads=3, env=MappingProxyType({"OMP_NUM_THREADS": "2"}))
    assert (
        requested_variables(own)["OMP_NUM_THREADS"],
        make_environment(own)["OMP_NUM_THREADS"],
    ) == ("2", "2")
    assert requested_variables(workload("command", seed=7))["BITNET_SEED"] == "7"


def test_what_a_script_sets_anew_is_seen(tmp_path: Path) -> None:
    script = tmp_path / "run"
    program = "import time; print(chr(97), end='', flush=True); time.sleep(0.05)"
    script.write_text(
        f'#!/bin/sh\nexport RAYON_NUM_THREADS=8\nexec {sys.executable} -c "{program}"\n'
    )
    script.chmod(0o755)
    declared = workload("command", directory=tmp_path, command=(str(script),), timeout_s=60.0)
    watched = Observer(declared, engine("command").plan(declared, None))
    watched.run_timed(1)
    seen = watched.observation()
    assert seen.requested_environment["RAYON_NUM_THREADS"] == "1"
    assert seen.effective_environment["RAYON_NUM_THREADS"] == "8"
