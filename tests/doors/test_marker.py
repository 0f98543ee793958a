"""The arguments of the marker, which of several markers wins, and the names made of tests."""

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.config.options import is_marked, takes_fixture
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import name_of_test
from pytest_flamegate.engines.declare import NAME
from pytest_flamegate.pytest_.fixture import MarkerOptions, benchmark_of
from tests.doors.project import Project

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


BENCHMARK = """
import pytest

class TestIt:
    @pytest.mark.flamegate(throughput="5%")
    @pytest.mark.parametrize("at", ["a@b"])
    def test_it(self, benchmark, at): pass
"""


def test_the_group_of_an_xdist_worker_is_no_part_of_a_workload(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = pytester.getitem(pytester.makepyfile(test_a=BENCHMARK), "test_it[a@b]")
    assert isinstance(item, pytest.Function)
    gating: Any = SimpleNamespace(settings=Settings(pytester.path, pytester.path))
    with monkeypatch.context() as patch:
        patch.setattr(pytest.Item, "nodeid", f"{item.nodeid}@gpu")
        found = benchmark_of(item, gating)
    assert found.source == found.target == "test_a.py::TestIt::test_it[a@b]"
    assert found.name == name_of_test(found.source)


def test_a_node_id_becomes_a_name_that_no_other_has() -> None:
    assert {node: name_of_test(node) for node in PLAIN_NODES} == PLAIN_NODES
    names = [name_of_test(node) for node in ODD_NODES]
    assert all(NAME.fullmatch(name) for name in names)
    assert len({*names, *PLAIN_NODES.values()}) == len(names) + len(PLAIN_NODES)


SHARED = """
import pytest
import toy

def measure(flamegate, name):
    flamegate.measure(toy.generate, prompt="x", max_tokens=4, name=name)

@pytest.mark.parametrize("name", ["one", "other"])
def test_named(flamegate, name):
    measure(flamegate, name)

def test_own(flamegate):
    measure(flamegate, None)

def test_shared(flamegate):
    measure(flamegate, "other")
"""


@pytest.mark.usefixtures("world")
def test_two_tests_cannot_measure_under_one_name(project: Project) -> None:
    project.write("test_gates.py", SHARED)
    result = project.ask("--flamegate")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "FAILED test_gates.py::test_shared - error: E_BAD_CALL: *'other', which "
            "test_gates.py::test_named[[]other[]] measures*"
        ]
    )
    assert [each["workload"] for each in project.history()] == [
        "one",
        "other",
        "test_gates.test_own",
    ]
