"""``flamegate calibrate``, with pairs too short to say anything: what is kept, and what is said.

What the noise of the machine decides is not asserted, only what holds for any noise.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.core.json import decode_plain
from pytest_flamegate.gate.calibration import LedgerLine
from tests.doors.project import Project, workload
from tests.doors.test_interrupt import interrupt

PROGRAM = """\
import sys
from pytest_flamegate import calibrating
from pytest_flamegate.workload import paired
paired.PAIR_S, calibrating.PROFILED_S, calibrating.PROFILED = 0.01, 0.4, 3
from pytest_flamegate.cli import main
sys.exit(main())
"""
QUICK = ("calibrate", "--profiler=none", "--pairs=10", "--budget=120")
ANY, NONE = '"90%"', '"0.001%"'
"""A drop that any machine holds, and one that none does."""


def run(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own: what measures starts and reaps processes."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
        cwd=project.path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def document(project: Project, name: str) -> dict[str, Any]:
    (path,) = project.artifacts.glob(f"calibration/*/{name}.json")
    found: dict[str, Any] = json.loads(path.read_text())
    assert found["machine_id"] == path.parent.name
    return found


def ledger(project: Project) -> list[LedgerLine]:
    lines = (project.artifacts / "history" / "ledger.jsonl").read_text().splitlines()
    return [decode_plain(json.loads(line), LedgerLine) for line in lines]


def test_calibrate(project: Project) -> None:
    project.declare(workload("toy", tokens_per_second=ANY), workload("other"))
    done = run(project, *QUICK, "toy")
    assert done.returncode == 0, done.stdout + done.stderr
    found = document(project, "toy")
    assert len(found["differences"]) == 10
    assert (found["workload"], found["engine"], found["spreads"]) == ("toy", "python", [])
    assert (found["threshold_pct"], found["budget_s"], found["holds"]) == (
        90.0,
        COMPARE_BUDGET_S,
        True,
    )
    gates = ledger(project)
    assert gates
    assert gates[0].differences == tuple(found["differences"][: gates[0].pairs])
    assert {(gate.workload, gate.threshold_pct) for gate in gates} == {("toy", 90.0)}
    told = done.stdout
    assert "flamegate.toml::toy on " in told
    assert "10 of the same code" in told
    assert "30 or more say it better" in told
    for seconds in (15, 30, round(COMPARE_BUDGET_S), 120, 300):
        assert f"{seconds} s" in told
    assert f"of {len(gates)} A/A gates raised an alarm" in told
    assert not list(project.artifacts.glob("calibration/*/other.json"))
    assert not (project.artifacts / "latest").exists()
    ignored = (project.artifacts / ".gitignore").read_text().splitlines()
    assert "!calibration/" in ignored

    # Again: the file is replaced, the ledger grows.
    assert run(project, *QUICK, "toy").returncode == 0
    assert document(project, "toy")["differences"] != found["differences"]
    assert ledger(project)[: len(gates)] == gates
    assert len(ledger(project)) > len(gates)


def test_a_program_and_a_threshold_that_no_machine_holds(project: Project) -> None:
    project.write("engine.py", "import time\nfor _ in range(4):\n    print(7, flush=True)\n")
    command = json.dumps([sys.executable, "engine.py"])
    project.write(
        "flamegate.toml",
        f'[workloads.program]\nengine = "command"\ncommand = {command}\nprompt = "2"\n'
        f"max_tokens = 8\ntokens_per_second = {NONE}\n",
    )
    done = run(project, *QUICK)
    assert done.returncode == 4, done.stdout + done.stderr
    assert done.stderr.startswith("E_THRESHOLD_TOO_SMALL: This machine cannot hold program to ")
    assert "Traceback" not in done.stderr
    # What was measured stands, refused or not.
    assert document(project, "program")["holds"] is False
    assert ledger(project)


def test_hotspots(project: Project, py_spy: None) -> None:
    project.declare(workload("toy", tokens_per_second=ANY, max_tokens="64"))
    done = run(project, "calibrate", "--profiler=py-spy", "--pairs=10", "--budget=120")
    assert done.returncode == 0, done.stdout + done.stderr
    spreads = document(project, "toy")["spreads"]
    assert "hash_round" in str(spreads)
    assert all(each["share"] >= 0.01 and each["phi"] >= 0.0 for each in spreads)
    assert "hash_round" in done.stdout


@pytest.mark.parametrize(
    ("engine", "options", "code"),
    [
        (
            "import os\ndef generate(prompt, max_tokens):\n    yield os.getpid()\n",
            ("--budget=120",),
            "E_NOT_DETERMINISTIC",
        ),
        (
            "import time\ntime.sleep(0.3)\n"
            "def generate(prompt, max_tokens):\n    time.sleep(0.01)\n    yield 1\n",
            ("--budget=2",),
            "E_BUDGET_TOO_SMALL",
        ),
    ],
)
def test_what_cannot_be_calibrated_leaves_nothing(
    project: Project, engine: str, options: tuple[str, ...], code: str
) -> None:
    project.write("engine.py", engine)
    project.declare(workload("toy").replace("toy:generate", "engine:generate"))
    done = run(project, *QUICK, *options)
    assert done.returncode == 4, done.stdout + done.stderr
    assert done.stderr.startswith(f"{code}: ")
    assert not project.artifacts.exists()


def test_an_engine_that_fails_is_a_failed_tool(project: Project) -> None:
    project.declare(workload("toy", target="raises"))
    done = run(project, *QUICK)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "Traceback" not in done.stderr.splitlines()[0]
    assert not project.artifacts.exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--pairs=9",),
        ("--pairs=0",),
        ("--pairs=-4",),
        ("--pairs=ten",),
        ("--pairs=10.5",),
        ("--budget=0",),
        ("--budget=nan",),
        ("--budget=soon",),
        ("--profiler=gprof",),
        ("nowhere",),
    ],
)
def test_usage(
    project: Project, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    project.declare(workload("toy"))
    assert main(("calibrate", *options)) == 2
    assert capsys.readouterr().err.startswith("E_")
    assert not project.artifacts.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there")
def test_interrupted_nothing_is_left(project: Project) -> None:
    project.write(
        "slow.py",
        "import time\n"
        "def generate(prompt, max_tokens):\n"
        "    open('began', 'w').close()\n"
        "    yield 1\n"
        "    time.sleep(600)\n",
    )
    project.declare(workload("slow").replace("toy:generate", "slow:generate"))
    status, told = interrupt(["-c", PROGRAM, *QUICK], project)
    assert status == 130
    assert "flamegate: interrupted" in told
    assert "Traceback" not in told
    assert not project.artifacts.exists()
