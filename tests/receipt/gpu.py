"""Evidence of a machine with one GPU, and of a machine without: honest, forged and short."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pytest_flamegate.observe import gpu
from tests.made import Bundle, bundle

DRIVER = "550.54.15"
UUID = "GPU-5e8a1c7b-1d0f-4c7e-9a55-0c2f1f6b7a8e"
GIB = 2**30
NOTHING = gpu.ObservedDevices()
DEVICE = gpu.GpuDevice(UUID, "NVIDIA H100 80GB HBM3", 0, 80 * GIB)
USE = gpu.DeviceUse(UUID, "pid", present=7, busy=6, memory_bytes=GIB)


def seen(triple: Bundle, **changes: Any) -> gpu.ObservedDevices:
    """One GPU that every timed run of ``triple`` computed on."""
    timed = [run for run in triple.evidence.runs if run.role == "timed"]
    facts = gpu.ObservedDevices(
        nodes=(gpu.DeviceNode("/dev/nvidia0", 0),),
        control=True,
        kernel_driver=DRIVER,
        nvml_driver=DRIVER,
        nvml=f"12.{DRIVER}",
        devices=(DEVICE,),
        runs=tuple(gpu.RunDevices(run.pid, run.started_ticks, 7, (USE,)) for run in timed),
    )
    return replace(facts, **changes)


def gpu_run(backend: str = "cuda", **changes: Any) -> Bundle:
    """An honest receipt of a program that computed on a GPU, its evidence changed."""
    kernel = "sm80_xmma_gemm_f16" if backend == "cuda" else "matmul"
    triple = bundle(clock_scope="process", shares={kernel: 0.9, "main_loop": 0.1})
    triple = triple.with_receipt(backend=backend)
    return triple.with_evidence(device=seen(triple, **changes))


def on_gpu(backend: str = "cuda", count: int = 1, **changes: Any) -> Bundle:
    """The same with the activity of the first ``count`` runs changed."""
    runs = seen(gpu_run()).runs
    used = (replace(USE, **changes),)
    changed = [replace(run, on=used) for run in runs[:count]]
    return gpu_run(backend, runs=(*changed, *runs[count:]))


def idle(**changes: Any) -> Bundle:
    """A GPU was there, and no run was busy on it."""
    return on_gpu(count=99, **{"busy": 0, **changes})


def nowhere() -> Bundle:
    """A GPU was there, and no run was ever on it."""
    return gpu_run(runs=tuple(replace(run, on=()) for run in seen(gpu_run()).runs))


OTHER_DRIVER = "560.28.03"
FORGERIES: list[tuple[str, Callable[[], Bundle]]] = [
    ("E_NO_DEVICE", lambda: gpu_run(nodes=(), control=False, devices=(), runs=())),
    ("E_NO_DEVICE", lambda: gpu_run(control=False)),
    ("E_NO_DEVICE", lambda: gpu_run(kernel_driver=None, devices=(), runs=())),
    ("E_NO_DEVICE", lambda: gpu_run(nvml=None, nvml_driver=None, devices=(), runs=())),
    ("E_NO_DEVICE", lambda: gpu_run(nvml_driver=OTHER_DRIVER, devices=(), runs=())),
    ("E_NO_DEVICE", lambda: gpu_run(nvml=f"12.{OTHER_DRIVER}", devices=(), runs=())),
    ("E_NO_DEVICE", lambda: gpu_run(devices=(), runs=())),
    ("E_NO_DEVICE", idle),
    ("E_NO_DEVICE", nowhere),
    ("E_DEVICE_CONTRADICTION", lambda: gpu_run("cpu", nvml_driver=OTHER_DRIVER)),
    ("E_DEVICE_CONTRADICTION", lambda: gpu_run(nodes=(gpu.DeviceNode("/dev/nvidia1", 1),))),
    ("E_DEVICE_CONTRADICTION", lambda: gpu_run(runs=seen(gpu_run()).runs[:1] * 2)),
]
SHORT: list[tuple[str, Callable[[], Bundle]]] = [
    ("W_DEVICE_NOT_OBSERVED", lambda: gpu_run().with_evidence(device=None)),
    ("W_DEVICE_NOT_OBSERVED", lambda: on_gpu(busy=0)),
    ("W_DEVICE_NOT_OBSERVED", lambda: on_gpu(busy=None)),
    ("W_DEVICE_NOT_OBSERVED", lambda: idle(busy=None)),
    ("W_DEVICE_BUSY", lambda: gpu_run("cpu")),
    ("W_DEVICE_BUSY", lambda: on_gpu("cpu", busy=0)),
]
HONEST: list[tuple[str, Callable[[], Bundle]]] = [
    ("a GPU, verified where there is none", gpu_run),
    ("a GPU in a container", lambda: on_gpu(seen_by="change", memory_bytes=None)),
    ("a machine without a GPU", lambda: bundle().with_evidence(device=NOTHING)),
    ("a GPU that stands by", lambda: gpu_run("cpu", runs=())),
    (
        "a GPU whose driver was just upgraded",
        lambda: gpu_run(
            "cpu", nvml_driver=OTHER_DRIVER, nvml=f"12.{OTHER_DRIVER}", devices=(), runs=()
        ),
    ),
    (
        "a run that holds a GPU and computes on the CPU",
        lambda: on_gpu("cpu", count=99, busy=0),
    ),
]
