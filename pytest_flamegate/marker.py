"""The marker's arguments. Standard library and pytest only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "flamegate"
ARGUMENTS = ("workload", "tokens_per_second", "hotspots")


@dataclass(frozen=True, slots=True)
class MarkerOptions:
    """What ``@pytest.mark.flamegate(...)`` says; the closest marker wins, argument by argument."""

    workload: str | None = None
    tokens_per_second: str | None = None
    hotspots: Mapping[str, str] | None = None

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
