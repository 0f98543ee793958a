"""Load llama.cpp in the process that is going to be observed."""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING, Any, Protocol

from pytest_flamegate.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from pytest_flamegate.workload.child import Generate

ADAPTERS = {
    "xllamacpp": "pytest_flamegate.workload.llama.xllamacpp",
    "llama-cpp-python": "pytest_flamegate.workload.llama.llama_cpp_python",
}
_LOG_PREFIX = re.compile(r"^[\d.]+ [A-Z] ")
_TOLD = re.compile(r"error loading model: *(.+)")
_REASON = re.compile(r"(?i)error|fail|not|cannot|unknown|invalid")
_READ_BYTES = 65536


class Adapter(Protocol):
    """What the module of each library brings."""

    def load(self, library: ModuleType, asked: Mapping[str, Any]) -> Generate:
        """Load the model; ``RefusedError`` where the library would not."""


class RefusedError(Exception):
    """llama.cpp did not take the model, or the context asked for; its log says why."""


def load_engine(load: dict[str, Any]) -> Generate:
    """Import ``load["module"]`` and have it load the model.

    ``load`` holds ``library``, ``model``, ``threads``, ``seed``, ``context`` (tokens),
    ``batch`` (tokens, None leaves it to the library) and ``gpu_layers``. ``ToolError``:
    ``E_NO_LIBRARY``, ``E_LIBRARY_BROKEN``, ``E_MODEL_REFUSED``.
    """
    library = _imported(load["library"], load["module"])
    adapter: Adapter = importlib.import_module(ADAPTERS[load["library"]])
    before = _log_bytes()
    try:
        return adapter.load(library, load)
    except RefusedError as error:
        raise ToolError(
            "E_MODEL_REFUSED",
            f"llama.cpp did not load {os.path.basename(load['model'])!r}: "  # noqa: PTH119
            f"{_why(before) or error}.",
            "Check that the file is whole and that this version of llama.cpp knows its "
            "architecture; a newer library may.",
        ) from None
    except (AttributeError, TypeError) as error:
        raise ToolError(
            "E_LIBRARY_BROKEN",
            f"The library {load['library']} is not as this engine knows it: {error}.",
            f"Install another version: pip install --upgrade {load['library']}.",
        ) from None


def _imported(library: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise ToolError(
                "E_NO_LIBRARY",
                f"The library {library} is not installed here.",
                f"Install it: pip install {library}.",
            ) from None
        why: Exception = error
    except Exception as error:  # a native library can fail in any way
        why = error
    raise ToolError(
        "E_LIBRARY_BROKEN",
        f"The library {library} is installed and cannot be imported: {type(why).__name__}: {why}.",
        f"Install it anew: pip install --force-reinstall {library}.",
    )


def _log_bytes() -> int:
    try:
        return os.fstat(2).st_size
    except OSError:
        return 0


def _why(start: int) -> str:
    """Return what llama.cpp's log says of its failure; the observer gave this process a file.

    Empty where standard error cannot be read again.
    """
    try:
        log = os.pread(2, _READ_BYTES, start).decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [_LOG_PREFIX.sub("", line).strip() for line in log.splitlines()]
    for line in lines:
        if found := _TOLD.search(line):
            return found[1].rstrip(".")
    return next((line.rstrip(".") for line in lines if _REASON.search(line)), "")
