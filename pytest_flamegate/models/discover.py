"""Find the model and the tokenizer of a workload in the usual places."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.files import is_file, path_text, real_path
from pytest_flamegate.models.facts import read_model
from pytest_flamegate.models.files import model_files, parse_part_name
from pytest_flamegate.models.gguf import read_header

_MOST_REVISION_BYTES = 256


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


def hub_files(search: DirectorySearch, pattern: str) -> list[Path]:
    """Return the files of all models in the hub's cache that match ``pattern`` below a snapshot.

    Of several snapshots of a model only the one that ``refs/main`` names is searched, or all if
    it names none. A link that leads out of the cache is ignored.
    """
    cache = hub_cache()
    inside = real_path(cache)
    found: list[Path] = []
    for name in search.names(cache):
        if name.startswith("models--"):
            for snapshot in _snapshots(search, inside / name):
                found += search.files(snapshot, pattern)
    return [
        cache / path.relative_to(inside) for path in found if real_path(path).is_relative_to(inside)
    ]


def _snapshots(search: DirectorySearch, model: Path) -> list[Path]:
    # The hub's tools link only files, so a linked directory is not theirs.
    revisions = [
        name
        for name in search.names(model / "snapshots")
        if real_path(model / "snapshots" / name) == model / "snapshots" / name
    ]
    if len(revisions) > 1 and (main := _main(model)) in revisions:
        revisions = [main]
    return [model / "snapshots" / revision for revision in revisions]


def _main(model: Path) -> str:
    try:
        with (model / "refs" / "main").open("rb") as file:
            return file.read(_MOST_REVISION_BYTES).decode("ascii", "replace").strip()
    except (OSError, ValueError):
        return ""


MOST_ENTRIES = 50_000
"""The most names that one search inspects."""


class DirectorySearch:
    """One search, possibly through several places.

    Attributes:
        complete: False if the search reached its limit.
        unread: Directories that the system did not let it read.
    """

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self.complete = True
        self.unread: list[Path] = []
        self._left = most
        self._listed: dict[Path, list[os.DirEntry[str]]] = {}

    def files(self, directory: Path, pattern: str) -> list[Path]:
        """Return the files below ``directory`` that match, in order of their paths.

        ``*``, ``?`` and ``[…]`` match parts of a name and ``**`` any directories, but no links.
        """
        parts = _parts(pattern)
        if not parts or parts[-1] == "**":
            return []
        found: set[Path] = set()
        done: set[tuple[Path, int]] = set()
        pending = [(directory, 0)]
        while pending and self.complete:
            place = pending.pop()
            if place in done:
                continue
            done.add(place)
            here, at = place
            part, last = parts[at], at == len(parts) - 1
            if part == "**":
                pending.append((here, at + 1))
                pending += [(here / name, at) for name in self._directories(here)]
                continue
            names = self._matching(here, part) if _is_pattern(part) else [part]
            paths = [here / name for name in names]
            if last:
                found.update(filter(is_file, paths))
            else:
                pending += [(path, at + 1) for path in paths if os.path.isdir(path)]  # noqa: PTH112
        return sorted(found)

    def names(self, directory: Path) -> list[str]:
        """Return the sorted names in a directory; empty if it cannot be read."""
        return sorted(entry.name for entry in self._entries(directory))

    def _matching(self, directory: Path, part: str) -> list[str]:
        return [each.name for each in self._entries(directory) if fnmatchcase(each.name, part)]

    def _directories(self, directory: Path) -> list[str]:
        return [e.name for e in self._entries(directory) if e.is_dir(follow_symlinks=False)]

    def _entries(self, directory: Path) -> list[os.DirEntry[str]]:
        if directory not in self._listed:
            self._listed[directory] = self._scanned(directory)
        return self._listed[directory]

    def _scanned(self, directory: Path) -> list[os.DirEntry[str]]:
        found: list[os.DirEntry[str]] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if not self._left:
                        self.complete = False
                        break
                    self._left -= 1
                    found.append(entry)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError):
            self.unread.append(directory)
        return found


def _parts(pattern: str) -> list[str]:
    """Return the pattern's parts, with several ``**`` in a row as one."""
    parts = PurePath(pattern).parts
    return [p for at, p in enumerate(parts) if p != "**" or parts[at - 1 : at] != ("**",)]


def _is_pattern(part: str) -> bool:
    return any(letter in part for letter in "*?[")


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


@dataclass(frozen=True, slots=True)
class _Place:
    """A place that was searched, in words, and the files found there."""

    words: str
    found: list[Path]


def find_model(declared: str | None, directory: Path) -> Path:
    """Return the one model that a path or pattern selects, or the one in the usual places.

    These are ``PLACES`` below ``directory``, then the hub's cache. The first place that holds a
    model decides. A split model is its first part, and needs all others next to it. Projectors
    (``mmproj…``) are no models.

    Raises:
        ToolError: ``E_MODEL_MISSING``, ``E_MODEL_AMBIGUOUS`` if there are several,
            ``E_MODEL_SEARCH`` if there are too many files, ``E_MODEL_PARTS``.
    """
    if declared is not None and is_file(directory / declared):
        return _require_parts(directory / declared)
    search = DirectorySearch()
    searched = []
    for place in _places(search, declared, directory):
        models = _models(place.found, named=declared is not None)
        if not search.complete:
            raise _search_error(place.words)
        if len(models) == 1:
            return _require_parts(models[0])
        if models:
            raise _ambiguous_error(models, place.words, directory)
        searched.append(place.words)
    unread = ", ".join(path_text(path) for path in search.unread[:_LISTED])
    raise ToolError(
        "E_MODEL_MISSING",
        f"No model file was found in {path_text(real_path(directory))}: "
        f"searched {', '.join(searched)}"
        f"{f'; could not read {unread}' if unread else ''}.",
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
    if model is not None and _has_vocabulary(model):
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


def _places(search: DirectorySearch, declared: str | None, directory: Path) -> Iterator[_Place]:
    if declared is not None:
        yield _Place(path_text(declared), search.files(directory, declared))
        return
    for pattern in PLACES:
        yield _Place(pattern, search.files(directory, pattern))
    where = f"{path_text(hub_cache())}/models--*/snapshots/*/{_HUB_PATTERN}"
    yield _Place(where, hub_files(search, _HUB_PATTERN))


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


def _has_vocabulary(model: Path) -> bool:
    try:
        return _VOCABULARY in read_header(model).metadata
    except FlamegateError:
        return False


def _ambiguous_error(models: list[Path], where: str, directory: Path) -> ToolError:
    listed = ", ".join(
        f"{path_text(_relative(path, directory))} ({describe_model(path)})"
        for path in models[:_LISTED]
    )
    more = f" and {len(models) - _LISTED} more" if len(models) > _LISTED else ""
    return ToolError(
        "E_MODEL_AMBIGUOUS",
        f"{len(models)} model files match {where!r}: {listed}{more}.",
        'Name one: model = "path/to/model.gguf".',
    )


def _search_error(where: str) -> ToolError:
    return ToolError(
        "E_MODEL_SEARCH",
        f"More than {MOST_ENTRIES:,} files and directories are in the places that are searched for "
        f"a model ({where}).",
        'Name the model: model = "path/to/model.gguf".',
    )


def _relative(path: Path, directory: Path) -> Path:
    return path.relative_to(directory) if path.is_relative_to(directory) else path
