"""NVIDIA devices: the facts about them, the conclusions, and the readers of driver and NVML.

Three sources must agree: the device nodes, the driver in the kernel, and NVML, its library. A
library alone is a file that any user may have put there.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from pytest_flamegate.core.files import read_system_text
from pytest_flamegate.core.json import Count, NonEmpty, Positive

_MAX_DEVICES = 1024
_CONTROL = "nvidiactl"
_NODE = re.compile(r"nvidia[0-9]{1,4}")
_DRIVERS = frozenset({"nvidia", "nvidia-frontend", _CONTROL})
"""Names of the driver in ``/proc/devices``, over the years."""
_VERSION = re.compile(r"\bKernel Module(?: for \S+)?\s+([0-9]+(?:\.[0-9]+)+)")
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's own constant: in other namespaces process ids are not those of NVML."""
_MAX_TEXT = 200
_MAX_TROUBLES = 16
_MAX_BYTES = 2**63 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device of the NVIDIA driver; ``minor`` is its number in NVML."""

    path: str
    minor: Count


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU, as NVML describes it."""

    uuid: NonEmpty
    name: str
    minor: Count
    memory_bytes: Count


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One run's use of one device, in inspections ("looks") during the run.

    Attributes:
        seen_by: ``pid`` if NVML named a process of the run; ``change`` if it named one that this
            container cannot see, which came and went with the run.
        present: The inspections at which a process of the run held a compute context.
        busy: Those at which it computed; None if the device does not report that.
        memory_bytes: The most memory it held at one inspection; None if not reported.
    """

    uuid: str
    seen_by: Literal["pid", "change"]
    present: Count
    busy: Count | None
    memory_bytes: Count | None


@dataclass(frozen=True, slots=True)
class RunDevices:
    """One timed run, identified as in ``Run``, and its devices in ``looks`` inspections."""

    pid: Positive
    started_ticks: Count | None
    looks: Count
    on: Annotated[tuple[DeviceUse, ...], Meta(max_length=_MAX_DEVICES)]

    @property
    def active(self) -> bool:
        """Whether the run was observed to compute on a device."""
        return any(use.present and use.busy for use in self.on)

    @property
    def idle(self) -> bool:
        """Whether the run was inspected and computed on no device.

        False if it held a device that does not report whether it computes.
        """
        is_unknown = any(use.present and use.busy is None for use in self.on)
        return self.looks > 0 and not self.active and not is_unknown


@dataclass(frozen=True, slots=True)
class ObservedDevices:
    """All facts about NVIDIA devices on the machine of the runs; empty if there is none.

    Attributes:
        control: Whether the control node exists.
        kernel_driver: The driver's version as the kernel reports it.
        nvml_driver: The driver's version as NVML reports it.
        nvml: NVML's own version.
        troubles: Calls that failed, each as ``call: error`` by NVML's own names. NVML is asked
            only if nodes and kernel driver exist.
    """

    nodes: Annotated[tuple[DeviceNode, ...], Meta(max_length=_MAX_DEVICES)] = ()
    control: bool = False
    kernel_driver: str | None = None
    nvml_driver: str | None = None
    nvml: str | None = None
    devices: Annotated[tuple[GpuDevice, ...], Meta(max_length=_MAX_DEVICES)] = ()
    runs: tuple[RunDevices, ...] = ()
    troubles: Annotated[tuple[str, ...], Meta(max_length=64)] = ()

    def find_missing(self) -> Iterator[str]:
        """Yield a sentence for each missing thing without which no GPU can have computed."""
        if not self.nodes:
            yield "There was no device node /dev/nvidia*."
        elif not self.control:
            yield "There was no control node /dev/nvidiactl."
        if self.kernel_driver is None:
            yield "The kernel had no NVIDIA driver."
        elif self.nodes and self.control:
            trouble = f" ({self.troubles[0]})" if self.troubles else ""
            if self.nvml is None or self.nvml_driver is None:
                yield f"NVML, the driver's library, reported no version{trouble}."
            elif not self.agrees:
                yield (
                    f"The kernel's driver is {self.kernel_driver}, and NVML {self.nvml} reports "
                    f"{self.nvml_driver}."
                )
            elif not self.devices:
                yield f"NVML reported no device{trouble}."

    @property
    def agrees(self) -> bool:
        """Whether kernel and library belong to one driver.

        NVML's own version is the driver's after a number of CUDA (12.550.54.15).
        """
        if self.kernel_driver is None or self.nvml is None:
            return False
        branch = self.kernel_driver.partition(".")[0]
        return self.nvml_driver == self.kernel_driver and branch in self.nvml.split(".")[:2]

    def find_contradictions(self) -> Iterator[str]:
        """Yield a sentence for each pair of facts that cannot both be true."""
        uuids = {device.uuid for device in self.devices}
        minors = {node.minor for node in self.nodes}
        if self.devices and not self.agrees:
            yield "Devices are reported by a library that does not belong to the kernel's driver."
        if len(uuids) < len(self.devices):
            yield "Two devices have one UUID."
        if len({device.minor for device in self.devices} & minors) < len(self.devices):
            yield f"There are {len(self.devices)} devices on {len(minors)} device nodes."
        memory = {device.uuid: device.memory_bytes for device in self.devices}
        for run in self.runs:
            for use in run.on:
                if use.uuid not in uuids:
                    yield f"The run of process {run.pid} was on a device that does not exist."
                elif (use.memory_bytes or 0) > memory[use.uuid]:
                    yield f"The run of process {run.pid} held more memory than its device has."
                if not (use.busy or 0) <= use.present <= run.looks:
                    yield f"The run of process {run.pid} was observed more often than inspected."


@dataclass(frozen=True, slots=True)
class NvidiaDriver:
    """The driver as the kernel shows it. ``stat_file`` replaces ``lstat`` in tests."""

    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    stat_file: Callable[[Path], os.stat_result] = os.lstat

    def nodes(self) -> tuple[DeviceNode, ...]:
        """Return the driver's device nodes, one for each minor number."""
        try:
            names = sorted(each.name for each in self.dev.iterdir() if _NODE.fullmatch(each.name))
        except OSError:
            return ()
        majors = self._read_majors() if names else frozenset()
        found: dict[int, DeviceNode] = {}
        for name in names:
            minor = self._read_minor(name, majors)
            if minor is not None:
                found.setdefault(minor, DeviceNode(f"/dev/{name}", minor))
        return tuple(found.values())

    def has_control(self) -> bool:
        """Return whether the control node exists."""
        return self._read_minor(_CONTROL, self._read_majors()) is not None

    def version(self) -> str | None:
        """Return the version of the loaded driver; None if there is none."""
        match = _VERSION.search(read_system_text(self.proc / "driver/nvidia/version"))
        return match[1] if match is not None else None

    def shares_pids(self) -> bool:
        """Return whether process ids here are those of the machine, which NVML reports."""
        try:
            return str((self.proc / "self/ns/pid").readlink()) == _FIRST_NAMESPACE
        except OSError:
            return False

    def _read_minor(self, name: str, majors: frozenset[int]) -> int | None:
        # A plain file or a link of that name is not a device.
        try:
            found = self.stat_file(self.dev / name)
        except OSError:
            return None
        if not stat.S_ISCHR(found.st_mode) or os.major(found.st_rdev) not in majors:
            return None
        return os.minor(found.st_rdev)

    def _read_majors(self) -> frozenset[int]:
        rows = (line.split() for line in read_system_text(self.proc / "devices").splitlines())
        return frozenset(
            int(row[0]) for row in rows if len(row) == 2 and row[1] in _DRIVERS and row[0].isdigit()
        )


def import_nvml() -> Any:
    """Import NVML's package, of the extra ``gpu``; raises ImportError without it."""
    return import_module("pynvml")


@dataclass(slots=True)
class Nvml:
    """A session with NVML. A value that it does not report is None, with a line in ``troubles``.

    Processes are reported by the machine's own process ids.
    """

    importing: Callable[[], Any] = import_nvml
    driver: str | None = None
    version: str | None = None
    devices: tuple[GpuDevice, ...] = ()
    troubles: list[str] = field(default_factory=list)
    _module: Any = None
    _handles: dict[str, Any] = field(default_factory=dict)
    _last_us: dict[str, int] = field(default_factory=dict)

    def open(self, driver: str | None) -> None:
        """Read the versions, and the devices if the library belongs to the kernel's ``driver``.

        A library of another driver is either broken or not NVIDIA's.
        """
        self._module = self._call("import", self.importing)
        if self._module is None or not self._call(
            "nvmlInit", lambda: self._module.nvmlInit() or True
        ):
            return
        self.driver = self._call("nvmlSystemGetDriverVersion", partial(self._text, "DriverVersion"))
        self.version = self._call("nvmlSystemGetNVMLVersion", partial(self._text, "NVMLVersion"))
        if self.driver is None or self.driver != driver:
            return
        count = self._call("nvmlDeviceGetCount", lambda: int(self._module.nvmlDeviceGetCount()))
        found = [self._call("nvmlDevice", partial(self._device, at)) for at in range(count or 0)]
        self.devices = tuple(each for each in found if each is not None)

    def processes(self, uuid: str) -> dict[int, int | None] | None:
        """Return the compute processes on a device, each with the bytes it holds."""

        def read() -> dict[int, int | None]:
            found = self._module.nvmlDeviceGetComputeRunningProcesses(self._handles[uuid])
            return {int(each.pid): _parse_bytes(each.usedGpuMemory) for each in found}

        return self._call("nvmlDeviceGetComputeRunningProcesses", read)

    def busy(self, uuid: str) -> set[int] | None:
        """Return the processes that computed since the previous call."""

        def read() -> set[int]:
            since_us = self._last_us.get(uuid, 0)
            try:
                found = self._module.nvmlDeviceGetProcessUtilization(self._handles[uuid], since_us)
            except self._module.NVMLError_NotFound:
                return set()  # no sample since then
            new = [each for each in found if int(each.timeStamp) > since_us]
            self._last_us[uuid] = max((int(each.timeStamp) for each in new), default=since_us)
            return {int(each.pid) for each in new if int(each.smUtil) > 0}

        return self._call("nvmlDeviceGetProcessUtilization", read)

    def busy_pct(self, uuid: str) -> int | None:
        """Return the percentage of the last sample period in which the device computed."""

        def read() -> int:
            return int(self._module.nvmlDeviceGetUtilizationRates(self._handles[uuid]).gpu)

        return self._call("nvmlDeviceGetUtilizationRates", read)

    def _text(self, name: str) -> str:
        return _clean_text(getattr(self._module, f"nvmlSystemGet{name}")())

    def _device(self, at: int) -> GpuDevice:
        handle = self._module.nvmlDeviceGetHandleByIndex(at)
        uuid = _clean_text(self._module.nvmlDeviceGetUUID(handle))
        self._handles[uuid] = handle
        return GpuDevice(
            uuid=uuid,
            name=_clean_text(self._module.nvmlDeviceGetName(handle)),
            minor=int(self._module.nvmlDeviceGetMinorNumber(handle)),
            memory_bytes=int(self._module.nvmlDeviceGetMemoryInfo(handle).total),
        )

    def _call(self, name: str, read: Callable[[], T]) -> T | None:
        # The library may raise anything, also one that is not NVIDIA's: the run goes on.
        try:
            return read()
        except Exception as error:
            trouble = f"{name}: {type(error).__name__[:80]}"
            if trouble not in self.troubles and len(self.troubles) < _MAX_TROUBLES:
                self.troubles.append(trouble)
            return None


def _clean_text(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "".join(letter for letter in text if letter.isprintable())[:_MAX_TEXT]


def _parse_bytes(value: object) -> int | None:
    """Return a size; NVML reports a missing one as None or as the largest number there is."""
    return value if isinstance(value, int) and 0 <= value < _MAX_BYTES else None
