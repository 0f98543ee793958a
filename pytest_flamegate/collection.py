"""Workloads as test items: ``flamegate.toml::decode`` and ``embedded::1tok``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.embedded.workloads import WORKLOADS
from pytest_flamegate.marker import NAME as MARKER
from pytest_flamegate.paths import is_file
from pytest_flamegate.workload.declare import line_of
from pytest_flamegate.workload.spec import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_flamegate.gatekeeper import Gatekeeper

EMBEDDED = "embedded"


def embedded_workloads(directory: Path) -> tuple[Workload, ...]:
    """Return the three workloads that need no declaration."""
    return tuple(
        Workload(
            name=name,
            engine=EMBEDDED,
            prompt=prompt,
            max_tokens=max_tokens,
            source=EMBEDDED,
            directory=directory,
        )
        for name, prompt, max_tokens in WORKLOADS
    )


class WorkloadItem(pytest.Item):
    """One declared or embedded workload; running it measures and gates it."""

    def __init__(self, *, workload: Workload, gatekeeper: Gatekeeper, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.workload = workload
        self.gatekeeper = gatekeeper
        self.add_marker(MARKER)

    def runtest(self) -> None:
        """Measure and gate; a failing verdict fails the test."""
        self.gatekeeper.gate(self, self.workload)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where the workload is declared, and the heading of its failure."""
        line = line_of(self.path, self.workload.name) if is_file(self.path) else None
        # A heading that the node id ends in would be shown in its place, dots made colons.
        heading = f"{self.workload.name} ({self.workload.source})"
        return self.path, line - 1 if line else None, heading


class WorkloadFile(pytest.File):
    """``flamegate.toml`` or a pyproject with ``[tool.flamegate]``."""

    gatekeeper: Gatekeeper

    def collect(self) -> Iterator[WorkloadItem]:
        """Yield one item for each workload declared."""
        for workload in self.gatekeeper.declared:
            yield WorkloadItem.from_parent(
                self, name=workload.name, workload=workload, gatekeeper=self.gatekeeper
            )


class EmbeddedWorkloads(pytest.Collector):
    """The embedded workloads: what there is to gate where nothing was declared."""

    gatekeeper: Gatekeeper

    def collect(self) -> Iterator[WorkloadItem]:
        """Yield them, unless tests use the fixture or only some were asked for by name."""
        wanted = self.gatekeeper.embedded_wanted
        if wanted is None and any(item.get_closest_marker(MARKER) for item in self.session.items):
            return
        for workload in embedded_workloads(self.config.rootpath):
            if not wanted or workload.name in wanted:
                yield WorkloadItem.from_parent(
                    self, name=workload.name, workload=workload, gatekeeper=self.gatekeeper
                )
