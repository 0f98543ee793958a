"""The marker ``flamegate``: which tests are gate tests, and the arguments of their markers.

The plugin imports this module even if nothing is gated, so it imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pytest

    Work = int | Callable[..., int] | None


MARKER = "flamegate"
"""The name of the marker, and of the fixture."""
HOSTED = "flamegate-hosted"
"""The plugin in a process that runs pytest on one test, whose benchmark is being measured."""
BENCHMARK = "benchmark"
"""pytest-benchmark's fixture."""
EMBEDDED = "embedded"
"""The argument that selects the embedded workloads."""
KERNEL_ARGUMENTS = ("throughput", "elements", "bytes", "flops")
"""Arguments for tests that use the fixture ``benchmark``."""
ARGUMENTS = ("workload", "tokens_per_second", "hotspots", "bricks", *KERNEL_ARGUMENTS)


def is_marked(item: pytest.Item) -> bool:
    """Whether ``item`` is a gate test."""
    return item.get_closest_marker(MARKER) is not None


def takes_fixture(item: pytest.Item) -> bool:
    """Whether ``item`` has the fixture ``flamegate``, in its arguments or through others."""
    return MARKER in getattr(item, "fixturenames", ())


def is_kernel_benchmark(item: pytest.Item) -> bool:
    """Whether ``item`` is a gate test whose workload is its benchmark."""
    return (
        is_marked(item)
        and BENCHMARK in getattr(item, "fixturenames", ())
        and not takes_fixture(item)
        and not any("workload" in marker.kwargs for marker in item.iter_markers(MARKER))
    )


def embedded_arguments(arguments: Iterable[str], directory: Path) -> list[str]:
    """Return the arguments that select embedded workloads: ``embedded`` and ``embedded::NAME``.

    ``embedded`` alone is a path if ``directory`` holds a file or directory of that name.
    """
    is_path = Path(directory, EMBEDDED).exists()
    return [
        argument
        for argument in arguments
        if argument.startswith(f"{EMBEDDED}::") or (argument == EMBEDDED and not is_path)
    ]


class MarkerOptions(NamedTuple):
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
        for marker in item.iter_markers(MARKER):
            if marker.args:
                raise _error(
                    item,
                    f"flamegate takes no positional argument ({marker.args[0]!r}). "
                    f"Name it: {', '.join(f'{name}=…' for name in ARGUMENTS)}.",
                )
            for name, value in marker.kwargs.items():
                if name not in ARGUMENTS:
                    raise _error(
                        item, f"flamegate has no argument {name!r}. Known: {', '.join(ARGUMENTS)}."
                    )
                given.setdefault(name, value)
        return cls(**given)


def check_marker(item: pytest.Item) -> None:
    """Raise ``pytest.UsageError`` ``E_MARKER`` for a wrong marker, or one that gates nothing."""
    import pytest

    if not is_marked(item):
        return
    options = MarkerOptions.from_item(item)
    others = [name for name in KERNEL_ARGUMENTS if getattr(options, name) is not None]
    if is_kernel_benchmark(item):
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
    elif isinstance(item, pytest.Function) and not takes_fixture(item) and options.workload is None:
        raise _error(
            item,
            "the marker names no workload and the test does not use the fixture, so nothing would "
            'be gated. Add workload="NAME", or use the fixture flamegate or benchmark.',
        )


def _error(item: pytest.Item, message: str) -> Exception:
    import pytest

    return pytest.UsageError(f"{item.nodeid}: E_MARKER: {message}")
