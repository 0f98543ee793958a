"""The embedded engine's bricks: marks around its kernels, for the time of a brick run.

The brick and the layer of a call follow from the weights that it is given. The kernels are
replaced only within ``mark_kernels``, so profiles of other processes have no additional frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_flamegate.bricks import start, stop
from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.child.embedded.transformer import Transformer

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import Category
    from pytest_flamegate.child.embedded.weights import Weights

    Function = Callable[..., Any]


_FLOAT_BYTES = 4


class Counts(NamedTuple):
    """What a call computes (``elements``), reads (``bytes``) and calculates (``flops``)."""

    elements: int
    bytes: int = 0
    flops: int = 0


def _count_embed(table: Any, _token: int) -> Counts:
    return Counts(table.shape[1], table.shape[1] * _FLOAT_BYTES)


def _count_rms_norm(_x: Any, weight: Any, _epsilon: float) -> Counts:
    return Counts(weight.size, 2 * weight.nbytes, 4 * weight.size)


def _count_quantize(x: Any) -> Counts:
    return Counts(x.size, x.nbytes)


def _count_ternary_gemv(matrix: Any, _x: Any) -> Counts:
    blocks, width, rows = matrix.signs.shape
    inputs = blocks * (width + 1)
    size = matrix.signs.nbytes + matrix.scales.nbytes + inputs * _FLOAT_BYTES
    return Counts(rows, size, 2 * rows * inputs)


def _count_rope(x: Any, cosines: Any, sines: Any) -> Counts:
    return Counts(x.size, x.nbytes + cosines.nbytes + sines.nbytes, 3 * x.size)


def _count_attention(
    query: Any, key: Any, value: Any, _keys: Any, _values: Any, position: int
) -> Counts:
    attended = position + 1
    size = query.nbytes + (key.nbytes + value.nbytes) * (attended + 1)
    return Counts(query.size, size, 4 * query.size * attended)


def _count_swiglu(gate_up: Any) -> Counts:
    width = gate_up.size // 2
    return Counts(width, gate_up.nbytes, 4 * width)


def _count_lm_head(table: Any, x: Any) -> Counts:
    return Counts(table.shape[0], table.nbytes + x.nbytes, 2 * table.size)


def _count_block(_model: Transformer, x: Any, *_: Any) -> Counts:
    return Counts(x.size)


class Mark(NamedTuple):
    """How calls of one function of the engine are marked.

    A function that computes different bricks has none here: they are found by the weights in the
    argument at ``weights_at``, as is the layer. Without that the layer is the one of the last call
    that had weights, if the brick ``is_in_layer``.
    """

    function: str
    count_call: Callable[..., Counts]
    brick: str = ""
    category: Category | None = None
    owner: object = kernels
    weights_at: int | None = None
    is_in_layer: bool = True


MARKS = (
    Mark("embed", _count_embed, "Embedding", is_in_layer=False),
    Mark("rms_norm", _count_rms_norm, "RmsNorm", weights_at=1),
    Mark("quantize", _count_quantize, "Quantize", "Other"),
    Mark("ternary_gemv", _count_ternary_gemv, weights_at=0),
    Mark("rope", _count_rope, "RopeEmbedding"),
    Mark("attention", _count_attention, "AttentionScore"),
    Mark("swiglu", _count_swiglu, "Activation"),
    Mark("lm_head", _count_lm_head, "LmHead", is_in_layer=False),
    Mark("sample", _count_quantize, "Sampling", is_in_layer=False),
    Mark("_attention_block", _count_block, "AttentionBlock", "Attention", Transformer, 2),
    Mark("_feed_forward", _count_block, "FeedForward", "FFN", Transformer, 2),
)


@contextmanager
def mark_kernels(weights: Weights) -> Iterator[None]:
    """Mark every kernel that runs on ``weights`` as a brick, within the block.

    The product of gate and up is one kernel and one brick, GateUpProjection (FFN); rounding to 8
    bits is Quantize (Other). ``attention`` computes score, softmax and output, and is
    AttentionScore. AttentionBlock and FeedForward hold the kernels of a layer, so their self time
    is the code between the kernels and the cost of the marks. Bytes are weights and inputs;
    operations are multiplications and additions, without those of exp and tanh.
    """
    bricks = _Bricks(weights)
    originals = [(mark, getattr(mark.owner, mark.function)) for mark in MARKS]
    try:
        for mark, function in originals:
            setattr(mark.owner, mark.function, bricks.wrap(function, mark))
        yield
    finally:
        for mark, function in originals:
            setattr(mark.owner, mark.function, function)


class _Bricks:
    """The brick and layer of all weights, and the layer of the last call that had weights."""

    def __init__(self, weights: Weights) -> None:
        self._layer: int | None = None
        # By id(): (brick, category, layer) of a matrix, ("", None, layer) of others.
        self._known: dict[int, tuple[str, Category | None, int | None]] = {
            id(weights.output_norm): ("", None, None)
        }
        for index, layer in enumerate(weights.layers):
            norms = (layer.attn_norm, layer.attn_sub_norm, layer.ffn_norm, layer.ffn_sub_norm)
            for each in (layer, *norms):
                self._known[id(each)] = ("", None, index)
            self._known[id(layer.attn_qkv)] = ("QkvProjection", None, index)
            self._known[id(layer.attn_output)] = ("OutputProjection", None, index)
            self._known[id(layer.ffn_gate_up)] = ("GateUpProjection", "FFN", index)
            self._known[id(layer.ffn_down)] = ("DownProjection", None, index)

    def wrap(self, function: Function, mark: Mark) -> Function:
        """Return ``function`` with a mark around each of its calls."""
        weights_at, count_call = mark.weights_at, mark.count_call
        kernel = mark.function if mark.owner is kernels else ""

        @wraps(function)
        def call_in_brick(*arguments: Any) -> Any:
            brick, category = mark.brick, mark.category
            if weights_at is not None:
                found, found_category, self._layer = self._known[id(arguments[weights_at])]
                brick, category = brick or found, category or found_category
            elements, size, flops = count_call(*arguments)
            layer = self._layer if mark.is_in_layer else None
            handle = start(brick, elements, layer, size, flops, category, kernel)
            result = function(*arguments)
            stop(handle)
            return result

        return call_in_brick
