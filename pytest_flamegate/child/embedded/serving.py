"""Load the embedded engine in the observed process: its injected work, bricks and traffic.

Nothing sleeps: an injected kernel is called again, often enough to make up the share that was
asked for, and the repeated call shows up in a profile like any other. The wrapper carries the
kernel's own name and file, so that all of the extra work is attributed to the kernel.

The brick and the layer of a marked call follow from the weights that it is given. The kernels are
marked only within ``mark_kernels``, so profiles of other processes have no additional frame.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_flamegate.child.embedded import kernels, transformer
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import Category
    from pytest_flamegate.child.embedded.transformer import Weights


class EmbeddedEngine(partial[Iterator[int]]):
    """Called with prompt and max_tokens; in C, so that no profile has one more frame for it."""

    def mark_bricks(self) -> AbstractContextManager[None]:
        """Return a context within which every kernel is a brick."""
        return mark_kernels(self._model.weights)

    @property
    def facts(self) -> Mapping[str, str]:
        """The engine's report about itself: the bytes that a token takes."""
        return count_traffic(self._model.weights)

    @property
    def _model(self) -> transformer.Transformer:
        model: transformer.Transformer = self.func.__self__  # type: ignore[attr-defined]
        return model


def load_engine(load: dict[str, Any]) -> EmbeddedEngine:
    """Load the GGUF file ``load["model"]``; ``load["inject"]`` is a frame and its extra percent."""
    engine = EmbeddedEngine(transformer.load(Path(load["model"])).generate)
    if "inject" in load:
        inject(*load["inject"])
    return engine


def count_traffic(weights: Weights) -> dict[str, str]:
    """Return the work of one token as whole numbers in text.

    ``weights_bytes_per_token``: all weights as they are in memory, each read once (the token's
    own row of the table is read again with the whole table). ``kv_bytes_per_position``: keys and
    values of one position in all layers. ``flops_per_token``: two for each weight of a product;
    attention, norms and activations are left out.
    """
    arrays, products = [weights.token_embd, weights.output_norm], weights.token_embd.size
    for layer in weights.layers:
        arrays += [layer.attn_norm, layer.attn_sub_norm, layer.ffn_norm, layer.ffn_sub_norm]
        for matrix in (layer.attn_qkv, layer.attn_output, layer.ffn_gate_up, layer.ffn_down):
            arrays += matrix
            products += matrix.signs.size
    config = weights.config
    itemsize = weights.token_embd.itemsize
    counts = {
        "weights_bytes_per_token": sum(each.nbytes for each in arrays),
        "kv_bytes_per_position": 2 * config.layers * config.kv_heads * config.head_width * itemsize,
        "flops_per_token": 2 * products,
    }
    return {name: str(value) for name, value in counts.items()}


_GOLDEN = (math.sqrt(5) - 1) / 2
_LAYER_PRODUCTS, _LAYERS_BACK = 4, 3


def inject(frame: str, extra_pct: float) -> None:
    """Make ``frame`` do ``extra_pct`` percent more of its work in this process.

    Raises ``UsageError`` ``E_UNKNOWN_FRAME``.
    """
    if frame not in FRAMES:
        raise UsageError(
            "E_UNKNOWN_FRAME",
            f"The embedded engine has no frame {frame!r} to give more work.",
            f"Choose one of: {', '.join(FRAMES)}.",
        )
    # A matrix that was just read is still in the CPU's cache, where reading it again costs half
    # as much. So a repeated product takes the matrices of earlier layers in turn.
    remembered = _LAYER_PRODUCTS * _LAYERS_BACK if frame == "ternary_gemv" else 0
    slowed = _repeat_calls(getattr(kernels, frame), extra_pct / 100.0, remembered)
    setattr(kernels, frame, slowed)


def _repeat_calls(kernel: Callable[..., Any], extra: float, remembered: int) -> Callable[..., Any]:
    """Return ``kernel`` with ``extra`` repetitions a call on average.

    Multiples of the golden ratio are spread so evenly that calls of each size get their share,
    whatever the order in which the sizes follow one another.
    """
    phase = 0.0
    earlier: deque[tuple[Any, ...]] = deque(maxlen=remembered)

    def injected_work(*arguments: Any) -> Any:
        nonlocal phase
        phase = (phase + _GOLDEN) % 1.0
        for turn in range(int(extra + phase)):
            at = _LAYER_PRODUCTS * (turn % _LAYERS_BACK + 1) - 1
            kernel(*(earlier[at] if at < len(earlier) else arguments))
        earlier.appendleft(arguments)
        return kernel(*arguments)

    own = kernel.__code__
    injected_work.__code__ = injected_work.__code__.replace(
        co_name=own.co_name, co_qualname=own.co_qualname, co_filename=own.co_filename
    )
    return injected_work


_FLOAT_BYTES = 4


class Counts(NamedTuple):
    """The ``elements`` that a call computes, the ``bytes`` it reads and its operations."""

    elements: int
    bytes: int = 0
    flops: int = 0


def _count_product(matrix: Any, _x: Any) -> Counts:
    blocks, width, rows = matrix.signs.shape
    inputs = blocks * (width + 1)
    size = matrix.signs.nbytes + matrix.scales.nbytes + inputs * _FLOAT_BYTES
    return Counts(rows, size, 2 * rows * inputs)


def _count_attention(
    query: Any, key: Any, value: Any, _keys: Any, _values: Any, position: int
) -> Counts:
    attended = position + 1
    size = query.nbytes + (key.nbytes + value.nbytes) * (attended + 1)
    return Counts(query.size, size, 4 * query.size * attended)


_COUNT_CALL: dict[str, Callable[..., Counts]] = {
    "embed": lambda table, _: Counts(table.shape[1], table.shape[1] * _FLOAT_BYTES),
    "rms_norm": lambda _, weight, __: Counts(weight.size, 2 * weight.nbytes, 4 * weight.size),
    "quantize": lambda x: Counts(x.size, x.nbytes),
    "ternary_gemv": _count_product,
    "rope": lambda x, *angles: Counts(x.size, sum(a.nbytes for a in (x, *angles)), 3 * x.size),
    "attention": _count_attention,
    "swiglu": lambda gate_up: Counts(gate_up.size // 2, gate_up.nbytes, 2 * gate_up.size),
    "lm_head": lambda table, x: Counts(table.shape[0], table.nbytes + x.nbytes, 2 * table.size),
    "sample": lambda logits: Counts(logits.size, logits.nbytes),
    "_attention_block": lambda _, x, *__: Counts(x.size),
    "_feed_forward": lambda _, x, *__: Counts(x.size),
}


class Mark(NamedTuple):
    """How calls of one function of the engine are marked.

    A function that computes different bricks has none here: they are found by the weights in the
    argument at ``weights_at``, as is the layer. Without that the layer is the one of the last call
    that had weights, if the brick ``is_in_layer``.
    """

    function: str
    brick: str = ""
    category: Category | None = None
    owner: object = kernels
    weights_at: int | None = None
    is_in_layer: bool = True


MARKS = (
    Mark("embed", "Embedding", is_in_layer=False),
    Mark("rms_norm", "RmsNorm", weights_at=1),
    Mark("quantize", "Quantize", "Other"),
    Mark("ternary_gemv", weights_at=0),
    Mark("rope", "RopeEmbedding"),
    Mark("attention", "AttentionScore"),
    Mark("swiglu", "Activation"),
    Mark("lm_head", "LmHead", is_in_layer=False),
    Mark("sample", "Sampling", is_in_layer=False),
    Mark("_attention_block", "AttentionBlock", "Attention", transformer.Transformer, 2),
    Mark("_feed_forward", "FeedForward", "FFN", transformer.Transformer, 2),
)
FRAMES = tuple(mark.function for mark in MARKS if mark.owner is kernels)
"""Every kernel that can be given extra work."""


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

    def wrap(self, function: Callable[..., Any], mark: Mark) -> Callable[..., Any]:
        """Return ``function`` with a mark around each of its calls."""
        # Imported late: only a brick run needs anything of bricks.
        from pytest_flamegate.bricks import start, stop

        weights_at, count_call = mark.weights_at, _COUNT_CALL[mark.function]
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
