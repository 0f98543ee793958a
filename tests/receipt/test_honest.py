"""A seeded slice of the honest receipts: none is refused, and almost all reach OBSERVED."""

from __future__ import annotations

import pytest

from pytest_flamegate.receipt import Grade
from tests.receipt.honest import honest, tally
from tests.receipt.weather import WEATHER

NUMBERS = 160
# These lower a grade where they hit too little time to tell work from sleep.
LOWERED = {"cpu_in_ticks", "rounded", "observer_late", "single_token", "ends_early"}


@pytest.mark.parametrize("first", range(0, NUMBERS, 20))
def test_no_honest_receipt_is_refused(first: int) -> None:
    found = tally(range(first, first + 20))
    assert found.refused == []
    assert found.grades["SELF_REPORTED"] == 0


def test_the_same_number_gives_the_same_receipt_in_weather_of_every_kind() -> None:
    answers = [honest(number) for number in range(12)]
    assert answers == [honest(number) for number in range(12)]
    assert len({weather for _, chosen in answers for weather in chosen}) > len(WEATHER) // 2


def test_a_calm_one_reaches_observed() -> None:
    calm = (honest(number) for number in range(40))
    grades = {answer.grade for answer, weather in calm if not LOWERED & set(weather)}
    assert grades == {Grade.OBSERVED}
