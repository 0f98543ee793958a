"""A benchmark in the field's words: calls, elements, bytes and GFLOP in a second."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from pytest_flamegate.receipt.metrics import kernel_rates
from pytest_flamegate.report.families import speed_cells
from pytest_flamegate.report.sections import call_cells, kernel_line
from tests.receipt.test_kernel_rates import RATE, RECIPE
from tests.report.factory import evidence

if TYPE_CHECKING:
    from pytest_flamegate.receipt.types import Evidence


def benchmarked(**more: object) -> Evidence:
    recipe = {**RECIPE, **more}
    cost = replace(RATE, name="quiet_s_per_token", value=0.0005, unit="s")
    return replace(
        evidence(),
        workload=MappingProxyType(recipe),
        metrics=(RATE, cost, *kernel_rates(recipe, [RATE])),
    )


def test_the_line_names_every_declared_rate() -> None:
    told = "100 k calls/s · 51.2 M elements/s · 410 MB/s · 0.102 GFLOP/s · 50 calls a round"
    assert kernel_line(benchmarked()) == told


def test_a_setup_is_told() -> None:
    line = kernel_line(benchmarked(setup="measured with each call"))
    assert line is not None
    assert line.endswith("its setup is measured with each call")


def test_the_table_shows_calls_and_not_rounds() -> None:
    assert call_cells(benchmarked()) == ("100,000 calls", "10.0 µs/call")
    assert speed_cells(None, benchmarked()) == call_cells(benchmarked())


def test_what_is_no_benchmark_has_neither() -> None:
    assert kernel_line(evidence()) is None
    assert call_cells(evidence()) is None
    assert call_cells(None) is None


@pytest.mark.parametrize("calls", [None, "50", 0, -1, 1.5])
def test_evidence_that_contradicts_itself_is_shown_without_its_calls(calls: object) -> None:
    """A page is made of files that may say anything."""
    found = benchmarked()
    odd = replace(found, workload=MappingProxyType({**found.workload, "calls": calls}))
    assert call_cells(odd) is None
    unnamed = tuple(replace(metric, unit="") for metric in found.metrics)
    assert kernel_line(replace(odd, metrics=unnamed)) is not None
