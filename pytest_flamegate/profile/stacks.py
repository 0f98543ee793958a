"""Where a stack begins, whether it is whole, and which stacks of two profiles correspond.

Between two revisions a function may move to another file, gain a wrapper of its own name there, or
recurse to another depth: none of that is a new function.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby, takewhile

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.profile.model import Frame, Profile, Stack

WORKLOAD_ROOT = "measured_sequences"
"""The function of ``child/serve.py`` below which everything is measured."""
OWN_FRAME = Frame("[flamegate]", "pytest_flamegate", "python")
"""Stands for a stack of the loop that serves the observer: it is not the workload."""
_OWN_PACKAGE = "pytest_flamegate/"
_SERVING_FILES = frozenset(
    {"pytest_flamegate/child/serve.py", "pytest_flamegate/workload/child.py"}
)
EMBEDDED_ENGINE = ("pytest_flamegate/child/embedded/", "pytest_flamegate/embedded/")
"""The last of each: the places in version 0.1, as baselines of that version have them."""

_THREAD_ENTRY = re.compile(r"start_thread|(?:__)?clone3?|runtime\.(?:mstart|goexit)(?:\.abi0)?")
_PROCESS_ENTRY = re.compile(
    r"_start|main|__libc_start_(?:main|call_main)|runtime\.rt0_go(?:\.abi0)?"
)
_C_LIBRARY = re.compile(
    r"(?:libc|libpthread|ld)(?:-\d[\d.]*)?\.so(?:\.\d+)?|(?:ld-linux|ld-musl|libc\.musl)-.*"
)
"""Starts threads and processes. Distributions strip the names of the functions that do it."""


def trim_stacks(profile: Profile, root: str | None = WORKLOAD_ROOT) -> Profile:
    """Start every stack at the Python function ``root``, and count the complete stacks.

    A stack is complete if it reaches ``root`` or the start of a thread of its own. An incomplete
    stack stays as it is: its leaf is still true. Frames of flamegate itself are hidden.

    With ``root`` None nothing is cut, and a stack with native frames is complete if it reaches
    the start of a thread or of the process (a Python-only profiler never cuts a stack). The same
    holds for a profile without any Python frame. A stack that begins in a nameless function of
    the C library and goes on elsewhere began there: a cut stack begins in no library, or in the
    program itself.
    """
    if not any(frame.kind == "python" for stack in profile.stacks for frame in stack):
        root = None
    if root is None:
        return replace(profile, complete=_count_whole(profile.stacks, None))
    trimmed = change_stacks(profile.stacks, lambda stack: stack[_find_root(stack, root) or 0 :])
    stacks = hide_own_frames(trimmed)
    return replace(profile, stacks=stacks, complete=_count_whole(stacks, root))


def change_stacks(
    stacks: Mapping[Stack, int], change: Callable[[Stack], Stack]
) -> dict[Stack, int]:
    """Return ``stacks`` with each changed; those that become equal are added up."""
    changed: dict[Stack, int] = {}
    for stack, samples in stacks.items():
        new = change(stack)
        changed[new] = changed.get(new, 0) + samples
    return changed


def hide_own_frames(stacks: Mapping[Stack, int]) -> dict[Stack, int]:
    """Return ``stacks`` without the frames of flamegate between the workload's root and its work.

    A stack of the serving loop, outside of the workload, becomes the single frame ``OWN_FRAME``.
    The embedded engine is a workload: its frames stay.
    """

    def hide(stack: Stack) -> Stack:
        root = _find_root(stack, WORKLOAD_ROOT)
        if root is not None:
            below = (frame for frame in stack[root + 1 :] if not is_own_frame(frame))
            return (*stack[: root + 1], *below)
        is_loop = any(frame.module in _SERVING_FILES for frame in stack)
        return (OWN_FRAME,) if is_loop else stack

    return change_stacks(stacks, hide)


def is_own_frame(frame: Frame) -> bool:
    """Whether the frame is flamegate's own, and not the embedded engine's."""
    own = frame.kind == "python" and frame.module.startswith(_OWN_PACKAGE)
    return own and not frame.module.startswith(EMBEDDED_ENGINE)


def _find_root(stack: Stack, root: str) -> int | None:
    for index, frame in enumerate(stack):
        if frame.name == root and frame.kind == "python":
            return index
    return None


def _count_whole(stacks: Mapping[Stack, int], root: str | None) -> int:
    return sum(samples for stack, samples in stacks.items() if _is_whole(stack, root))


def _is_whole(stack: Stack, root: str | None) -> bool:
    if not stack:
        return False
    if root is not None and _find_root(stack, root) is not None:
        return True
    kinds = {frame.kind for frame in stack}
    has_thread = any(
        frame.kind == "python" and frame.module == "threading.py" and "_bootstrap" in frame.name
        for frame in stack
    )
    if has_thread or (root is None and kinds == {"python"}):
        return True
    if (root is None or "python" not in kinds) and _begins_in_c_library(stack):
        return True
    entries = (_THREAD_ENTRY,) if root is not None else (_THREAD_ENTRY, _PROCESS_ENTRY)
    names = [frame.name for frame in stack if frame.kind == "native"]
    return any(entry.fullmatch(name) for entry in entries for name in names)


def _begins_in_c_library(stack: Stack) -> bool:
    module = stack[0].module
    return (
        stack[0].name == f"[{module}]"
        and _C_LIBRARY.fullmatch(module) is not None
        and any(frame.kind != "system" and frame.module != module for frame in stack)
    )


def cut_stacks_error(profile: Profile, floor: float) -> UndecidedError | None:
    """Return the error ``E_STACKS_CUT`` if completeness, 0 to 1, is below ``floor``.

    If a stack does not fit into the bytes that dwarf copies, it loses every caller at once: with
    8 KB 20 % of the embedded engine's stacks reached its start, with 32 KB all did. A profile
    without a call graph has no stacks to complete.
    """
    if profile.call_graph == "none" or profile.completeness >= floor:
        return None
    remedy = "Measure again; if it stays, the engine works outside the function that is measured."
    if profile.call_graph.startswith(("dwarf", "fp")):
        remedy = (
            'Set call_graph = "dwarf,65528" in [workloads.NAME.profile], or "fp" if the engine is '
            'built with -fno-omit-frame-pointer; "none" samples functions without their callers.'
        )
    return UndecidedError(
        "E_STACKS_CUT",
        f"{profile.completeness:.1%} of {profile.samples} stacks reach the start of the "
        f"workload, and {floor:.0%} are needed.",
        remedy,
    )


def align_stacks(
    base: Mapping[Stack, int], head: Mapping[Stack, int]
) -> tuple[Mapping[Stack, int], Mapping[Stack, int]]:
    """Return the stacks of both sides in terms that can be compared.

    Frames of flamegate itself are hidden, as in a profile taken today. A function that stands in
    another file on each side gets the head's frame on both. Direct recursion, and a wrapper in the
    same file that carries the name of its function, become one frame. A caller of the same name in
    another file stays: methods such as ``forward`` call each other.
    """
    old, new = hide_own_frames(base), hide_own_frames(head)
    moved = _match_moved_frames(set().union(*old), set().union(*new))
    return _merge_repeats(old, moved), _merge_repeats(new, {})


def _match_moved_frames(base: set[Frame], head: set[Frame]) -> dict[Frame, Frame]:
    """Return the frame in ``head`` of each function that only changed its file or kind."""
    left: dict[str, list[Frame]] = {}
    for frame in head - base:
        left.setdefault(frame.name, []).append(frame)
    moved = {}
    for frame in sorted(base - head):
        if candidates := left.get(frame.name):
            # The file name is the part of a path that survives a move most often.
            best = max(candidates, key=lambda each: (_common_end(each.module, frame.module), each))
            candidates.remove(best)
            moved[frame] = best
    return moved


def _common_end(left: str, right: str) -> int:
    """Return how many path components two modules have in common, from the end."""
    pairs = zip(reversed(left.split("/")), reversed(right.split("/")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _merge_repeats(stacks: Mapping[Stack, int], moved: Mapping[Frame, Frame]) -> dict[Stack, int]:
    def merge(stack: Stack) -> Stack:
        return tuple(frame for frame, _ in groupby(moved.get(frame, frame) for frame in stack))

    return change_stacks(stacks, merge)
