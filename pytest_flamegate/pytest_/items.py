"""Workloads as test items: ``flamegate.toml::decode`` and ``embedded::1tok``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from pytest_flamegate.config.marker import MARKER, is_marked
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.files import is_file
from pytest_flamegate.engines.declare import InvalidWorkload, find_line
from pytest_flamegate.pytest_.selection import Selection
from pytest_flamegate.run.publish import Outcome
from pytest_flamegate.run.stages import Call


class Gating(Protocol):
    """Gates workloads on behalf of tests."""

    settings: Settings
    selection: Selection

    def gate(self, item: pytest.Item, workload: Workload, call: Call | None = None) -> Outcome:
        """Measure and gate ``workload`` for ``item``; fail the test if the verdict fails."""


class WorkloadItem(pytest.Item):
    """One declared or embedded workload; running it measures and gates it."""

    def __init__(self, *, workload: Workload, gating: Gating, **kwargs: Any) -> None:
        super().__init__(**kwargs)
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


class InvalidWorkloadItem(pytest.Item):
    """A declaration with an error: one failing test, and the other workloads run."""

    def __init__(self, *, invalid: InvalidWorkload, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.invalid = invalid
        self.add_marker(MARKER)

    def runtest(self) -> None:
        """Fail with the error."""
        pytest.fail(f"error: {self.invalid.error}", pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the line of the error."""
        line = self.invalid.line
        return self.path, line - 1 if line else None, f"{self.name} ({self.path.name})"


class WorkloadFile(pytest.File):
    """``flamegate.toml`` or a pyproject with ``[tool.flamegate]``."""

    gating: Gating

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item for each workload declared."""
        for entry in self.gating.selection.declarations.entries:
            if isinstance(entry, Workload):
                yield _item(self, self.gating, entry)
            else:
                yield InvalidWorkloadItem.from_parent(self, name=entry.name, invalid=entry)


class EmbeddedWorkloads(pytest.Collector):
    """The embedded workloads, which are gated if nothing is declared."""

    gating: Gating

    def collect(self) -> Iterator[pytest.Item]:
        """Yield those that arguments name, else all unless another test gates something."""
        wanted = self.gating.selection.wanted
        if wanted is None and any(map(is_marked, self.session.items)):
            return
        for workload in self.gating.selection.embedded:
            if not wanted or workload.name in wanted:
                yield _item(self, self.gating, workload)


def _item(parent: pytest.Collector, gating: Gating, workload: Workload) -> WorkloadItem:
    return WorkloadItem.from_parent(parent, name=workload.name, workload=workload, gating=gating)
