"""The gate reads nothing but its arguments."""

import subprocess
import sys
from pathlib import Path

ISOLATED = """
import os, sys, time
from tests.gate.bricked import allowing, brick_runs
from tests.gate.factory import *
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate import calibration
from pytest_flamegate.gate.calibration import AnalysisPlan, ResampledPairs
from pytest_flamegate.gate.claimed_rate import compare_claimed_rate

calibration.DRAWS = 50

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
    print(ResampledPairs.draw(SPREAD, 7).find_smallest(plan) is not None)

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
        "import sys, pytest_flamegate.gate.judge, pytest_flamegate.gate.document; "
        "heavy = {'numpy', 'jsonschema', 'pytest'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
