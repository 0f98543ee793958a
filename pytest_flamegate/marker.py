"""Which tests are gate tests. Imported where nothing is gated too, so kept light."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

NAME = "flamegate"
"""The name of the marker, and of the fixture."""


def is_marked(item: pytest.Item) -> bool:
    """Whether ``item`` is a gate test."""
    return item.get_closest_marker(NAME) is not None


def takes_fixture(item: pytest.Item) -> bool:
    """Whether ``item`` has the fixture ``flamegate``, in its arguments or through others."""
    return NAME in getattr(item, "fixturenames", ())
