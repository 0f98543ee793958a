"""Find the model and the tokenizer of a workload, and read a model's facts from its header."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.files import is_file, path_text, read_system_text, real_path, relative
from pytest_flamegate.core.text import list_some
from pytest_flamegate.models.files import model_files, model_sha256, parse_part_name, read_stamps
from pytest_flamegate.models.gguf import GGML_TYPES, ModelHeader, TensorInfo, Value, read_header

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
_VOCABULARY = "tokenizer.ggml.tokens"
_LISTED = 8


def find_files(directory: Path, pattern: str) -> list[Path]:
    """Return the files below ``directory`` that match ``pattern``, in order of their paths.

    ``*``, ``?`` and ``[…]`` match parts of a name and ``**`` any directories, but no links.
    """
    path = Path(re.sub(r"(?:\*\*/)+", "**/", pattern))
    if path.name == "**":
        return []  # CPython 3.13 and later would return files
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


def find_hub_files() -> list[Path]:
    """Return the models in the hub's cache: of each the snapshot of ``refs/main``, else all."""
    found: list[Path] = []
    for model in sorted(hub_cache().glob("models--*")):
        main = read_system_text(model / "refs/main") or "*"
        files = find_files(model / "snapshots", f"{main}/**/*.gguf")
        found += files or find_files(model / "snapshots", "*/**/*.gguf")
    return found


def find_model(declared: str | None, directory: Path) -> Path:
    """Return the one model that a path or pattern selects, or the one in the usual places.

    These are ``PLACES`` below ``directory``, then the hub's cache. The first place that holds a
    model decides. A split model is its first part, and needs all others next to it. Projectors
    (``mmproj…``) are no models.

    Raises ``ToolError``: ``E_MODEL_MISSING``, ``E_MODEL_AMBIGUOUS``, ``E_MODEL_PARTS``.
    """
    if declared is not None and is_file(directory / declared):
        return model_files(directory / declared)[0]
    searched = []
    for place, found in _search_places(declared, directory):
        models = _models(found, named=declared is not None)
        if len(models) == 1:
            return model_files(models[0])[0]
        if models:
            raise _ambiguous_error(models, place, directory)
        searched.append(place)
    raise ToolError(
        "E_MODEL_MISSING",
        f"No model file was found in {path_text(real_path(directory))}: "
        f"searched {', '.join(searched)}.",
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
    )


def describe_model(model: Path) -> str:
    """Return a model's size and main quantisation: ``1.2 GB, I2_S``, or that it cannot be read."""
    try:
        size_bytes = sum(path.stat().st_size for path in model_files(model))
        kind = next(iter(read_model(model).quantisation), "no weights")
    except (FlamegateError, OSError) as error:
        return getattr(error, "code", "unreadable")
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    unit, factor = next((each for each in units if size_bytes >= each[1]), units[-1])
    return f"{size_bytes / factor:.1f} {unit}, {kind}"


def _search_places(declared: str | None, directory: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield each place that is searched, in words, with the files found there."""
    if declared is not None:
        yield path_text(declared), find_files(directory, declared)
        return
    for pattern in PLACES:
        yield pattern, find_files(directory, pattern)
    yield f"{path_text(hub_cache())}/models--*/snapshots/*/**/*.gguf", find_hub_files()


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


def _ambiguous_error(models: list[Path], place: str, directory: Path) -> ToolError:
    def show(path: Path) -> str:
        return f"{path_text(relative(path, directory))} ({describe_model(path)})"

    listed = list_some(models, _LISTED, show=show)
    return ToolError("E_MODEL_AMBIGUOUS", f"{len(models)} model files match {place!r}: {listed}.")


# --- Facts -------------------------------------------------------------------------------------

_NAME_LENGTH = 200
_I2_S_TAIL_BYTES = 32
"""bitnet.cpp stores the scale after a tensor of I2_S."""
_EMBEDDING = "token_embd.weight"
_LOOKED_UP = frozenset({_EMBEDDING, "per_layer_token_embd.weight", "position_embd.weight"})
"""Tables of which a token reads one row."""
_READ = re.compile(
    r"(?:token_embd_norm|output|output_norm|rope_freqs|rope_factors_(?:long|short)"
    r"|per_layer_(?:model_proj|proj_norm)|altup_(?:unembd_)?proj)\.(?:weight|bias)"
)
"""Tensors outside of the layers that every token reads whole."""
_LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.(.+)")
_EXPERT = re.compile(r"ffn_(?:gate|up|down)\.[0-9]+\.(?:weight|bias)")
_NOT_ALWAYS_READ = re.compile(r"nextn\.|cross_attn|ffn_[a-z_]*_chexps\.")
"""Layers of a speculative head, of images, of grouped experts: read only in some runs."""


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """A model, described by its header.

    Attributes:
        quantisation: Shares (0 to 1) of the parameters by type, the largest first.
        bytes_per_token: Bytes of weights that decoding one token reads, without the KV cache. A
            token embedding counts as one row, or whole and once if it is the output too (tied);
            of a mixture's experts those that are used count. None if the header is ambiguous: an
            unknown tensor or type, an encoder, missing layers.
    """

    name: str
    architecture: str
    parameters: int
    quantisation: Mapping[str, float]
    bytes_per_token: int | None

    @property
    def quantisation_text(self) -> str:
        """``TQ2_0 98.6 %, F32 1.4 %``."""
        return ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.quantisation.items())


def read_model(model: Path) -> ModelSummary:
    """Read the headers of all files of a model. Raises as ``read_header`` and ``model_files``."""
    headers = [read_header(path) for path in model_files(model)]
    first = headers[0]
    by_type: Counter[str] = Counter()
    for tensor in chain.from_iterable(each.tensors for each in headers):
        by_type[tensor.type] += tensor.parameters
    total = by_type.total()
    ordered = sorted(by_type.items(), key=lambda item: (-item[1], item[0]))
    return ModelSummary(
        name=first.name[:_NAME_LENGTH],
        architecture=first.architecture[:_NAME_LENGTH],
        parameters=total,
        quantisation=MappingProxyType({kind: count / total for kind, count in ordered}),
        bytes_per_token=_bytes_per_token(headers),
    )


class _UnknownError(Exception):
    """The header does not determine how many weights a token reads."""


def _bytes_per_token(headers: Sequence[ModelHeader]) -> int | None:
    tensors = {tensor.name: tensor for tensor in chain.from_iterable(h.tensors for h in headers)}
    try:
        if len(tensors) < sum(len(header.tensors) for header in headers):
            raise _UnknownError
        decoder = _Decoder(headers[0])
        decoder.require_complete(parts=len(headers), tensors=tensors)
        return sum(decoder.read_bytes(tensor) for tensor in tensors.values())
    except _UnknownError:
        return None


class _Decoder:
    """The metadata of a decoder that determines which tensors a token reads."""

    def __init__(self, header: ModelHeader) -> None:
        self.metadata = header.metadata
        self.architecture = header.architecture
        self.tied = False
        self.experts = self._experts()

    def require_complete(self, *, parts: int, tensors: Mapping[str, TensorInfo]) -> None:
        """Raise ``_UnknownError`` unless this is a whole decoder of one token after the other."""
        split = self.metadata.get("split.count", 1)
        # A writer that does not split leaves a count of 0 or 1.
        whole = split == parts if parts > 1 else split in (0, 1)
        of_layers = [match for name in tensors if (match := _LAYER.fullmatch(name))]
        layers, names = ({int(each[1]) for each in of_layers}, {each[2] for each in of_layers})
        mixture = any(_is_of_experts(name) for name in names)
        if (
            not whole
            or self.metadata.get("general.type", "model") != "model"
            or self._value("attention.causal", True) is not True
            or self._value("pooling_type", 0) != 0
            or self._count("nextn_predict_layers")
            or _EMBEDDING not in tensors
            or not layers
            or layers != set(range(self._count("block_count") or 0))
            or mixture != (self.experts is not None)
            # One projection, stored in two forms; an engine reads either.
            or {"attn_kv_b.weight", "attn_k_b.weight"} <= names
        ):
            raise _UnknownError
        self.tied = "output.weight" not in tensors

    def read_bytes(self, tensor: TensorInfo) -> int:
        """Return the bytes of ``tensor`` that one token reads."""
        nbytes = _weight_bytes(tensor)
        if tensor.name in _LOOKED_UP and not (tensor.name == _EMBEDDING and self.tied):
            if len(tensor.shape) != 2:
                raise _UnknownError
            return nbytes // tensor.shape[1]
        if tensor.name in _LOOKED_UP or _READ.fullmatch(tensor.name):
            return nbytes
        match = _LAYER.fullmatch(tensor.name)
        if match is None or _NOT_ALWAYS_READ.match(match[2]):
            raise _UnknownError
        if not _is_of_experts(match[2]):
            return nbytes
        used, count = self.experts or (0, 0)
        if not count or not (_EXPERT.fullmatch(match[2]) or tensor.shape[-1:] == (count,)):
            raise _UnknownError
        return nbytes * used // count

    def _experts(self) -> tuple[int, int] | None:
        """Return the number of experts that a token uses and of all; None without experts."""
        count, used = self._count("expert_count"), self._count("expert_used_count")
        if not count:
            return None
        if not used or used > count:
            raise _UnknownError
        return used, count

    def _count(self, key: str) -> int | None:
        value = self._value(key, None)
        if value is not None and (type(value) is not int or not 0 <= value < 1 << 20):
            raise _UnknownError
        return value

    def _value(self, key: str, default: Value | None) -> Value | None:
        return self.metadata.get(f"{self.architecture}.{key}", default)


def _is_of_experts(name: str) -> bool:
    return name.partition(".")[0].endswith("_exps") or _EXPERT.fullmatch(name) is not None


def _weight_bytes(tensor: TensorInfo) -> int:
    if tensor.type in GGML_TYPES:
        return tensor.nbytes
    if tensor.type == "I2_S":
        # Two bits for each weight. The space may be padded, but not twice as large.
        nbytes = tensor.parameters // 4 + _I2_S_TAIL_BYTES
        if tensor.parameters % 4 == 0 and nbytes <= tensor.nbytes < 2 * nbytes:
            return nbytes
    raise _UnknownError


def read_model_facts(model: Path | None, workload: Workload) -> dict[str, str | int]:
    """Return the receipt's facts about the model: path, header, digest and size.

    ``bytes_per_token`` is left out if the header is ambiguous. The digest of a split model is of
    the bytes of all parts in order.
    """
    if model is None:
        return {"path": workload.model or workload.target or f"engine:{workload.engine}"}
    shown, project = real_path(model), real_path(workload.directory)
    below = shown.relative_to(project).as_posix() if shown.is_relative_to(project) else model.name
    facts: dict[str, str | int] = {"path": path_text(below)}
    if model.suffix == ".gguf":
        summary = read_model(model)
        facts |= {
            "name": summary.name,
            "architecture": summary.architecture,
            "parameters": summary.parameters,
            "quantisation": summary.quantisation_text,
        }
        if summary.bytes_per_token is not None:
            facts["bytes_per_token"] = summary.bytes_per_token
    size_bytes = sum(each.size_bytes for each in read_stamps(model))
    return {**facts, "sha256": model_sha256(model), "size_bytes": size_bytes}
