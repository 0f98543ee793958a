"""What the kernel shows of GPUs: its own nodes, and nothing that only looks like one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.observe.gpu import DeviceNode, NvidiaDriver
from tests.observe.gpus import DRIVER, MAJOR, kernel

CONTROL = {"nvidiactl": (MAJOR, 255)}
FIRST = DeviceNode("/dev/nvidia0", 0)


@pytest.mark.parametrize(
    ("nodes", "seen", "control"),
    [
        ({}, (), False),
        ({"nvidia0": (MAJOR, 0), **CONTROL}, (FIRST,), True),
        ({"nvidia0": (MAJOR, 0)}, (FIRST,), False),
        ({"nvidia0": None, **CONTROL}, (), True),
        ({"nvidia0": (MAJOR, 0), "nvidiactl": None}, (FIRST,), False),
        ({"nvidia0": (1, 3), **CONTROL}, (), True),
        ({"nvidia0": (MAJOR, 0), "nvidia1": (MAJOR, 0)}, (FIRST,), False),
        ({"nvidia3": (MAJOR, 3), **CONTROL}, (DeviceNode("/dev/nvidia3", 3),), True),
        ({"nvidia-uvm": (MAJOR, 0), "nvidiaX": (MAJOR, 1), **CONTROL}, (), True),
    ],
    ids=[
        "none",
        "one",
        "without its control node",
        "a plain file",
        "a plain control node",
        "another device under its name",
        "one device under two names",
        "the fourth alone, as in a container",
        "other files",
    ],
)
def test_only_the_drivers_own_nodes_count(
    nodes: dict[str, Any], seen: tuple[DeviceNode, ...], control: bool, tmp_path: Path
) -> None:
    shown = kernel(tmp_path, nodes=nodes)
    assert shown.nodes() == seen
    assert shown.has_control() == control


def test_a_link_is_no_device(tmp_path: Path) -> None:
    shown = kernel(tmp_path, nodes={}, devices="1 nvidia\n")
    (tmp_path / "dev" / "nvidia0").symlink_to("/dev/null")  # a character device, of major 1
    assert shown.nodes() == ()


def test_nodes_without_a_driver_are_files(tmp_path: Path) -> None:
    shown = kernel(tmp_path, driver=None)
    assert shown.nodes() == ()
    assert not shown.has_control()
    assert shown.version() is None


@pytest.mark.parametrize("row", ["195 nvidia-frontend", "195 nvidia", "507 nvidiactl"])
def test_the_driver_is_known_by_all_its_names(row: str, tmp_path: Path) -> None:
    major = int(row.split()[0])
    shown = kernel(tmp_path, nodes={"nvidia0": (major, 0)}, devices=f"{row}\n")
    assert shown.nodes() == (FIRST,)


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
        ("", None),
    ],
)
def test_the_drivers_version_is_read(text: str, version: str | None, tmp_path: Path) -> None:
    shown = kernel(tmp_path)
    (tmp_path / "proc" / "driver" / "nvidia" / "version").write_text(text)
    assert shown.version() == version


def test_process_ids_are_the_machines_outside_of_containers_only(tmp_path: Path) -> None:
    for name, container in (("host", False), ("container", True)):
        (tmp_path / name).mkdir()
        assert kernel(tmp_path / name, container=container).shares_pids() != container
    assert not NvidiaDriver(tmp_path, tmp_path).shares_pids()


def test_a_place_that_is_not_there_shows_nothing(tmp_path: Path) -> None:
    nowhere = NvidiaDriver(tmp_path / "dev", tmp_path / "proc")
    assert (nowhere.nodes(), nowhere.has_control(), nowhere.version()) == ((), False, None)
