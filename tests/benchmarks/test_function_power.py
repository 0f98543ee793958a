"""How soon a slower function is certain: the judging of kept pairs, and the table."""

import pytest

from benchmarks import function_power, gate_power
from benchmarks.function_power import Line, judge
from pytest_flamegate.receipt.types import ProcessProfile


def timed(changed: str, slower: float) -> list[Line]:
    return [Line(400, changed, 0.5, (1e-3 + i * 1e-7, slower * 1e-3)) for i in range(6)]


def profiled(changed: str, more: int) -> list[Line]:
    counts = {"half": 1000, "small": 100, "fifth": 400}
    before = ProcessProfile(1, 1500, counts)
    return [
        Line(
            400,
            changed,
            1.0,
            samples=(
                before,
                ProcessProfile(
                    1, 1500 + more + i, {**counts, "half": 1000 + more, "fifth": 400 + i}
                ),
            ),
        )
        for i in range(4)
    ]


def test_a_function_that_costs_more_is_found_and_no_other_one() -> None:
    assert judge(timed("", 1.0), profiled("", 0)) == frozenset()
    found = judge(timed("half", 1.2), profiled("half", 300))
    assert found == {"half"}
    swapped = [each.swapped() for each in (*timed("half", 1.2), *profiled("half", 300))]
    assert judge(swapped[:6], swapped[6:]) == {"half"}


@pytest.mark.nightly
def test_the_documents_show_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert function_power.main(["--markdown"]) == 0
    table = capsys.readouterr().out.strip()
    assert table in gate_power.PAGE.read_text()
