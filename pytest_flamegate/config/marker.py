"""The marker ``flamegate``: which tests are gate tests, and how each is gated.

The plugin imports this module even if nothing is gated, so it imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


MARKER = "flamegate"
"""The name of the marker, and of the fixture."""
HOSTED = "flamegate-hosted"
"""The plugin in a process that runs pytest on one test, whose benchmark is being measured."""
BENCHMARK = "benchmark"
"""pytest-benchmark's fixture."""
EMBEDDED = "embedded"
"""The argument that selects the embedded workloads."""


def is_marked(item: pytest.Item) -> bool:
    """Whether ``item`` is a gate test."""
    return item.get_closest_marker(MARKER) is not None


def takes_fixture(item: pytest.Item) -> bool:
    """Whether ``item`` has the fixture ``flamegate``, in its arguments or through others."""
    return MARKER in getattr(item, "fixturenames", ())


def is_kernel_benchmark(item: pytest.Item) -> bool:
    """Whether ``item`` is a gate test whose workload is its benchmark.

    A workload that the marker or the fixture names comes before the benchmark.
    """
    return (
        is_marked(item)
        and BENCHMARK in getattr(item, "fixturenames", ())
        and not takes_fixture(item)
        and not any("workload" in marker.kwargs for marker in item.iter_markers(MARKER))
    )


def embedded_arguments(arguments: Iterable[str], directory: Path) -> list[str]:
    """Return the arguments that select embedded workloads: ``embedded`` and ``embedded::NAME``.

    ``embedded`` alone is a path if ``directory`` holds a file or directory of that name.

    Example:
        >>> embedded_arguments(["embedded::passage", "tests/test_one.py"], Path("/"))
        ['embedded::passage']
    """
    is_path = Path(directory, EMBEDDED).exists()
    return [
        argument
        for argument in arguments
        if argument.startswith(f"{EMBEDDED}::") or (argument == EMBEDDED and not is_path)
    ]
