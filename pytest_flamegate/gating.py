"""What test items and the fixture need of the working plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest

    from pytest_flamegate.outcome import Outcome
    from pytest_flamegate.settings import Settings
    from pytest_flamegate.workload.spec import Workload


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
