"""The names of workloads that tests measure: readable, and one for each test."""

import pytest

from pytest_flamegate.engines.declare import NAME
from pytest_flamegate.pytest_.fixture import name_of_test

NODES = {
    "test_a.py::test_b": "test_a.test_b",
    "tests/test_a.py::TestC::test_b": "tests.test_a.TestC.test_b",
    "test_a.py::test_b[10-x]": "test_a.test_b-10-x",
    **dict.fromkeys(("test_a.py::test_b[a/b]", "test_a.py::test_b[a b]", "test_a.py::test_b[µ]")),
    **dict.fromkeys(("test_a.py::test_b[../../up]", "test_a.py::test_b[]]", "_p/a.py::b")),
    **dict.fromkeys(("test_a.py::test_" + "b" * 300, "тест.py::тест")),
}
"""Node ids, and the name if the node id can name a directory; the others get a digest."""


@pytest.mark.parametrize(("node", "name"), NODES.items())
def test_name(node: str, name: str | None) -> None:
    assert NAME.fullmatch(name_of_test(node))
    assert name_of_test(node) == name or name is None


def test_no_two_nodes_share_a_name() -> None:
    assert len({name_of_test(node) for node in NODES}) == len(NODES)
