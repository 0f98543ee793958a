"""The execution graph of another profiler's trace."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.graph.calls import build_graph
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import Kernel, Transfer
from pytest_flamegate.graph.traces import read_trace
from pytest_flamegate.run.open import open_graph
from tests.graph.traces import made
from tests.graph.traces.made import event, torch
from tests.graph.traces.test_chrome import KERNEL, LAUNCH, on_gpu

REAL = [made.TORCH, made.TORCH_STACKS, made.ONNX, made.ONNX_PARALLEL, made.VIZTRACER]


@pytest.mark.parametrize("data", REAL, ids=["torch", "stacks", "onnx", "parallel", "viztracer"])
def test_recorded_trace_has_a_graph_and_a_critical_path(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(data))
    graph = open_graph(path)
    found = read_trace(data)
    assert len(graph.nodes) == len(found.calls)
    assert found.wall_ns is not None
    assert 0 < find_critical_path(graph).length_ns <= found.wall_ns


def test_launch_and_copy_are_nodes() -> None:
    graph = build_graph(
        read_trace(
            torch(
                event("cudaLaunchKernel", 0, 4, cat="cuda_runtime", args=LAUNCH),
                on_gpu("gemv(float*)", 8, 30, **KERNEL),
                on_gpu("Memcpy DtoH (Device -> Pinned)", 40, 5, stream=7, bytes=64),
            )
        ).calls
    )
    (kernel,) = (node for node in graph.nodes if isinstance(node, Kernel))
    assert (kernel.name, kernel.grid, kernel.block) == ("gemv", (32, 4, 1), (256, 1, 1))
    assert kernel.shared_memory_bytes == 4096
    (copy,) = (node for node in graph.nodes if isinstance(node, Transfer))
    assert (copy.direction, copy.bytes) == ("D2H", 64)


@pytest.mark.parametrize("data", [made.TRUENO, made.LINES])
def test_sums_have_no_graph(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "sums"
    path.write_bytes(data)
    with pytest.raises(UndecidedError, match="E_NO_CALLS"):
        open_graph(path)
