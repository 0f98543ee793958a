"""What torch.profiler writes with ``export_chrome_trace``: operators, Python, GPU kernels.

Time on the GPU is no CPU time: its kernels stand below a root of their own, and are counted
under a source of their own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_flamegate.profile.chrome_trace import (
    Event,
    Kernels,
    TraceError,
    complete_events,
    counts,
    loads,
    nested_profile,
)
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.profile.normalise import native_name, python_frame
from pytest_flamegate.profile.text import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.profile.model import Profile

SOURCE = "torch.profiler"
GPU_SOURCE = f"{SOURCE}:gpu"
_OPERATOR, _PYTHON = "cpu_op", "python_function"
ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_ON_CPU = frozenset(
    {_OPERATOR, _PYTHON, "user_annotation", "cuda_runtime", "cuda_driver", "privateuse1_runtime"}
)
_GPU_ROOT = Frame("[GPU]", "gpu", "native")
_MARK = re.compile(rb'"traceEvents"\s*:')
_OWN = (b'"traceName"', b'"deviceProperties"', b'"cpu_op"', b'"schemaVersion"')
_LOOKED_AT = 1 << 16
_PLACE = re.compile(r"(?P<file>[^()]*)\((?P<line>\d+)\): (?P<name>.*)", re.DOTALL)
_STEP = re.compile(r"#\d+$")


def is_torch_trace(data: bytes) -> bool:
    """Return whether ``data`` looks like a trace of torch.profiler: its own keys stand in it."""
    ends = data[:_LOOKED_AT] + data[-_LOOKED_AT:]
    return _MARK.search(ends) is not None and any(mark in ends for mark in _OWN)


def read_torch_trace(data: bytes, roots: Sequence[str] = ()) -> Profile:
    """Return the self times of operators and functions, in nanoseconds.

    Raises ``ReceiptError`` ``E_TRACE`` where it is malformed, ``UndecidedError``
    ``E_NO_SAMPLES`` where nothing in it took any time.
    """
    events = torch_events(data)
    below = tuple(roots)
    notes = [f"imported from a trace of {SOURCE}: each event costs time that the model does not"]
    if any(each.category in ON_GPU for each in events):
        notes.append("time on the GPU stands beside time on the CPU: shares are of both together")
    return nested_profile(
        events,
        lambda event: (torch_frame(event, below),),
        lambda event: (_GPU_ROOT,) if event.category in ON_GPU else (),
        SOURCE,
        notes,
    )


def torch_kernels(data: bytes) -> tuple[Kernels, ...]:
    """Return how often each operator ran, and apart from them each kernel of the GPU.

    Raises ``ReceiptError`` ``E_TRACE``.
    """
    events = torch_events(data)
    found = (
        Kernels(SOURCE, counts(each.name for each in events if each.category == _OPERATOR)),
        Kernels(
            GPU_SOURCE,
            counts(native_name(each.name) for each in events if each.category in ON_GPU),
        ),
    )
    return tuple(each for each in found if each.counts)


def torch_events(data: bytes) -> list[Event]:
    """Return what took time on the CPU or the GPU. Raises ``ReceiptError`` ``E_TRACE``."""
    document = loads(data)
    if not isinstance(document, dict):
        raise TraceError("it is no object")
    events = complete_events(document.get("traceEvents"))
    return [each for each in events if each.category in _ON_CPU | ON_GPU]


def torch_frame(event: Event, roots: Sequence[str] = ()) -> Frame:
    """Return the frame of an event, the same for each of its calls."""
    if event.category == _PYTHON:
        found = _PLACE.fullmatch(event.name)
        if found is not None:
            return python_frame(found["name"], found["file"], roots)
        return python_frame(event.name, "torch" if event.name.startswith("nn.") else "built-in")
    if event.category in ON_GPU:
        return Frame(escape(native_name(event.name)), _GPU_ROOT.module, "native")
    module = "torch" if event.category in (_OPERATOR, "user_annotation") else "cuda"
    return Frame(escape(_STEP.sub("", event.name)), module, "native")
