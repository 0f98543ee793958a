"""Two witnesses for cuda, the device and a kernel; anything less is cpu."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_flamegate.receipt.compose import backend_of
from pytest_flamegate.receipt.types import Evidence
from tests.made import Bundle, bundle
from tests.receipt.gpu import NOTHING, gpu_run, idle, nowhere, on_gpu


def test_device_and_kernel_together_are_cuda() -> None:
    assert backend_of(gpu_run().evidence) == "cuda"


LESS: dict[str, Callable[[], Bundle]] = {
    "nobody looked": lambda: bundle(engine="command", shares={"sm80_gemm": 1.0}),
    "no device": lambda: gpu_run().with_evidence(device=NOTHING),
    "library and node without a driver": lambda: gpu_run(kernel_driver=None),
    "versions differ": lambda: gpu_run(nvml_driver="560.28.03"),
    "no library": lambda: gpu_run(nvml=None, nvml_driver=None, devices=()),
    "more devices than nodes": lambda: gpu_run(nodes=()),
    "no run was looked at": lambda: gpu_run(runs=()),
    "idle": idle,
    "on no device": nowhere,
    "nothing tells whether it computed": lambda: idle(busy=None),
    "one run of three idle": lambda: on_gpu(busy=0),
    "kernels of a CPU": lambda: gpu_run("cpu"),
    "kernels that only wait": lambda: gpu_run().with_evidence(
        kernels=(replace(gpu_run().evidence.kernels[0], name="cuda_sync"),)
    ),
    "an engine that has no GPU kernels": lambda: gpu_run().with_evidence(
        workload={"engine": "embedded"}
    ),
}


@pytest.mark.parametrize("make", LESS.values(), ids=LESS)
def test_anything_less_is_cpu(make: Callable[[], Bundle]) -> None:
    evidence: Evidence = make().evidence
    assert backend_of(evidence) == "cpu"
