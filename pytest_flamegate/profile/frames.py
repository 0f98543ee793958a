"""From what a profiler prints to a ``Frame`` that is the same on every machine.

Addresses, process ids and absolute prefixes differ from run to run and would make two
equal profiles differ; names come from code under test and may hold anything.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest_flamegate
from pytest_flamegate.core.text import escape, escaped_character
from pytest_flamegate.profile.model import Frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.profile.model import Profile, Stack


KERNEL = "kernel"
UNKNOWN = Frame("[unknown]", "unknown", "native")
_TRAMPOLINES = frozenset({"py_trampoline_evaluator", "_Py_trampoline_func_start"})
_MADE_AT_RUN_TIME = frozenset({"jit", "anon", "unknown"})
_USER_BRACKETS = frozenset({"[vdso]", "[vsyscall]", "[unknown]"})
_KERNEL_MODULE = re.compile(r"(?:/usr)?/lib/modules/.*\.ko(?:\.[a-z0-9]+)?$")
_MEMORY = re.compile(
    r"//anon|/memfd:|/dev/zero|/SYSV|anon_inode:|\[(?:heap|stack|anon|uprobes)"
    r"|/(?:proc/[^/]+|dev)/fd/\d+$"
)
_JIT = re.compile(r"(?:/perf-\d+\.map|/jitted-\d+-\d+\.so|^\[JIT\] tid \d+)$")
_PACKAGES = re.compile(r"^.*/(?:(?:site|dist)-packages/(?:[^/]+\.egg/)?|[^/]+\.whl/)")
_STDLIB = re.compile(r"^.*/lib(?:64)?/python\d{1,3}(?:\.\d{1,3}|\d{0,3}\.zip)/")
_WHEEL_HASH = re.compile(r"-[0-9a-f]{8}(?=\.so)")
_ADDRESS = re.compile(r"(?:\[?0x[0-9a-fA-F]+\]?|\[unknown\])")
_OFFSET = re.compile(r"\+0x[0-9a-fA-F]+(?:/0x[0-9a-fA-F]+)?$")
_OBJECT_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ANY_ADDRESS = re.compile(r"[ _@:-]?\[?0x[0-9a-fA-F]+\]?")
_DIRECTORIES = re.compile(r"(?<![^\s:(])/(?:[^/\s]+/)+")
_SYMBOL_VERSION = re.compile(r"@{1,2}(?!plt$)[A-Za-z_][\w.]*$")
_CLONES = frozenset({"constprop", "isra", "part", "cold", "lto_priv", "llvm", "localalias"})
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$|(?<=17)h[0-9a-f]{16}(?=E$)|(?<=\w)\[[0-9a-f]{8,16}\]")
_QUALIFIERS = ("const", "volatile", "noexcept", "&")
_BRACKETED = ("[clone ", "[abi:")


def prefixes(project: Path | None) -> tuple[str, ...]:
    """Return the directories below which paths are shown relative, longest first."""
    roots = [Path(pytest_flamegate.__file__).parents[1]]
    if project is not None:
        roots += [project.absolute(), project.resolve()]
    names = {root.as_posix().rstrip("/") + "/" for root in roots}
    return tuple(sorted(names - {"/"}, key=lambda name: (-len(name), name)))


def python_frame(name: str, file: str, roots: Sequence[str] = ()) -> Frame:
    """Return the frame of a Python function that stands in ``file``."""
    name = _OBJECT_ADDRESS.sub("", name)
    return Frame(escape(name), _module(python_module(file, roots)), "python")


def native_frame(symbol: str, library: str, roots: Sequence[str] = ()) -> Frame | None:
    """Return the frame of a symbol as perf names it; None for a trampoline.

    ``py::name:file``, as CPython's jitdump has it, becomes a Python frame. A symbol that
    is only an address becomes ``[library]``.
    """
    if symbol.startswith("py::") and _JIT.search(library):
        return python_frame(*_split_python(symbol[4:]), roots)
    if symbol in _TRAMPOLINES:
        return None
    module = native_module(library)
    symbol = _OFFSET.sub("", symbol)
    if not symbol or _ADDRESS.fullmatch(symbol):
        if module == "unknown":
            return UNKNOWN
        name = f"[{module}]"
    elif module in _MADE_AT_RUN_TIME:
        name = _made_at_run_time(symbol) or f"[{module}]"
    else:
        name = native_name(symbol)
    if is_kernel(library):
        return Frame(escape(name), KERNEL, "system")
    return Frame(escape(name), _module(module), "native")


def python_module(file: str, roots: Sequence[str]) -> str:
    """Return a path that is the same in every environment and checkout."""
    if file.startswith("<"):
        return _OBJECT_ADDRESS.sub("", file)
    path = posixpath.normpath(file) if file else ""
    if found := _PACKAGES.match(path):
        return path[found.end() :]
    for root in roots:
        if path.startswith(root):
            return path[len(root) :].removeprefix("src/")
    if found := _STDLIB.match(path):
        return path[found.end() :]
    if path.startswith(("/", "..")):
        return posixpath.basename(path)
    return path


def native_module(library: str) -> str:
    """Return the library's file name, ``kernel``, ``jit``, ``anon`` or ``unknown``."""
    library = library.removesuffix(" (deleted)")
    if library in ("", "[unknown]"):
        return "unknown"
    if _JIT.search(library):
        return "jit"
    if _MEMORY.match(library):
        return "anon"
    if library in _USER_BRACKETS:
        return library[1:-1]
    if is_kernel(library):
        return KERNEL
    return _WHEEL_HASH.sub("", posixpath.basename(library))


def is_kernel(library: str) -> bool:
    """Whether perf names the kernel, one of its modules or a BPF program."""
    if library.startswith("["):
        return not (library in _USER_BRACKETS or _MEMORY.match(library) or _JIT.search(library))
    return library.startswith("bpf_prog_") or bool(_KERNEL_MODULE.match(library))


def native_name(symbol: str) -> str:
    """Return a symbol without version, clone suffix, Rust hash and C++ parameters."""
    name = _SYMBOL_VERSION.sub("", symbol) or symbol
    name = _without_clones(name) or name
    name = _RUST_HASH.sub("", name) or name
    return _without_parameters(name)


def _without_clones(name: str) -> str:
    """Cut off ``.part.0.cold`` and the like: from the end on, so that a long name takes no time."""
    end = kept = len(name)
    while (dot := name.rfind(".", 0, end)) >= 0:
        part = name[dot + 1 : end]
        if part in _CLONES:
            kept = dot
        elif not (part.isascii() and part.isdigit()):
            break
        end = dot
    return name[:kept]


def _without_qualifiers(name: str) -> str:
    """Cut off what may follow a parameter list, from the end on."""
    end = len(name)
    while True:
        start = end
        if name.endswith("]", 0, end):
            opening = name.rfind("[", 0, end)
            if opening >= 0 and name.startswith(_BRACKETED, opening, end):
                start = opening
        else:
            found = next((word for word in _QUALIFIERS if name.endswith(word, 0, end)), "")
            start = end - len(found)
        if start == end:
            return name[:end]
        end = start - 1 if name.endswith(" ", 0, start) else start


def _made_at_run_time(symbol: str) -> str:
    """Return a name that a compiler gave while the program ran, without address and directory."""
    return native_name(_DIRECTORIES.sub("", _ANY_ADDRESS.sub("", symbol)))


def _without_parameters(name: str) -> str:
    bare = _without_qualifiers(name)
    if not bare.endswith(")"):
        return name
    depth = 0
    for index in range(len(bare) - 1, -1, -1):
        depth += (bare[index] == ")") - (bare[index] == "(")
        if depth == 0:
            kept = bare[:index]
            # "operator()" and "(anonymous namespace)" end in parentheses of their own.
            return name if not kept or kept.endswith(("operator", "::")) else kept
    return name


def _split_python(text: str) -> tuple[str, str]:
    for separator in (":/", ":<"):
        name, found, file = text.rpartition(separator)
        if found:
            return name, separator[1] + file
    name, found, file = text.rpartition(":")
    return (name, file) if found else (text, "")


def _module(module: str) -> str:
    text = escape(module)
    if text == KERNEL:  # only the kernel's own frames may carry its name
        return escaped_character("k") + text[1:]
    # A label is read back by its last " (" or " [": none may stand inside a module.
    return text.replace(" (", "\\x20(").replace(" [", "\\x20[")


WORKLOAD = "measured_sequences"
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
