"""The gate reads nothing but its arguments."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_flamegate import gate

SOURCES = sorted(Path(str(gate.__file__)).parent.glob("*.py"))
PURE = {
    *("__future__", "collections.abc", "collections", "dataclasses", "functools", "hashlib"),
    "itertools",
    *("math", "msgspec", "msgspec.structs", "re", "statistics", "types", "typing"),
    "pytest_flamegate.bricks.record",
    "pytest_flamegate.config.thresholds",
    "pytest_flamegate.core.errors",
    "pytest_flamegate.core.json",
    "pytest_flamegate.core.text",
    "pytest_flamegate.receipt.types",
}
"""Modules of types, arithmetic and text."""
PURE_NAMES = {
    ("pytest_flamegate.core.clocks", "Interval"),
    ("pytest_flamegate.observe.observation", "Block"),
    ("pytest_flamegate.observe.observation", "Observation"),
    ("pytest_flamegate.observe.observation", "Run"),
    ("pytest_flamegate.observe.observation", "uses_running_server"),
    ("pytest_flamegate.receipt.formulas", "differing_formulas"),
    ("pytest_flamegate.receipt.metrics", "rate_of"),
    ("pytest_flamegate.receipt.rules.replay", "RateAgain"),
}
"""Pure names of modules that also do something else."""


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_imports_no_clock_file_process_or_environment(source: Path) -> None:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= PURE
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            if module not in PURE and not module.startswith("pytest_flamegate.gate."):
                assert {(module, alias.name) for alias in node.names} <= PURE_NAMES
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "input", "print", "exec", "eval", "__import__"}


ISOLATED = """
import os, sys, time
from tests.gate.bricked import allowing, brick_runs
from tests.gate.factory import *
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.gate import verdict_document
from pytest_flamegate.gate.calibration import AnalysisPlan, ResampledPairs
from pytest_flamegate.gate.claimed_rate import compare_claimed_rate

def forbid(*_):
    raise AssertionError("the gate read a clock or the environment")

def judge_all():
    old, new = (brick_runs({"RmsNorm": 2.0}, first_pid=pid) for pid in (800, 700))
    new = brick_runs({"RmsNorm": 2.1}, (1.0, 1.01, 0.98, 1.003, 0.991))
    before, after = baseline(profile=PROFILE, bricks=old), evidence(profile=PROFILE, bricks=new)
    base, head = sides(shifted(0.06))
    for verdict in (
        judge_stored(before, after, allowing(RmsNorm=(2.0, 10.0))),
        judge_stored(None, after),
        judge_stored(before, evidence(model_sha256=None)),
        judge_paired(base, head),
    ):
        print(verdict.verdict, len(encode_json(verdict_document(verdict))) > 1000)
    print(compare_claimed_rate(before, after, 1000.0).answer)
    plan = AnalysisPlan((5, 7), 7)
    print(ResampledPairs.draw(SPREAD, 7, draws=50).find_smallest(plan) is not None)

judge_all()  # imports that are made on use
events = []
sys.addaudithook(lambda event, _: events.append(event))
for name in ("time", "monotonic", "perf_counter", "process_time", "time_ns", "perf_counter_ns"):
    setattr(time, name, forbid)
os.environ = os.getenv = os.getpid = forbid
judge_all()
print(sorted({event for event in events if event.partition(".")[0] not in ("object", "marshal")}))
"""


def test_judging_opens_nothing_and_starts_nothing() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", ISOLATED], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *answers, events = done.stdout.splitlines()
    assert len(answers) == 12
    assert answers[:6] == answers[6:]
    assert events == "[]"


def test_importing_the_gate_imports_nothing_heavy() -> None:
    code = (
        "import sys, pytest_flamegate.gate; "
        "heavy = {'numpy', 'jsonschema', 'rich', 'pytest'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
