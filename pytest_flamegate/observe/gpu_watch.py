"""Inspect NVIDIA devices during the runs of a workload: who holds one, and who computes."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pytest_flamegate.core import clocks
from pytest_flamegate.core.process_system import find_descendants
from pytest_flamegate.observe import gpu
from pytest_flamegate.observe.observation import Run

INTERVAL_S = 0.2
"""Between two inspections of a program; each takes some milliseconds of one of our cores."""
_JOIN_S = 5.0


@dataclass(slots=True)
class _WatchedRun:
    """A run and its use of each device so far; ``pids`` are processes that only NVML can see."""

    pid: int
    started_ticks: int | None
    looks: int = 0
    uses: dict[str, gpu.DeviceUse] = field(default_factory=dict)
    pids: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add_use(
        self,
        uuid: str,
        own: set[int],
        tree: set[int],
        held: Mapping[int, int | None],
        *,
        busy: bool | None,
    ) -> None:
        use = self.uses.get(uuid) or gpu.DeviceUse(uuid, "pid", 0, None, None)
        self.pids[uuid] |= own - tree
        sizes = [size for pid in own if (size := held[pid]) is not None]
        self.uses[uuid] = gpu.DeviceUse(
            uuid,
            "change" if self.pids[uuid] else "pid",
            use.present + 1,
            use.busy if busy is None else (use.busy or 0) + busy,
            max(use.memory_bytes or 0, sum(sizes)) if sizes else use.memory_bytes,
        )

    def freeze(self, still_there: set[int]) -> gpu.RunDevices:
        """Return the facts of a run that is over: a process still on a device was not its own."""
        own = [use for uuid, use in sorted(self.uses.items()) if not self.pids[uuid] & still_there]
        return gpu.RunDevices(self.pid, self.started_ticks, self.looks, tuple(own))


class DeviceWatch:
    """Inspects the devices during the runs of one workload."""

    def __init__(
        self, driver: gpu.NvidiaDriver | None = None, importing: Callable[[], Any] = gpu.import_nvml
    ) -> None:
        self._driver = driver if driver is not None else gpu.NvidiaDriver()
        self._importing = importing
        self._runs: list[_WatchedRun] = []
        self._open: list[_WatchedRun] = []
        self._owners: dict[int, _WatchedRun | None] = {}
        """In a container: the run that each process of NVML's belongs to, by when it came."""

    def note_present(self) -> None:
        """Note the processes on the devices before a run starts: none of them is the run's."""
        if self.has_device:
            self._open = [
                run for run in self._open if clocks.read_start_ticks(run.pid) == run.started_ticks
            ]
            for processes in self._read_processes().values():
                for pid in processes:
                    self._owners.setdefault(pid, None)

    def begin(self, pid: int) -> None:
        """Begin to inspect the run of ``pid``, which has loaded."""
        if self.has_device:
            run = _WatchedRun(pid, clocks.read_start_ticks(pid))
            self._open.append(run)
            self._inspect(run)

    def inspect(self, pid: int) -> None:
        """Inspect the run of ``pid`` once."""
        for run in self._open:
            if run.pid == pid:
                self._inspect(run)

    def end(self, pid: int) -> None:
        """Inspect the run of ``pid``, which is still alive, once more and store its facts."""
        self.inspect(pid)
        self._store(pid)

    @contextlib.contextmanager
    def watch_program(self) -> Iterator[Callable[[int], None] | None]:
        """Inspect a program while it runs: call the yielded function with its process id.

        A thread of this process inspects, so that reading tokens is not delayed. Yields None if
        there is no device.
        """
        if not self.has_device:
            yield None
            return
        self.note_present()
        over, threads = threading.Event(), list[threading.Thread]()

        def began(pid: int) -> None:
            def watch() -> None:
                self.begin(pid)
                while not over.wait(INTERVAL_S):
                    self.inspect(pid)
                self._store(pid)

            threads.append(threading.Thread(target=watch, name="flamegate-devices", daemon=True))
            threads[0].start()

        try:
            yield began
        finally:
            over.set()
            for thread in threads:
                # A wedged device may hold a call for ever; the run does not wait for it.
                thread.join(_JOIN_S)

    def observe(self, runs: Iterable[Run]) -> gpu.ObservedDevices:
        """Return the facts about the devices, and about those of ``runs`` that were inspected."""
        if not self.has_device:
            return self._facts
        wanted = {(run.pid, run.started_ticks) for run in runs}
        still_there = {pid for processes in self._read_processes().values() for pid in processes}
        return replace(
            self._facts,
            nvml_driver=self._nvml.driver,
            nvml=self._nvml.version,
            devices=self._nvml.devices,
            runs=tuple(
                run.freeze(still_there)
                for run in self._runs
                if (run.pid, run.started_ticks) in wanted
            ),
            troubles=tuple(self._nvml.troubles),
        )

    @cached_property
    def _facts(self) -> gpu.ObservedDevices:
        """The facts that need no NVML."""
        nodes, driver = self._driver.nodes(), self._driver
        return gpu.ObservedDevices(nodes, bool(nodes) and driver.has_control(), driver.version())

    @property
    def has_device(self) -> bool:
        """Whether this machine has NVIDIA devices whose use can be read."""
        return self._facts.control and self._facts.kernel_driver is not None

    @cached_property
    def _nvml(self) -> gpu.Nvml:
        nvml = gpu.Nvml(self._importing)
        nvml.open(self._facts.kernel_driver)
        return nvml

    def _read_processes(self) -> dict[str, Mapping[int, int | None]]:
        found = {each.uuid: self._nvml.processes(each.uuid) for each in self._nvml.devices}
        return {uuid: processes for uuid, processes in found.items() if processes is not None}

    def _store(self, pid: int) -> None:
        for run in [run for run in self._open if run.pid == pid]:
            self._open.remove(run)
            self._runs.append(run)

    def _inspect(self, run: _WatchedRun) -> None:
        devices = self._read_processes()
        if not devices:
            return
        run.looks += 1
        tree = find_descendants(run.pid)
        for uuid, processes in devices.items():
            own = {pid for pid in processes if self._owns(run, pid, tree)}
            busy = self._is_busy(uuid, own, set(processes))
            if busy and run.looks == 1:
                busy = False  # all work until the first inspection was the load
            if own:
                run.add_use(uuid, own, tree, processes, busy=busy)

    def _owns(self, run: _WatchedRun, pid: int, tree: set[int]) -> bool:
        if self._driver.shares_pids():
            return pid in tree
        # In a container a process of the machine may have the number of one in here by chance:
        # one that was there before the run is not the run's. One that comes while two runs are
        # open belongs to neither, unless one of them has only just begun.
        if pid not in self._owners:
            is_alone = self._open == [run] or run.looks == 1
            self._owners[pid] = run if is_alone else None
        return self._owners[pid] is run

    def _is_busy(self, uuid: str, own: set[int], all_: set[int]) -> bool | None:
        """Return whether the run computed; None if neither process nor device reports it."""
        by_process, pct = self._nvml.busy(uuid), self._nvml.busy_pct(uuid)
        if by_process is not None and own & by_process:
            return True
        # The device's work is the run's only if no other process is on it.
        if pct is not None and own == all_:
            return pct > 0
        return None if by_process is None else False
