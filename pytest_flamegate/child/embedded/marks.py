"""The embedded engine's bricks: its kernels with marks around them, for one pass.

Which brick a call is and which layer it is in follows from the weights that it is given. The
kernels are replaced only while a pass lasts: no other process has one frame more for it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pytest_flamegate.bricks import start, stop
from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.transformer import Transformer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_flamegate.child.embedded.kernels import FloatArray, TernaryMatrix
    from pytest_flamegate.child.embedded.weights import Layer, Weights


if TYPE_CHECKING:
    Kernel = Callable[..., Any]

_F32 = 4


@contextmanager
def mark_kernels(weights: Weights) -> Iterator[None]:
    """Mark every kernel of this process that runs on ``weights`` as a brick, within the block.

    A product of gate and up in one is the brick GateUpProjection (FFN), rounding to 8 bits the
    brick Quantize (Other). ``attention`` computes score, softmax and output in one, and is
    AttentionScore. What a layer does between its kernels is the own time of AttentionBlock and
    FeedForward, which hold them; the clock's own cost is in there too. Bytes are what a call
    reads: weights and input. Operations are multiplications and additions, without those of exp
    and tanh.
    """
    marks = _Marks(weights)
    usual = [(where, name, getattr(where, name)) for where, name in marks.makers]
    try:
        for where, name, function in usual:
            setattr(where, name, marks.makers[where, name](function))
        yield
    finally:
        for where, name, function in usual:
            setattr(where, name, function)


class _Marks:
    """What is known of each call from its weights, and the layer that the last one was in."""

    def __init__(self, weights: Weights) -> None:
        self.layer: int | None = None
        self.makers: dict[tuple[object, str], Callable[[Kernel], Kernel]] = {
            (kernels, "embed"): self._embed,
            (kernels, "rms_norm"): self._rms_norm,
            (kernels, "quantize"): self._quantize,
            (kernels, "ternary_gemv"): self._ternary_gemv,
            (kernels, "rope"): self._rope,
            (kernels, "attention"): self._attention,
            (kernels, "swiglu"): self._swiglu,
            (kernels, "lm_head"): self._lm_head,
            (kernels, "sample"): self._sample,
            (Transformer, "_attention_block"): self._attention_block,
            (Transformer, "_feed_forward"): self._feed_forward,
        }
        self._layers = {id(layer): index for index, layer in enumerate(weights.layers)}
        self._norms: dict[int, dict[str, Any]] = {}
        self._products: dict[int, dict[str, Any]] = {}
        norms: list[tuple[FloatArray, int | None]] = [(weights.output_norm, None)]
        for index, layer in enumerate(weights.layers):
            norms += [
                (norm, index)
                for norm in (
                    *(layer.attn_norm, layer.attn_sub_norm),
                    *(layer.ffn_norm, layer.ffn_sub_norm),
                )
            ]
            self._product(layer.attn_qkv, "QkvProjection", index)
            self._product(layer.attn_output, "OutputProjection", index)
            self._product(layer.ffn_gate_up, "GateUpProjection", index, category="FFN")
            self._product(layer.ffn_down, "DownProjection", index)
        for norm, of_layer in norms:
            self._norms[id(norm)] = {
                "elements": norm.size,
                "layer": of_layer,
                "bytes": 2 * norm.nbytes,
                "flops": 4 * norm.size,
            }

    def _product(self, matrix: TernaryMatrix, name: str, layer: int, **more: Any) -> None:
        blocks, width, rows = matrix.signs.shape
        inputs = blocks * (width + 1) * _F32
        self._products[id(matrix)] = {
            "name": name,
            "elements": rows,
            "layer": layer,
            "bytes": matrix.signs.nbytes + matrix.scales.nbytes + inputs,
            "flops": 2 * rows * blocks * (width + 1),
            "kernel": "ternary_gemv",
            **more,
        }

    def _attention_block(self, function: Kernel) -> Kernel:
        def attention_block(
            model: Transformer, x: Any, layer: Layer, cache: Any, index: int
        ) -> Any:
            handle = start("AttentionBlock", elements=x.size, layer=index, category="Attention")
            added = function(model, x, layer, cache, index)
            stop(handle)
            return added

        return attention_block

    def _feed_forward(self, function: Kernel) -> Kernel:
        layers = self._layers

        def feed_forward(model: Transformer, x: Any, layer: Layer) -> Any:
            index = layers[id(layer)]
            handle = start("FeedForward", elements=x.size, layer=index, category="FFN")
            added = function(model, x, layer)
            stop(handle)
            return added

        return feed_forward

    def _embed(self, kernel: Kernel) -> Kernel:
        def embed(table: Any, token: int) -> Any:
            width = table.shape[1]
            handle = start("Embedding", elements=width, bytes=width * _F32, kernel="embed")
            row = kernel(table, token)
            stop(handle)
            return row

        return embed

    def _rms_norm(self, kernel: Kernel) -> Kernel:
        norms = self._norms

        def rms_norm(x: Any, weight: Any, epsilon: float) -> Any:
            known = norms[id(weight)]
            self.layer = known["layer"]
            handle = start("RmsNorm", kernel="rms_norm", **known)
            normed = kernel(x, weight, epsilon)
            stop(handle)
            return normed

        return rms_norm

    def _quantize(self, kernel: Kernel) -> Kernel:
        def quantize(x: Any) -> Any:
            handle = start(
                "Quantize",
                elements=x.size,
                layer=self.layer,
                bytes=x.nbytes,
                category="Other",
                kernel="quantize",
            )
            rounded = kernel(x)
            stop(handle)
            return rounded

        return quantize

    def _ternary_gemv(self, kernel: Kernel) -> Kernel:
        products = self._products

        def ternary_gemv(matrix: TernaryMatrix, x: Any) -> Any:
            handle = start(**products[id(matrix)])
            product = kernel(matrix, x)
            stop(handle)
            return product

        return ternary_gemv

    def _rope(self, kernel: Kernel) -> Kernel:
        def rope(x: Any, cosines: Any, sines: Any) -> Any:
            handle = start(
                "RopeEmbedding",
                elements=x.size,
                layer=self.layer,
                bytes=x.nbytes + cosines.nbytes + sines.nbytes,
                flops=3 * x.size,
                kernel="rope",
            )
            rotated = kernel(x, cosines, sines)
            stop(handle)
            return rotated

        return rope

    def _attention(self, kernel: Kernel) -> Kernel:
        def attention(
            query: Any, key: Any, value: Any, keys: Any, values: Any, position: int
        ) -> Any:
            seen = position + 1
            handle = start(
                "AttentionScore",
                elements=query.size,
                layer=self.layer,
                bytes=query.nbytes + (key.nbytes + value.nbytes) * (seen + 1),
                flops=4 * query.size * seen,
                kernel="attention",
            )
            mixed = kernel(query, key, value, keys, values, position)
            stop(handle)
            return mixed

        return attention

    def _swiglu(self, kernel: Kernel) -> Kernel:
        def swiglu(gate_up: Any) -> Any:
            width = gate_up.size // 2
            handle = start(
                "Activation",
                elements=width,
                layer=self.layer,
                bytes=gate_up.nbytes,
                flops=4 * width,
                kernel="swiglu",
            )
            gated = kernel(gate_up)
            stop(handle)
            return gated

        return swiglu

    def _lm_head(self, kernel: Kernel) -> Kernel:
        def lm_head(table: Any, x: Any) -> Any:
            handle = start(
                "LmHead",
                elements=table.shape[0],
                bytes=table.nbytes + x.nbytes,
                flops=2 * table.size,
                kernel="lm_head",
            )
            logits = kernel(table, x)
            stop(handle)
            return logits

        return lm_head

    def _sample(self, kernel: Kernel) -> Kernel:
        def sample(logits: Any) -> int:
            handle = start("Sampling", elements=logits.size, bytes=logits.nbytes, kernel="sample")
            token: int = kernel(logits)
            stop(handle)
            return token

        return sample
