"""Normalise what a profiler prints into a ``Frame`` that is the same on every machine.

Addresses, process ids and absolute prefixes differ from run to run: with them two profiles of
one program would differ. Names come from code under test and may hold any character.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath

from pytest_flamegate.core import PACKAGE
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import escape_character, escape_name, is_clean
from pytest_flamegate.profile.model import Frame, FrameKind, Profile, SourceLine, Stack

KERNEL = "kernel"
UNKNOWN = Frame("[unknown]", "unknown", "native")
_TRAMPOLINES = frozenset({"py_trampoline_evaluator", "_Py_trampoline_func_start"})
_JIT_MODULES = frozenset({"jit", "anon", "unknown"})
_USER_BRACKETS = frozenset({"[vdso]", "[vsyscall]", "[unknown]"})
_KERNEL_MODULE = re.compile(r"(?:/usr)?/lib/modules/.*\.ko(?:\.[a-z0-9]+)?$")
_MEMORY = re.compile(
    r"//anon|/memfd:|/dev/zero|/SYSV|anon_inode:|\[(?:heap|stack|anon|uprobes)"
    r"|/(?:proc/[^/]+|dev)/fd/\d+$"
)
JIT_FILE = re.compile(r"(?:/perf-\d+\.map|/jitted-\d+-\d+\.so|^\[JIT\] tid \d+)$")
_PACKAGES = re.compile(r"^.*/(?:(?:site|dist)-packages/(?:[^/]+\.egg/)?|[^/]+\.whl/)")
_STDLIB = re.compile(r"^.*/lib(?:64)?/python\d{1,3}(?:\.\d{1,3}|\d{0,3}\.zip)/")
_WHEEL_HASH = re.compile(r"-[0-9a-f]{8}(?=\.so)")
_ADDRESS = re.compile(r"(?:\[?0x[0-9a-fA-F]+\]?|\[unknown\])")
_OFFSET = re.compile(r"\+0x[0-9a-fA-F]+(?:/0x[0-9a-fA-F]+)?$")
_OBJECT_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ANY_ADDRESS = re.compile(r"[ _@:-]?\[?0x[0-9a-fA-F]+\]?")
_DIRECTORIES = re.compile(r"(?<![^\s:(])/(?:[^/\s]+/)+")
_SYMBOL_VERSION = re.compile(r"@{1,2}(?!plt$)[A-Za-z_][\w.]*$")
_MAX_LINE = 999_999_999
_CLONES = frozenset({"constprop", "isra", "part", "cold", "lto_priv", "llvm", "localalias"})
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$|(?<=17)h[0-9a-f]{16}(?=E$)|(?<=\w)\[[0-9a-f]{8,16}\]")
_QUALIFIERS = ("const", "volatile", "noexcept", "&")
_BRACKETED = ("[clone ", "[abi:")


def path_prefixes(project: Path | None) -> tuple[str, ...]:
    """Return the directories, longest first, below which paths become relative."""
    roots = [PACKAGE.parent]
    if project is not None:
        roots += [project.absolute(), project.resolve()]
    names = {root.as_posix().rstrip("/") + "/" for root in roots}
    return tuple(sorted(names - {"/"}, key=lambda name: (-len(name), name)))


def make_python_frame(name: str, file: str, roots: Sequence[str] = ()) -> Frame:
    """Return the frame of the Python function ``name`` in ``file``."""
    name = _OBJECT_ADDRESS.sub("", name)
    return Frame(escape_name(name), escape_module(shorten_python_path(file, roots)), "python")


def make_native_frame(symbol: str, library: str, roots: Sequence[str] = ()) -> Frame | None:
    """Return the frame of a symbol as perf prints it; None for a trampoline.

    ``py::name:file``, the notation of CPython's jitdump, becomes a Python frame. A symbol that is
    only an address becomes ``[library]``.
    """
    if symbol.startswith("py::") and JIT_FILE.search(library):
        return make_python_frame(*_split_python(symbol[4:]), roots)
    if symbol in _TRAMPOLINES:
        return None
    module = shorten_library_path(library)
    symbol = _OFFSET.sub("", symbol)
    if not symbol or _ADDRESS.fullmatch(symbol):
        if module == "unknown":
            return UNKNOWN
        name = f"[{module}]"
    elif module in _JIT_MODULES:
        bare = _DIRECTORIES.sub("", _ANY_ADDRESS.sub("", symbol))  # others in every run
        name = shorten_symbol(bare) or f"[{module}]"
    else:
        name = shorten_symbol(symbol)
    if is_kernel_library(library):
        return Frame(escape_name(name), KERNEL, "system")
    return Frame(escape_name(name), escape_module(module), "native")


def make_source_line(file: str, line: int, roots: Sequence[str]) -> SourceLine | None:
    """Return a line of a file below one of ``roots``, which end in ``/``; else None.

    Installed packages are no part of a project. ``line`` counts from 1; 0 is unknown.
    """
    file = posixpath.normpath(file)  # a compiler leaves "build/../src/run.c"
    if not 1 <= line <= _MAX_LINE or _PACKAGES.match(file) or _STDLIB.match(file):
        return None
    for root in roots:
        if file.startswith(root):
            path = file[len(root) :]
            return SourceLine(path, line) if is_clean(path) else None
    return None


def make_stack(root_first: Iterable[Frame | None]) -> Stack:
    """Return a stack of the frames that are not None, ``(UNKNOWN,)`` if there is none.

    Frames without a name cannot be distinguished: one stands for a run of them.
    """
    stack: list[Frame] = []
    for frame in root_first:
        if frame is None:  # a trampoline
            continue
        nameless = frame.kind != "python" and frame.name.startswith("[")
        if not (nameless and stack and frame == stack[-1]):
            stack.append(frame)
    return tuple(stack) or (UNKNOWN,)


def shorten_python_path(file: str, roots: Sequence[str]) -> str:
    """Return the part of a path that is the same in every environment and checkout."""
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


def shorten_library_path(library: str) -> str:
    """Return the library's file name, ``kernel``, ``jit``, ``anon`` or ``unknown``."""
    library = library.removesuffix(" (deleted)")
    if library in ("", "[unknown]"):
        return "unknown"
    if JIT_FILE.search(library):
        return "jit"
    if _MEMORY.match(library):
        return "anon"
    if library in _USER_BRACKETS:
        return library[1:-1]
    if is_kernel_library(library):
        return KERNEL
    return _WHEEL_HASH.sub("", posixpath.basename(library))


def is_kernel_library(library: str) -> bool:
    """Whether ``library`` is the kernel, one of its modules or a BPF program."""
    if library.startswith("["):
        return not (library in _USER_BRACKETS or _MEMORY.match(library) or JIT_FILE.search(library))
    return library.startswith("bpf_prog_") or bool(_KERNEL_MODULE.match(library))


def shorten_symbol(symbol: str) -> str:
    """Return ``symbol`` without version, clone suffix, Rust hash and C++ parameters."""
    name = _SYMBOL_VERSION.sub("", symbol) or symbol
    name = _without_clones(name) or name
    name = _RUST_HASH.sub("", name) or name
    return _without_parameters(name)


def _without_clones(name: str) -> str:
    """Cut off suffixes like ``.part.0.cold``, from the end, so that a long name takes no time."""
    end = bare_end = len(name)
    while (dot := name.rfind(".", 0, end)) >= 0:
        part = name[dot + 1 : end]
        if part in _CLONES:
            bare_end = dot
        elif not (part.isascii() and part.isdigit()):
            break
        end = dot
    return name[:bare_end]


def _without_qualifiers(name: str) -> str:
    """Cut off qualifiers after a parameter list, from the end."""
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


def _without_parameters(name: str) -> str:
    bare = _without_qualifiers(name)
    if not bare.endswith(")"):
        return name
    depth = 0
    for index in range(len(bare) - 1, -1, -1):
        depth += (bare[index] == ")") - (bare[index] == "(")
        if depth == 0:
            shorter = bare[:index]
            # "operator()" and "(anonymous namespace)" end in parentheses of their own.
            return name if not shorter or shorter.endswith(("operator", "::")) else shorter
    return name


def _split_python(text: str) -> tuple[str, str]:
    for separator in (":/", ":<"):
        name, found, file = text.rpartition(separator)
        if found:
            return name, separator[1] + file
    name, found, file = text.rpartition(":")
    return (name, file) if found else (text, "")


def escape_module(module: str) -> str:
    """Return ``module`` as it can stand in a frame of any program."""
    text = escape_name(module)
    if text == KERNEL:  # only the kernel's own frames may have its name
        return escape_character("k") + text[1:]
    # A frame is read back by its last " (" or " [": a module may hold neither.
    return text.replace(" (", "\\x20(").replace(" [", "\\x20[")


CODE = "E_PROFILE_FILE"
_COUNT = re.compile(r"[1-9][0-9]{0,14}")


@lru_cache(maxsize=65536)
def format_frame(frame: Frame) -> str:
    """Return ``gemv (kernels.py)``; ValueError for a frame that would not read back as itself."""
    opening, closing = ("(", ")") if frame.kind == "python" else ("[", "]")
    text = f"{frame.name} {opening}{frame.module}{closing}"
    if is_clean(text) and _parse_frame(text) == frame:
        return text
    raise ValueError(f"{tuple(frame)!a} is not normalised")


def fold_profile(profile: Profile) -> str:
    """Return the profile's stacks as folded text."""
    stacks = profile.stacks.items()
    return write_rows((";".join(map(format_frame, stack)), samples) for stack, samples in stacks)


def parse_folded(text: str) -> Mapping[Stack, int]:
    """Return the stacks of folded text. Raises ``ReceiptError`` ``E_PROFILE_FILE``."""
    stacks: dict[Stack, int] = {}
    for number, path, samples in read_rows(text):
        stack = _parse_stack(path)
        if stack is None:
            raise folded_error(f"line {number} holds a frame that flamegate does not write")
        stacks[stack] = samples
    return stacks


def write_rows(rows: Iterable[tuple[str, int]]) -> str:
    """Return paths and their samples as text, sorted, each line ending in a newline."""
    return "".join(sorted(f"{path} {samples}\n" for path, samples in rows))


def read_rows(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield the number, path and samples of each line that ``write_rows`` wrote.

    Raises ``ReceiptError`` ``E_PROFILE_FILE`` for any other line, and for a path that repeats.
    """
    if text and not text.endswith("\n"):
        raise folded_error("the last line is cut off")
    paths: set[str] = set()
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        path, separator, count = line.rpartition(" ")
        if not separator or not _COUNT.fullmatch(count):
            raise folded_error(f"line {number} does not end in a number of samples")
        if path in paths:
            raise folded_error(f"the stack of line {number} occurred before")
        paths.add(path)
        yield number, path, int(count)


# The profiles of one program have the same stacks.
@lru_cache(maxsize=4096)
def _parse_stack(path: str) -> Stack | None:
    """Return the frames of a line without its count; None if flamegate does not write it so."""
    frames = [_parse_frame(part) for part in path.split(";")] if path else []
    stack = tuple([frame for frame in frames if frame is not None])
    is_written = len(stack) == len(frames) and is_clean(path.replace(";", ""))
    return stack if is_written else None


@lru_cache(maxsize=65536)
def _parse_frame(text: str) -> Frame | None:
    if text.endswith(")"):
        return _split_frame(text, " (", "python")
    if text.endswith(f" [{KERNEL}]"):
        return _split_frame(text, " [", "system")
    return _split_frame(text, " [", "native") if text.endswith("]") else None


def _split_frame(text: str, separator: str, kind: FrameKind) -> Frame | None:
    name, found, module = text[:-1].rpartition(separator)
    return Frame(name, module, kind) if found else None


def folded_error(reason: str) -> ReceiptError:
    """Build the error for folded text that flamegate did not write."""
    return ReceiptError(
        CODE,
        f"The folded text is malformed: {reason}.",
        "Restore the file from version control or from its run, or measure again.",
    )


_WAITS = frozenset(
    {
        ("selectors.py", "select"),
        ("socket.py", "accept"),
        ("socket.py", "readinto"),
        ("threading.py", "wait"),
    }
)


def is_wait(name: str, path: str, roots: Sequence[str] = ()) -> bool:
    """Whether a function of Python's standard library only waits.

    Each sample of py-spy wakes such a thread. On a shared core it is ready to run until it waits
    again, so that the next sample takes it for busy. py-spy itself recognises some of them, by
    names without the class, which Python 3.10 was the last to have.
    """
    of_library = _STDLIB.match(path) and not path.startswith(tuple(roots))
    return bool(of_library) and (PurePath(path).name, name.rpartition(".")[2]) in _WAITS
