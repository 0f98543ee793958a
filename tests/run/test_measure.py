"""How a budget is spent: what is announced, how many processes run, and when it ends."""

import os
import re
from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pytest_flamegate.child.call_counts import CountedCalls
from pytest_flamegate.config.thresholds import BrickBudget, Thresholds, parse_thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.errors import NoBaselineError, ToolError, UndecidedError
from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.analyses import plan_pair_counts
from pytest_flamegate.gate.rule import ProcessKind
from pytest_flamegate.observe.engine_process import ProcessTime
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.profile.hotspots import pool_profiles
from pytest_flamegate.run import measure as run_measure
from pytest_flamegate.run import processes
from pytest_flamegate.run.measure import measure
from pytest_flamegate.run.schedule import PlannedRuns, Schedule, should_run_alone
from pytest_flamegate.run.stages import Measured, Prepared, PreparedSide
from tests import made
from tests.profile.profiles import profile, python
from tests.run import fakes
from tests.run.fakes import Lines, World

BRICKS = Thresholds(bricks=MappingProxyType({"RmsNorm": BrickBudget(per_call_us=1.0)}))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return fakes.install(monkeypatch)


def side(role: Any = None, *, profiled: bool = True, **changes: Any) -> PreparedSide:
    prepared = fakes.prepared_side(made.bundle(), role)
    workload: Workload = replace(prepared.workload, **changes)
    profiler: Any = fakes.FakeProfiler() if profiled else None
    return replace(prepared, workload=workload, profiler=profiler)


def alone(budget_s: float = 15.0, **changes: Any) -> Prepared:
    return Prepared((side(**changes),), budget_s)


def paired(budget_s: float = 50.0, **changes: Any) -> Prepared:
    sides = side("base", **changes), side("head", **changes)
    return Prepared(sides, budget_s, pair_counts=plan_pair_counts(budget_s))


def run(prepared: Prepared, *answers: tuple[ProcessKind, ...]) -> tuple[Measured, list[str]]:
    """Measure; ``answers`` are given to the interim analyses, in their order."""
    progress = Lines()
    left = list(answers)
    found = measure(prepared, lambda measured: left.pop(0) if left else (), progress)
    return found, [line.removeprefix("announce ") for line in progress.lines]


def roles(measured: Measured) -> Counter[str]:
    return Counter(run.role for run in measured.sides[-1].observation.runs)


# One side


def test_a_short_workload_has_many_processes_within_its_budget(world: World) -> None:
    world.process_time = ProcessTime(0.1, 0.01, repeats=True)
    found, (line,) = run(alone())
    assert line == "4tok: 13 processes × 0.5 s, profile 5 s: about 11 s"
    assert roles(found)["timed"] == 40
    assert roles(found)["profiled"] == 24
    assert world.now_s <= 15.0


def test_a_budget_is_kept_within_one_process(world: World) -> None:
    world.process_time = ProcessTime(0.0, 1.5, repeats=True)
    run(alone(), ("timed", "profiled"))
    assert world.now_s <= 15.0 + 1.5


def test_a_workload_that_cannot_fit_is_announced_and_gets_the_least(world: World) -> None:
    world.process_time = ProcessTime(0.4, 3.1, repeats=True)
    found, (line,) = run(alone(), ("timed", "profiled"))
    assert line == (
        "4tok: 5 processes × 3.5 s, profile 12 s: about 29 s, more than its budget of 15 s: fewer "
        "processes would give no verdict"
    )
    assert roles(found) == {"timed": 5, "profiled": 3}
    # A warm-up, five timed and three profiled processes, and no more of any.
    assert world.now_s == pytest.approx(9 * 3.5)


def test_load_that_lengthens_a_run_is_announced(world: World) -> None:
    world.load = (os.cpu_count() or 1) + 0.25
    _, (line,) = run(alone())
    assert re.search(
        r": about 12 s, longer while this machine is busy \(load \d+\.\d, \d+ co", line
    )


def test_an_undecided_verdict_gets_the_rest_of_the_budget(world: World) -> None:
    found, _ = run(alone())
    more, _ = run(alone(), ("timed",))
    assert roles(more)["timed"] > roles(found)["timed"]
    assert roles(more)["profiled"] == roles(found)["profiled"]
    unprofiled, (line,) = run(alone(profiled=False))
    assert line == "4tok: 11 processes × 1.0 s: about 11 s"
    assert roles(unprofiled) == {"timed": 10}
    assert unprofiled.sides[0].pooled is None


def test_a_program_that_ends_soon_is_profiled_until_samples_suffice(world: World) -> None:
    """At 100 samples a second 0.1 s of a program give ten, and 200 are needed."""
    world.process_time = ProcessTime(0.0, 0.1, repeats=False)
    prepared = alone(3.0)
    _, (line,) = run(prepared)
    assert "profile 10 s" in line
    assert "more than its budget of 3 s" in line


@pytest.mark.parametrize(("samples", "code"), [(0, "E_NO_SAMPLES"), (1, "E_FEW_SAMPLES")])
def test_too_few_samples_are_a_note_within_the_announced_time(
    world: World, samples: int, code: str
) -> None:
    world.samples = samples
    (side,) = run(alone())[0].sides
    assert list(side.notes) == [code]
    assert (side.pooled is None) is (samples == 0)
    assert world.now_s <= 2 * 15.0


def test_a_program_that_is_sampled_too_seldom_is_told_how_many_tokens_suffice() -> None:
    for samples, enough in ((100, 4 * 32), (13, 31 * 32)):
        found = profile({(python("f"),): samples})
        _, notes = pool_profiles("perf", [found], 32)
        assert notes["E_FEW_SAMPLES"].endswith(f"About max_tokens = {enough} is enough.")
        assert "max_tokens" not in pool_profiles("perf", [found])[1]["E_FEW_SAMPLES"]


# Bricks


def test_bricks_have_time_of_their_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_measure, "measure_bandwidth", lambda threads: f"{threads} thread")
    found, (line,) = run(replace(alone(), show_bricks=True))
    assert line.endswith("bricks 3 s: about 15 s")
    assert world.started.count("bricks") == 3
    assert roles(found)["timed"] == 5
    assert str(found.bandwidth) == "1 thread"
    # A budget for bricks takes five, and up to fifteen while it is undecided.
    world.started.clear()
    run(alone(thresholds=BRICKS), ("bricks",))
    assert world.started.count("bricks") == 8


def test_a_bandwidth_that_cannot_be_measured_is_a_note(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(threads: int) -> None:
        raise ToolError("E_BANDWIDTH_MEMORY", "There is no room.", "Make some.")

    monkeypatch.setattr(run_measure, "measure_bandwidth", fail)
    found, _ = run(replace(alone(), show_bricks=True))
    (note,) = found.notes
    assert "E_BANDWIDTH_MEMORY: There is no room. Make some." in note.message
    assert found.bandwidth is None


def test_an_engine_without_marks_is_a_note_or_an_error(world: World) -> None:
    world.fail(ToolError("E_NO_BRICKS", "There is no mark.", "Mark it."), at="bricks")
    found, _ = run(replace(alone(), show_bricks=True))
    assert found.sides[0].notes == {"E_NO_BRICKS": "There is no mark. Mark it."}
    with pytest.raises(ToolError, match="E_NO_BRICKS"):
        run(alone(thresholds=BRICKS))


# Two sides


def test_both_sides_are_profiled_and_their_bricks_clocked_in_pairs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_measure, "measure_bandwidth", lambda threads: None)
    found, (alternating,) = run(paired(thresholds=BRICKS))
    monkeypatch.setattr(fakes.FakePairs, "shares_core", True)
    found, (sharing,) = run(paired(thresholds=BRICKS))
    # Bricks of two sides on one core differ by so little that less time is enough.
    assert ("bricks 31 s" in alternating, "bricks 14 s" in sharing) == (True, True)
    profiled = [
        [run for run in side.observation.runs if run.role == "profiled"] for side in found.sides
    ]
    numbers = [[run.pair for run in runs] for runs in profiled]
    assert numbers[0] == numbers[1] == [*range(len(numbers[0]))]
    assert all(run.shares_core for run in profiled[0])
    assert [len(side.bricks) for side in found.sides] == [5, 5]


@pytest.mark.parametrize(
    ("drop_pct", "others_pct", "asked"),
    [(5.0, 0.0, [28, 27, 26, 25]), (1.0, 0.0, [28, 1, 1, 1]), (1.0, 30.0, [28, 27, 26, 25])],
)
def test_pairs_run_one_at_a_time_if_fine_differences_are_sought_on_an_idle_machine(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    drop_pct: float,
    others_pct: float,
    asked: list[int],
) -> None:
    monkeypatch.setattr("pytest_flamegate.run.measure.others_pct", lambda *_: others_pct)
    world.token_ns = round(1.3 * fakes.TOKEN_NS)
    run(paired(profiled=False, thresholds=Thresholds(drop_pct)))
    assert world.asked == asked
    assert not should_run_alone(1.0, None)  # nothing is known before the first pair


def test_pairs_at_once_take_half_of_the_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes.FakePairs, "at_once", 2)
    _, (line,) = run(paired())
    assert line == "4tok: 4 to about 28 pairs × 1.3 s (2 at once), profiles 10 s: about 47 s"


def test_pairs_end_at_the_first_analysis_that_decides(world: World) -> None:
    world.token_ns = round(1.3 * fakes.TOKEN_NS)
    found, (line,) = run(paired(profiled=False))
    assert line == "4tok: 4 to about 25 pairs × 2.0 s: about 50 s"
    assert roles(found) == {"timed": 4}
    pairs = [run.pair for run in found.sides[0].observation.runs]
    assert pairs == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("slower", "budget_s", "pairs"),
    [(1.3, 50.0, 6), (0.7, 50.0, 6), (1.0, 50.0, 4), (1.3, 17.0, 5), (1.3, 8.0, 4)],
)
def test_a_decided_change_has_pairs_enough_to_explain_it(
    world: World, slower: float, budget_s: float, pairs: int
) -> None:
    """Four decide about 30 %; the change of CPU time that a function explains needs six."""
    world.token_ns = round(slower * fakes.TOKEN_NS)
    found, _ = run(paired(budget_s))
    assert roles(found)["timed"] == pairs
    numbers = [run.pair for run in found.sides[0].observation.runs if run.role == "timed"]
    assert numbers == [*range(pairs)]


@pytest.mark.parametrize(
    ("slower", "budget_s", "open_from", "pairs"),
    [
        (1.0, 50.0, 4, 17),
        (1.0, 17.0, 4, 5),
        (1.0, 50.0, 99, 4),
        (0.7, 50.0, 6, 17),  # those that explain an improvement make it open
        (0.7, 50.0, 99, 6),
    ],
)
def test_a_program_that_looks_slower_as_a_whole_gets_more_pairs_if_there_is_time(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    slower: float,
    budget_s: float,
    open_from: int,
    pairs: int,
) -> None:
    """Four decide about the rate; the start of a program varies more."""

    def is_open(base: Any, *_: Any) -> bool:
        return len(base.timed) >= open_from

    monkeypatch.setattr("pytest_flamegate.run.measure.is_whole_open", is_open)
    world.token_ns = round(slower * fakes.TOKEN_NS)
    found, _ = run(paired(budget_s))
    assert roles(found)["timed"] == pairs
    world.process_time = ProcessTime(0.1, 0.1, repeats=True)
    found, _ = run(paired(budget_s))
    assert pairs <= 6 or roles(found)["timed"] == 28  # the most that are planned


def test_calls_are_counted_on_both_sides_of_a_certain_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_flamegate.run.measure.HAS_MONITORING", True)
    unchanged, _ = run(paired())
    assert "calls" not in world.started
    # A whole that passes is profiled no more than needed.
    assert roles(unchanged) == {"timed": 4, "profiled": 3}
    world.token_ns = round(1.3 * fakes.TOKEN_NS)
    found, _ = run(paired())
    assert [side.calls for side in found.sides] == [CountedCalls(tokens=4)] * 2
    assert "calls" not in roles(found)  # they are no runs of the evidence
    monkeypatch.setattr("pytest_flamegate.run.measure.HAS_MONITORING", False)
    found, _ = run(paired())
    assert [side.calls for side in found.sides] == [None, None]
    monkeypatch.setattr("pytest_flamegate.run.measure.HAS_MONITORING", True)
    world.fail(ToolError("E_ENGINE_DIED", "It died."), at="calls")
    found, _ = run(paired())
    assert [side.calls for side in found.sides] == [None, None]


def test_limited_calls_are_counted_whatever_the_whole_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_flamegate.run.measure.HAS_MONITORING", True)
    limited = parse_thresholds({"counts": {"*": "+1"}}, "")
    found, _ = run(paired(thresholds=limited))
    assert world.started.count("calls") == 2
    assert [side.calls for side in found.sides] == [CountedCalls(tokens=4)] * 2
    world.fail(ToolError("E_ENGINE_DIED", "It died."), at="calls")
    with pytest.raises(ToolError, match="It died"):
        run(paired(thresholds=limited))


def test_pairs_that_decide_nothing_leave_time_for_profiles(world: World) -> None:
    """A true change of half the threshold stays undecided for long."""
    world.jitter = 0.5
    found, _ = run(paired())
    assert roles(found)["timed"] >= 5
    assert roles(found)["profiled"] >= 3
    assert world.now_s <= 50.0 + 2 * 1.0


@pytest.mark.parametrize(("delayed", "threads"), [(0.3, 2), (0.02, 2), (0.3, 1)])
def test_threads_that_certainly_wait_for_the_cores_end_the_comparison(
    world: World, monkeypatch: pytest.MonkeyPatch, delayed: float, threads: int
) -> None:
    world.jitter = 0.2  # no pair would decide
    take = fakes.FakeObserver.run_timed

    def wait(each: fakes.FakeObserver, seconds: float, pair: int | None = None) -> Run:
        run = take(each, seconds, pair)
        blocks = []
        for block in run.blocks:
            wall_ns, part = block.interval.wall_ns, delayed + 0.001 * (pair or 0)
            interval = Interval(round(wall_ns / (1 - part)), wall_ns, round(wall_ns * part))
            blocks.append(replace(block, interval=interval))
        run = replace(run, blocks=tuple(blocks), threads=threads)
        each.runs = (*each.runs[:-1], run)
        return run

    monkeypatch.setattr(fakes.FakeObserver, "run_timed", wait)
    found, _ = run(paired(1000.0, threads=threads))
    if (delayed, threads) == (0.3, 2):
        assert roles(found) == {"timed": 4}
        said = {"E_NO_SAMPLES": "Nothing was profiled, because the pairs decide nothing."}
        assert [dict(side.notes) for side in found.sides] == [{}, said]
    else:
        assert roles(found)["timed"] > 4
        assert roles(found)["profiled"] >= 3


@pytest.mark.parametrize(
    ("slower", "budget_s", "expected"),
    [(1.3, 50.0, "23.1 % slower (± 0.0, one standard error, 6 pairs)"), (1.0, 50.0, None),
     (1.3, 24.0, None)],
)  # fmt: skip
def test_a_decided_change_is_sized_one_side_after_the_other_if_time_is_left(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    slower: float,
    budget_s: float,
    expected: str | None,
) -> None:
    monkeypatch.setattr(fakes.FakePairs, "shares_core", True)
    monkeypatch.setattr("pytest_flamegate.run.measure.HAS_MONITORING", False)
    world.token_ns = round(slower * fakes.TOKEN_NS)
    prepared = replace(paired(budget_s), size_alone=True)
    found, _ = run(prepared)
    note = found.sides[-1].notes.get("I_SIZE_ALONE")
    if expected is None:
        assert note is None
    else:
        assert note is not None
        assert expected in note
    assert world.started.count("in turn") == (0 if expected is None else 6)
    assert roles(found)["timed"] in (4, 6)  # those pairs are no runs of the evidence
    assert world.now_s <= budget_s
    unasked, _ = run(paired(budget_s))
    assert "I_SIZE_ALONE" not in unasked.sides[-1].notes


def test_other_tokens_end_the_pairs_at_once(world: World) -> None:
    world.base_tokens = ("1", "2", "3", "4")
    found, _ = run(paired(profiled=False))
    assert roles(found)["timed"] == 1
    profiled, _ = run(paired())
    assert roles(profiled) == {"timed": 1, "profiled": 3}


def test_cut_stacks_are_sampled_again_deeper(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "WHOLE_STACKS", 2.0)  # no stack is whole enough
    deeper = fakes.FakeProfiler(name="deeper")
    plain, fast = fakes.FakeProfiler(), fakes.FakeProfiler(deeper=deeper)
    for both, times in (((plain, plain), 3), ((fast, fast), 4), ((fast, plain), 3)):
        world.started.clear()
        prepared = paired()
        sides = tuple(
            replace(side, profiler=each) for side, each in zip(prepared.sides, both, strict=True)
        )
        found, _ = run(replace(prepared, sides=sides))
        assert world.started.count("profiled") == 2 * times
        assert roles(found)["profiled"] == 3
        assert all(len(side.profiles) == 3 for side in found.sides)


def test_more_samples_are_taken_until_the_function_is_named(world: World) -> None:
    world.token_ns = round(1.3 * fakes.TOKEN_NS)
    found, _ = run(paired(), ("profiled",), ("profiled",))
    assert roles(found)["profiled"] > 5


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        ("E_TARGET_NOT_FOUND", NoBaselineError, "I_NEW_WORKLOAD: NOTHING WAS COMPARED: .*"),
        ("E_DIED", UndecidedError, "E_DIED: The base .* says nothing about the change"),
    ],
)
def test_an_error_of_the_base_names_its_commit(
    world: World, code: str, kind: type[Exception], told: str
) -> None:
    world.fail(ToolError(code, "It fails.", "Repair it."), times=1)
    with pytest.raises(kind, match=rf"{told}.*It fails\.") as caught:
        run(paired())
    assert made.COMMIT.revision[:12] in str(caught.value)
    world.fail(ToolError(code, "It fails.", "Repair it."), times=2)  # in the head as well
    with pytest.raises(ToolError, match=f"{code}: It fails"):
        run(paired())


def test_a_checkouts_paths_are_written_as_the_projects(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        made, "ENVIRONMENT", MappingProxyType({"LIBRARY": "/tmp/home/project/lib", "HOME": "/root"})
    )
    base = replace(side("base"), moved=(Path("/tmp/home/project"), Path("/src/project")))
    found, _ = run(replace(paired(), sides=(base, side("head"))))
    assert found.sides[0].observation.effective_environment["LIBRARY"] == "/src/project/lib"


def test_a_measurement_that_takes_longer_than_announced_says_so(world: World) -> None:
    phases: list[str] = []
    progress = Lines()
    progress.update = lambda phase, *_: phases.append(phase)  # type: ignore[method-assign]
    world.on_process = lambda role: setattr(world, "now_s", world.now_s + 4 * (role == "profiled"))
    measure(alone(), lambda measured: (), progress)
    assert phases[:2] == ["warming up", "timing"]
    assert phases[-1] == "longer than announced: profiling"


@pytest.mark.parametrize(
    ("done", "elapsed_s", "left_s"),
    [
        ({}, 0.0, 50.0 + 6.0),  # 60 s are planned, and no pair begins after the budget
        ({"timed": 10}, 40.0, 10.0 + 6.0),
        ({"timed": 10, "profiled": 2, "bricks": 1}, 55.0, 0.0),
    ],
)
def test_the_remaining_time_ends_with_the_budget(
    done: dict[str, int], elapsed_s: float, left_s: float
) -> None:
    runs = (
        PlannedRuns("timed", 10, 4.0, ""),
        PlannedRuns("profiled", 2, 10.0, ""),
        PlannedRuns("bricks", 1, 6.0, ""),
    )
    schedule = Schedule(runs, least_s=30.0, budget_s=50.0)
    assert schedule.left_s(done, elapsed_s) == pytest.approx(left_s)
