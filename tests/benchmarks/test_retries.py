import pytest

from benchmarks import gate_power, retries
from benchmarks.streams import Pair
from benchmarks.tables import as_markdown


@pytest.fixture(scope="module")
def noisiest() -> list[Pair]:
    return list(gate_power.stored_streams()["passage", "busy"])


def test_retries_of_unchanged_heads_stay_green_and_slow_ones_never_turn_green(
    noisiest: list[Pair],
) -> None:
    same = list(retries.try_heads(noisiest, 5.0, 0.0, 60))
    slower = list(retries.try_heads(noisiest, 5.0, 5.0, 80))
    assert sum("regressed" in head.pooled for head in same) <= 1
    assert {head.pooled[-1] for head in same} <= retries.GREEN
    assert {head.pooled[-1] for head in slower} == {"regressed"}
    assert not any(retries.turned_green(head.pooled) for head in slower)
    # A check that forgets its earlier attempts is talked round.
    assert any(retries.turned_green(head.alone) for head in slower)


@pytest.mark.nightly
def test_the_documented_table_is_that_of_the_stored_pairs() -> None:
    table = retries.tabulate(gate_power.stored_streams(), retries.HEADS)
    assert as_markdown(table) in gate_power.PAGE.read_text()
