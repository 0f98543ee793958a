from __future__ import annotations

import math

import pytest

from pytest_flamegate.gate.costs import estimate_cpu_cost
from tests.gate import factory
from tests.gate.paired import shifted, sides


def test_pairs_tell_the_change_and_how_surely() -> None:
    base, head = sides(shifted(0.05))
    cost = estimate_cpu_cost(base, head, paired=True)
    assert cost is not None
    assert math.log(cost.head_s / cost.base_s) == pytest.approx(0.05, abs=0.002)
    assert 0.0005 < cost.error < 0.01


def test_a_machine_that_got_slower_is_taken_out_by_its_reference() -> None:
    base = factory.evidence(factory.QUIET, first_pid=100)
    head = factory.evidence(
        factory.scaled(factory.QUIET, 1.1), process={"reference_us": 5500.0}, first_pid=300
    )
    cost = estimate_cpu_cost(base, head)
    assert cost is not None
    assert cost.head_s / cost.base_s == pytest.approx(1.0, abs=0.01)


def test_few_processes_are_less_sure() -> None:
    many, few = (estimate_cpu_cost(*sides(shifted(0.05, count)), paired=True) for count in (10, 3))
    assert many is not None
    assert few is not None
    assert few.error > 3 * many.error


def test_one_process_tells_nothing() -> None:
    base, head = (factory.evidence((1000.0,), first_pid=pid) for pid in (100, 200))
    assert estimate_cpu_cost(base, head) is None


def test_sides_that_do_not_belong_together_are_no_pairs() -> None:
    base, head = factory.evidence(first_pid=100), factory.evidence(first_pid=300)
    assert estimate_cpu_cost(base, head, paired=True) is None
    assert estimate_cpu_cost(base, head) is not None
