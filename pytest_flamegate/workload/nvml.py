"""NVML through its own package: every call may fail, and none of them disturbs a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_flamegate.workload.device import Device

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_LONGEST = 200
_MOST_TROUBLES = 16
_MAX_BYTES = 2**63 - 1


def load() -> Any:
    """Import NVML's package, of the extra ``gpu``; ImportError without it."""
    return import_module("pynvml")


@dataclass(slots=True)
class Nvml:
    """One conversation with NVML. What it does not tell is None, with the reason in ``troubles``.

    A device's processes are told by the machine's own process ids.
    """

    importing: Callable[[], Any] = load
    driver: str | None = None
    version: str | None = None
    devices: tuple[Device, ...] = ()
    troubles: list[str] = field(default_factory=list)
    _module: Any = None
    _handles: dict[str, Any] = field(default_factory=dict)
    _last_us: dict[str, int] = field(default_factory=dict)

    def open(self, driver: str | None) -> None:
        """Begin, and read the versions; the devices only of a library of the kernel's ``driver``.

        A library of another driver is either broken or not NVIDIA's.
        """
        self._module = self._try("import", self.importing)
        if self._module is None or self._try("nvmlInit", self._init) is None:
            return
        self.driver = self._try("nvmlSystemGetDriverVersion", lambda: self._word("DriverVersion"))
        self.version = self._try("nvmlSystemGetNVMLVersion", lambda: self._word("NVMLVersion"))
        if self.driver is None or self.driver != driver:
            return
        count = self._try("nvmlDeviceGetCount", lambda: int(self._module.nvmlDeviceGetCount()))
        seen = [self._try("nvmlDevice", partial(self._device, at)) for at in range(count or 0)]
        self.devices = tuple(each for each in seen if each is not None)

    def processes(self, uuid: str) -> dict[int, int | None] | None:
        """Return the compute processes on a device, each with the bytes it holds."""

        def ask() -> dict[int, int | None]:
            told = self._module.nvmlDeviceGetComputeRunningProcesses(self._handles[uuid])
            return {int(each.pid): _bytes(each.usedGpuMemory) for each in told}

        return self._try("nvmlDeviceGetComputeRunningProcesses", ask)

    def busy(self, uuid: str) -> set[int] | None:
        """Return the processes that computed since the last time this was asked."""

        def ask() -> set[int]:
            since_us = self._last_us.get(uuid, 0)
            try:
                told = self._module.nvmlDeviceGetProcessUtilization(self._handles[uuid], since_us)
            except self._module.NVMLError_NotFound:
                return set()  # no sample since then
            new = [each for each in told if int(each.timeStamp) > since_us]
            self._last_us[uuid] = max((int(each.timeStamp) for each in new), default=since_us)
            return {int(each.pid) for each in new if int(each.smUtil) > 0}

        return self._try("nvmlDeviceGetProcessUtilization", ask)

    def busy_pct(self, uuid: str) -> int | None:
        """Return the share of the last sample period in which the device computed, in percent."""

        def ask() -> int:
            return int(self._module.nvmlDeviceGetUtilizationRates(self._handles[uuid]).gpu)

        return self._try("nvmlDeviceGetUtilizationRates", ask)

    def _init(self) -> bool:
        self._module.nvmlInit()
        return True

    def _word(self, what: str) -> str:
        return _text(getattr(self._module, f"nvmlSystemGet{what}")())

    def _device(self, at: int) -> Device:
        handle = self._module.nvmlDeviceGetHandleByIndex(at)
        uuid = _text(self._module.nvmlDeviceGetUUID(handle))
        self._handles[uuid] = handle
        return Device(
            uuid=uuid,
            name=_text(self._module.nvmlDeviceGetName(handle)),
            minor=int(self._module.nvmlDeviceGetMinorNumber(handle)),
            memory_bytes=int(self._module.nvmlDeviceGetMemoryInfo(handle).total),
        )

    def _try(self, what: str, ask: Callable[[], T]) -> T | None:
        # Whatever a library raises, and be it not NVIDIA's: the run goes on without it.
        try:
            return ask()
        except Exception as error:
            trouble = f"{what}: {type(error).__name__[:80]}"
            if trouble not in self.troubles and len(self.troubles) < _MOST_TROUBLES:
                self.troubles.append(trouble)
            return None


def _text(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "".join(letter for letter in text if letter.isprintable())[:_LONGEST]


def _bytes(value: object) -> int | None:
    """Return a size; NVML tells none as None, or as the largest number there is."""
    return value if isinstance(value, int) and 0 <= value < _MAX_BYTES else None
