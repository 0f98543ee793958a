"""The transformer: prefill, then one decode step a token, greedy.

Import this only after the number of BLAS threads is set (``OPENBLAS_NUM_THREADS=1``):
NumPy reads it once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.weights import EOS, encode, read_weights
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from pytest_flamegate.child.embedded.kernels import FloatArray
    from pytest_flamegate.child.embedded.weights import Config, LayerWeights, Weights


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
        """Yield the ids of up to ``max_tokens`` tokens; ends before the end marker.

        Raises ``UsageError`` ``E_CONTEXT_FULL`` if prompt and tokens do not fit.
        """
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
    """Load the model at ``path``.

    Raises ``ToolError``: E_MODEL_MISSING, E_MODEL_UNREADABLE, E_MODEL_BROKEN,
    E_MODEL_UNSUPPORTED.
    """
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
