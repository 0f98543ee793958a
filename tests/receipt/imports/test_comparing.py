"""Two results side by side: the same figure is compared, another one of its name is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flamegate.receipt.imports.imported import compare_results, convert_metrics
from pytest_flamegate.receipt.types import Metric
from tests.receipt.imports.test_formats import read, text

SERVE = text("vllm-serve.json")


def test_the_same_tool_is_compared_figure_by_figure() -> None:
    [before] = read(SERVE)
    [after] = read(
        SERVE.replace("25.8", "51.6").replace(
            '"output_throughput": 34.951', '"output_throughput": 70'
        )
    )
    compared = compare_results(before.metrics, after.metrics)
    assert not compared.differing
    assert not compared.alone
    assert len(compared.pairs) == len(before.metrics)
    found = {(pair.after.name, pair.after.statistic): pair for pair in compared.pairs}
    slower = found["time_per_output_token_ms", "mean"]
    assert slower.change_pct == pytest.approx(100.0)
    assert slower.better is False
    assert found["output_tokens_per_second", "total"].better is True
    assert found["time_per_output_token_ms", "median"].better is None


@pytest.mark.parametrize(
    ("one", "other", "quantity", "formulas"),
    [
        (
            "vllm-serve.json",
            "guidellm.json",
            "time_per_output_token",
            ("(latency-ttft)/(n-1)", "latency/n, by token"),
        ),
        (
            "vllm-serve.json",
            "aiperf.json",
            "inter_token_latency",
            ("chunk-gap", "(latency-ttft)/(n-1)"),
        ),
        (
            "aiperf.json",
            "guidellm.json",
            "inter_token_latency",
            ("(latency-ttft)/(n-1)", "(latency-ttft)/(n-1), by token"),
        ),
    ],
)
def test_one_name_of_two_formulas_is_refused_by_name(
    one: str, other: str, quantity: str, formulas: tuple[str, str]
) -> None:
    compared = compare_results(read(text(one))[0].metrics, read(text(other))[0].metrics)
    [found] = [each for each in compared.differing if each.quantity == quantity]
    assert (found.code, found.values) == ("E_FORMULA_DIFFERS", formulas)
    for formula in formulas:
        assert formula in found.message
    # What means the same in both is compared all the same.
    assert "requests_per_second" in {pair.after.name for pair in compared.pairs}
    assert quantity not in {pair.after.name.removesuffix("_ms") for pair in compared.pairs}


def test_a_mean_is_not_compared_with_a_median() -> None:
    [result] = read(SERVE)
    mean = [each for each in result.metrics if each.statistic == "mean"]
    median = [replace(each, statistic="median") for each in mean]
    compared = compare_results(mean, median)
    assert not compared.pairs
    assert "time_per_output_token_ms (mean)" in compared.alone
    assert "time_per_output_token_ms (median)" in compared.alone


def metric(name: str, formula: str, value: float = 20.0) -> Metric:
    return Metric(name, value, formula, "ms", "lower_is_better", "wall", 9, "measured")


def test_our_own_figures_are_medians_of_the_wall_clock() -> None:
    ours = convert_metrics(
        [
            metric("time_per_output_token_ms", "(latency-ttft)/(n-1)"),
            metric("inter_token_latency_p95_ms", "token-gap-p95"),
            replace(metric("cpu_s_per_token", "cpu-time/tokens"), clock="cpu"),
            metric("load_ms", "ready-start", 0.0),
        ]
    )
    assert [(each.name, each.statistic, each.formula) for each in ours] == [
        ("time_per_output_token_ms", "median", "(latency-ttft)/(n-1)"),
        ("inter_token_latency_ms", "p95", "token-gap"),
    ]
    compared = compare_results(ours, read(SERVE)[0].metrics)
    assert [pair.change_pct for pair in compared.pairs] == [pytest.approx(33.5)]
