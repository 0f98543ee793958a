"""What the kernel itself shows of NVIDIA devices: nodes with its own numbers, and its driver."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import psutil

from pytest_flamegate.core import clocks
from pytest_flamegate.observe.gpu import (
    DeviceNode,
    DeviceUse,
    GpuDevice,
    ObservedDevices,
    RunDevices,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_flamegate.observe.observation import Run


_CONTROL = "nvidiactl"
_NODE = re.compile(r"nvidia[0-9]{1,4}")
_DRIVERS = frozenset({"nvidia", "nvidia-frontend", _CONTROL})
"""What the driver calls itself in ``/proc/devices``, over the years."""
_VERSION = re.compile(r"\bKernel Module(?: for \S+)?\s+([0-9]+(?:\.[0-9]+)+)")
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's own constant: outside of it, process ids are not those that NVML tells."""


@dataclass(frozen=True, slots=True)
class NvidiaDriver:
    """Where the kernel is asked, and how a file is looked at."""

    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    look: Callable[[Path], os.stat_result] = os.lstat

    def nodes(self) -> tuple[DeviceNode, ...]:
        """Return the device nodes that are the driver's, one for each minor number."""
        try:
            names = sorted(each.name for each in self.dev.iterdir() if _NODE.fullmatch(each.name))
        except OSError:
            return ()
        majors = self._majors() if names else frozenset()
        found: dict[int, DeviceNode] = {}
        for name in names:
            minor = self._minor(name, majors)
            if minor is not None:
                found.setdefault(minor, DeviceNode(f"/dev/{name}", minor))
        return tuple(found.values())

    def control(self) -> bool:
        """Whether the control node is there."""
        return self._minor(_CONTROL, self._majors()) is not None

    def driver(self) -> str | None:
        """Return the version of the driver that is loaded, None where none is."""
        found = _VERSION.search(self._text("driver/nvidia/version"))
        return found[1] if found is not None else None

    def pids_are_nvmls(self) -> bool:
        """Whether process ids here are those of the machine, as NVML tells them."""
        try:
            return str((self.proc / "self/ns/pid").readlink()) == _FIRST_NAMESPACE
        except OSError:
            return False

    def _minor(self, name: str, majors: frozenset[int]) -> int | None:
        # A plain file or a link of that name is not a device, whoever made it.
        try:
            found = self.look(self.dev / name)
        except OSError:
            return None
        if not stat.S_ISCHR(found.st_mode) or os.major(found.st_rdev) not in majors:
            return None
        return os.minor(found.st_rdev)

    def _majors(self) -> frozenset[int]:
        rows = (line.split() for line in self._text("devices").splitlines())
        return frozenset(
            int(row[0]) for row in rows if len(row) == 2 and row[1] in _DRIVERS and row[0].isdigit()
        )

    def _text(self, name: str) -> str:
        try:
            return (self.proc / name).read_text("utf-8", "replace")[:65536]
        except OSError:
            return ""


T = TypeVar("T")
_LONGEST = 200
_MOST_TROUBLES = 16
_MAX_BYTES = 2**63 - 1


def import_nvml() -> Any:
    """Import NVML's package, of the extra ``gpu``; ImportError without it."""
    return import_module("pynvml")


@dataclass(slots=True)
class Nvml:
    """One conversation with NVML. What it does not tell is None, with the reason in ``troubles``.

    A device's processes are told by the machine's own process ids.
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

    def _device(self, at: int) -> GpuDevice:
        handle = self._module.nvmlDeviceGetHandleByIndex(at)
        uuid = _text(self._module.nvmlDeviceGetUUID(handle))
        self._handles[uuid] = handle
        return GpuDevice(
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


EVERY_S = 0.2
"""Between two looks beside a program: some milliseconds of a core of the observer's each."""
_ENOUGH_S = 5.0


@dataclass(slots=True)
class _On:
    """One run on one device so far."""

    seen_by: Literal["pid", "change"] = "pid"
    present: int = 0
    busy: int | None = None
    memory_bytes: int | None = None
    pids: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Watched:
    """One run so far."""

    pid: int
    started_ticks: int | None
    looks: int = 0
    on: dict[str, _On] = field(default_factory=dict)

    @property
    def name(self) -> tuple[int, int | None]:
        return self.pid, self.started_ticks

    @property
    def lives(self) -> bool:
        return clocks.read_start_ticks(self.pid) == self.started_ticks


class DeviceWatch:
    """Looks at the devices for one workload; ``seen`` tells what was seen so far."""

    def __init__(
        self, kernel: NvidiaDriver | None = None, importing: Callable[[], Any] = import_nvml
    ) -> None:
        self._kernel = kernel if kernel is not None else NvidiaDriver()
        self._importing = importing
        self._runs: list[_Watched] = []
        self._open: list[_Watched] = []
        self._owners: dict[int, _Watched | None] = {}
        """In a container: whose a process is that NVML tells of, by who ran when it came."""

    def before(self) -> None:
        """Note who is on the devices before a process starts: none of them is of its run."""
        if self._there:
            self._open = [run for run in self._open if run.lives]
            for processes in self._processes().values():
                for pid in processes:
                    self._owners.setdefault(pid, None)

    def begin(self, pid: int) -> None:
        """Begin to look at the run of ``pid``, which has loaded."""
        if self._there:
            run = _Watched(pid, clocks.read_start_ticks(pid))
            self._open.append(run)
            self._look(run)

    def look(self, pid: int) -> None:
        """Look at what the run of ``pid`` does on the devices."""
        for run in self._open:
            if run.pid == pid:
                self._look(run)

    def end(self, pid: int) -> None:
        """Look once more and keep what was seen of the run of ``pid``, which still lives."""
        self.look(pid)
        self._keep(pid)

    @contextlib.contextmanager
    def beside(self) -> Iterator[Callable[[int], None] | None]:
        """Look at a program while it runs: call what is yielded with its process id.

        Looks come from a thread of this process, so that reading tokens is not held up.
        """
        if not self._there:
            yield None
            return
        self.before()
        over, threads = threading.Event(), list[threading.Thread]()

        def began(pid: int) -> None:
            def watch() -> None:
                self.begin(pid)
                while not over.wait(EVERY_S):
                    self.look(pid)
                self._keep(pid)

            threads.append(threading.Thread(target=watch, name="flamegate-devices", daemon=True))
            threads[0].start()

        try:
            yield began
        finally:
            over.set()
            for thread in threads:
                # A wedged device may hold a call for ever; the run does not wait for it.
                thread.join(_ENOUGH_S)

    def seen(self, runs: Iterable[Run]) -> ObservedDevices:
        """Return what was seen of the devices, and of those of ``runs`` that were looked at."""
        facts = ObservedDevices(
            nodes=self._nodes, control=self._control, kernel_driver=self._kernel.driver()
        )
        if not self._there:
            return facts
        wanted = {(run.pid, run.started_ticks) for run in runs}
        still = {pid for processes in self._processes().values() for pid in processes}
        return ObservedDevices(
            nodes=facts.nodes,
            control=facts.control,
            kernel_driver=facts.kernel_driver,
            nvml_driver=self._nvml.driver,
            nvml=self._nvml.version,
            devices=self._nvml.devices,
            runs=tuple(_frozen(run, still) for run in self._runs if run.name in wanted),
            troubles=tuple(self._nvml.troubles),
        )

    @cached_property
    def _nodes(self) -> tuple[Any, ...]:
        return self._kernel.nodes()

    @cached_property
    def _control(self) -> bool:
        return bool(self._nodes) and self._kernel.control()

    @cached_property
    def _there(self) -> bool:
        return self._control and self._kernel.driver() is not None

    @cached_property
    def _nvml(self) -> Nvml:
        opened = Nvml(self._importing)
        opened.open(self._kernel.driver())
        return opened

    @cached_property
    def _names_pids(self) -> bool:
        return self._kernel.pids_are_nvmls()

    def _processes(self) -> dict[str, Mapping[int, int | None]]:
        told = {each.uuid: self._nvml.processes(each.uuid) for each in self._nvml.devices}
        return {uuid: processes for uuid, processes in told.items() if processes is not None}

    def _keep(self, pid: int) -> None:
        for run in [run for run in self._open if run.pid == pid]:
            self._open.remove(run)
            self._runs.append(run)

    def _look(self, run: _Watched) -> None:
        told = self._processes()
        if not told:
            return
        run.looks += 1
        tree = _tree(run.pid)
        for uuid, processes in told.items():
            own = {pid for pid in processes if self._owns(run, pid, tree)}
            busy = self._busy(uuid, own, set(processes))
            if busy and run.looks == 1:
                busy = False  # what was computed until then was the load
            if own:
                _count(run.on.setdefault(uuid, _On()), own, tree, processes, busy=busy)

    def _owns(self, run: _Watched, pid: int, tree: set[int]) -> bool:
        if self._names_pids:
            return pid in tree
        # A process of the machine may bear the number of one in here by chance: what was
        # there before the run is not the run's. What comes while two runs are open is
        # nobody's, but for the one that has only just begun.
        if pid not in self._owners:
            alone = self._open == [run] or run.looks == 1
            self._owners[pid] = run if alone else None
        return self._owners[pid] is run

    def _busy(self, uuid: str, own: set[int], all_: set[int]) -> bool | None:
        """Whether the run computed; None where neither process nor device tells."""
        by_process, pct = self._nvml.busy(uuid), self._nvml.busy_pct(uuid)
        if by_process is not None and own & by_process:
            return True
        # What a device does is the run's doing only where nobody else is on it.
        if pct is not None and own == all_:
            return pct > 0
        return None if by_process is None else False


def _count(
    on: _On,
    own: set[int],
    tree: set[int],
    processes: Mapping[int, int | None],
    *,
    busy: bool | None,
) -> None:
    on.present += 1
    if not own <= tree:
        on.seen_by = "change"
        on.pids |= own - tree
    if busy is not None:
        on.busy = (on.busy or 0) + busy
    held = [size for pid in own if (size := processes[pid]) is not None]
    if held:
        on.memory_bytes = max(on.memory_bytes or 0, sum(held))


def _frozen(run: _Watched, still: set[int]) -> RunDevices:
    """Return what was seen of a run that is over; who is still on a device was not of it."""
    return RunDevices(
        run.pid,
        run.started_ticks,
        run.looks,
        tuple(
            DeviceUse(uuid, on.seen_by, on.present, on.busy, on.memory_bytes)
            for uuid, on in sorted(run.on.items())
            if not on.pids & still
        ),
    )


def _tree(pid: int) -> set[int]:
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        below = []
    return {pid, *(process.pid for process in below)}
