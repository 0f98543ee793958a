"""A workload's own settings reach the profiler that samples it, and no other workload's."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_flamegate.config.workload import Sampling, Workload
from pytest_flamegate.profile.profilers import perf, pyspy
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup
from pytest_flamegate.run import instruments
from pytest_flamegate.run.instruments import Instruments

MADE = {"perf": perf.make_perf, "py-spy": pyspy.make_pyspy}


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[Setup]:
    seen: list[Setup] = []

    def choose(requested: str, setup: Setup, probes: dict[str, Probe]) -> Profiler:
        seen.append(setup)
        name = requested if requested in MADE else "py-spy"
        if name not in probes:
            shown = f"{len(seen)}"
            probes[name] = Probe(name, shown, usable=True, sees_python=True, sees_native=True)
        return MADE[name](setup)

    monkeypatch.setattr(instruments, "choose_profiler", choose)
    return seen


def workload(sampling: Sampling | None = None) -> Workload:
    return Workload("w", "embedded", "p", 4, "test", sampling=sampling or Sampling())


def test_what_is_asked_reaches_the_profiler(chosen: list[Setup]) -> None:
    profiler = Instruments("perf", Path()).profiler(workload(Sampling(499, "fp", native=True)))
    assert isinstance(profiler, perf.Perf)
    assert (profiler.rate_hz, profiler.call_graph) == (499, "fp")
    assert chosen[-1].native
    assert not chosen[-1].nonblocking
    profiler = Instruments("auto", Path()).profiler(workload(Sampling(nonblocking=True)))
    assert isinstance(profiler, pyspy.PySpy)
    assert profiler.nonblocking


@pytest.mark.parametrize(
    ("sampling", "rate_hz"),
    [
        (Sampling(), 200),
        (Sampling(rate_hz=50), 50),
        (Sampling(native=True), 100),
        (Sampling(nonblocking=True), 200),
    ],
)
def test_comparisons_sample_faster_unless_it_is_dear_or_another_rate_is_asked_for(
    sampling: Sampling, rate_hz: int, chosen: list[Setup]
) -> None:
    asked = Instruments("py-spy", Path())
    profiler = asked.profiler(workload(sampling), comparing=True)
    assert profiler is not None
    assert profiler.rate_hz == rate_hz
    assert asked.profiler(workload(sampling), comparing=True) is profiler


def test_the_trial_of_one_setting_says_nothing_of_another(chosen: list[Setup]) -> None:
    made = Instruments("py-spy", Path())
    machine = {"cpu_model": "a CPU", "cpu_cores": "2"}
    line = made.preamble([workload(), workload(Sampling(native=True)), workload()], machine)
    assert "py-spy 1, py-spy 2" in line
    assert len(chosen) == 2
