"""Claims of a GPU that did not compute."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.receipt.forgeries.book import ONE, PROGRAM, Book
from tests.receipt.forgeries.draft import Draft

BOOK = Book("devices")
GPU = ("cuda_gemm_fp16", "ampere_sgemm_128x64", "cutlass_gemm", "triton_matmul", "wmma_i8")


@BOOK.refused("E_NO_GPU_KERNEL", then="alone")
def cuda_of_a_cpu(draft: Draft, source: Random) -> None:
    """Says cuda where the CPU computed, after a silent fall back."""
    draft.receipt["backend"] = source.choice(["cuda", "CUDA", "Cuda"])


@BOOK.refused("E_NO_GPU_KERNEL", of=PROGRAM, then="alone")
def fig_leaf(draft: Draft, source: Random) -> None:
    """Adds a call that only waits for the GPU or copies to it."""
    draft.receipt["backend"] = "cuda"
    leaf = ["cuda_sync", "cuda_memcpy_h2d", "cuda_stream_wait_event", "Memcpy HtoD", "cuda_init_0"]
    draft.receipt["kernels"].append(source.choice(leaf))


@BOOK.refused("E_GPU_KERNEL_ON_CPU", of=PROGRAM, then="recount")
def gpu_kernel_of_a_cpu(draft: Draft, source: Random) -> None:
    """Calls a function of the program by a GPU kernel's name, on a CPU."""
    draft.rename(draft.receipt["kernels"][0], source.choice(GPU))


@BOOK.lowered("W_DEVICE_NOT_OBSERVED", of=PROGRAM, then="recount")
def gpu_by_name(draft: Draft, source: Random) -> None:
    """Calls its functions by names of GPU kernels, and the backend cuda, consistently."""
    draft.receipt["backend"], draft.evidence["device"] = "cuda", None
    gpu_kernel_of_a_cpu(draft, source)


def on_gpu(draft: Draft, source: Random) -> dict[str, Any]:
    """Make the program's run one on a GPU, whole and consistent; return its observation."""
    gpu_by_name(draft, source)
    draft.recount()
    return see_gpu(draft, source)


def see_gpu(draft: Draft, source: Random) -> dict[str, Any]:
    """Add a GPU that every timed run computes on; return the observation."""
    driver = f"{source.randint(450, 590)}.{source.randint(10, 99)}.{source.randint(1, 20)}"
    uuid = f"GPU-{source.getrandbits(64):016x}"
    looks = source.randint(20, 200)
    on = {"uuid": uuid, "seen_by": "pid", "present": looks - 1, "busy": looks // 2}
    seen: dict[str, Any] = {
        "nodes": [{"path": "/dev/nvidia0", "minor": 0}],
        "control": True,
        "kernel_driver": driver,
        "nvml_driver": driver,
        "nvml": f"12.{driver}",
        "devices": [{"uuid": uuid, "name": "H100", "minor": 0, "memory_bytes": 80 << 30}],
        "runs": [
            {name: run[name] for name in ("pid", "started_ticks")}
            | {"looks": looks, "on": [{**on, "memory_bytes": 2 << 30}]}
            for run in draft.timed
        ],
        "troubles": [],
    }
    draft.evidence["device"] = seen
    return seen


@BOOK.refused("E_NO_DEVICE", of=PROGRAM)
def library_without_a_device(draft: Draft, source: Random) -> None:
    """Puts a false library where NVML is looked for: there is no node, or no driver."""
    seen = on_gpu(draft, source)
    seen |= {"devices": [], "runs": []}
    gone = source.choice(["nodes", "control", "kernel_driver"])
    seen[gone] = {"nodes": [], "control": False, "kernel_driver": None}[gone]


@BOOK.refused("E_NO_DEVICE", of=PROGRAM)
def idle_gpu(draft: Draft, source: Random) -> None:
    """Claims the GPU that stands in the machine and did nothing."""
    for run in on_gpu(draft, source)["runs"]:
        run["on"] = [] if source.random() < 0.5 else [{**run["on"][0], "busy": 0}]


@BOOK.refused("E_DEVICE_CONTRADICTION", of=PROGRAM)
def gpu_that_contradicts_itself(draft: Draft, source: Random) -> None:
    """Writes a GPU into the evidence and misses how its facts hang together."""
    seen = on_gpu(draft, source)
    run = source.choice(seen["runs"])
    ways: list[Callable[[], None]] = [
        lambda: run["on"][0].update(uuid="GPU-other"),
        lambda: run["on"][0].update(memory_bytes=1 << 50),
        lambda: run["on"][0].update(present=run["looks"] + 1),
        lambda: run["on"][0].update(busy=run["looks"] + 1),
        lambda: seen["devices"].append(dict(seen["devices"][0])),
        lambda: seen["runs"].append(dict(run)),
        lambda: run.update(pid=run["pid"] + 10_000),
    ]
    source.choice(ways)()


@BOOK.lowered("W_DEVICE_NOT_OBSERVED", of=PROGRAM)
def gpu_of_some_runs(draft: Draft, source: Random) -> None:
    """Lets the GPU compute in one run and the CPU in the others."""
    seen = on_gpu(draft, source)
    seen["runs"] = seen["runs"][: source.randint(1, len(seen["runs"]) - 1)]


@BOOK.lowered("W_DEVICE_BUSY")
def gpu_behind_a_cpu(draft: Draft, source: Random) -> None:
    """Claims the figures of a GPU for the CPU's baseline."""
    see_gpu(draft, source)


@BOOK.passes("A signature of the observer; replay on the machine that is named.", of=PROGRAM)
def gpu_made_up(draft: Draft, source: Random) -> None:
    """Writes a GPU into the evidence whose facts all agree, and names of its kernels."""
    on_gpu(draft, source)


@BOOK.lowered(of=PROGRAM, then="alone")
def gpu_without_evidence(draft: Draft, source: Random) -> None:
    """Claims a GPU with the right kernels, and nothing beside it."""
    draft.receipt["backend"] = "cuda"
    draft.receipt["kernels"] = [source.choice(GPU)]


@BOOK.refused("E_GPU_REQUIRED", wishes={"require_gpu_kernels": True})
def cpu_where_a_gpu_is_wanted(draft: Draft, source: Random) -> None:
    """Hands in a CPU's receipt where the reader wants a GPU's."""


@BOOK.refused("E_SCHEMA", of=ONE, then="alone")
def backend_of_nobody(draft: Draft, source: Random) -> None:
    """Names a backend for which no rule was written."""
    odd = ["gpu", "rocm", "cpu ", " cuda", "cpu\n", "ｃｕｄａ", "", "cpu,cuda", None, 1, ["cpu"]]
    draft.receipt["backend"] = source.choice(odd)
