"""Every key of the configuration file, where it takes effect: in a run, not in the settings."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.config.options import OPTIONS
from tests.doors.project import Project, workload
from tests.profile.fake_valgrind import FakeValgrind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


KEYS: Mapping[str, object] = {
    "flamegate": True,
    "flamegate_budget": 1.5,
    "flamegate_profiler": "none",
    "flamegate_dir": "artifacts",
    "flamegate_config": "loads.toml",
    "flamegate_instructions": True,
    "flamegate_strict": True,
    "flamegate_share_drift": "strict",
    "flamegate_tokens_per_second": "3%",
    "flamegate_hotspots": "hash_round=2pp, *=4pp",
}
INI = "[pytest]\n" + "".join(f"{key} = {value}\n" for key, value in KEYS.items())
# JSON writes these values as TOML does.
TOML = "".join(f"{key} = {json.dumps(value)}\n" for key, value in KEYS.items())
WATCHES = """
import json
from pathlib import Path
from pytest_flamegate import session

seen = {}
judge, measuring = session.judge, session.Measuring

def judging(old, new, thresholds, **options):
    seen["share_drift"] = options["share_drift"]
    seen["tokens_per_second"] = thresholds.tokens_per_second_pct
    seen["hotspots"] = dict(thresholds.hotspots_pp)
    Path("seen.json").write_text(json.dumps(seen))
    return judge(old, new, thresholds, **options)

def measured(workload, plan, profiler, budget_s, *rest, **options):
    seen["profiler"] = profiler
    seen["budget"] = budget_s
    return measuring(workload, plan, profiler, budget_s, *rest, **options)

session.judge, session.Measuring = judging, measured
"""


def test_there_is_no_other_key() -> None:
    # Against a revision nothing stored is judged, and a report, bricks that are shown and a peak
    # change no verdict: these keys have tests of their own.
    apart = {
        "flamegate_against",
        "flamegate_bricks",
        "flamegate_peak_gflops",
        "flamegate_report",
    }
    assert {*KEYS} | apart == {knob.ini_name for knob in OPTIONS if knob.ini}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", INI),
        ("pyproject.toml", "[tool.pytest]\n" + TOML),
    ],
)
def test_every_key_takes_effect(
    project: Project, name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "pyproject.toml" and pytest.version_tuple < (9,):
        pytest.skip("[tool.pytest] came with pytest 9")
    # A stand-in counts at once; the real one takes half a minute (tests/profile has it).
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    counting = FakeValgrind(tmp_path)
    project.write(name, text)
    project.write("loads.toml", workload("toy"))
    project.write("conftest.py", WATCHES)
    result = project.run()
    # Where undecided verdicts are to fail, a first run does: there is no baseline.
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["flamegate: profiling off*", "FAILED loads.toml::toy - no baseline: *"]
    )
    assert json.loads((project.path / "seen.json").read_text()) == {
        "share_drift": "strict",
        "tokens_per_second": 3.0,
        "hotspots": {"hash_round": 2.0, "*": 4.0},
        "profiler": None,
        "budget": 1.5,
    }
    assert counting.seen
    assert (project.path / "artifacts" / "latest" / "toy" / "verdict.json").is_file()
    assert not project.artifacts.exists()


def test_a_revision_in_the_file_is_compared_with(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\nflamegate = true\nflamegate_against = main\n")
    project.declare(workload("toy"))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*E_NO_REPOSITORY*"])
