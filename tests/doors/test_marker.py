"""What a marker may say, and which of several wins."""

from collections.abc import Mapping

import pytest

from pytest_flamegate.config.marker import MarkerOptions, check_marker, is_marked, takes_fixture

MARK = "import pytest\n@pytest.mark.flamegate({})\ndef test_it({}): pass\n"


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("", MarkerOptions()),
        ('workload="toy"', MarkerOptions(workload="toy")),
        ('tokens_per_second="3%"', MarkerOptions(tokens_per_second="3%")),
        ('hotspots={"norm": "3pp"}', MarkerOptions(hotspots={"norm": "3pp"})),
        ('bricks={"Up": ["2us", "9%"]}', MarkerOptions(bricks={"Up": ["2us", "9%"]})),
        (
            'workload="toy", tokens_per_second="3%", hotspots={}',
            MarkerOptions("toy", "3%", {}),
        ),
    ],
)
def test_arguments(pytester: pytest.Pytester, arguments: str, options: MarkerOptions) -> None:
    item = pytester.getitem(MARK.format(arguments, "flamegate"), "test_it")
    assert MarkerOptions.from_item(item) == options
    assert is_marked(item)
    assert takes_fixture(item)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('wrkload="toy"', ("no argument 'wrkload'", "workload, tokens_per_second, hotspots")),
        ('"toy"', ("no positional argument ('toy')", "workload=…")),
        ('workload="toy", tokens_per_sec="3%"', ("no argument 'tokens_per_sec'",)),
    ],
)
def test_an_argument_that_there_is_not_is_refused(
    pytester: pytest.Pytester, arguments: str, words: tuple[str, ...]
) -> None:
    item = pytester.getitem(MARK.format(arguments, ""), "test_it")
    with pytest.raises(pytest.UsageError) as raised:
        check_marker(item)
    for word in ("test_it: E_MARKER", *words):
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("marker", "fixture", "useless"),
    [
        ("@pytest.mark.flamegate", "", True),
        ('@pytest.mark.flamegate(tokens_per_second="3%")', "", True),
        ("@pytest.mark.flamegate", "flamegate", False),
        ('@pytest.mark.flamegate(workload="toy")', "", False),
        ("@pytest.mark.skip", "", False),
    ],
)
def test_a_marker_that_gates_nothing_is_refused(
    pytester: pytest.Pytester, marker: str, fixture: str, useless: bool
) -> None:
    source = f"import pytest\n{marker}\ndef test_it({fixture}): pass\n"
    item = pytester.getitem(source, "test_it")
    if not useless:
        check_marker(item)
        return
    with pytest.raises(pytest.UsageError, match="nothing would be gated"):
        check_marker(item)


SEVERAL = """
import pytest
pytestmark = pytest.mark.flamegate(workload="module", hotspots={"a": "1pp"})

@pytest.mark.flamegate(tokens_per_second="2%")
class TestIt:
    @pytest.mark.flamegate(workload="own")
    def test_own(self): pass

    def test_inherits(self): pass
"""


@pytest.mark.parametrize(("name", "workload"), [("test_own", "own"), ("test_inherits", "module")])
def test_the_closest_marker_wins_argument_by_argument(
    pytester: pytest.Pytester, name: str, workload: str
) -> None:
    items, _ = pytester.inline_genitems(pytester.makepyfile(SEVERAL))
    item = next(each for each in items if each.name == name)
    hotspots: Mapping[str, str] = {"a": "1pp"}
    assert MarkerOptions.from_item(item) == MarkerOptions(workload, "2%", hotspots)
