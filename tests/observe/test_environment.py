"""Each engine gets the variables that make it repeatable, and the real ones are recorded."""

import re
import sys
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.engines import ENGINES, engine
from pytest_flamegate.engines.base import PROGRAM_VARIABLES
from pytest_flamegate.observe.environment import make_environment, requested_variables
from pytest_flamegate.observe.observer import Observer

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "engines.md"


def workload(kind: str, **changes: object) -> Workload:
    return Workload("w", kind, "p", 64, "test", **changes)  # type: ignore[arg-type]


def test_each_variable_is_in_the_documented_table() -> None:
    document = DOCUMENT.read_text("utf-8")
    users: dict[str, list[str]] = {}
    for each in sorted(ENGINES):
        for name, value in ENGINES[each].variables.items():
            users.setdefault(f"{name}={value}", []).append(each)
    rows = re.findall(r"^\| `([A-Z0-9_]+=\S+)` \| ([a-z, -]+) \| ", document, re.MULTILINE)
    assert dict(rows) == {setting: ", ".join(engines) for setting, engines in users.items()}


def test_threads_are_one_unless_set_and_a_declared_variable_wins() -> None:
    names = {name for name, value in PROGRAM_VARIABLES.items() if value == "{threads}"}
    for threads in (1, 3):
        variables = requested_variables(workload("command", threads=threads))
        assert {variables[name] for name in names} == {str(threads)}
    own = workload("command", threads=3, env=MappingProxyType({"OMP_NUM_THREADS": "2"}))
    for variables in (requested_variables(own), make_environment(own)):
        assert variables["OMP_NUM_THREADS"] == "2"
    assert requested_variables(workload("command", seed=7))["BITNET_SEED"] == "7"


def test_a_variable_that_a_script_sets_is_recorded(tmp_path: Path) -> None:
    script = tmp_path / "run"
    program = "import time; print(chr(97), end='', flush=True); time.sleep(0.05)"
    script.write_text(
        f'#!/bin/sh\nexport RAYON_NUM_THREADS=8\nexec {sys.executable} -c "{program}"\n'
    )
    script.chmod(0o755)
    declared = workload("command", directory=tmp_path, command=(str(script),), timeout_s=60.0)
    watched = Observer(declared, engine("command").plan(declared, None))
    watched.run_timed(1)
    observation = watched.observation()
    assert observation.requested_environment["RAYON_NUM_THREADS"] == "1"
    assert observation.effective_environment["RAYON_NUM_THREADS"] == "8"
