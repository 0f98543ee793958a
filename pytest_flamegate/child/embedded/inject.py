"""Real extra work in one kernel, to see the gate close.

Nothing sleeps: the kernel is called again, often enough to make up the share asked
for, and the repeated call shows up in a profile like any other. What repeats it goes by
the kernel's own name and file, so that all of the extra work is seen as the kernel's.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from pytest_flamegate.child.embedded import kernels
from pytest_flamegate.config.workload import injected_share
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.config.workload import Injection


# Every frame that can be given more work, and what makes two of its calls equally large.
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

    Calls of each size are counted apart, so that small calls do not stand in for large
    ones, and each size starts at another point of its cycle, so that not all sizes are
    repeated in the same step. A second injection into the same frame replaces the first.
    Raises ``UsageError``: E_UNKNOWN_FRAME, E_BAD_INJECTION (not a percentage above 0).
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
    setattr(kernels, injection.frame, _repeating(kernel, injection.frame, extra))


def _repeating(kernel: Callable[..., Any], frame: str, extra: float) -> Callable[..., Any]:
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
