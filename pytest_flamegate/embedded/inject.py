"""Real extra work in one kernel, to see the gate close.

Nothing sleeps: the kernel is called again with the same arguments, often enough to
make up the share asked for, and the repeated call shows up in a profile like any other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pytest_flamegate.embedded import kernels
from pytest_flamegate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.workload.spec import Injection

# Every frame that can be given more work, and what makes two of its calls equally large.
_CALL_SIZE: dict[str, Callable[..., int]] = {
    "ternary_gemv": lambda matrix, x: matrix.signs.size,
    "quantize": lambda x: x.size,
    "rms_norm": lambda x, weight, epsilon: x.size,
    "rope": lambda x, cosines, sines: x.size,
    "attention": lambda query, key, value, keys, values, position: position,
    "swiglu": lambda gate_up: gate_up.size,
    "lm_head": lambda table, x: x.size,
    "embed": lambda table, token: table.size,
    "sample": lambda logits: logits.size,
}
FRAMES = tuple(_CALL_SIZE)
_GOLDEN = (math.sqrt(5) - 1) / 2


def inject(injection: Injection) -> None:
    """Make ``injection.frame`` do ``extra_pct`` percent more of its work in this process.

    Calls of each size are counted apart, so that small calls do not stand in for large
    ones, and each size starts at another point of its cycle, so that not all sizes are
    repeated in the same step. A second injection into the same frame replaces the first.
    Raises ``UsageError``: E_UNKNOWN_FRAME, E_INJECTION (not a percentage above 0).
    """
    if injection.frame not in _CALL_SIZE:
        raise UsageError(
            "E_UNKNOWN_FRAME",
            f"The embedded engine has no frame {injection.frame!r} to give more work.",
            f"Choose one of: {', '.join(FRAMES)}.",
        )
    if not 0 < injection.extra_pct < math.inf:
        raise UsageError(
            "E_INJECTION",
            f"{injection.extra_pct} percent of extra work cannot be injected.",
            "Give a percentage above 0, such as +10%.",
        )
    kernel = getattr(kernels, injection.frame)
    kernel = getattr(kernel, "flamegate_kernel", kernel)
    repeating = _repeating(kernel, _CALL_SIZE[injection.frame], injection.extra_pct / 100.0)
    setattr(kernels, injection.frame, repeating)


def _repeating(
    kernel: Callable[..., Any], call_size: Callable[..., int], share: float
) -> Callable[..., Any]:
    credit: dict[int, float] = {}

    def injected_work(*arguments: Any) -> Any:
        size = call_size(*arguments)
        due = credit.get(size)
        if due is None:
            due = len(credit) * _GOLDEN % 1.0
        due += share
        while due >= 1.0:
            kernel(*arguments)
            due -= 1.0
        credit[size] = due
        return kernel(*arguments)

    injected_work.flamegate_kernel = kernel  # type: ignore[attr-defined]
    return injected_work
