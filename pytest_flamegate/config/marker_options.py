"""The marker's arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.config.marker import MARKER, is_kernel_benchmark, is_marked, takes_fixture

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


if TYPE_CHECKING:
    Work = int | Callable[..., int] | None

KERNEL_ARGUMENTS = ("throughput", "elements", "bytes", "flops")
"""What only a test that takes the fixture ``benchmark`` may say."""
ARGUMENTS = ("workload", "tokens_per_second", "hotspots", "bricks", *KERNEL_ARGUMENTS)


@dataclass(frozen=True, slots=True)
class MarkerOptions:
    """What ``@pytest.mark.flamegate(...)`` says; the closest marker wins, argument by argument.

    ``throughput`` is the allowed drop of the calls per second of a benchmark; ``elements``,
    ``bytes`` and ``flops`` are what one call works on, or functions of the test's arguments
    that return it.
    """

    workload: str | None = None
    tokens_per_second: str | None = None
    hotspots: Mapping[str, str] | None = None
    bricks: Mapping[str, str | list[str]] | None = None
    throughput: str | None = None
    elements: Work = None
    bytes: Work = None
    flops: Work = None

    @classmethod
    def from_item(cls, item: pytest.Item) -> MarkerOptions:
        """Read the markers of ``item``. Raises ``pytest.UsageError`` for what is not understood."""
        given: dict[str, Any] = {}
        for marker in item.iter_markers(MARKER):
            if marker.args:
                raise pytest.UsageError(
                    f"{item.nodeid}: E_MARKER: flamegate takes no positional argument "
                    f"({marker.args[0]!r}). Name it: {', '.join(f'{a}=…' for a in ARGUMENTS)}."
                )
            for name, value in marker.kwargs.items():
                if name not in ARGUMENTS:
                    raise pytest.UsageError(
                        f"{item.nodeid}: E_MARKER: flamegate has no argument {name!r}. "
                        f"Known: {', '.join(ARGUMENTS)}."
                    )
                given.setdefault(name, value)
        return cls(**given)


def check_marker(item: pytest.Item) -> None:
    """Raise ``pytest.UsageError`` for a marker that is not understood or would do nothing."""
    if not is_marked(item):
        return
    options = MarkerOptions.from_item(item)
    if is_kernel_benchmark(item):
        if options.tokens_per_second is not None:
            raise pytest.UsageError(
                f"{item.nodeid}: E_MARKER: a benchmark generates no tokens. "
                'Say throughput="5%" for its calls per second.'
            )
        return
    for name in KERNEL_ARGUMENTS:
        if getattr(options, name) is not None:
            raise pytest.UsageError(
                f"{item.nodeid}: E_MARKER: {name} is said of a benchmark, and the test gates "
                "none. Take the fixture benchmark, and neither a workload nor flamegate."
            )
    if isinstance(item, pytest.Function) and not takes_fixture(item) and options.workload is None:
        raise pytest.UsageError(
            f"{item.nodeid}: E_MARKER: the marker names no workload and the test does "
            'not use the fixture, so nothing would be gated. Say workload="NAME", or '
            "take the fixture flamegate, or benchmark."
        )
