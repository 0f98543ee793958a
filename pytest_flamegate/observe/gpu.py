"""What was seen of NVIDIA devices while a workload ran: facts, and what follows from them.

Three parties must tell the same: the device nodes, the driver in the kernel, and NVML,
its library. A library alone is a file that anybody may have put there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from pytest_flamegate.core.json import Count, NonEmpty, Positive

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_DEVICES = 1024


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device of the NVIDIA driver; ``minor`` is the number that NVML knows it by."""

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
    """What one run did on one device, by looks at it.

    ``present`` counts the looks at which a process of the run held a compute context,
    ``busy`` those at which it computed (None where the device does not tell).
    ``memory_bytes`` is the most it held at one look (None likewise). ``seen_by`` is
    ``pid`` where NVML named a process of the run, ``change`` where it named one that this
    container cannot see, which came with the run and went with it.
    """

    uuid: str
    seen_by: Literal["pid", "change"]
    present: Count
    busy: Count | None
    memory_bytes: Count | None


@dataclass(frozen=True, slots=True)
class RunDevices:
    """One timed run, named as in ``Run``, and the devices it was seen on in ``looks`` looks."""

    pid: Positive
    started_ticks: Count | None
    looks: Count
    on: Annotated[tuple[DeviceUse, ...], Meta(max_length=_MAX_DEVICES)]

    @property
    def active(self) -> bool:
        """Whether it was seen to compute on a device."""
        return any(each.present and each.busy for each in self.on)

    @property
    def idle(self) -> bool:
        """Whether it was looked at, and computed on no device.

        Not so where it held one, and the device does not tell whether it computed.
        """
        held_untold = any(each.present and each.busy is None for each in self.on)
        return self.looks > 0 and not self.active and not held_untold


@dataclass(frozen=True, slots=True)
class ObservedDevices:
    """All that was seen of NVIDIA devices on the machine of the runs; empty where none is.

    ``control`` says whether the control node is there. ``kernel_driver`` is the version
    that the kernel tells, ``nvml_driver`` the one that NVML tells, ``nvml`` its own.
    ``troubles`` are what could not be read, each as ``what: error``, errors by NVML's own
    names. NVML is asked for nothing unless nodes and kernel driver are there.
    """

    nodes: Annotated[tuple[DeviceNode, ...], Meta(max_length=_MAX_DEVICES)] = ()
    control: bool = False
    kernel_driver: str | None = None
    nvml_driver: str | None = None
    nvml: str | None = None
    devices: Annotated[tuple[GpuDevice, ...], Meta(max_length=_MAX_DEVICES)] = ()
    runs: tuple[RunDevices, ...] = ()
    troubles: Annotated[tuple[str, ...], Meta(max_length=64)] = ()

    def missing(self) -> Iterator[str]:
        """Yield a sentence for each thing without which no GPU can have computed."""
        if not self.nodes:
            yield "There was no device node /dev/nvidia*."
        elif not self.control:
            yield "There was no control node /dev/nvidiactl."
        if self.kernel_driver is None:
            yield "The kernel had no NVIDIA driver."
        elif self.nodes and self.control:
            yield from self._library()

    def _library(self) -> Iterator[str]:
        told = f" ({self.troubles[0]})" if self.troubles else ""
        if self.nvml is None or self.nvml_driver is None:
            yield f"NVML, the driver's library, told no version{told}."
        elif not self.agrees:
            yield (
                f"The kernel's driver is {self.kernel_driver}, and NVML {self.nvml} tells of "
                f"{self.nvml_driver}."
            )
        elif not self.devices:
            yield f"NVML told of no device{told}."

    @property
    def agrees(self) -> bool:
        """Whether kernel and library are of one driver.

        NVML's own version holds the driver's behind a number of CUDA (12.550.54.15).
        """
        if self.kernel_driver is None or self.nvml is None:
            return False
        branch = self.kernel_driver.partition(".")[0]
        return self.nvml_driver == self.kernel_driver and branch in self.nvml.split(".")[:2]

    def contradictions(self) -> Iterator[str]:
        """Yield a sentence for each pair of facts that cannot both be true."""
        uuids = {device.uuid for device in self.devices}
        minors = {node.minor for node in self.nodes}
        if self.devices and not self.agrees:
            yield "Devices are told of by a library that is not of the kernel's driver."
        if len(uuids) < len(self.devices):
            yield "Two devices have one UUID."
        if len({device.minor for device in self.devices} & minors) < len(self.devices):
            yield f"There are {len(self.devices)} devices on {len(minors)} device nodes."
        memory = {device.uuid: device.memory_bytes for device in self.devices}
        for run in self.runs:
            for on in run.on:
                if on.uuid not in uuids:
                    yield f"The run of process {run.pid} was on a device that is not there."
                elif (on.memory_bytes or 0) > memory[on.uuid]:
                    yield f"The run of process {run.pid} held more memory than its device has."
                if not (on.busy or 0) <= on.present <= run.looks:
                    yield f"The run of process {run.pid} was seen more often than looked at."
