"""The arguments of the marker, which of several markers wins, and the names made of tests."""

import pytest

from pytest_flamegate.config.options import is_marked, takes_fixture
from pytest_flamegate.engines.declare import NAME
from pytest_flamegate.pytest_.fixture import MarkerOptions, name_of_test

MARK = "import pytest\n@pytest.mark.flamegate({})\ndef test_it(flamegate): pass\n"


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("", MarkerOptions()),
        ('bricks={"Up": ["2us", "9%"]}', MarkerOptions(bricks={"Up": ["2us", "9%"]})),
        ('workload="toy", tokens_per_second="3%", hotspots={}', MarkerOptions("toy", "3%", {})),
    ],
)
def test_arguments(pytester: pytest.Pytester, arguments: str, options: MarkerOptions) -> None:
    item = pytester.getitem(MARK.format(arguments), "test_it")
    assert MarkerOptions.from_item(item) == options
    assert is_marked(item)
    assert takes_fixture(item)


SEVERAL = """
import pytest
pytestmark = pytest.mark.flamegate(workload="module", hotspots={"a": "1pp"})

@pytest.mark.flamegate(tokens_per_second="2%")
class TestIt:
    @pytest.mark.flamegate(workload="own")
    def test_own(self): pass

    def test_inherits(self): pass
"""


def test_the_closest_marker_wins_argument_by_argument(pytester: pytest.Pytester) -> None:
    items, _ = pytester.inline_genitems(pytester.makepyfile(SEVERAL))
    found = {item.name: MarkerOptions.from_item(item) for item in items}
    assert found == {
        "test_own": MarkerOptions("own", "2%", {"a": "1pp"}),
        "test_inherits": MarkerOptions("module", "2%", {"a": "1pp"}),
    }


PLAIN_NODES = {
    "test_a.py::test_b": "test_a.test_b",
    "tests/test_a.py::TestC::test_b": "tests.test_a.TestC.test_b",
    "test_a.py::test_b[10-x]": "test_a.test_b-10-x",
}
ODD_NODES = [
    *("test_a.py::test_b[a/b]", "test_a.py::test_b[a b]", "test_a.py::test_b[µ]", "_p/a.py::b"),
    *("test_a.py::test_b[../../up]", "test_a.py::test_b[]]", "test_a.py::test_" + "b" * 300),
    "тест.py::тест",
]


def test_a_node_id_becomes_a_name_that_no_other_has() -> None:
    assert {node: name_of_test(node) for node in PLAIN_NODES} == PLAIN_NODES
    names = [name_of_test(node) for node in ODD_NODES]
    assert all(NAME.fullmatch(name) for name in names)
    assert len({*names, *PLAIN_NODES.values()}) == len(names) + len(PLAIN_NODES)
