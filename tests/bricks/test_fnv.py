"""FNV-1a over bytes, by its published vectors."""

from __future__ import annotations

import pytest

from pytest_flamegate.graph.graph import fnv1a


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"foobar", 0x85944171F73967E8),
        (b"\x00", 0xAF63BD4C8601B7DF),
    ],
)
def test_published_vectors(data: bytes, expected: int) -> None:
    assert fnv1a(data) == expected
