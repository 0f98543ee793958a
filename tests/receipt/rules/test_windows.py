"""Runs that ask one running server: windows of one process, which are no copies."""

import pytest

from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.observe.observation import uses_running_server
from pytest_flamegate.receipt import Grade
from tests.gate.factory import evidence
from tests.made import Bundle, bundle
from tests.receipt.rules.changes import each_run, refusals, verify, with_recipe

URL = "http://127.0.0.1:8080"
RECIPE: dict[str, object] = {"engine": "openai", "url": URL}


@pytest.mark.parametrize(
    "changes", [{"serve": ["llama-server"]}, {"engine": "command"}, {"url": " "}, {"url": [URL]}]
)
def test_only_a_url_makes_runs_windows(changes: dict[str, object]) -> None:
    assert uses_running_server(RECIPE)
    assert not uses_running_server(RECIPE | changes)


def test_the_gate_reads_windows_of_one_process() -> None:
    made = evidence()
    runs = tuple(replace(run, pid=7, started_ticks=70) for run in made.runs)
    windows = replace(made, runs=runs, workload={**made.workload, **RECIPE})
    assert len(read_measurement(windows).timed) == len(runs)


def windows(**changes: object) -> Bundle:
    """A measurement of one running server, each run with these changes."""
    own = {"pid": 7, "started_ticks": 70, "load_ns": None, **changes}
    made = each_run(bundle(engine="openai", timed=4), **own)
    assert made.evidence.profile is not None
    processes = tuple(
        replace(each, pid=7, started_ticks=70) for each in made.evidence.profile.processes
    )
    return with_recipe(made.with_profile(processes=processes), **RECIPE).recomputed()


def test_a_running_server_has_no_start_in_its_runs() -> None:
    assert verify(windows()).grade is Grade.OBSERVED
    assert refusals(windows()) == refusals(windows().with_run(1, started_ticks=None)) == set()
    assert refusals(windows(load_ns=30_000_000)) == {"E_CLOCK_CONTRADICTION"}
    assert "E_CLOCK_CONTRADICTION" in refusals(windows().with_run(1, started_ticks=71))
    # One server may have several processes.
    assert "E_CLOCK_CONTRADICTION" not in refusals(windows().with_run(1, pid=8, started_ticks=71))


def test_windows_follow_one_another_by_their_dates() -> None:
    first = windows().evidence.runs[0].started_at
    assert refusals(windows(started_at=first)) == {"E_CLOCK_CONTRADICTION"}
    # One run may be dated too early, because a clock is set now and then.
    assert refusals(windows().with_run(1, started_at=first)) == set()
