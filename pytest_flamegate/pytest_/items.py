"""Workloads as test items: ``flamegate.toml::decode`` and ``embedded::1tok``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_flamegate.config.marker import MARKER, is_marked
from pytest_flamegate.core.paths import is_file
from pytest_flamegate.engines.declare import find_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pytest_flamegate.config.settings import Settings
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.run.publish import Outcome


class WorkloadItem(pytest.Item):
    """One declared or embedded workload; running it measures and gates it."""

    def __init__(self, *, workload: Workload, gating: Gating, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.workload = workload
        self.gating = gating
        self.add_marker(MARKER)

    def runtest(self) -> None:
        """Measure and gate; a failing verdict fails the test."""
        self.gating.gate(self, self.workload)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where the workload is declared, and the heading of its failure."""
        line = find_line(self.path, self.workload.name) if is_file(self.path) else None
        # A heading that the node id ends in would be shown in its place, dots made colons.
        heading = f"{self.workload.name} ({self.workload.source})"
        return self.path, line - 1 if line else None, heading


class WorkloadFile(pytest.File):
    """``flamegate.toml`` or a pyproject with ``[tool.flamegate]``."""

    gating: Gating

    def collect(self) -> Iterator[WorkloadItem]:
        """Yield one item for each workload declared."""
        return _items(self, self.gating, self.gating.declared)


class EmbeddedWorkloads(pytest.Collector):
    """The embedded workloads: what there is to gate where nothing was declared.

    ``wanted`` holds the names that were asked for, all of them where it is empty; it is
    None where nobody asked.
    """

    gating: Gating
    wanted: frozenset[str] | None

    def collect(self) -> Iterator[WorkloadItem]:
        """Yield them, unless nobody asked and other tests gate something."""
        if self.wanted is None and any(map(is_marked, self.session.items)):
            return iter(())
        chosen = [
            each for each in self.gating.embedded if not self.wanted or each.name in self.wanted
        ]
        return _items(self, self.gating, chosen)


def _items(
    parent: pytest.Collector, gating: Gating, workloads: Iterable[Workload]
) -> Iterator[WorkloadItem]:
    for workload in workloads:
        yield WorkloadItem.from_parent(parent, name=workload.name, workload=workload, gating=gating)


class Gating(Protocol):
    """Knows the workloads there are, and gates them on behalf of tests."""

    settings: Settings
    declared: tuple[Workload, ...]
    embedded: tuple[Workload, ...]

    def gate(
        self,
        item: pytest.Item,
        workload: Workload,
        call: Callable[[str, int], Iterable[Any]] | None = None,
    ) -> Outcome:
        """Measure and gate ``workload`` for ``item``; fail the test where the verdict fails."""
