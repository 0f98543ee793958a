"""Every key of pytest's configuration file takes effect in a run."""

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_flamegate.config.options import OPTIONS
from pytest_flamegate.gate.judge import judge
from pytest_flamegate.run import session
from tests.doors.project import Project, workload
from tests.run import fakes

KEYS: Mapping[str, object] = {
    "flamegate": True,
    "flamegate_budget": 1.5,
    "flamegate_profiler": "none",
    "flamegate_dir": "artifacts",
    "flamegate_config": "loads.toml",
    "flamegate_strict": True,
    "flamegate_share_drift": "strict",
    "flamegate_tokens_per_second": "3%",
    "flamegate_hotspots": "hash_round=2pp, *=4pp",
}
ELSEWHERE = {
    # Tests of their own: tests/doors/test_against.py, tests/commands, run, profile and report.
    *("flamegate_against", "flamegate_bricks", "flamegate_instructions"),
    *("flamegate_peak_gflops", "flamegate_report", "flamegate_require_grade"),
}
INI = "[pytest]\n" + "".join(f"{key} = {value}\n" for key, value in KEYS.items())


def test_every_key_is_tested() -> None:
    assert {*KEYS} | ELSEWHERE == {option.ini_name for option in OPTIONS if option.ini}


def test_every_key_takes_effect(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.install(monkeypatch, profiled=False)
    policies: list[Any] = []

    def record(run: Any, baseline: Any, policy: Any) -> Any:
        policies.append(policy)
        return judge(run, baseline, policy)

    monkeypatch.setattr(session, "judge", record)
    project.write("pytest.ini", INI)
    project.write("loads.toml", workload("toy"))
    result = project.ask("--strict-config")
    # With flamegate_strict a first run fails: there is no baseline.
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["flamegate: toy: *its budget of 1.5 s*", "FAILED loads.toml::toy - no baseline: *"]
    )
    written = {path.name for path in (project.path / "artifacts/latest/toy").iterdir()}
    assert written == {"evidence.json", "verdict.json"}
    assert not project.artifacts.exists()
    assert policies[-1].share_drift == "strict"
    assert policies[-1].thresholds.tokens_per_second_pct == 3.0
    assert policies[-1].thresholds.hotspots_pp == {"hash_round": 2.0, "*": 4.0}


@pytest.mark.usefixtures("world")
def test_a_revision_in_the_file_is_compared_with(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\nflamegate = true\nflamegate_against = main\n")
    project.declare(workload("toy"))
    result = project.ask()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*E_NO_REPOSITORY*"])
