"""Find the model and the tokenizer of a workload in the usual places."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.files import is_file, path_text, real_path
from pytest_flamegate.models.facts import read_model
from pytest_flamegate.models.files import model_files, parse_part_name
from pytest_flamegate.models.gguf import read_header

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
"""Places that are searched for a model in this order, before the hub's cache."""
_TOKENIZERS = ("tokenizer.json", "tokenizer.model")
_HUB_PATTERN = "**/*.gguf"
_VOCABULARY = "tokenizer.ggml.tokens"
_LISTED = 8
_MAX_REVISION_BYTES = 256


def find_files(directory: Path, pattern: str) -> list[Path]:
    """Return the files below ``directory`` that match ``pattern``, in order of their paths.

    ``*``, ``?`` and ``[…]`` match parts of a name and ``**`` any directories, but no links.
    """
    path = Path(re.sub(r"(?:\*\*/)+", "**/", pattern))
    try:
        found = (directory / path.anchor).glob(str(path.relative_to(path.anchor)))
        return sorted(filter(is_file, found))
    except (OSError, ValueError, RecursionError, IndexError):
        return []  # an empty pattern, or a name that no file can have


def hub_cache() -> Path:
    """Return the cache directory of the Hugging Face hub's own tools, by their variables."""
    for name, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if value := os.environ.get(name):
            return Path(os.path.expanduser(value), below)  # noqa: PTH111 - raises without a home
    return Path(os.path.expanduser("~/.cache/huggingface/hub"))  # noqa: PTH111


def find_hub_files(pattern: str) -> list[Path]:
    """Return the files of all models in the hub's cache that match ``pattern`` below a snapshot.

    Of several snapshots of a model only the one that ``refs/main`` names is searched, or all if
    it names none. A link that leads out of the cache is ignored.
    """
    cache = hub_cache()
    inside = real_path(cache)
    found: list[Path] = []
    for model in sorted(inside.glob("models--*")):
        # The hub's tools link only files, so a linked directory is not theirs.
        snapshots = [
            each for each in sorted((model / "snapshots").glob("*")) if real_path(each) == each
        ]
        main = model / "snapshots" / _read_main(model)
        for snapshot in [main] if main in snapshots else snapshots:
            found += find_files(snapshot, pattern)
    return [
        cache / path.relative_to(inside) for path in found if real_path(path).is_relative_to(inside)
    ]


def _read_main(model: Path) -> str:
    try:
        with (model / "refs" / "main").open("rb") as file:
            return file.read(_MAX_REVISION_BYTES).decode("ascii", "replace").strip()
    except (OSError, ValueError):
        return ""


def find_model(declared: str | None, directory: Path) -> Path:
    """Return the one model that a path or pattern selects, or the one in the usual places.

    These are ``PLACES`` below ``directory``, then the hub's cache. The first place that holds a
    model decides. A split model is its first part, and needs all others next to it. Projectors
    (``mmproj…``) are no models.

    Raises:
        ToolError: ``E_MODEL_MISSING``, ``E_MODEL_AMBIGUOUS`` if there are several,
            ``E_MODEL_PARTS``.
    """
    if declared is not None and is_file(directory / declared):
        return _require_parts(directory / declared)
    searched = []
    for place, found in _search_places(declared, directory):
        models = _models(found, named=declared is not None)
        if len(models) == 1:
            return _require_parts(models[0])
        if models:
            raise _ambiguous_error(models, place, directory)
        searched.append(place)
    raise ToolError(
        "E_MODEL_MISSING",
        f"No model file was found in {path_text(real_path(directory))}: "
        f"searched {', '.join(searched)}.",
        'Name one, model = "path/to/model.gguf", or fetch one: '
        f"hf download microsoft/bitnet-b1.58-2B-4T-gguf --local-dir {_BITNET}; "
        "the embedded engine needs none.",
    )


def find_tokenizer(directory: Path, model: Path | None) -> Path:
    """Return the tokenizer of ``model``, or of the BitNet directory if that is None.

    It is ``tokenizer.json`` or ``tokenizer.model`` next to the model, in ``models/`` or in
    ``directory``, else the model itself if it contains a vocabulary.

    Raises ``ToolError`` ``E_TOKENIZER_MISSING``.
    """
    first = directory / _BITNET if model is None else model.parent
    places = dict.fromkeys((first, directory / "models", directory))
    for place in places:
        for name in _TOKENIZERS:
            if is_file(place / name):
                return place / name
    if model is not None:
        with suppress(FlamegateError):
            if _VOCABULARY in read_header(model).metadata:
                return model
    searched = ", ".join(path_text(place) for place in places)
    inside = "" if model is None else f", and {path_text(model)} contains none"
    raise ToolError(
        "E_TOKENIZER_MISSING",
        f"No tokenizer was found: searched for {' and '.join(_TOKENIZERS)} in {searched}{inside}.",
        'Name it: tokenizer = "path/to/tokenizer.json".',
    )


def describe_model(model: Path) -> str:
    """Return a model's size and main quantisation: ``1.2 GB, I2_S``, or that it cannot be read."""
    try:
        size_bytes = sum(path.stat().st_size for path in model_files(model))
        kind = next(iter(read_model(model).quantisation), "no weights")
    except (FlamegateError, OSError) as error:
        return getattr(error, "code", "unreadable")
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}, {kind}"
    return f"{size_bytes / 1e3:.1f} kB, {kind}"


def _search_places(declared: str | None, directory: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield each place that is searched, in words, with the files found there."""
    if declared is not None:
        yield path_text(declared), find_files(directory, declared)
        return
    for pattern in PLACES:
        yield pattern, find_files(directory, pattern)
    hub = f"{path_text(hub_cache())}/models--*/snapshots/*/{_HUB_PATTERN}"
    yield hub, find_hub_files(_HUB_PATTERN)


def _models(found: list[Path], *, named: bool) -> list[Path]:
    """Return the models among files, each once; a split model by its first part."""
    models: dict[Path, Path] = {}
    for path in found:
        part = parse_part_name(path)
        if part is not None and part[1] > 1:
            stem, _, count = part
            first = path.with_name(f"{stem}-00001-of-{count:05d}.gguf")
            path = first if is_file(first) else path
        if named or not path.name.lower().startswith("mmproj"):
            models.setdefault(real_path(path), path)
    return list(models.values())


def _require_parts(model: Path) -> Path:
    """Return ``model``; raises ``E_MODEL_PARTS`` if a part of it is missing."""
    model_files(model)
    return model


def _ambiguous_error(models: list[Path], place: str, directory: Path) -> ToolError:
    listed = ", ".join(
        f"{path_text(path.relative_to(directory) if path.is_relative_to(directory) else path)} "
        f"({describe_model(path)})"
        for path in models[:_LISTED]
    )
    more = f" and {len(models) - _LISTED} more" if len(models) > _LISTED else ""
    return ToolError(
        "E_MODEL_AMBIGUOUS",
        f"{len(models)} model files match {place!r}: {listed}{more}.",
        'Name one: model = "path/to/model.gguf".',
    )
