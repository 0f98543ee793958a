"""What a benchmark does in a second, derived from its rounds and what its recipe says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flamegate.receipt.formulas import meaning_of
from pytest_flamegate.receipt.metrics import KERNEL_RATE_NAMES, kernel_rates
from pytest_flamegate.receipt.types import Metric

RATE = Metric(
    name="tokens_per_second",
    value=2000.0,
    formula="tokens/total",
    unit="tokens/s",
    direction="higher_is_better",
    clock="wall",
    samples=640,
    provenance="measured",
)
RECIPE = {"engine": "benchmark", "calls": 50, "elements": 512, "bytes": 4096, "flops": 1024}


def test_each_rate_is_calls_times_what_a_call_works_on() -> None:
    found = kernel_rates(RECIPE, [RATE])
    assert [(each.name, each.value, each.unit) for each in found] == [
        ("kernel_calls_per_second", 100_000.0, "calls/s"),
        ("kernel_elements_per_second", 51_200_000.0, "elements/s"),
        ("kernel_bytes_per_second", 409_600_000.0, "B/s"),
        ("kernel_gflops", pytest.approx(0.1024), "GFLOP/s"),
    ]
    assert tuple(each.name for each in found) == KERNEL_RATE_NAMES
    assert {each.provenance for each in found} == {"derived"}
    assert all(meaning_of(each.formula) for each in found)


def test_what_a_test_does_not_declare_is_absent() -> None:
    (calls,) = kernel_rates({"engine": "benchmark", "calls": 1}, [RATE])
    assert calls.value == RATE.value


@pytest.mark.parametrize(
    "told", [{"engine": "python"}, {"calls": None}, {"calls": True}, {"calls": 0}, {"calls": 1e3}]
)
def test_a_recipe_that_is_no_benchmarks_gives_none(told: dict[str, object]) -> None:
    assert kernel_rates({**RECIPE, **told}, [RATE]) == ()


@pytest.mark.parametrize("work", [-1, 0, True, "512", [1], 1 << 80, float("nan")])
def test_foreign_figures_give_no_rate(work: object) -> None:
    found = kernel_rates({**RECIPE, "elements": work}, [RATE])
    assert "kernel_elements_per_second" not in {each.name for each in found}


def test_without_a_rate_of_rounds_there_is_none() -> None:
    assert kernel_rates(RECIPE, [replace(RATE, name="load_ms")]) == ()
