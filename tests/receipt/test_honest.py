"""No honest receipt is rejected, and almost all reach OBSERVED."""

import pytest

from pytest_flamegate.receipt import Grade
from tests.receipt.honest import honest
from tests.receipt.weather import WEATHER

LOWERED = {"cpu_in_ticks", "rounded", "observer_late", "single_token", "ends_early"}
"""Conditions that lower a grade if a run is too short to tell work from sleep."""


@pytest.mark.parametrize(
    "numbers", [range(60), pytest.param(range(60, 1500), marks=pytest.mark.nightly)]
)
def test_no_honest_receipt_is_rejected(numbers: range) -> None:
    tried: set[str] = set()
    for number in numbers:
        answer, weather = honest(number)
        assert answer.refusals == (), (number, weather)
        assert answer.grade > Grade.SELF_REPORTED
        if not LOWERED & set(weather):
            assert answer.grade is Grade.OBSERVED, (number, weather)
        tried.update(weather)
    assert tried == {each.__name__ for each in WEATHER}


def test_a_number_gives_the_same_receipt_each_time() -> None:
    assert honest(3) == honest(3)


def test_threads_may_wait_that_had_ended_when_threads_were_counted() -> None:
    answer, weather = honest(1252)
    assert "one_thread_counted" in weather
    assert answer.grade is Grade.OBSERVED
