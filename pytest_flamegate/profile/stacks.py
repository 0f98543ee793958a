"""Where a stack begins, and whether it is whole."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import UndecidedError

if TYPE_CHECKING:
    from pytest_flamegate.profile.model import Frame, Profile, Stack


WORKLOAD_ROOT = "measured_sequences"
"""The function in ``pytest_flamegate/child/serve.py`` below which everything is measured."""

_THREAD_ENTRIES = frozenset(
    {
        "start_thread",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
        "runtime.mstart",
        "runtime.mstart.abi0",
        "runtime.goexit",
        "runtime.goexit.abi0",
    }
)
_PROCESS_ENTRIES = frozenset(
    {
        "_start",
        "__libc_start_main",
        "__libc_start_call_main",
        "main",
        "runtime.rt0_go",
        "runtime.rt0_go.abi0",
    }
)
_C_LIBRARY = re.compile(
    r"(?:libc|libpthread|ld)(?:-\d[\d.]*)?\.so(?:\.\d+)?|(?:ld-linux|ld-musl|libc\.musl)-.*"
)
"""Where threads and processes start. Distributions strip the names of the functions that do it."""


def trim_stacks(profile: Profile, root: str | None = WORKLOAD_ROOT) -> Profile:
    """Start every stack at the Python function ``root`` and count the complete ones.

    A stack is complete if it reaches ``root`` or the start of a thread of its own. A
    stack that is not stays as it is: its leaf is still true. With ``root`` None nothing
    is cut, and a stack with native frames is complete if it reaches the start of a
    thread or of the process (a Python-only profiler never cuts a stack). A profile
    without any Python frame holds no ``root`` to look for and is treated so too. A stack
    that begins in a nameless function of the C library and goes on elsewhere began there:
    what a cut stack begins with lies in no library, or in the program itself.
    """
    if not any(frame.kind == "python" for stack in profile.stacks for frame in stack):
        root = None
    stacks: dict[Stack, int] = {}
    complete = 0
    for stack, samples in profile.stacks.items():
        start = None if root is None else _position(stack, root)
        kept = stack if start is None else stack[start:]
        stacks[kept] = stacks.get(kept, 0) + samples
        if start is not None or _is_whole(stack, process=root is None):
            complete += samples
    return replace(profile, stacks=stacks, complete=complete)


def _position(stack: Stack, root: str) -> int | None:
    for index, frame in enumerate(stack):
        if frame.name == root and frame.kind == "python":
            return index
    return None


def _is_whole(stack: Stack, *, process: bool) -> bool:
    if not stack:
        return False
    kinds = {frame.kind for frame in stack}
    if any(map(_is_python_thread, stack)) or (process and kinds == {"python"}):
        return True
    if (process or "python" not in kinds) and _begins_in_c_library(stack):
        return True
    entries = _THREAD_ENTRIES | _PROCESS_ENTRIES if process else _THREAD_ENTRIES
    return any(frame.kind == "native" and frame.name in entries for frame in stack)


def _begins_in_c_library(stack: Stack) -> bool:
    module = stack[0].module
    return (
        stack[0].name == f"[{module}]"
        and _C_LIBRARY.fullmatch(module) is not None
        and any(frame.kind != "system" and frame.module != module for frame in stack)
    )


def _is_python_thread(frame: Frame) -> bool:
    return frame.kind == "python" and frame.module == "threading.py" and "_bootstrap" in frame.name


_WIDER = 'Set call_graph = "dwarf,65528" in [workloads.NAME.profile]'
_LEAVES = '"none" samples functions without their callers.'
_OUTSIDE = "Measure again; if it stays, the engine works outside the function that is measured."
_TODO = {
    "dwarf": f'{_WIDER}, or "fp" if it is built with -fno-omit-frame-pointer; {_LEAVES}',
    "fp": f"{_WIDER}, or build it with -fno-omit-frame-pointer; {_LEAVES}",
}
"""What to do about cut stacks, by the call graph."""


def require_stacks(profile: Profile, floor: float) -> None:
    """Refuse a profile whose completeness, 0 to 1, is below ``floor``.

    Stacks by dwarf that do not fit into the copied bytes lose every caller at once: with
    8 KB 20 % of the embedded engine's reached its start, with 32 KB all did. A profile
    without a call graph has no stacks to complete. Raises ``UndecidedError``
    ``E_STACKS_CUT``.
    """
    if profile.call_graph == "none" or profile.completeness >= floor:
        return
    raise UndecidedError(
        "E_STACKS_CUT",
        f"{profile.completeness:.1%} of {profile.samples} stacks reach the start of the "
        f"workload, and {floor:.0%} are needed.",
        _TODO.get(profile.call_graph.partition(",")[0], _OUTSIDE),
    )
