"""NVIDIA's driver and library are read as they are, and a broken one raises nothing."""

from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.observe.gpu import DeviceNode, GpuDevice, NvidiaDriver, Nvml
from tests.observe.gpus import DRIVER, GIB, MAJOR, FakeNvml, Gpu, kernel, nvml_error

CONTROL = {"nvidiactl": (MAJOR, 255)}
FIRST = DeviceNode("/dev/nvidia0", 0)


ONE, FOURTH = {"nvidia0": (MAJOR, 0)}, (DeviceNode("/dev/nvidia3", 3),)
NODES: dict[str, tuple[dict[str, Any], tuple[DeviceNode, ...], bool]] = {
    "none": ({}, (), False),
    "a plain file": ({"nvidia0": None, **CONTROL}, (), True),
    "plain control node": ({**ONE, "nvidiactl": None}, (FIRST,), False),
    "another device of that name": ({"nvidia0": (1, 3), **CONTROL}, (), True),
    "two names": ({**ONE, "nvidia1": (MAJOR, 0)}, (FIRST,), False),
    "only the fourth, as in a container": ({"nvidia3": (MAJOR, 3), **CONTROL}, FOURTH, True),
    "other files": ({"nvidia-uvm": (MAJOR, 0), "nvidiaX": (MAJOR, 1), **CONTROL}, (), True),
}


@pytest.mark.parametrize("name", NODES)
def test_only_the_drivers_own_nodes_count(name: str, tmp_path: Path) -> None:
    nodes, found, control = NODES[name]
    driver = kernel(tmp_path, nodes=nodes)
    assert driver.nodes() == found
    assert driver.has_control() == control


def test_a_link_is_no_device(tmp_path: Path) -> None:
    driver = kernel(tmp_path, nodes={}, devices="1 nvidia\n")
    (tmp_path / "dev" / "nvidia0").symlink_to("/dev/null")  # a character device, of major 1
    assert driver.nodes() == ()


def test_nodes_without_a_driver_are_files(tmp_path: Path) -> None:
    nowhere = NvidiaDriver(tmp_path / "missing", tmp_path / "missing")
    for driver in (kernel(tmp_path, driver=None), nowhere):
        assert (driver.nodes(), driver.has_control(), driver.version()) == ((), False, None)
    assert not nowhere.shares_pids()


@pytest.mark.parametrize("row", ["195 nvidia-frontend", "507 nvidiactl"])
def test_the_driver_is_known_by_all_its_names(row: str, tmp_path: Path) -> None:
    driver = kernel(tmp_path, nodes={"nvidia0": (int(row.split()[0]), 0)}, devices=f"{row}\n")
    assert driver.nodes() == (FIRST,)


def test_the_drivers_version_is_read(tmp_path: Path) -> None:
    driver = kernel(tmp_path)
    assert driver.version() == DRIVER
    for text, version in (
        ("NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build", "570.124.06"),
        ("something else", None),
    ):
        (tmp_path / "proc/driver/nvidia/version").write_text(f"NVRM version: {text}")
        assert driver.version() == version


# NVML


def opened(fake: FakeNvml) -> Nvml:
    nvml = Nvml(lambda: fake)
    nvml.open(DRIVER)
    return nvml


def test_devices_and_processes_are_read() -> None:
    impossible = {9: 2**64 - 1, 10: -1}
    nvml = opened(FakeNvml([Gpu(0, {7: 2 * GIB, 8: None, **impossible}, {7}, 40), Gpu(1)]))
    assert (nvml.driver, nvml.version) == (DRIVER, f"12.{DRIVER}")
    assert nvml.devices[0] == GpuDevice("GPU-0", "NVIDIA H100 80GB HBM3", 0, 80 * GIB)
    assert len(nvml.devices) == 2
    assert nvml.processes("GPU-0") == {7: 2 * GIB, 8: None, 9: None, 10: None}
    assert nvml.busy("GPU-0") == {7}
    assert nvml.busy_pct("GPU-0") == 40
    assert nvml.busy("GPU-1") == set()  # NVML says NotFound: no sample
    assert nvml.troubles == []


@pytest.mark.parametrize(
    "function",
    [
        "nvmlInit",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetUtilizationRates",
    ],
)
def test_an_error_of_a_call_is_recorded(function: str) -> None:
    nvml = opened(FakeNvml([Gpu()], raises={function: nvml_error("GpuIsLost")}))
    for device in nvml.devices:
        found = (nvml.processes(device.uuid), nvml.busy(device.uuid), nvml.busy_pct(device.uuid))
        assert None in found
    said = "nvmlDevice" if function.endswith("UUID") else function  # one of several calls
    assert nvml.troubles == [f"{said}: NVMLError_GpuIsLost"]


def test_a_package_that_cannot_be_used_is_recorded() -> None:
    def importing() -> Any:
        raise OSError(5)

    nvml = Nvml(importing)
    nvml.open(DRIVER)
    assert (nvml.version, nvml.troubles) == (None, ["import: OSError"])
    other: Any = object()
    assert opened(other).troubles == ["nvmlInit: AttributeError"]


def test_a_sample_counts_once() -> None:
    fake = FakeNvml([Gpu(0, {7: 1}, {7})])
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
