"""Which kernels ran, by what the engine's own library wrote in a run that is for this alone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.profile.importing import read_file, unpacked
from pytest_flamegate.profile.onnx_trace import is_onnx_trace, onnx_kernels
from pytest_flamegate.profile.torch_trace import is_torch_trace, torch_kernels
from pytest_flamegate.workload.engines.base import Served
from pytest_flamegate.workload.reported import report

if TYPE_CHECKING:
    from pytest_flamegate.profile.chrome_trace import Kernels
    from pytest_flamegate.workload.observer import Observer
    from pytest_flamegate.workload.reported import Report

OPTION = "kernel_trace"
_MOST_FILES = 64


def trace_kernels(observer: Observer) -> tuple[Report, ...]:
    """Run the workload once more where it asks for it; return what its trace says of kernels.

    The run is kept with the others, and nothing is timed in it. Raises ``ToolError``
    ``E_NO_KERNEL_TRACE``, and ``ReceiptError`` ``E_TRACE`` for a trace that is malformed.
    """
    by = observer.workload.options.get(OPTION)
    if by is None or not isinstance(observer.plan, Served):
        return ()
    with tempfile.TemporaryDirectory(prefix="flamegate-") as name:
        return observer.traced({OPTION: [by, name]}, lambda: read_traces(Path(name)))


def read_traces(directory: Path) -> tuple[Report, ...]:
    """Return what the traces in ``directory`` say, one report for each source.

    Raises ``ToolError`` ``E_NO_KERNEL_TRACE`` where no file there tells of a kernel.
    """
    told: dict[str, dict[str, int]] = {}
    files = sorted(path for path in directory.rglob("*.json*") if path.is_file())
    for path in files[:_MOST_FILES]:
        for kernels in _kernels(unpacked(read_file(path))):
            known = told.setdefault(kernels.source, {})
            for name, count in kernels.counts.items():
                known[name] = known.get(name, 0) + count
    if not told:
        raise ToolError(
            "E_NO_KERNEL_TRACE",
            f"The run that was to tell of its kernels left {len(files)} traces, and no kernel "
            "in them.",
            "Where FLAMEGATE_KERNEL_TRACE names a directory, have the target write a trace of "
            "torch.profiler or onnxruntime there; or leave kernel_trace out.",
        )
    return tuple(report(source, kernels=counts) for source, counts in told.items())


def _kernels(data: bytes) -> tuple[Kernels, ...]:
    if is_torch_trace(data):
        return torch_kernels(data)
    return onnx_kernels(data) if is_onnx_trace(data) else ()
