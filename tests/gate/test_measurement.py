import math
from typing import Any

import pytest

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.observe.observation import Block, Run
from pytest_flamegate.receipt.types import Evidence, ProcessProfile
from tests import made
from tests.gate.factory import PROFILE, QUIET, block, evidence, run, undecided


def with_block(**changes: Any) -> Evidence:
    """Evidence whose second process has one changed block."""
    first, second = evidence().runs[1].blocks
    return with_run(blocks=(replace(first, **changes), second))


def with_interval(**changes: Any) -> Evidence:
    return with_block(interval=replace(evidence().runs[1].blocks[0].interval, **changes))


def with_run(**changes: Any) -> Evidence:
    first, second, *others = evidence().runs
    return evidence(runs=(first, replace(second, **changes), *others))


def with_profile(samples: float, **frames: float) -> Evidence:
    process = ProcessProfile(pid=7, samples=samples, self_samples=frames)  # type: ignore[arg-type]
    return replace(evidence(), profile=made.profile_record([process]))


def test_times_of_each_process() -> None:
    made = evidence((1000.0, 2000.0), process={"waiting_us": 100.0})
    first, second = read_measurement(made).timed
    assert first.waiting_s_per_token == pytest.approx(0.1e-3)
    assert first.reference_s == pytest.approx(5e-3)
    assert first.log_time == pytest.approx(math.log(1e-3), abs=1e-5)
    assert first.log_cpu == pytest.approx(math.log(0.9e-3), abs=1e-5)
    assert first.log_time_ratio == pytest.approx(math.log(1.0 / 5.0), abs=1e-5)
    assert first.log_cpu_ratio == pytest.approx(math.log(0.9 / 5.0), abs=1e-5)
    # The wall clock also holds the wait for a CPU.
    assert first.wall_tokens_per_second == pytest.approx(80 / (80e-3 + 14e-6))
    assert second.log_time - first.log_time == pytest.approx(math.log(2.0), abs=1e-6)


def test_a_reference_beside_each_block_takes_out_what_slowed_both() -> None:
    def process(pid: int, slowdown: float) -> Run:
        fast = block(1000.0, reference_us=5000.0)
        slow = block(1000.0 * slowdown, reference_us=5000.0 * slowdown)
        return replace(run(pid, 1.0), blocks=(fast, slow))

    made = replace(evidence(), runs=(process(1, 1.3), process(2, 1.6)))
    steady, throttled = read_measurement(made).timed
    assert steady.log_time_ratio == pytest.approx(throttled.log_time_ratio, abs=1e-6)
    assert throttled.log_time > steady.log_time + math.log(1.1)


def test_without_a_reference_the_time_itself_is_taken() -> None:
    made = read_measurement(evidence(QUIET, process={"reference_us": None}))
    first = made.timed[0]
    assert first.reference_s is None
    values = (first.log_time, first.log_cpu, first.log_time_ratio, first.log_cpu_ratio)
    assert values == pytest.approx([math.log(1e-3)] * 4, abs=1e-6)


def test_a_program_is_judged_by_its_decode() -> None:
    def loaded(pid: int, load_ns: int) -> Run:
        plain = block(1000.0)
        clock = plain.interval
        whole = Interval(clock.wall_ns + load_ns, clock.cpu_ns + load_ns, clock.run_delay_ns)
        sequences = tuple((load_ns, *gaps[1:]) for gaps in plain.sequences_ns)
        program = Block(whole, sequences, plain.reference, decode=clock)
        return replace(run(pid, 1.0), blocks=(program,))

    made = replace(evidence(), runs=(loaded(1, 10**6), loaded(2, 10**9)))
    quick, slow = read_measurement(made).timed
    # The first of 40 tokens is not decoded.
    assert math.exp(quick.log_time) == math.exp(slow.log_time) == pytest.approx(1e-3 * 40 / 39)


def test_without_run_delay_the_quiet_clock_is_cpu_time() -> None:
    made = read_measurement(evidence(QUIET, process={"delay_ns": None, "waiting_us": 400.0}))
    assert math.exp(made.timed[0].log_time) == pytest.approx(0.6e-3)
    assert made.waiting_share == 0.0


def test_rates_are_geometric_means_over_processes() -> None:
    made = read_measurement(evidence((1000.0, 4000.0)))
    assert made.quiet_tokens_per_second == pytest.approx(500.0)
    assert made.cpu_s_per_token == pytest.approx(2e-3)
    assert made.wall_tokens_per_second == pytest.approx(500.0, rel=1e-3)


def test_profiled_runs_supply_no_times() -> None:
    made = evidence(profile=PROFILE)
    profiled = replace(run(77, 9000.0), role="profiled")
    measured = read_measurement(replace(made, runs=(*made.runs, profiled)))
    assert (len(measured.timed), len(measured.profiled)) == (len(QUIET), len(PROFILE))


def test_pressure_is_the_median_of_what_is_known() -> None:
    made = evidence()
    pressures = (10.0, None, 90.0, 20.0, None, None)
    runs = tuple(
        replace(each, cpu_pressure_pct=p) for each, p in zip(made.runs, pressures, strict=True)
    )
    assert read_measurement(replace(made, runs=runs)).cpu_pressure_pct == 20.0
    assert read_measurement(evidence(process={"pressure": None})).cpu_pressure_pct is None


MORE_THAN_ALL = (
    "E_IMPOSSIBLE_FIGURE: The number of samples of all functions of process 7 is 11 and can be at "
    "most 10."
)
NO_TOKENS = Block(interval=Interval(10, 10, 0), sequences_ns=())


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (replace(evidence(), runs=()), "E_FEW_PROCESSES"),
        (with_run(blocks=()), "E_NO_TOKENS"),
        (with_run(blocks=(NO_TOKENS,)), "E_NO_TOKENS"),
        (with_block(sequences_ns=()), "E_NO_TOKENS"),
        (with_interval(wall_ns=0), "E_IMPOSSIBLE_FIGURE"),
        (with_interval(cpu_ns=0), "E_IMPOSSIBLE_FIGURE"),
        (with_block(reference=Interval(0, 0, 0)), "E_IMPOSSIBLE_FIGURE"),
        (with_profile(0), "E_NO_SAMPLES"),
        (with_profile(10, gemv=11), MORE_THAN_ALL),
    ],
)
def test_impossible_evidence_is_an_error(made: Evidence, code: str) -> None:
    with undecided(code):
        read_measurement(made)
