"""What a kernel benchmark does in a second: its calls, and what each of them works on.

Derived from the rate of rounds, and from what the recipe says of a round and of a call: how
many calls, and of how many elements, bytes and floating-point operations the test says each is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.types import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RATES = (
    ("kernel_calls_per_second", "calls*rounds/total", None, "calls/s", 1.0),
    ("kernel_elements_per_second", "elements*calls*rounds/total", "elements", "elements/s", 1.0),
    ("kernel_bytes_per_second", "bytes*calls*rounds/total", "bytes", "B/s", 1.0),
    ("kernel_gflops", "flops*calls*rounds/total", "flops", "GFLOP/s", 1e-9),
)
"""Name, formula, the recipe's key of what one call works on, unit, and what one is in it."""
NAMES = tuple(name for name, *_ in _RATES)
_MOST = 1 << 62


def kernel_rates(recipe: Mapping[str, object], found: Sequence[Metric]) -> tuple[Metric, ...]:
    """Return the rates of a benchmark, none for any other recipe.

    ``found`` are the figures of its runs, of which the rate of rounds is used.
    """
    rate = next((metric for metric in found if metric.name == "tokens_per_second"), None)
    calls = _count(recipe, "calls")
    if rate is None or calls is None or recipe.get("engine") != "benchmark":
        return ()
    return tuple(
        Metric(
            name=name,
            value=rate.value * calls * work * factor,
            formula=formula,
            unit=unit,
            direction="higher_is_better",
            clock="wall",
            samples=rate.samples,
            provenance="derived",
        )
        for name, formula, key, unit, factor in _RATES
        if (work := 1 if key is None else _count(recipe, key)) is not None
    )


def _count(recipe: Mapping[str, object], key: str) -> int | None:
    """Return a count that the recipe tells; it may be foreign, and tell anything."""
    value = recipe.get(key)
    known = isinstance(value, int) and not isinstance(value, bool)
    return value if known and 1 <= value <= _MOST else None  # type: ignore[operator,return-value]
