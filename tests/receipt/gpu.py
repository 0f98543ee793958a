"""Evidence of a machine with one GPU, and of a machine without: honest, forged and short."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pytest_flamegate.observe.gpu import (
    DeviceNode,
    DeviceUse,
    GpuDevice,
    ObservedDevices,
    RunDevices,
)
from tests.made import Bundle, bundle

DRIVER = "550.54.15"
UUID = "GPU-5e8a1c7b-1d0f-4c7e-9a55-0c2f1f6b7a8e"
GIB = 2**30
NOTHING = ObservedDevices()
GPU_KERNELS = {"sm80_xmma_gemm_f16": 0.9, "main_loop": 0.1}


def run_on_gpu(pid: int, ticks: int | None, **changes: Any) -> RunDevices:
    on = replace(DeviceUse(UUID, "pid", present=7, busy=6, memory_bytes=GIB), **changes)
    return RunDevices(pid, ticks, looks=7, on=(on,))


def seen(triple: Bundle, **changes: Any) -> ObservedDevices:
    """One GPU that every timed run of ``triple`` computed on."""
    facts = ObservedDevices(
        nodes=(DeviceNode("/dev/nvidia0", 0),),
        control=True,
        kernel_driver=DRIVER,
        nvml_driver=DRIVER,
        nvml=f"12.{DRIVER}",
        devices=(GpuDevice(UUID, "NVIDIA H100 80GB HBM3", 0, 80 * GIB),),
        runs=tuple(
            run_on_gpu(run.pid, run.started_ticks)
            for run in triple.evidence.runs
            if run.role == "timed"
        ),
    )
    return replace(facts, **changes)


def gpu_run(backend: str = "cuda", **changes: Any) -> Bundle:
    """An honest receipt of a program that computed on a GPU, its evidence changed."""
    shares = GPU_KERNELS if backend == "cuda" else {"matmul": 0.9, "main_loop": 0.1}
    triple = bundle(clock_scope="process", shares=shares).with_receipt(backend=backend)
    return triple.with_evidence(device=seen(triple, **changes))


def on_gpu(index: int = 0, backend: str = "cuda", **changes: Any) -> Bundle:
    """The same with one run's activity changed."""
    triple = gpu_run(backend)
    assert triple.evidence.device is not None
    runs = list(triple.evidence.device.runs)
    runs[index] = replace(runs[index], on=(replace(runs[index].on[0], **changes),))
    return triple.with_evidence(device=replace(triple.evidence.device, runs=tuple(runs)))


def idle(**changes: Any) -> Bundle:
    """The same with every run's activity changed: none of them was busy."""
    triple = gpu_run()
    assert triple.evidence.device is not None
    runs = tuple(
        replace(run, on=(replace(run.on[0], **{"busy": 0, **changes}),))
        for run in triple.evidence.device.runs
    )
    return triple.with_evidence(device=replace(triple.evidence.device, runs=runs))


def nowhere() -> Bundle:
    """A GPU stood there, and no run was ever on it."""
    triple = gpu_run()
    assert triple.evidence.device is not None
    runs = tuple(replace(run, on=()) for run in triple.evidence.device.runs)
    return triple.with_evidence(device=replace(triple.evidence.device, runs=runs))


def one_device() -> tuple[GpuDevice, ...]:
    device = gpu_run().evidence.device
    assert device is not None
    return device.devices


def twice_on_gpu() -> Bundle:
    device = gpu_run().evidence.device
    assert device is not None
    return gpu_run(runs=2 * device.runs)


def upgraded() -> Bundle:
    return gpu_run("cpu", nvml_driver="560.28.03", nvml="12.560.28.03", devices=(), runs=())


def only_held() -> Bundle:
    runs = gpu_run("cpu").evidence.runs
    held = [run_on_gpu(run.pid, run.started_ticks, busy=0) for run in runs if run.role == "timed"]
    return gpu_run("cpu", runs=tuple(held))


FORGERIES: list[tuple[str, Callable[[], Bundle]]] = [
    ("E_NO_DEVICE", lambda: gpu_run().with_evidence(device=NOTHING)),
    ("E_NO_DEVICE", lambda: gpu_run(nodes=(), control=False, devices=(), runs=())),
    ("E_NO_DEVICE", lambda: gpu_run(control=False)),
    ("E_NO_DEVICE", lambda: gpu_run(kernel_driver=None, devices=(), runs=())),
    ("E_NO_DEVICE", lambda: gpu_run(nvml=None, nvml_driver=None, devices=(), runs=())),
    ("E_NO_DEVICE", lambda: gpu_run(nvml_driver="560.28.03", devices=(), runs=())),
    ("E_NO_DEVICE", lambda: gpu_run(nvml="12.560.28.03", devices=(), runs=())),
    ("E_NO_DEVICE", lambda: gpu_run(devices=(), runs=())),
    ("E_DEVICE_IDLE", idle),
    ("E_DEVICE_IDLE", nowhere),
    ("E_DEVICE_IDLE", lambda: idle(present=0)),
    ("E_DEVICE_CONTRADICTION", lambda: gpu_run("cpu", nodes=())),
    ("E_DEVICE_CONTRADICTION", lambda: gpu_run("cpu", nvml_driver="560.28.03")),
    ("E_DEVICE_CONTRADICTION", lambda: gpu_run(nodes=(DeviceNode("/dev/nvidia1", 1),))),
    ("E_DEVICE_CONTRADICTION", lambda: gpu_run(devices=2 * one_device())),
    ("E_DEVICE_CONTRADICTION", lambda: on_gpu(uuid="GPU-other")),
    ("E_DEVICE_CONTRADICTION", lambda: on_gpu(busy=8)),
    ("E_DEVICE_CONTRADICTION", lambda: on_gpu(present=8)),
    ("E_DEVICE_CONTRADICTION", lambda: on_gpu(memory_bytes=2**40)),
    ("E_DEVICE_CONTRADICTION", lambda: gpu_run(runs=(run_on_gpu(99, 1),))),
    ("E_DEVICE_CONTRADICTION", twice_on_gpu),
]

SHORT: list[tuple[str, Callable[[], Bundle]]] = [
    ("W_DEVICE_NOT_OBSERVED", lambda: gpu_run().with_evidence(device=None)),
    ("W_DEVICE_NOT_OBSERVED", lambda: gpu_run(runs=())),
    ("W_DEVICE_NOT_OBSERVED", lambda: on_gpu(busy=0)),
    ("W_DEVICE_NOT_OBSERVED", lambda: on_gpu(busy=None)),
    ("W_DEVICE_NOT_OBSERVED", lambda: idle(busy=None)),
    ("W_DEVICE_BUSY", lambda: gpu_run("cpu")),
    ("W_DEVICE_BUSY", lambda: on_gpu(0, "cpu", busy=0)),
]

HONEST: list[tuple[str, Callable[[], Bundle]]] = [
    ("a GPU, verified where there is none", gpu_run),
    ("a GPU in a container", lambda: on_gpu(seen_by="change", memory_bytes=None)),
    ("a machine without a GPU", lambda: bundle().with_evidence(device=NOTHING)),
    ("a GPU that stands by", lambda: gpu_run("cpu", runs=())),
    ("a GPU whose driver was just upgraded", upgraded),
    ("a run that holds a GPU and computes on the CPU", only_held),
]
