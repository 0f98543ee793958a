"""Find the model file of a workload, the way people lay them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError

if TYPE_CHECKING:
    from pathlib import Path

_PLACES = ("models/microsoft-bitnet-b1.58-2B-4T-gguf/*.gguf", "models/**/*.gguf", "*.gguf")
_LISTED = 8


def find_model(declared: str | None, directory: Path) -> Path:
    """Return the one model file meant by a path or pattern, or by the usual places.

    ``ToolError``: ``E_MODEL_MISSING`` names where it looked, ``E_MODEL_AMBIGUOUS``
    lists the candidates.
    """
    patterns = _PLACES if declared is None else (declared,)
    for pattern in patterns:
        found = _matches(pattern, directory)
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(str(path) for path in found[:_LISTED])
            more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            raise ToolError(
                "E_MODEL_AMBIGUOUS",
                f"{len(found)} model files match {pattern!r}: {listed}{more}.",
                'Name one: model = "path/to/model.gguf".',
            )
    raise ToolError(
        "E_MODEL_MISSING",
        f"No model file was found in {directory.resolve()}: looked for {', '.join(patterns)}.",
        'Put a GGUF file there or name one: model = "path/to/model.gguf"; '
        "the embedded engine needs none.",
    )


def _matches(pattern: str, directory: Path) -> list[Path]:
    exact = directory / pattern
    if exact == directory:
        return []
    try:
        if exact.is_file():
            return [exact]
        return sorted(path for path in directory.glob(pattern) if path.is_file())
    except (NotImplementedError, ValueError, OSError, RecursionError):
        # An absolute path, or a name too long for any file, is no pattern.
        return []
