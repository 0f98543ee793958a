"""Runs of a server that ran before: one process by the recipe's own word, and still no copies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate import read_measurement
from pytest_flamegate.observe.observation import of_one_process
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import evidence
from tests.made import Bundle, bundle

RECIPE = {"engine": "openai", "url": "http://127.0.0.1:8080"}


def of_one(recipe: dict[str, object]) -> Evidence:
    made = evidence()
    runs = tuple(replace(run, pid=7, started_ticks=70) for run in made.runs)
    return replace(made, runs=runs, workload={**made.workload, **recipe})


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (RECIPE, True),
        ({**RECIPE, "serve": ["llama-server"]}, False),
        ({"engine": "openai", "serve": ["llama-server"]}, False),
        ({"engine": "openai", "url": ""}, False),
        ({"engine": "openai", "url": " "}, False),
        ({"engine": "openai", "url": True}, False),
        ({"engine": "openai", "url": ["http://127.0.0.1:8080"]}, False),
        ({"engine": "command", "url": "http://127.0.0.1:8080"}, False),
        ({}, False),
    ],
)
def test_only_a_url_makes_them_windows(recipe: dict[str, object], expected: bool) -> None:
    assert of_one_process(recipe) is expected


def test_windows_are_evidence_and_processes_that_stand_twice_are_not() -> None:
    seen = of_one(dict(RECIPE))
    assert len(read_measurement(seen).timed) == len(seen.runs)
    with pytest.raises(UndecidedError) as caught:
        read_measurement(of_one({"engine": "openai", "serve": ["llama-server"]}))
    assert caught.value.code == "E_DUPLICATE_PROCESS"


def test_windows_that_took_the_very_same_times_are_copies() -> None:
    seen = of_one(dict(RECIPE))
    copied = (seen.runs[0], replace(seen.runs[1], blocks=seen.runs[0].blocks), *seen.runs[2:])
    with pytest.raises(UndecidedError) as caught:
        read_measurement(replace(seen, runs=copied))
    assert caught.value.code == "E_CONSTANT_SAMPLES"


def windows(**changes: object) -> Bundle:
    """A measurement of one server that ran before; each run with these changes."""
    triple = bundle(engine="openai", timed=4)
    own = {"pid": 7, "started_ticks": 70, "load_ns": None, **changes}
    for index in range(len(triple.evidence.runs)):
        triple = triple.with_run(index, **own)
    assert triple.evidence.profile is not None
    processes = tuple(
        replace(each, pid=7, started_ticks=70) for each in triple.evidence.profile.processes
    )
    recipe = {**triple.evidence.workload, **RECIPE}
    triple = triple.with_profile(processes=processes).with_evidence(workload=recipe)
    return triple.recomputed().sealed()


def verify(triple: Bundle) -> Verification:
    files = triple.files
    return verify_receipt(
        files["receipt.json"],
        evidence=files["evidence.json"],
        profile_folded=files["profile.folded"],
    )


def refused(triple: Bundle) -> set[str]:
    return {each.code for each in verify(triple).refusals}


def test_windows_of_one_server_are_observed_and_not_fit() -> None:
    answer = verify(windows())
    assert (answer.refusals, answer.grade) == ((), Grade.OBSERVED)
    assert "F_ONE_PROCESS" in {each.code for each in answer.unfit}


def test_a_server_that_ran_before_tells_of_no_start() -> None:
    assert refused(windows(load_ns=30_000_000)) == {"E_DATES_CONTRADICT"}
    assert "E_DATES_CONTRADICT" in refused(windows().with_run(1, started_ticks=71))
    assert refused(windows().with_run(1, started_ticks=None)) == set()


def test_several_processes_may_answer_for_one_server() -> None:
    assert "E_DATES_CONTRADICT" not in refused(windows().with_run(1, pid=8, started_ticks=71))


def test_windows_follow_one_another_by_their_dates() -> None:
    first = windows().evidence.runs[0].started_at
    assert refused(windows(started_at=first)) == {"E_DATES_CONTRADICT"}
    # A clock is set now and then.
    assert refused(windows().with_run(1, started_at=first)) == set()
