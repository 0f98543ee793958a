"""``--flamegate-profiler=callgrind``: instructions beside what is sampled, and never gated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from pytest_flamegate.profile import unfold
from pytest_flamegate.profile.callgrind import probe
from tests.doors.project import JUDGED, workload
from tests.tools import require

if TYPE_CHECKING:
    from tests.doors.project import Project

COUNTED = ("--flamegate", "--flamegate-budget=1", "--flamegate-profiler=callgrind")


@pytest.mark.usefixtures("py_spy")
def test_instructions_are_shown_and_compared_with_those_accepted(project: Project) -> None:
    found = probe()
    require(found.usable, f"valgrind cannot be used: {found.reason}")
    project.declare(workload("toy"))
    project.run(*COUNTED, "--flamegate-update").assert_outcomes(passed=1)
    text = (project.artifacts / "latest/toy/evidence.json").read_text()
    (metric,) = [m for m in json.loads(text)["metrics"] if m["name"] == "instructions_per_token"]
    # 4000 rounds of a Python loop take tens of instructions each.
    assert 1e5 < metric["value"] < 1e7
    assert (metric["clock"], metric["provenance"]) == ("instructions", "counted")
    latest = project.artifacts / "latest/toy"
    stacks = unfold((latest / "instructions.folded").read_text())
    assert sum(stacks.values()) == pytest.approx(metric["samples"] * metric["value"], rel=0.01)
    picture = (latest / "instructions.svg").read_text()
    ElementTree.fromstring(picture)
    assert "callgrind 3" in picture
    assert "sample" not in picture
    assert list((project.artifacts / "baselines").rglob("instructions.folded"))
    project.run(*COUNTED)
    verdict = project.verdict("toy")
    assert verdict["verdict"] in JUDGED
    (signal,) = [s for s in verdict["signals"] if s["name"] == "instructions_per_token"]
    assert signal["decision"] == "not_gated"
    assert abs(signal["change_pct"]) < 1.0
    (reason,) = [r for r in verdict["reasons"] if r["code"] == "I_INSTRUCTIONS"]
    assert "cache and memory are invisible" in reason["message"]


def test_where_valgrind_is_missing_the_run_says_what_to_type(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(project.path))
    project.declare(workload("toy"))
    project.run(*COUNTED).assert_outcomes(failed=1)
    (reason,) = project.verdict("toy")["reasons"]
    assert reason["code"] in ("E_NO_VALGRIND", "E_NO_PROFILER")
