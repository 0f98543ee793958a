"""What stands above the workload is no part of it: cut it off, and count what never reached it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flamegate.profile.model import Frame, Profile, Stack

WORKLOAD = "measured_sequences"
"""The function in ``pytest_flamegate/workload/child.py`` below which everything is measured."""

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


def cut(profile: Profile, root: str | None = WORKLOAD) -> Profile:
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
