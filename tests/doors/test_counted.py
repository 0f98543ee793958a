"""``--flamegate-profiler=callgrind``: instructions beside what is sampled, and never gated."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from pytest_flamegate.profile.folded import parse_folded
from tests.doors.project import JUDGED, workload
from tests.profile.fake_valgrind import FakeValgrind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doors.project import Project


RUNS = 8
COUNTED = ("--flamegate", "--flamegate-budget=1", "--flamegate-profiler=callgrind")


@pytest.mark.usefixtures("py_spy")
def test_instructions_are_shown_and_compared_with_those_accepted(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts themselves are a stand-in's; tests/profile has real ones."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    FakeValgrind(tmp_path, per_token=1_000_000)
    project.declare(workload("toy"))
    project.run(*COUNTED, "--flamegate-update").assert_outcomes(passed=1)
    text = (project.artifacts / "latest/toy/evidence.json").read_text()
    (metric,) = [m for m in json.loads(text)["metrics"] if m["name"] == "instructions_per_token"]
    assert (metric["value"], metric["samples"]) == (1_000_000, 3)
    assert (metric["clock"], metric["provenance"]) == ("instructions", "counted")
    latest = project.artifacts / "latest/toy"
    stacks = parse_folded((latest / "instructions.folded").read_text())
    assert {stack[-1].name: count for stack, count in stacks.items()} == {"decode": 3_000_000}
    picture = (latest / "instructions.svg").read_text()
    ElementTree.fromstring(picture)
    assert "1,000,000 instructions a token, decode counted" in picture
    assert "callgrind 3.19.0 · Ir counted" in picture
    assert "sample" not in picture
    assert list((project.artifacts / "baselines").rglob("instructions.folded"))
    FakeValgrind(tmp_path, per_token=1_100_000)
    for _ in range(RUNS):
        project.run(*COUNTED)
        verdict = project.verdict("toy")
        assert verdict["verdict"] in JUDGED
        if verdict["verdict"] != "not_comparable":
            break  # else somebody used the machine in one of the two runs, and nothing is compared
    (signal,) = [s for s in verdict["signals"] if s["name"] == "instructions_per_token"]
    assert signal["decision"] == "not_gated"
    assert signal["change_pct"] == pytest.approx(10.0)
    (reason,) = [r for r in verdict["reasons"] if r["code"] == "I_INSTRUCTIONS"]
    assert "blind to cache and memory" in reason["message"]


def test_where_valgrind_is_missing_the_run_says_what_to_type(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(project.path))
    project.declare(workload("toy"))
    project.run(*COUNTED).assert_outcomes(failed=1)
    (reason,) = project.verdict("toy")["reasons"]
    assert reason["code"] in ("E_PROFILER_ABSENT", "E_NO_PROFILER")
