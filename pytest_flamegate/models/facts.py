"""Facts about a model from its header: parameters, quantisation, bytes read for a token."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.files import path_text, real_path
from pytest_flamegate.models.files import model_files, model_sha256, read_stamps
from pytest_flamegate.models.gguf import GGML_TYPES, ModelHeader, TensorInfo, Value, read_header

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
    """Read the headers of a model, all parts of a split one.

    Raises ``ToolError``: what ``read_header`` and ``model_files`` raise.
    """
    return summarize_headers([read_header(path) for path in model_files(model)])


def summarize_headers(headers: Sequence[ModelHeader]) -> ModelSummary:
    """Return the summary of a model from the headers of all its files, in order."""
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
        general = self.metadata.get("general.type", "model")
        causal = self._value("attention.causal", True)
        pooling = self._value("pooling_type", 0)
        split = self.metadata.get("split.count", 1)
        # A writer that does not split leaves a count of 0 or 1.
        whole = split == parts if parts > 1 else split in (0, 1)
        if general != "model" or causal is not True or pooling != 0 or not whole:
            raise _UnknownError
        if _EMBEDDING not in tensors:
            raise _UnknownError
        self.tied = "output.weight" not in tensors
        layers = {int(match[1]) for name in tensors if (match := _LAYER.fullmatch(name))}
        if not layers or layers != set(range(self._count("block_count") or 0)):
            raise _UnknownError
        names = {match[2] for name in tensors if (match := _LAYER.fullmatch(name))}
        if {"attn_kv_b.weight", "attn_k_b.weight"} <= names:
            raise _UnknownError  # one projection, stored in two forms; an engine reads either
        if self._count("nextn_predict_layers"):
            raise _UnknownError
        mixture = any(_is_of_experts(name) for name in names)
        if mixture != (self.experts is not None):
            raise _UnknownError

    def read_bytes(self, tensor: TensorInfo) -> int:
        """Return the bytes of ``tensor`` that one token reads."""
        nbytes = _weight_bytes(tensor)
        if tensor.name in _LOOKED_UP:
            if tensor.name == _EMBEDDING and self.tied:
                return nbytes
            if len(tensor.shape) != 2:
                raise _UnknownError
            return nbytes // tensor.shape[1]
        if _READ.fullmatch(tensor.name):
            return nbytes
        match = _LAYER.fullmatch(tensor.name)
        if match is None or _NOT_ALWAYS_READ.match(match[2]):
            raise _UnknownError
        if not _is_of_experts(match[2]):
            return nbytes
        if self.experts is None:
            raise _UnknownError
        used, count = self.experts
        if not _EXPERT.fullmatch(match[2]) and tensor.shape[-1:] != (count,):
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
    facts: dict[str, str | int] = {"path": _shown_path(model, workload.directory)}
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


def _shown_path(model: Path, directory: Path) -> str:
    """Return the path below the project, or for a file elsewhere its name."""
    try:
        return path_text(real_path(model).relative_to(real_path(directory)).as_posix())
    except ValueError:
        return path_text(model.name)
