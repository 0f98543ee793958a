"""Runs of a server that ran before: one process by the recipe's own word, and still no copies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate.measurement import measurement_of
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.workload.windows import of_one_process
from tests.gate.factory import evidence

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
        ({"engine": "command", "url": "http://127.0.0.1:8080"}, False),
        ({}, False),
    ],
)
def test_only_a_url_makes_them_windows(recipe: dict[str, object], expected: bool) -> None:
    assert of_one_process(recipe) is expected


def test_windows_are_evidence_and_processes_that_stand_twice_are_not() -> None:
    seen = of_one(dict(RECIPE))
    assert len(measurement_of(seen).timed) == len(seen.runs)
    with pytest.raises(UndecidedError) as caught:
        measurement_of(of_one({"engine": "openai", "serve": ["llama-server"]}))
    assert caught.value.code == "E_DUPLICATE_PROCESS"


def test_windows_that_took_the_very_same_times_are_copies() -> None:
    seen = of_one(dict(RECIPE))
    copied = (seen.runs[0], replace(seen.runs[1], blocks=seen.runs[0].blocks), *seen.runs[2:])
    with pytest.raises(UndecidedError) as caught:
        measurement_of(replace(seen, runs=copied))
    assert caught.value.code == "E_CONSTANT_SAMPLES"
