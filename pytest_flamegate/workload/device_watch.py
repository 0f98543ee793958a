"""The observer's looks at NVIDIA devices, between a run's blocks and beside a program.

Where no device node is there nothing is asked, imported or started.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import psutil

from pytest_flamegate.workload import clocks, nvml
from pytest_flamegate.workload.device import DevicesSeen, OnDevice, RunOnDevices
from pytest_flamegate.workload.device_nodes import Kernel
from pytest_flamegate.workload.nvml import Nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_flamegate.workload.observation import Run

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
        return clocks.started_ticks(self.pid) == self.started_ticks


class Watch:
    """Looks at the devices for one workload; ``seen`` tells what was seen so far."""

    def __init__(
        self, kernel: Kernel | None = None, importing: Callable[[], Any] = nvml.load
    ) -> None:
        self._kernel = kernel if kernel is not None else Kernel()
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
            run = _Watched(pid, clocks.started_ticks(pid))
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

    def seen(self, runs: Iterable[Run]) -> DevicesSeen:
        """Return what was seen of the devices, and of those of ``runs`` that were looked at."""
        facts = DevicesSeen(
            nodes=self._nodes, control=self._control, kernel_driver=self._kernel.driver()
        )
        if not self._there:
            return facts
        wanted = {(run.pid, run.started_ticks) for run in runs}
        still = {pid for processes in self._processes().values() for pid in processes}
        return DevicesSeen(
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


def _frozen(run: _Watched, still: set[int]) -> RunOnDevices:
    """Return what was seen of a run that is over; who is still on a device was not of it."""
    return RunOnDevices(
        run.pid,
        run.started_ticks,
        run.looks,
        tuple(
            OnDevice(uuid, on.seen_by, on.present, on.busy, on.memory_bytes)
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
