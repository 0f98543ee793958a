"""A process on a device belongs to a run by its id, in containers by when it came and went."""

import importlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_flamegate.core import clocks, process
from pytest_flamegate.core.json import replace
from pytest_flamegate.observe import gpu_watch
from pytest_flamegate.observe.gpu import DeviceUse
from pytest_flamegate.observe.gpu_watch import DeviceWatch
from pytest_flamegate.observe.observation import Run
from tests.made import bundle
from tests.observe.gpus import DRIVER, GIB, MAJOR, FakeNvml, Gpu, kernel, nvml_error
from tests.observe.workloads import command_workload, forked, observer, sleepy

ELSEWHERE = 4_000_001
"""No process of this machine: beyond the largest number that the kernel gives."""
OTHER = 4_000_002


@pytest.fixture(scope="module")
def child() -> Iterator[process.Child]:
    started = process.start(["sleep", "600"])
    yield started
    started.end()


def run_of(pid: int) -> Run:
    return replace(bundle().evidence.runs[0], pid=pid, started_ticks=clocks.read_start_ticks(pid))


@dataclass
class Machine:
    """A machine with one GPU and a watch on it."""

    root: Path
    container: bool = False
    gpu: Gpu = field(default_factory=Gpu)
    raises: Mapping[str, Exception] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nvml = FakeNvml([self.gpu], raises=dict(self.raises))
        self.driver = kernel(self.root, container=self.container)
        self.watch = DeviceWatch(self.driver, lambda: self.nvml)

    def joins(self, *pids: int, busy: bool = True) -> None:
        """Let these processes hold a context from now on."""
        self.gpu.processes |= dict.fromkeys(pids, GIB)
        if busy:
            self.gpu.busy |= set(pids)

    def leave(self) -> None:
        self.gpu.processes.clear()
        self.gpu.busy.clear()

    def whole_run(self, pid: int) -> DeviceUse | None:
        """Watch one run in four inspections; return its use of the device."""
        self.watch.begin(pid)
        self.watch.inspect(pid)
        self.watch.inspect(pid)
        return self.over(pid)

    def over(self, pid: int) -> DeviceUse | None:
        self.watch.end(pid)
        (run,) = self.watch.observe([run_of(pid)]).runs
        return run.on[0] if run.on else None


@pytest.mark.parametrize("container", [False, True], ids=["host", "container"])
def test_a_run_is_known_by_its_id(container: bool, tmp_path: Path, child: process.Child) -> None:
    machine = Machine(tmp_path, container)
    machine.watch.note_present()
    machine.joins(child.pid)
    # The first inspection shows the load, which is not part of the run.
    assert machine.whole_run(child.pid) == DeviceUse("GPU-0", "pid", 4, 3, GIB)
    if not container:  # the child is a process below this one
        assert machine.whole_run(os.getpid()) == DeviceUse("GPU-0", "pid", 4, 3, GIB)


def test_on_the_host_others_are_not_the_run(tmp_path: Path, child: process.Child) -> None:
    machine = Machine(tmp_path)
    machine.watch.note_present()
    machine.joins(ELSEWHERE)
    machine.gpu.busy_pct = 100
    assert machine.whole_run(child.pid) is None
    machine.joins(child.pid, busy=False)
    assert machine.whole_run(os.getpid()) == DeviceUse("GPU-0", "pid", 4, 0, GIB)


@pytest.mark.parametrize("container", [False, True], ids=["host", "container"])
def test_a_process_present_before_is_not_the_runs(
    container: bool, tmp_path: Path, child: process.Child
) -> None:
    machine = Machine(tmp_path, container)
    # In a container even the run's own number: another process of the machine may have it.
    machine.joins(*([child.pid] if container else []), ELSEWHERE)
    machine.gpu.busy_pct = 100
    machine.watch.note_present()
    assert machine.whole_run(child.pid) is None


def test_in_a_container_what_comes_and_goes_is_a_run(tmp_path: Path, child: process.Child) -> None:
    machine = Machine(tmp_path, container=True)
    machine.joins(OTHER)
    machine.watch.note_present()
    machine.joins(ELSEWHERE)
    for step in (machine.watch.begin, machine.watch.inspect, machine.watch.end):
        step(child.pid)
    observed = machine.watch.observe([run_of(child.pid)])
    assert observed.runs[0].on == ()  # it is still there: it may not be of the run
    del machine.gpu.processes[ELSEWHERE]
    observed = machine.watch.observe([run_of(child.pid)])
    assert observed.runs[0].on == (DeviceUse("GPU-0", "change", 3, 2, GIB),)


def test_in_a_container_two_open_runs_own_no_newcomer(tmp_path: Path, child: process.Child) -> None:
    machine = Machine(tmp_path, container=True)
    watch, mine = machine.watch, os.getpid()
    watch.note_present()
    watch.begin(child.pid)
    watch.note_present()
    watch.begin(mine)
    machine.joins(ELSEWHERE)
    for pid in (child.pid, mine):
        watch.inspect(pid)
        watch.end(pid)
    machine.leave()
    assert [run.on for run in watch.observe([run_of(child.pid), run_of(mine)]).runs] == [(), ()]


def test_in_a_container_a_pair_owns_what_came_with_it(tmp_path: Path, child: process.Child) -> None:
    machine = Machine(tmp_path, container=True)
    watch, mine = machine.watch, os.getpid()
    for pid, theirs in ((child.pid, ELSEWHERE), (mine, OTHER)):
        watch.note_present()
        machine.joins(theirs)
        watch.begin(pid)
    machine.gpu.busy = {OTHER}
    for pid in (child.pid, mine):
        watch.end(pid)
    machine.leave()
    first, second = watch.observe([run_of(child.pid), run_of(mine)]).runs
    assert (first.on[0].busy, second.on[0].busy) == (0, 1)


@pytest.mark.parametrize(
    ("alone", "busy_pct", "busy"), [(True, 80, 3), (True, 0, 0), (False, 80, None)]
)
def test_the_devices_own_figure_counts_if_no_other_process_is_on_it(
    alone: bool, busy_pct: int, busy: int | None, tmp_path: Path, child: process.Child
) -> None:
    unsupported = {"nvmlDeviceGetProcessUtilization": nvml_error("NotSupported")}
    machine = Machine(tmp_path, raises=unsupported)
    machine.joins(child.pid, *(() if alone else [ELSEWHERE]))
    machine.gpu.busy_pct = busy_pct
    on = machine.whole_run(child.pid)
    assert on is not None
    assert (on.present, on.busy) == (4, busy)
    troubles = machine.watch.observe([]).troubles
    assert troubles == ("nvmlDeviceGetProcessUtilization: NVMLError_NotSupported",)


def test_a_device_that_names_no_process_was_not_inspected(tmp_path: Path) -> None:
    """A broken device disturbs no run."""
    failing = "nvmlDeviceGetComputeRunningProcesses"
    machine = Machine(tmp_path, raises={failing: nvml_error("GpuIsLost")})
    watched = forked(tmp_path, sleepy)
    watched.devices = machine.watch
    assert watched.run_timed(0.02).tokens
    devices = watched.observation().device
    assert devices is not None
    assert [(run.looks, run.on, run.idle, run.active) for run in devices.runs] == [
        (0, (), False, False)
    ]
    assert devices.troubles == (f"{failing}: NVMLError_GpuIsLost",)


def never() -> Any:
    raise AssertionError("NVML was asked")


@pytest.mark.parametrize(
    "shown", [{"nodes": {"nvidia0": (MAJOR, 0)}}, {"driver": None}], ids=["no control", "no driver"]
)
def test_without_a_device_no_library_is_asked_and_no_thread_started(
    shown: dict[str, Any], tmp_path: Path, child: process.Child
) -> None:
    watch = DeviceWatch(kernel(tmp_path, **shown), never)
    watch.note_present()
    watch.begin(child.pid)
    watch.end(child.pid)
    before = threading.active_count()
    with watch.watch_program() as began:
        assert began is None
        assert threading.active_count() == before
    observed = watch.observe([run_of(child.pid)])
    assert list(observed.find_missing())
    assert not list(observed.find_contradictions())
    assert (observed.devices, observed.runs, observed.troubles) == ((), (), ())


def test_a_missing_or_other_library_is_named(tmp_path: Path, child: process.Child) -> None:
    machine = Machine(tmp_path)
    machine.nvml.driver, machine.nvml.version = "560.28.03", "12.560.28.03"
    machine.joins(child.pid)
    machine.watch.begin(child.pid)
    machine.watch.end(child.pid)
    observed = machine.watch.observe([run_of(child.pid)])
    assert observed.devices == ()
    assert list(observed.find_missing()) == [
        f"The kernel's driver is {DRIVER}, and NVML 12.560.28.03 reports 560.28.03."
    ]
    watch = DeviceWatch(machine.driver, lambda: importlib.import_module("absent"))
    watch.note_present()
    assert list(watch.observe([]).find_missing()) == [
        "NVML, the driver's library, reported no version (import: ModuleNotFoundError)."
    ]


def join_children(machine: Machine) -> None:
    """Let NVML report all processes below this one, whenever it is asked."""
    read = FakeNvml.functions

    def functions() -> dict[str, Callable[..., Any]]:
        machine.leave()
        machine.joins(*(each.pid for each in psutil.Process().children(recursive=True)))
        return read(machine.nvml)

    machine.nvml.functions = functions  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", ["served", "program"])
def test_an_engine_on_a_gpu_is_observed_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(gpu_watch, "INTERVAL_S", 0.02)
    machine = Machine(tmp_path)
    join_children(machine)
    code = "import time\nfor i in range(4): print(i, end=' ', flush=True); time.sleep(0.2)"
    program = observer(command_workload(tmp_path, code, token_unit="word"))
    watched = program if kind == "program" else forked(tmp_path, sleepy)
    watched.devices = machine.watch
    runs = [watched.run_timed(0.02) for _ in range(2)]
    devices = watched.observation().device
    assert devices is not None
    assert [run.pid for run in devices.runs] == [run.pid for run in runs]
    assert all(run.active and run.on[0].seen_by == "pid" for run in devices.runs)
    assert not [*devices.find_missing(), *devices.find_contradictions()]
    assert "flamegate-devices" not in {thread.name for thread in threading.enumerate()}
