"""The transformer: weights from a GGUF file, prefill, then one greedy decode step a token.

Import this only after the number of BLAS threads is set (``OPENBLAS_NUM_THREADS=1``):
NumPy reads it once.

The file holds two bits for each ternary weight (TQ2_0). NumPy has no product for two
bits, so they are unpacked to four bytes each: the 2.4 MB of projections take 38 MB in
memory, which every token reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.kernels import BLOCK, TernaryMatrix
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.models.gguf import read_header

if TYPE_CHECKING:
    from pytest_flamegate.child.embedded.kernels import FloatArray
    from pytest_flamegate.models.gguf import ModelHeader

# A byte is a token: ids 0 to 255 are the bytes of UTF-8 text, then two markers.
BOS = 256
EOS = 257
VOCABULARY = 258


def encode(text: str) -> list[int]:
    """Return the beginning marker and the bytes of ``text``.

    Bytes of a command line that are not UTF-8 come back as they were typed. Raises
    ``UsageError`` ``E_BAD_PROMPT`` for half a surrogate pair, which has no bytes.
    """
    try:
        return [BOS, *text.encode("utf-8", "surrogateescape")]
    except UnicodeEncodeError as error:
        raise UsageError(
            "E_BAD_PROMPT",
            f"The prompt's character {error.start} is half a surrogate pair, not text.",
        ) from None


_CODE_BYTES = BLOCK // 4
_BLOCK_BYTES = _CODE_BYTES + 2


@dataclass(frozen=True, slots=True)
class Config:
    """The model's shape; ``width`` is that of the residual stream."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    ffn_width: int
    context: int
    rope_base: float
    rms_epsilon: float


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One block. Query, key and value rows stand in one matrix, gate and up rows likewise."""

    attn_norm: FloatArray
    attn_qkv: TernaryMatrix
    attn_sub_norm: FloatArray
    attn_output: TernaryMatrix
    ffn_norm: FloatArray
    ffn_gate_up: TernaryMatrix
    ffn_sub_norm: FloatArray
    ffn_down: TernaryMatrix


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights; ``token_embd`` (vocabulary, width) serves at both ends."""

    config: Config
    token_embd: FloatArray
    output_norm: FloatArray
    layers: tuple[LayerWeights, ...]


def read_weights(path: Path) -> Weights:
    """Read and unpack the model at ``path``; ``ToolError`` if it is broken or unsupported."""
    header = read_header(path)
    config = _config(header)
    reader = _Reader(header)
    layers = []
    for index in range(config.layers):
        block = f"blk.{index}"
        width, ffn = config.width, config.ffn_width
        kv = config.kv_heads * config.head_width
        layers.append(
            LayerWeights(
                attn_norm=reader.floats(f"{block}.attn_norm", width),
                attn_qkv=reader.ternary(
                    width,
                    (f"{block}.attn_q", width),
                    (f"{block}.attn_k", kv),
                    (f"{block}.attn_v", kv),
                ),
                attn_sub_norm=reader.floats(f"{block}.attn_sub_norm", width),
                attn_output=reader.ternary(width, (f"{block}.attn_output", width)),
                ffn_norm=reader.floats(f"{block}.ffn_norm", width),
                ffn_gate_up=reader.ternary(
                    width, (f"{block}.ffn_gate", ffn), (f"{block}.ffn_up", ffn)
                ),
                ffn_sub_norm=reader.floats(f"{block}.ffn_sub_norm", ffn),
                ffn_down=reader.ternary(ffn, (f"{block}.ffn_down", width)),
            )
        )
    return Weights(
        config=config,
        token_embd=reader.floats("token_embd", config.width, VOCABULARY),
        output_norm=reader.floats("output_norm", config.width),
        layers=tuple(layers),
    )


def unpack_tq2_0(packed: npt.NDArray[np.uint8], rows: int) -> TernaryMatrix:
    """Unpack the TQ2_0 bytes of ``rows`` rows.

    A block of 256 weights is 64 bytes of codes (each byte holds four weights that lie
    32 apart; code 0, 1, 2 is -1, 0, +1) and a float16 scale. Raises ``ValueError`` for a
    fourth code or a scale that is not finite.
    """
    blocks = packed.reshape(rows, -1, _BLOCK_BYTES).transpose(1, 2, 0)
    codes = np.ascontiguousarray(blocks[:, :_CODE_BYTES]).reshape(-1, 2, 1, 32, rows)
    scales = blocks[:, _CODE_BYTES:].transpose(0, 2, 1).copy().view("<f2")[:, :, 0]
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(4, 1, 1)
    signs = codes >> shifts
    signs &= 3
    if signs.max(initial=0) > 2 or not np.isfinite(scales).all():
        raise ValueError("not ternary")
    unpacked = signs.astype(np.float32).reshape(-1, BLOCK, rows)
    unpacked -= 1
    return TernaryMatrix(unpacked, scales.astype(np.float32))


class _Reader:
    """Reads tensors by name, and raises for any of another type or shape."""

    def __init__(self, header: ModelHeader) -> None:
        self.path = header.path
        self.tensors = {tensor.name: tensor for tensor in header.tensors}

    def floats(self, name: str, *shape: int) -> FloatArray:
        """Return a float32 tensor, ``shape`` innermost dimension first."""
        values = self._bytes(name, shape, "F32").view("<f4")
        if not np.isfinite(values).all():
            raise _unsupported(self.path, f"its tensor {name} holds values that are not finite")
        return values.astype(np.float32).reshape(shape[::-1])

    def ternary(self, columns: int, *parts: tuple[str, int]) -> TernaryMatrix:
        """Return the TQ2_0 matrices of ``parts`` (name, rows), one below the other."""
        packed = [self._bytes(name, (columns, rows), "TQ2_0") for name, rows in parts]
        try:
            return unpack_tq2_0(np.concatenate(packed), sum(rows for _, rows in parts))
        except ValueError:
            raise _unsupported(self.path, f"its tensor {parts[0][0]} is not ternary") from None

    def _bytes(self, name: str, shape: tuple[int, ...], kind: str) -> npt.NDArray[np.uint8]:
        tensor = self.tensors.get(f"{name}.weight")
        if tensor is None or tensor.shape != shape or tensor.type != kind:
            raise _unsupported(self.path, f"it has no {kind} tensor {name}.weight of shape {shape}")
        return np.fromfile(self.path, np.uint8, count=tensor.nbytes, offset=tensor.offset)


def _config(header: ModelHeader) -> Config:
    def number(key: str) -> float:
        value = header.metadata.get(key)
        if not isinstance(value, int | float) or not 0 < value < 1 << 31:
            raise _unsupported(header.path, f"its {key} is {value}")
        return value

    if header.architecture != "bitnet":
        raise _unsupported(header.path, f"its architecture is {header.architecture!r}, not bitnet")
    for name, token in (("bos", BOS), ("eos", EOS)):
        if number(f"tokenizer.ggml.{name}_token_id") != token:
            raise _unsupported(header.path, "its vocabulary is not the 256 bytes and two markers")
    config = Config(
        width=int(number("bitnet.embedding_length")),
        layers=int(number("bitnet.block_count")),
        heads=int(number("bitnet.attention.head_count")),
        kv_heads=int(number("bitnet.attention.head_count_kv")),
        head_width=int(number("bitnet.rope.dimension_count")),
        ffn_width=int(number("bitnet.feed_forward_length")),
        context=int(number("bitnet.context_length")),
        rope_base=number("bitnet.rope.freq_base"),
        rms_epsilon=number("bitnet.attention.layer_norm_rms_epsilon"),
    )
    if config.heads * config.head_width != config.width or config.heads % config.kv_heads:
        raise _unsupported(header.path, "its attention heads do not divide its width")
    return config


def _unsupported(path: Path, reason: str) -> ToolError:
    return ToolError(
        "E_MODEL_UNSUPPORTED",
        f"The embedded engine cannot run {path}: {reason}.",
        'Use the model that ships with it, or declare a workload with engine = "llama-cpp".',
    )


@dataclass(slots=True)
class Cache:
    """Keys and values of one sequence, each (layers, kv_heads, context, head_width)."""

    keys: FloatArray
    values: FloatArray
    length: int = 0


@dataclass(frozen=True, slots=True)
class Transformer:
    """A loaded model. ``cosines`` and ``sines`` are (context, head_width / 2)."""

    weights: Weights = field(repr=False)
    cosines: FloatArray = field(repr=False)
    sines: FloatArray = field(repr=False)
    idle_caches: list[Cache] = field(default_factory=list, repr=False)

    def generate(self, prompt: str, max_tokens: int) -> Iterator[int]:
        """Yield ids up to the end marker; ``UsageError`` ``E_CONTEXT_FULL`` if they do not fit."""
        tokens = encode(prompt)
        context = self.weights.config.context
        if max_tokens < 1 or len(tokens) + max_tokens > context:
            raise UsageError(
                "E_CONTEXT_FULL",
                f"{len(tokens)} prompt tokens and {max_tokens} to generate do not fit the "
                f"model's {context}.",
                "Ask for at least one token, and for fewer, or shorten the prompt.",
            )
        cache = self.idle_caches.pop() if self.idle_caches else _new_cache(self.weights.config)
        cache.length = 0
        try:
            token = kernels.sample(self.prefill(tokens, cache))
            for _ in range(max_tokens - 1):
                if token == EOS:
                    return
                yield token
                token = kernels.sample(self.decode_step(token, cache))
            if token != EOS:
                yield token
        finally:
            self.idle_caches.append(cache)

    def prefill(self, tokens: Sequence[int], cache: Cache) -> FloatArray:
        """Run the prompt, token by token; return the logits (vocabulary,) after it."""
        for token in tokens:
            x = self._forward(token, cache)
        return self._logits(x)

    def decode_step(self, token: int, cache: Cache) -> FloatArray:
        """Run one generated token; return the logits (vocabulary,) of the next."""
        return self._logits(self._forward(token, cache))

    def _forward(self, token: int, cache: Cache) -> FloatArray:
        x = kernels.embed(self.weights.token_embd, token)
        for index, layer in enumerate(self.weights.layers):
            x += self._attention_block(x, layer, cache, index)
            x += self._feed_forward(x, layer)
        cache.length += 1
        return x

    def _attention_block(
        self, x: FloatArray, layer: LayerWeights, cache: Cache, index: int
    ) -> FloatArray:
        config, position = self.weights.config, cache.length
        heads, rotated = config.heads, config.heads + config.kv_heads
        h = kernels.rms_norm(x, layer.attn_norm, config.rms_epsilon)
        qkv = kernels.ternary_gemv(layer.attn_qkv, kernels.quantize(h))
        qkv = qkv.reshape(-1, config.head_width)
        qk = kernels.rope(qkv[:rotated], self.cosines[position], self.sines[position])
        mixed = kernels.attention(
            qk[:heads], qk[heads:], qkv[rotated:], cache.keys[index], cache.values[index], position
        )
        mixed = kernels.rms_norm(mixed, layer.attn_sub_norm, config.rms_epsilon)
        return kernels.ternary_gemv(layer.attn_output, kernels.quantize(mixed))

    def _feed_forward(self, x: FloatArray, layer: LayerWeights) -> FloatArray:
        epsilon = self.weights.config.rms_epsilon
        h = kernels.rms_norm(x, layer.ffn_norm, epsilon)
        inner = kernels.swiglu(kernels.ternary_gemv(layer.ffn_gate_up, kernels.quantize(h)))
        inner = kernels.rms_norm(inner, layer.ffn_sub_norm, epsilon)
        return kernels.ternary_gemv(layer.ffn_down, kernels.quantize(inner))

    def _logits(self, x: FloatArray) -> FloatArray:
        config = self.weights.config
        normed = kernels.rms_norm(x, self.weights.output_norm, config.rms_epsilon)
        return kernels.lm_head(self.weights.token_embd, normed)


def load(path: Path) -> Transformer:
    """Load the model at ``path``; ``ToolError`` if it is missing, broken or unsupported."""
    weights = read_weights(path)
    config = weights.config
    exponents = np.arange(0, config.head_width, 2, dtype=np.float64) / config.head_width
    angles = np.outer(np.arange(config.context), config.rope_base**-exponents)
    return Transformer(
        weights, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    )


def _new_cache(config: Config) -> Cache:
    shape = (config.layers, config.kv_heads, config.context, config.head_width)
    return Cache(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
