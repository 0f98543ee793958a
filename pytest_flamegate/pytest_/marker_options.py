"""The arguments of the marker ``flamegate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_flamegate.config import marker
from pytest_flamegate.config.thresholds import Thresholds, parse_thresholds
from pytest_flamegate.core.errors import UsageError

Work = int | Callable[..., int] | None
KERNEL_ARGUMENTS = ("throughput", "elements", "bytes", "flops")
"""Arguments for tests that use the fixture ``benchmark``."""
ARGUMENTS = ("workload", "tokens_per_second", "hotspots", "bricks", *KERNEL_ARGUMENTS)


@dataclass(frozen=True)
class MarkerOptions:
    """The arguments of ``@pytest.mark.flamegate(...)``.

    Attributes:
        throughput: The allowed drop of a benchmark's calls per second.
        elements: The number of elements that one call of a benchmark works on, or a function of
            the test's arguments that returns it. ``bytes`` and ``flops`` likewise.
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
        """Read the markers of ``item``; for each argument the closest marker wins.

        Raises ``pytest.UsageError`` ``E_MARKER`` for an unknown argument.
        """
        given: dict[str, Any] = {}
        for mark in item.iter_markers(marker.MARKER):
            if mark.args:
                raise _error(
                    item,
                    f"flamegate takes no positional argument ({mark.args[0]!r}). "
                    f"Name it: {', '.join(f'{name}=…' for name in ARGUMENTS)}.",
                )
            for name, value in mark.kwargs.items():
                if name not in ARGUMENTS:
                    raise _error(
                        item, f"flamegate has no argument {name!r}. Known: {', '.join(ARGUMENTS)}."
                    )
                given.setdefault(name, value)
        return cls(**given)

    def thresholds(self, item: pytest.Item, below: Thresholds) -> Thresholds:
        """Return its thresholds over those ``below``; UsageError ``E_BAD_THRESHOLD``."""
        rate = "tokens_per_second" if self.throughput is None else "throughput"
        try:
            return parse_thresholds(
                getattr(self, rate), self.hotspots, f"{item.nodeid} ", below, self.bricks
            )
        except UsageError as error:
            problem = error.problem.replace(" tokens_per_second is", f" {rate} is")
            raise UsageError(error.code, problem, error.remedy) from None


def check_marker(item: pytest.Item) -> None:
    """Raise ``pytest.UsageError`` ``E_MARKER`` for a wrong marker, or one that gates nothing."""
    if not marker.is_marked(item):
        return
    options = MarkerOptions.from_item(item)
    others = [name for name in KERNEL_ARGUMENTS if getattr(options, name) is not None]
    if marker.is_kernel_benchmark(item):
        if options.tokens_per_second is not None:
            raise _error(
                item,
                'a benchmark generates no tokens. Use throughput="5%" for its calls per second.',
            )
    elif others:
        raise _error(
            item,
            f"{others[0]} belongs to a benchmark, and the test gates none. "
            "Use the fixture benchmark, and neither a workload nor flamegate.",
        )
    # Items of other kinds, such as workloads of a file, are gated without either.
    elif (
        isinstance(item, pytest.Function)
        and not marker.takes_fixture(item)
        and options.workload is None
    ):
        raise _error(
            item,
            "the marker names no workload and the test does not use the fixture, so nothing would "
            'be gated. Add workload="NAME", or use the fixture flamegate or benchmark.',
        )


def _error(item: pytest.Item, message: str) -> Exception:
    return pytest.UsageError(f"{item.nodeid}: E_MARKER: {message}")
