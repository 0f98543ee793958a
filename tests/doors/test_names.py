"""The names of workloads that tests measure: readable, and one for each test."""

from __future__ import annotations

import pytest

from pytest_flamegate.engines.declare import NAME
from pytest_flamegate.pytest_.fixture import name_of_test

SAFE = {
    "test_a.py::test_b": "test_a.test_b",
    "tests/test_a.py::test_b": "tests.test_a.test_b",
    "tests/test_a.py::TestC::test_b": "tests.test_a.TestC.test_b",
    "test_a.py::test_b[10-x]": "test_a.test_b-10-x",
}
DIGESTED = [
    "test_a.py::test_b[a/b]",
    "test_a.py::test_b[a b]",
    "test_a.py::test_b[µ]",
    "test_a.py::test_b[../../up]",
    "test_a.py::test_b[]]",
    "_private/test_a.py::test_b",
    "test_a.py::test_" + "b" * 300,
    "test_a.py::test_" + "b" * 300 + "[x]",
    "тест.py::тест",
]


@pytest.mark.parametrize(("node", "name"), SAFE.items())
def test_what_can_name_a_directory_is_kept(node: str, name: str) -> None:
    assert name_of_test(node) == name


@pytest.mark.parametrize("node", [*SAFE, *DIGESTED])
def test_every_name_is_one(node: str) -> None:
    assert NAME.fullmatch(name_of_test(node))


def test_no_two_share_one() -> None:
    nodes = [*SAFE, *DIGESTED]
    assert len({name_of_test(node) for node in nodes}) == len(nodes)
