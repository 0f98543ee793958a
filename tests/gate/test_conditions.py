from dataclasses import replace

import pytest

from pytest_flamegate.gate.conditions import condition_differences
from pytest_flamegate.gate.measurement import Measurement, measurement_of
from tests.gate.factory import QUIET, evidence, run


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        (3.0, 10.0, []),
        (3.0, 50.0, []),
        (3.0, 50.1, ["E_CPU_PRESSURE"]),
        (80.0, 3.0, ["E_CPU_PRESSURE"]),
        (80.0, 95.0, []),  # contended both times: the spread shows it
        (None, 95.0, []),
        (95.0, None, []),
    ],
)
def test_contention_on_one_side_only(
    old: float | None, new: float | None, codes: list[str]
) -> None:
    before = measurement_of(evidence(process={"pressure": old}))
    after = measurement_of(evidence(process={"pressure": new}))
    assert [found.code for found in condition_differences(before, after)] == codes


@pytest.mark.parametrize(
    ("reference_us", "codes"),
    [
        (5000.0, []),
        (5400.0, []),
        (4600.0, []),
        (5600.0, ["E_REFERENCE_OFF"]),
        (4400.0, ["E_REFERENCE_OFF"]),
        (None, []),
    ],
)
def test_a_reference_kernel_that_changed_speed(
    reference_us: float | None, codes: list[str]
) -> None:
    before = measurement_of(evidence())
    after = measurement_of(evidence(process={"reference_us": reference_us}))
    assert [found.code for found in condition_differences(before, after)] == codes


def test_a_reference_that_scatters_has_wider_limits() -> None:
    def scattered(base_us: float) -> Measurement:
        runs = tuple(
            run(pid, 1000.0 + pid, reference_us=base_us * factor)
            for pid, factor in enumerate((0.9, 1.1, 0.92, 1.08, 1.0))
        )
        return measurement_of(replace(evidence(), runs=runs))

    assert condition_differences(scattered(5000.0), scattered(6000.0)) == ()
    assert condition_differences(scattered(5000.0), scattered(8000.0)) != ()


def test_one_process_is_no_measure_of_the_reference() -> None:
    before = measurement_of(evidence())
    after = measurement_of(evidence(QUIET[:1], process={"reference_us": 9000.0}))
    assert condition_differences(before, after) == ()
