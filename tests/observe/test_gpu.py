"""NVIDIA's driver and library are read as they are, and a broken one raises nothing."""

from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.observe.gpu import DeviceNode, GpuDevice, NvidiaDriver, Nvml
from tests.observe.gpus import DRIVER, GIB, MAJOR, FakeNvml, Gpu, kernel, nvml_error

CONTROL = {"nvidiactl": (MAJOR, 255)}
FIRST = DeviceNode("/dev/nvidia0", 0)


@pytest.mark.parametrize(
    ("nodes", "found", "control"),
    [
        pytest.param({}, (), False, id="none"),
        pytest.param({"nvidia0": (MAJOR, 0), **CONTROL}, (FIRST,), True, id="one"),
        pytest.param({"nvidia0": (MAJOR, 0)}, (FIRST,), False, id="no control node"),
        pytest.param({"nvidia0": None, **CONTROL}, (), True, id="a plain file"),
        pytest.param(
            {"nvidia0": (MAJOR, 0), "nvidiactl": None}, (FIRST,), False, id="plain control node"
        ),
        pytest.param({"nvidia0": (1, 3), **CONTROL}, (), True, id="another device of that name"),
        pytest.param(
            {"nvidia0": (MAJOR, 0), "nvidia1": (MAJOR, 0)}, (FIRST,), False, id="two names"
        ),
        pytest.param(
            {"nvidia3": (MAJOR, 3), **CONTROL},
            (DeviceNode("/dev/nvidia3", 3),),
            True,
            id="only the fourth, as in a container",
        ),
        pytest.param(
            {"nvidia-uvm": (MAJOR, 0), "nvidiaX": (MAJOR, 1), **CONTROL}, (), True, id="other files"
        ),
    ],
)
def test_only_the_drivers_own_nodes_count(
    nodes: dict[str, Any], found: tuple[DeviceNode, ...], control: bool, tmp_path: Path
) -> None:
    driver = kernel(tmp_path, nodes=nodes)
    assert driver.nodes() == found
    assert driver.has_control() == control


def test_a_link_is_no_device(tmp_path: Path) -> None:
    driver = kernel(tmp_path, nodes={}, devices="1 nvidia\n")
    (tmp_path / "dev" / "nvidia0").symlink_to("/dev/null")  # a character device, of major 1
    assert driver.nodes() == ()


def test_nodes_without_a_driver_are_files(tmp_path: Path) -> None:
    driver = kernel(tmp_path, driver=None)
    assert (driver.nodes(), driver.has_control(), driver.version()) == ((), False, None)
    nowhere = NvidiaDriver(tmp_path / "missing", tmp_path / "missing")
    assert (nowhere.nodes(), nowhere.has_control(), nowhere.version()) == ((), False, None)
    assert not nowhere.shares_pids()


@pytest.mark.parametrize("row", ["195 nvidia-frontend", "195 nvidia", "507 nvidiactl"])
def test_the_driver_is_known_by_all_its_names(row: str, tmp_path: Path) -> None:
    driver = kernel(tmp_path, nodes={"nvidia0": (int(row.split()[0]), 0)}, devices=f"{row}\n")
    assert driver.nodes() == (FIRST,)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5", DRIVER),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build",
            "570.124.06",
        ),
        ("NVRM version: NVIDIA UNIX aarch64 Kernel Module  535.161", "535.161"),
        ("NVRM version: something else", None),
    ],
)
def test_the_drivers_version_is_read(text: str, version: str | None, tmp_path: Path) -> None:
    driver = kernel(tmp_path)
    (tmp_path / "proc" / "driver" / "nvidia" / "version").write_text(text)
    assert driver.version() == version


@pytest.mark.parametrize("container", [False, True])
def test_process_ids_are_the_machines_outside_of_containers(
    container: bool, tmp_path: Path
) -> None:
    assert kernel(tmp_path, container=container).shares_pids() != container


# NVML


def opened(fake: FakeNvml, driver: str | None = DRIVER) -> Nvml:
    nvml = Nvml(lambda: fake)
    nvml.open(driver)
    return nvml


def test_devices_and_processes_are_read() -> None:
    nvml = opened(FakeNvml([Gpu(0, {7: 2 * GIB, 8: None}, {7}, 40), Gpu(1)]))
    assert (nvml.driver, nvml.version) == (DRIVER, f"12.{DRIVER}")
    assert nvml.devices[0] == GpuDevice("GPU-0", "NVIDIA H100 80GB HBM3", 0, 80 * GIB)
    assert len(nvml.devices) == 2
    assert nvml.processes("GPU-0") == {7: 2 * GIB, 8: None}
    assert nvml.busy("GPU-0") == {7}
    assert nvml.busy_pct("GPU-0") == 40
    assert nvml.busy("GPU-1") == set()  # NVML says NotFound: no sample
    assert nvml.troubles == []


@pytest.mark.parametrize("name", ["GpuIsLost", "NotSupported"])
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
def test_an_error_of_a_call_is_recorded(function: str, name: str) -> None:
    nvml = opened(FakeNvml([Gpu()], raises={function: nvml_error(name)}))
    for device in nvml.devices:
        found = (nvml.processes(device.uuid), nvml.busy(device.uuid), nvml.busy_pct(device.uuid))
        assert None in found
    assert nvml.troubles == [f"{function}: NVMLError_{name}"]


def test_a_lost_device_is_left_out() -> None:
    nvml = opened(FakeNvml([Gpu()], raises={"nvmlDeviceGetUUID": nvml_error("GpuIsLost")}))
    assert nvml.devices == ()
    assert nvml.troubles == ["nvmlDevice: NVMLError_GpuIsLost"]


@pytest.mark.parametrize("driver", ["560.28.03", None])
def test_a_library_of_another_driver_is_asked_for_no_device(driver: str | None) -> None:
    fake = FakeNvml([Gpu()])
    assert opened(fake, driver).devices == ()
    assert not [name for name in fake.asked if name.startswith("nvmlDevice")]


@pytest.mark.parametrize("error", [ImportError("no pynvml"), OSError(5), ValueError("odd")])
def test_a_package_that_cannot_be_imported_is_recorded(error: Exception) -> None:
    def importing() -> Any:
        raise error

    nvml = Nvml(importing)
    nvml.open(DRIVER)
    assert (nvml.version, nvml.troubles) == (None, [f"import: {type(error).__name__}"])


def test_a_package_that_is_not_nvml_is_recorded() -> None:
    nvml = Nvml(lambda: object())
    nvml.open(DRIVER)
    assert nvml.troubles == ["nvmlInit: AttributeError"]


def test_an_impossible_size_is_none() -> None:
    nvml = opened(FakeNvml([Gpu(0, {7: 2**64 - 1, 8: -1, 9: None})]))
    assert nvml.processes("GPU-0") == {7: None, 8: None, 9: None}


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
