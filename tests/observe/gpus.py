"""A machine with NVIDIA GPUs, as a test wants it: the kernel's files, nodes, and NVML's package."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytest_flamegate.observe.gpu import NvidiaDriver

DRIVER = "550.54.15"
MAJOR = 195
GIB = 2**30


class NVMLError(Exception):
    """As in NVML's package: the errors are distinguished by their classes."""


class NotFoundError(NVMLError):
    pass


def nvml_error(name: str) -> NVMLError:
    error: NVMLError = type(f"NVMLError_{name}", (NVMLError,), {})()
    return error


@dataclass
class Gpu:
    """One GPU: its processes with their bytes, who of them computes, and how much all do."""

    minor: int = 0
    processes: dict[int, int | None] = field(default_factory=dict)
    busy: set[int] = field(default_factory=set)
    busy_pct: int = 0

    @property
    def uuid(self) -> str:
        return f"GPU-{self.minor}"


@dataclass
class FakeNvml:
    """The package ``pynvml`` over some GPUs; ``raises`` names the error of a function."""

    gpus: list[Gpu] = field(default_factory=list)
    driver: str = DRIVER
    version: str = f"12.{DRIVER}"
    raises: dict[str, Exception] = field(default_factory=dict)
    NVMLError_NotFound: type[NVMLError] = NotFoundError
    _clock_us: int = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            if name in self.raises:
                raise self.raises[name]
            return self.functions()[name.removeprefix("nvml")](*arguments)

        return call

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {
            "Init": lambda: None,
            "SystemGetDriverVersion": lambda: self.driver,
            "SystemGetNVMLVersion": self.version.encode,
            "DeviceGetCount": lambda: len(self.gpus),
            "DeviceGetHandleByIndex": lambda at: self.gpus[at],
            "DeviceGetUUID": lambda gpu: gpu.uuid,
            "DeviceGetName": lambda _: "NVIDIA H100 80GB HBM3",
            "DeviceGetMinorNumber": lambda gpu: gpu.minor,
            "DeviceGetMemoryInfo": lambda _: SimpleNamespace(total=80 * GIB),
            "DeviceGetComputeRunningProcesses": lambda gpu: [
                SimpleNamespace(pid=p, usedGpuMemory=size) for p, size in gpu.processes.items()
            ],
            "DeviceGetProcessUtilization": self.list_busy,
            "DeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=gpu.busy_pct),
        }

    def list_busy(self, gpu: Gpu, _: int) -> list[Any]:
        self._clock_us += 1
        if not gpu.busy:
            raise NotFoundError
        return [SimpleNamespace(pid=p, smUtil=9, timeStamp=self._clock_us) for p in gpu.busy]


def kernel(
    root: Path,
    *,
    nodes: dict[str, tuple[int, int] | None] | None = None,
    driver: str | None = DRIVER,
    devices: str = f"{MAJOR} nvidia\n{MAJOR} nvidiactl\n",
    container: bool = False,
) -> NvidiaDriver:
    """Write the kernel's files below ``root``.

    ``nodes`` are files of ``/dev``, each with its major and minor number as a character
    device, None as a plain file. ``driver`` None is a kernel without the driver.
    """
    if nodes is None:
        nodes = {"nvidia0": (MAJOR, 0), "nvidiactl": (MAJOR, 255)}
    dev, proc = root / "dev", root / "proc"
    dev.mkdir()
    (proc / "driver" / "nvidia").mkdir(parents=True)
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to(f"pid:[{4026532999 if container else 4026531836}]")
    heading = "Character devices:\n  1 mem\n"
    (proc / "devices").write_text(f"{heading}{devices if driver else ''}\nBlock devices:\n")
    if driver is not None:
        (proc / "driver" / "nvidia" / "version").write_text(
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Mar  5 22:23:56 UTC\n"
            "GCC version:  gcc version 12.2.0\n"
        )
    for name in nodes:
        (dev / name).touch()

    def look(path: Path) -> os.stat_result:
        numbers = nodes.get(path.name)
        found = os.lstat(path)
        if numbers is None:
            return found
        # Only root can make a device, so the kernel's answer is made up.
        values = [stat.S_IFCHR | 0o666, *list(found)[1:]]
        return os.stat_result(values, {"st_rdev": os.makedev(*numbers)})

    return NvidiaDriver(dev, proc, look)
