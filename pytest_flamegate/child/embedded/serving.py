"""Load the embedded engine in the observed process, if asked with real extra work in one kernel.

Nothing sleeps: an injected kernel is called again, often enough to make up the share that was
asked for, and the repeated call shows up in a profile like any other. The wrapper carries the
kernel's own name and file, so that all of the extra work is attributed to the kernel.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.child.embedded import kernels, transformer
from pytest_flamegate.config.workload import Injection, injected_share
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from pytest_flamegate.child.embedded.weights import Weights


class EmbeddedEngine(partial[Iterator[int]]):
    """Called with prompt and max_tokens; in C, so that no profile has one more frame for it."""

    def mark_bricks(self) -> AbstractContextManager[None]:
        """Return a context within which every kernel is a brick."""
        # Imported late: only a brick run needs the module.
        from pytest_flamegate.child.embedded.marks import mark_kernels

        return mark_kernels(self._model.weights)

    @property
    def facts(self) -> Mapping[str, str]:
        """What the engine reports about itself: the bytes that a token takes."""
        return count_traffic(self._model.weights)

    @property
    def _model(self) -> transformer.Transformer:
        model: transformer.Transformer = self.func.__self__  # type: ignore[attr-defined]
        return model


def load_engine(load: dict[str, Any]) -> EmbeddedEngine:
    """Load the GGUF file ``load["model"]``; ``load["inject"]`` is a frame and its extra percent."""
    engine = EmbeddedEngine(transformer.load(Path(load["model"])).generate)
    if "inject" in load:
        frame, extra_pct = load["inject"]
        inject(Injection(frame, extra_pct))
    return engine


def count_traffic(weights: Weights) -> dict[str, str]:
    """Return the work of one token as whole numbers in text.

    ``weights_bytes_per_token``: all weights as they are in memory, each read once (the token's
    own row of the table is read again with the whole table). ``kv_bytes_per_position``: keys and
    values of one position in all layers. ``flops_per_token``: two for each weight of a product;
    attention, norms and activations are left out.
    """
    matrices = [
        matrix
        for layer in weights.layers
        for matrix in (layer.attn_qkv, layer.attn_output, layer.ffn_gate_up, layer.ffn_down)
    ]
    norms = [
        norm
        for layer in weights.layers
        for norm in (layer.attn_norm, layer.attn_sub_norm, layer.ffn_norm, layer.ffn_sub_norm)
    ]
    arrays = [weights.token_embd, weights.output_norm, *norms]
    arrays += [part for matrix in matrices for part in matrix]
    config = weights.config
    itemsize = weights.token_embd.itemsize
    products = sum(matrix.signs.size for matrix in matrices) + weights.token_embd.size
    counts = {
        "weights_bytes_per_token": sum(each.nbytes for each in arrays),
        "kv_bytes_per_position": 2 * config.layers * config.kv_heads * config.head_width * itemsize,
        "flops_per_token": 2 * products,
    }
    return {name: str(value) for name, value in counts.items()}


# Every kernel that can be given extra work, and the size by which its calls are compared.
_CALL_SIZE: dict[str, Callable[..., int]] = {
    "ternary_gemv": lambda matrix, *_: matrix.signs.size,
    "quantize": lambda x: x.size,
    "rms_norm": lambda x, *_: x.size,
    "rope": lambda x, *_: x.size,
    "attention": lambda *arguments: arguments[-1],
    "swiglu": lambda gate_up: gate_up.size,
    "lm_head": lambda table, *_: table.size,
    "embed": lambda table, *_: table.size,
    "sample": lambda logits: logits.size,
}
FRAMES = tuple(_CALL_SIZE)

# A matrix that was just read is still in the CPU's cache, where reading it again costs
# half as much. So a repeated product takes the matrices of earlier layers in turn.
_REMEMBERED_CALLS = {"ternary_gemv": 3}
_GOLDEN = (math.sqrt(5) - 1) / 2


def inject(injection: Injection) -> None:
    """Make ``injection.frame`` do ``extra_pct`` percent more of its work in this process.

    Calls of each size are counted separately, so that small calls do not stand in for large
    ones, and each size starts at another point of its cycle, so that not all sizes are
    repeated in the same step. A second injection into the same frame replaces the first.

    Raises:
        UsageError: ``E_UNKNOWN_FRAME``, or ``E_BAD_INJECTION`` (not a percentage above 0).
    """
    if injection.frame not in _CALL_SIZE:
        raise UsageError(
            "E_UNKNOWN_FRAME",
            f"The embedded engine has no frame {injection.frame!r} to give more work.",
            f"Choose one of: {', '.join(FRAMES)}.",
        )
    extra = injected_share(injection.extra_pct)
    kernel = getattr(kernels, injection.frame)
    kernel = getattr(kernel, "flamegate_kernel", kernel)
    setattr(kernels, injection.frame, _repeat_calls(kernel, injection.frame, extra))


def _repeat_calls(kernel: Callable[..., Any], frame: str, extra: float) -> Callable[..., Any]:
    call_size = _CALL_SIZE[frame]
    remembered_calls = _REMEMBERED_CALLS.get(frame, 0)
    credit_by_size: dict[int, float] = {}
    earlier_calls: dict[int, deque[tuple[Any, ...]]] = {}

    def injected_work(*arguments: Any) -> Any:
        size = call_size(*arguments)
        if size not in credit_by_size:
            credit_by_size[size] = len(credit_by_size) * _GOLDEN % 1.0
            earlier_calls[size] = deque(maxlen=remembered_calls)
        credit, earlier = credit_by_size[size] + extra, earlier_calls[size]
        repeats = int(credit)
        for turn in range(repeats):
            kernel(*(earlier[turn % len(earlier)] if earlier else arguments))
        credit_by_size[size] = credit - repeats
        earlier.appendleft(arguments)
        return kernel(*arguments)

    own = kernel.__code__
    injected_work.__code__ = injected_work.__code__.replace(
        co_name=own.co_name, co_qualname=own.co_qualname, co_filename=own.co_filename
    )
    injected_work.flamegate_kernel = kernel  # type: ignore[attr-defined]
    return injected_work
