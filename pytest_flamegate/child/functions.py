"""Find a Python function by the name that a profile shows."""

from __future__ import annotations

import difflib
import gc
import importlib
import sysconfig
from collections.abc import Iterable, Sequence
from types import FunctionType, ModuleType

from pytest_flamegate.core.errors import UsageError

_SUGGESTIONS = 5
_SIMILARITY = 0.5
_PACKAGES = ("/site-packages/", "/dist-packages/")


def find_function(frame: str, modules: Iterable[ModuleType]) -> tuple[FunctionType, ...]:
    """Return every object of the function ``frame``: a closure may exist many times.

    ``frame`` is a bare name, ``Class.method`` or ``module.qualname``, searched for among the
    functions defined in ``modules``; or ``module:qualname``, whose module is imported.
    The project's own functions have precedence over those of installed packages.

    Raises:
        UsageError: ``E_UNKNOWN_FRAME``, ``E_AMBIGUOUS_FRAME``; both suggest functions.
    """
    known = _find_functions(modules)
    module_name, colon, qualname = frame.rpartition(":")
    if colon:
        imported = _find_functions([_import_module(module_name, frame)])
        found = [each for each in imported if _qualname(each) == qualname]
        known = [*imported, *known]
    else:
        found = [each for each in known if f".{_dotted(each)}".endswith(f".{frame}")]
    found = [each for each in found if _is_project(each)] or found
    names = sorted({format_function(each) for each in found})
    if not names:
        raise _unknown_frame(frame, known)
    if len(names) > 1:
        raise UsageError(
            "E_AMBIGUOUS_FRAME",
            f"{len(names)} functions are called {frame!r}: {', '.join(names)}.",
            "Use one of these names.",
        )
    return tuple(found)


def format_function(function: FunctionType) -> str:
    """Return ``module:qualname``, which ``find_function`` accepts."""
    return f"{_module(function)}:{_qualname(function)}"


def _find_functions(modules: Iterable[ModuleType]) -> list[FunctionType]:
    """Return all functions defined in ``modules``.

    The garbage collector also knows those behind decorators, in classes, properties, closures
    and tables.
    """
    scopes = {id(vars(module)) for module in modules if isinstance(module, ModuleType)}
    return [
        each
        for each in gc.get_objects()
        if type(each) is FunctionType and id(each.__globals__) in scopes
    ]


def _import_module(module_name: str, frame: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except (ImportError, TypeError, ValueError) as error:
        raise UsageError(
            "E_UNKNOWN_FRAME",
            f"The module of {frame!r} cannot be imported: {error}.",
            "Write module:qualname, for example mypackage.ops:softmax.",
        ) from None


def _module(function: FunctionType) -> str:
    return str(function.__globals__.get("__name__", "?"))


def _qualname(function: FunctionType) -> str:
    """Return the name in the code, as profiles show it: decorators change ``__qualname__``."""
    return function.__code__.co_qualname.replace(".<locals>", "")


def _dotted(function: FunctionType) -> str:
    return f"{_module(function)}.{_qualname(function)}"


def _is_project(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    library = file.startswith((sysconfig.get_path("stdlib") + "/", "<frozen"))
    return not library and not any(part in file for part in _PACKAGES)


def _unknown_frame(frame: str, known: Sequence[FunctionType]) -> UsageError:
    similar = _find_similar(frame, known)
    return UsageError(
        "E_UNKNOWN_FRAME",
        f"No Python function {frame!r} is loaded by the workload"
        + (f"; similar: {', '.join(similar)}." if similar else "."),
        "Give a name as the profile shows it; if it is imported only during the call, write "
        "module:qualname. C functions, and functions made during the call, cannot be slowed.",
    )


def _find_similar(frame: str, known: Sequence[FunctionType]) -> list[str]:
    """Return functions with a similar name, the project's own first."""
    wanted = frame.rpartition(":")[2]
    similar: list[str] = []
    for project in (True, False):
        labels: dict[str, set[str]] = {}
        for each in known:
            if _is_project(each) is project:
                for name in (each.__code__.co_name, _qualname(each), _dotted(each)):
                    labels.setdefault(name, set()).add(format_function(each))
        for name in difflib.get_close_matches(wanted, labels, n=_SUGGESTIONS, cutoff=_SIMILARITY):
            similar += sorted(labels[name])
    return list(dict.fromkeys(similar))[:_SUGGESTIONS]
