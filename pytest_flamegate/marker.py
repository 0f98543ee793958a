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


def is_marked(item: pytest.Item) -> bool:
    """Whether ``item`` is a gate test."""
    return item.get_closest_marker(NAME) is not None


def takes_fixture(item: pytest.Item) -> bool:
    """Whether ``item`` has the fixture ``flamegate``, in its arguments or through others."""
    return NAME in getattr(item, "fixturenames", ())


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
