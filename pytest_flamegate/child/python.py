"""A Python function that yields tokens: ``target = "module:function"``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_flamegate.child.wire import tokens_of
from pytest_flamegate.core.errors import ToolError

if TYPE_CHECKING:
    from pytest_flamegate.child.serve import Generate

_LONGEST_NAME = 200
_NOT_OWN = frozenset({"__main__", "pytest_flamegate"})
_VERSION_FILES = frozenset({"__about__.py", "_version.py", "version.py"})
_VERSION = re.compile(
    r"\w*(?:version|commit|revision|build_?date)\w*\s*(?::[^=]*)?=(?!=)|\s*$", re.IGNORECASE
)
KERNEL_TRACE = "FLAMEGATE_KERNEL_TRACE"
"""The environment variable with the directory for the traces, in the one run that is traced."""


def load_engine(load: dict[str, Any]) -> Generate:
    """Import ``load["target"]`` from ``load["directory"]`` in the child and return it.

    ``load`` may have ``inject``, a function to slow with its extra percent (see ``inject.slow``),
    and ``kernel_trace``, ``torch`` or ``target`` with the directory for its traces. Raises
    ``ToolError`` ``E_TARGET_NOT_FOUND``, ``E_OTHER_CODE`` if another copy of a module than the
    project's was imported, or ``E_NO_LIBRARY`` if torch is to trace and is missing.
    """
    tracer, directory = load.get("kernel_trace", (None, None))
    if directory is not None:
        os.environ[KERNEL_TRACE] = directory  # the target may read it as early as it likes
    # An injection must not find the standard library that this child itself uses.
    own = set(sys.modules)
    target, module = _import_target(load["target"], load["directory"])
    if "checkout" not in load:
        _require_own_code(load["directory"])
    if "inject" in load:
        imported = [each for name, each in sys.modules.items() if name not in own]
        target = _slow_function(target, load, [*imported, module])
    return trace_with_torch(target, directory) if tracer == "torch" else target


def _import_target(target: str, directory: str) -> tuple[Generate, ModuleType]:
    sys.path.insert(0, directory)
    module_name = target.partition(":")[0]
    try:
        function: Any = resolve_name(target)
    except (ImportError, AttributeError) as error:
        is_missing = isinstance(error, ModuleNotFoundError) and (
            f"{module_name}.".startswith(f"{error.name}.")  # itself, or a package it lies in
        )
        if isinstance(error, ImportError) and not is_missing:
            raise  # the target is there, and what it imports is not
        raise ToolError(
            "E_TARGET_NOT_FOUND",
            f"The target {target!r} cannot be imported: {error}.",
            _suggest_function(error)
            or f"It is searched for in {directory} and the installed packages.",
        ) from None
    if not callable(function):
        raise ToolError("E_TARGET_NOT_FOUND", f"The target {target!r} is no function.")
    return function, sys.modules[module_name]


def _require_own_code(directory: str) -> None:
    """Raise ``E_OTHER_CODE`` if a module came from another copy than the project's, as an old one.

    The results would be filed under the project's commit. The project is the directory and the
    repository around it. A copy of the same source, as an installed package has, is the same code.
    """
    place = Path(directory).resolve()
    top = next((each for each in (place, *place.parents) if (each / ".git").exists()), place)
    roots = [place, *dict.fromkeys((place / "src", top / "src"))]
    modules = list(sys.modules.items())
    names = {name.partition(".")[0] for name, _ in modules} - sys.stdlib_module_names - _NOT_OWN
    own = {
        name
        for name in names
        if name.isidentifier()
        and len(name) < _LONGEST_NAME
        and any((root / each).exists() for root in roots for each in (name, f"{name}.py"))
    }
    for name, module in modules:
        if name.partition(".")[0] not in own or not isinstance(module, ModuleType):
            continue
        # Asked in any other way, a module that is to be loaded late is loaded.
        file = ModuleType.__getattribute__(module, "__dict__").get("__file__")
        if isinstance(file, str) and file.endswith(".py"):
            places = [root.joinpath(*name.split(".")) for root in roots]
            files = [each.with_name(f"{each.name}.py") for each in places]
            files += [each / "__init__.py" for each in places]
            _compare_source(name, Path(file).resolve(), top, files)


def _compare_source(name: str, imported: Path, top: Path, sources: Sequence[Path]) -> None:
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(imported.parts)
    if (imported.is_relative_to(top) and not is_installed) or imported.name in _VERSION_FILES:
        return
    with suppress(OSError, UnicodeDecodeError):
        for own in filter(Path.is_file, sources):
            if _read_code(own) != _read_code(imported):
                raise ToolError(
                    "E_OTHER_CODE",
                    f"{name} is imported from {imported}, which differs from {own}: other code "
                    "than this directory's would be measured.",
                )


def _read_code(path: Path) -> list[str]:
    """Return the lines of a file but empty ones and those that a build writes versions into."""
    lines = path.read_text("utf-8").splitlines()
    return [each for each in lines if not _VERSION.match(each)]


def _suggest_function(error: ImportError | AttributeError) -> str:
    """Return the closest name in the module that lacks one; empty if there is no function in it."""
    # Imported here: a target that is found needs none of it.
    from pytest_flamegate.core.text import suggest

    module = error.obj if isinstance(error, AttributeError) else None
    if not isinstance(module, ModuleType) or not isinstance(error.name, str):
        return ""
    functions = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
    ]
    return suggest(error.name, functions) if functions else ""


def _slow_function(target: Generate, load: dict[str, Any], modules: list[ModuleType]) -> Generate:
    from pytest_flamegate.child.inject import slow

    frame, extra_pct = load["inject"]
    slowed = slow(frame, extra_pct, modules)

    def generate(prompt: str, max_tokens: int) -> Iterable[Any]:
        tokens = target(prompt, max_tokens)
        if max_tokens < load["max_tokens"]:  # a warm-up may call less than a whole sequence does
            return tokens
        # Chained in C, for a profile without one more Python frame above every other.
        return chain(tokens, slowed.checked())

    return _with_attributes(generate, target)


def _with_attributes(generate: Generate, target: Generate) -> Generate:
    """Give ``generate``, which calls ``target``, what an engine may have beside its tokens."""
    for name in ("facts", "reports", "mark_bricks"):
        if hasattr(target, name):
            setattr(generate, name, getattr(target, name))
    return generate


def trace_with_torch(target: Generate, directory: str) -> Generate:
    """Return ``target`` with a trace of each of its calls written into ``directory``."""
    try:
        from torch import profiler  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ToolError(
            "E_NO_LIBRARY",
            f'kernel_trace = "torch" needs torch, which cannot be imported: {error}.',
            'Install torch with the target, or write kernel_trace = "target" and have it write a '
            "trace itself.",
        ) from None
    numbers = count()

    def generate(prompt: str, max_tokens: int) -> Iterable[Any]:
        with profiler.profile(activities=profiler.supported_activities()) as recorded:
            tokens = list(tokens_of(target(prompt, max_tokens)))
        recorded.export_chrome_trace(f"{directory}/torch-{next(numbers)}.json.gz")
        return tokens

    return _with_attributes(generate, target)
