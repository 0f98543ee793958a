"""NVML may fail in each of its ways: it is recorded by NVML's own name, and nothing is raised."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_flamegate.observe.gpu import GpuDevice, Nvml
from tests.observe.gpus import DRIVER, GIB, FakeNvml, Gpu, nvml_error

ERRORS = (
    "AlreadyInitialized",
    "DriverNotLoaded",
    "FunctionNotFound",
    "GpuIsLost",
    "InsufficientPower",
    "IrqIssue",
    "LibRmVersionMismatch",
    "LibraryNotFound",
    "NoPermission",
    "NotSupported",
    "OperatingSystem",
    "ResetRequired",
    "Timeout",
    "Uninitialized",
    "Unknown",
)


def opened(fake: FakeNvml, driver: str | None = DRIVER) -> Nvml:
    nvml = Nvml(lambda: fake)
    nvml.open(driver)
    return nvml


def test_what_it_tells_is_read() -> None:
    nvml = opened(FakeNvml([Gpu(0, {7: 2 * GIB, 8: None}, {7}, 40), Gpu(1)]))
    assert (nvml.driver, nvml.version) == (DRIVER, f"12.{DRIVER}")
    assert nvml.devices[0] == GpuDevice("GPU-0", "NVIDIA H100 80GB HBM3", 0, 80 * GIB)
    assert len(nvml.devices) == 2
    assert nvml.processes("GPU-0") == {7: 2 * GIB, 8: None}
    assert nvml.busy("GPU-0") == {7}
    assert nvml.busy_pct("GPU-0") == 40
    assert nvml.busy("GPU-1") == set()  # NVML says NotFound: no sample
    assert nvml.troubles == []


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize(
    "function",
    [
        "nvmlInit",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetUtilizationRates",
    ],
)
def test_each_error_of_each_call_is_recorded(function: str, name: str) -> None:
    nvml = opened(FakeNvml([Gpu()], raises={function: nvml_error(name)}))
    for device in nvml.devices:
        told = (nvml.processes(device.uuid), nvml.busy(device.uuid), nvml.busy_pct(device.uuid))
        assert None in told
    assert nvml.troubles == [f"{function}: NVMLError_{name}"]


def test_a_lost_device_is_left_out_and_told() -> None:
    fake = FakeNvml([Gpu()], raises={"nvmlDeviceGetUUID": nvml_error("GpuIsLost")})
    nvml = opened(fake)
    assert nvml.devices == ()
    assert nvml.troubles == ["nvmlDevice: NVMLError_GpuIsLost"]


def test_a_library_of_another_driver_is_asked_for_no_device() -> None:
    for driver in ("560.28.03", None):
        fake = FakeNvml([Gpu()])
        assert opened(fake, driver).devices == ()
        assert not [name for name in fake.asked if name.startswith("nvmlDevice")]


@pytest.mark.parametrize("error", [ImportError("no pynvml"), OSError(5), ValueError("odd")])
def test_a_package_that_cannot_be_imported_is_told(error: Exception) -> None:
    def importing() -> Any:
        raise error

    nvml = Nvml(importing)
    nvml.open(DRIVER)
    assert nvml.version is None
    assert nvml.troubles == [f"import: {type(error).__name__}"]


def test_what_is_no_nvml_at_all_is_told() -> None:
    nvml = Nvml(lambda: object())
    nvml.open(DRIVER)
    assert nvml.troubles == ["nvmlInit: AttributeError"]


def test_sizes_that_are_none_are_none() -> None:
    nvml = opened(FakeNvml([Gpu(0, {7: 2**64 - 1, 8: -1, 9: None})]))
    assert nvml.processes("GPU-0") == {7: None, 8: None, 9: None}


def test_samples_of_before_are_not_counted_again() -> None:
    gpu = Gpu(0, {7: 1}, {7})
    fake = FakeNvml([gpu])
    nvml = opened(fake)
    assert nvml.busy("GPU-0") == {7}
    fake._clock_us -= 1  # the same sample once more
    assert nvml.busy("GPU-0") == set()


def test_the_troubles_of_a_broken_device_stay_few() -> None:
    fake = FakeNvml([Gpu()])
    nvml = opened(fake)
    for number in range(100):
        fake.raises["nvmlDeviceGetUtilizationRates"] = nvml_error(f"Odd{number}")
        nvml.busy_pct("GPU-0")
    assert len(nvml.troubles) == 16
