"""The marker's arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.marker import NAME, is_marked, takes_fixture

if TYPE_CHECKING:
    from collections.abc import Mapping

ARGUMENTS = ("workload", "tokens_per_second", "hotspots", "bricks")


@dataclass(frozen=True, slots=True)
class MarkerOptions:
    """What ``@pytest.mark.flamegate(...)`` says; the closest marker wins, argument by argument."""

    workload: str | None = None
    tokens_per_second: str | None = None
    hotspots: Mapping[str, str] | None = None
    bricks: Mapping[str, str | list[str]] | None = None

    @classmethod
    def from_item(cls, item: pytest.Item) -> MarkerOptions:
        """Read the markers of ``item``. Raises ``pytest.UsageError`` for what is not understood."""
        given: dict[str, Any] = {}
        for marker in item.iter_markers(NAME):
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


def check(item: pytest.Item) -> None:
    """Raise ``pytest.UsageError`` for a marker that is not understood or would do nothing."""
    if not is_marked(item):
        return
    options = MarkerOptions.from_item(item)
    if isinstance(item, pytest.Function) and not takes_fixture(item) and options.workload is None:
        raise pytest.UsageError(
            f"{item.nodeid}: E_MARKER: the marker names no workload and the test does "
            'not use the fixture, so nothing would be gated. Say workload="NAME", or '
            "take the fixture flamegate."
        )
