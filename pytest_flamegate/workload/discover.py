"""Find the model and the tokenizer of a workload, the way people lay them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.errors import FlamegateError, ToolError
from pytest_flamegate.paths import is_file, real, shown
from pytest_flamegate.workload.gguf import read_header
from pytest_flamegate.workload.hub import hub_cache, hub_files
from pytest_flamegate.workload.model_files import model_files, part_of
from pytest_flamegate.workload.model_reading import read_model
from pytest_flamegate.workload.search import MOST_ENTRIES, Search

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BITNET = "models/microsoft-bitnet-b1.58-2B-4T-gguf"
_BITNET_FILE = "ggml-model-i2_s.gguf"
PLACES = (
    f"{_BITNET}/{_BITNET_FILE}",
    f"{_BITNET}/*.gguf",
    f"models/{_BITNET_FILE}",
    "models/**/*.gguf",
    _BITNET_FILE,
    "*.gguf",
)
"""Where a model is looked for, one after the other; then in the hub's cache."""
_TOKENIZERS = ("tokenizer.json", "tokenizer.model")
_HUB_PATTERN = "**/*.gguf"
_VOCABULARY = "tokenizer.ggml.tokens"
_LISTED = 8


@dataclass(frozen=True, slots=True)
class _Place:
    """A place that was searched, in words, and what was found there."""

    words: str
    found: list[Path]


def find_model(declared: str | None, directory: Path) -> Path:
    """Return the one model meant by a path or pattern, or found in the usual places.

    Those are ``PLACES`` below ``directory``, then the hub's cache, which is only read. The
    first place that holds a model decides. A split model is its first part, and all others
    must stand beside it; projectors (``mmproj…``) are no models.

    ``ToolError``: ``E_MODEL_MISSING`` names where it looked, ``E_MODEL_AMBIGUOUS`` lists the
    candidates, ``E_MODEL_SEARCH`` says that there was too much to look through,
    ``E_MODEL_PARTS`` which part of a split model is missing.
    """
    if declared is not None and is_file(directory / declared):
        return _whole(directory / declared)
    search = Search()
    looked = []
    for place in _places(search, declared, directory):
        models = _models(place.found, named=declared is not None)
        if not search.complete:
            raise _endless(place.words)
        if len(models) == 1:
            return _whole(models[0])
        if models:
            raise _ambiguous(models, place.words, directory)
        looked.append(place.words)
    unread = ", ".join(shown(path) for path in search.unread[:_LISTED])
    raise ToolError(
        "E_MODEL_MISSING",
        f"No model file was found in {shown(real(directory))}: looked for {', '.join(looked)}"
        f"{f'; not allowed to read {unread}' if unread else ''}.",
        'Name one, model = "path/to/model.gguf", or fetch one: '
        f"hf download microsoft/bitnet-b1.58-2B-4T-gguf --local-dir {_BITNET}; "
        "the embedded engine needs none.",
    )


def find_tokenizer(directory: Path, model: Path | None) -> Path:
    """Return the tokenizer of ``model`` (None for an engine that names none).

    Looked for as ``tokenizer.json``, then ``tokenizer.model``: beside the model, in
    ``models/``, in ``directory``. A GGUF file that carries its own vocabulary is its own
    tokenizer where there is none. Without a model the BitNet folder comes first.

    ``ToolError`` ``E_TOKENIZER_MISSING`` names where it looked.
    """
    first = directory / _BITNET if model is None else model.parent
    places = dict.fromkeys((first, directory / "models", directory))
    for place in places:
        for name in _TOKENIZERS:
            if is_file(place / name):
                return place / name
    if model is not None and _carries_vocabulary(model):
        return model
    looked = ", ".join(shown(place) for place in places)
    inside = "" if model is None else f", and {shown(model)} carries none"
    raise ToolError(
        "E_TOKENIZER_MISSING",
        f"No tokenizer was found: looked for {' and '.join(_TOKENIZERS)} in {looked}{inside}.",
        'Name it: tokenizer = "path/to/tokenizer.json".',
    )


def glance(model: Path) -> str:
    """Return a model's size and main quantisation: ``1.2 GB, I2_S``, or that it cannot be read."""
    try:
        size_bytes = sum(path.stat().st_size for path in model_files(model))
        told = next(iter(read_model(model).quantisation), "no weights")
    except (FlamegateError, OSError) as error:
        return getattr(error, "code", "unreadable")
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}, {told}"
    return f"{size_bytes / 1e3:.1f} kB, {told}"


def _places(search: Search, declared: str | None, directory: Path) -> Iterator[_Place]:
    if declared is not None:
        yield _Place(shown(declared), search.files(directory, declared))
        return
    for pattern in PLACES:
        yield _Place(pattern, search.files(directory, pattern))
    where = f"{shown(hub_cache())}/models--*/snapshots/*/{_HUB_PATTERN}"
    yield _Place(where, hub_files(search, _HUB_PATTERN))


def _models(found: list[Path], *, named: bool) -> list[Path]:
    """Return the models among files: each once, by its first name and its first part."""
    models: dict[Path, Path] = {}
    for path in found:
        part = part_of(path)
        if part is not None and part[1] > 1:
            stem, _, count = part
            first = path.with_name(f"{stem}-00001-of-{count:05d}.gguf")
            path = first if is_file(first) else path
        if named or not path.name.lower().startswith("mmproj"):
            models.setdefault(real(path), path)
    return list(models.values())


def _whole(model: Path) -> Path:
    """Return ``model`` once it is known that no part of it is missing."""
    model_files(model)
    return model


def _carries_vocabulary(model: Path) -> bool:
    try:
        return _VOCABULARY in read_header(model).metadata
    except FlamegateError:
        return False


def _ambiguous(models: list[Path], where: str, directory: Path) -> ToolError:
    listed = ", ".join(
        f"{shown(_relative(path, directory))} ({glance(path)})" for path in models[:_LISTED]
    )
    more = f" and {len(models) - _LISTED} more" if len(models) > _LISTED else ""
    return ToolError(
        "E_MODEL_AMBIGUOUS",
        f"{len(models)} model files match {where!r}: {listed}{more}.",
        'Name one: model = "path/to/model.gguf".',
    )


def _endless(where: str) -> ToolError:
    return ToolError(
        "E_MODEL_SEARCH",
        f"More than {MOST_ENTRIES:,} files and directories stand where a model was looked for "
        f"({where}), and not all were looked at.",
        'Name the model: model = "path/to/model.gguf".',
    )


def _relative(path: Path, directory: Path) -> Path:
    return path.relative_to(directory) if path.is_relative_to(directory) else path
