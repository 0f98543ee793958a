from __future__ import annotations

import math

import pytest

from pytest_flamegate.gate import Measurement, read_measurement
from pytest_flamegate.gate.comparability import condition_differences
from pytest_flamegate.gate.throughput import REFERENCE_LEAK, compare_log_times, reference_shift
from tests.gate.factory import evidence


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        (3.0, 10.0, []),
        (3.0, 50.0, []),
        (3.0, 50.1, ["E_MACHINE_STATE"]),
        (80.0, 3.0, ["E_MACHINE_STATE"]),
        (80.0, 95.0, []),  # contended both times: the spread shows it
        (None, 95.0, []),
        (95.0, None, []),
    ],
)
def test_contention_on_one_side_only(
    old: float | None, new: float | None, codes: list[str]
) -> None:
    before = read_measurement(evidence(process={"pressure": old}))
    after = read_measurement(evidence(process={"pressure": new}))
    assert [found.code for found in condition_differences(before, after)] == codes


@pytest.mark.parametrize(
    ("reference_us", "codes"),
    [
        (5000.0, []),
        (6700.0, []),
        (3750.0, []),
        (6800.0, ["E_MACHINE_STATE"]),
        (3680.0, ["E_MACHINE_STATE"]),
        (None, []),
    ],
)
def test_a_reference_kernel_that_changed_speed(
    reference_us: float | None, codes: list[str]
) -> None:
    before = read_measurement(evidence())
    after = read_measurement(evidence(process={"reference_us": reference_us}))
    assert [found.code for found in condition_differences(before, after)] == codes


def drift_variance(old: Measurement, new: Measurement) -> float:
    return compare_log_times(old, new)[0].drift_variance


def test_a_reference_of_another_speed_is_trusted_less() -> None:
    same, near, far = (
        read_measurement(evidence(process={"reference_us": us})) for us in (5000.0, 5500.0, 6000.0)
    )
    assert reference_shift(same, far) == pytest.approx(math.log(1.2))
    assert drift_variance(same, same) < drift_variance(same, near) < drift_variance(same, far)
    extra = drift_variance(same, far) - drift_variance(same, same)
    assert math.sqrt(extra) == pytest.approx(REFERENCE_LEAK * math.log(1.2))
    assert drift_variance(far, same) == pytest.approx(drift_variance(same, far))
