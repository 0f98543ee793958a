"""Kernel sources by their hash."""

from __future__ import annotations

import pytest

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.graph.graph import SourceRegistry, fnv1a


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"foobar", 0x85944171F73967E8),
    ],
)
def test_the_hash_is_fnv_1a(data: bytes, key: int) -> None:
    assert fnv1a(data) == key


def test_a_source_is_found_by_its_hash() -> None:
    registry = SourceRegistry()
    key = registry.register("// größer\n__global__ void gemv() {}")
    assert key == fnv1a("// größer\n__global__ void gemv() {}".encode())
    assert registry.register("// größer\n__global__ void gemv() {}") == key
    assert registry.lookup(key) == "// größer\n__global__ void gemv() {}"
    assert registry.lookup(key ^ 1) is None
    assert len(registry) == 1


def test_another_source_of_the_same_hash_is_refused() -> None:
    one, other = "8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"
    registry = SourceRegistry()
    key = registry.register(one)
    assert fnv1a(other.encode()) == key
    with pytest.raises(UsageError) as refused:
        registry.register(other)
    assert refused.value.code == "E_SOURCE_COLLISION"
    assert registry.lookup(key) == one


def test_a_source_without_utf_8_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        SourceRegistry().register("\udcff")
    assert refused.value.code == "E_SOURCE_TEXT"
