"""Figures of one name are comparable where formula, unit, clock and direction are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flamegate.receipt.formulas import (
    ALIASES,
    MEANINGS,
    differing_formulas,
    meaning_of,
    quantity_of,
)
from pytest_flamegate.receipt.types import Metric

TPOT = Metric(
    name="time_per_output_token_ms",
    value=2.0,
    formula="(latency-ttft)/(n-1)",
    unit="ms",
    direction="lower_is_better",
    clock="wall",
    samples=9,
    provenance="measured",
)
ITL = replace(TPOT, name="inter_token_latency_ms", formula="token-gap")


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("TPOT", "time_per_output_token"),
        ("mean_tpot_ms", "time_per_output_token"),
        ("time_per_output_token_ms", "time_per_output_token"),
        ("Median ITL (ms)", "inter_token_latency"),
        ("p99_itl_ms", "inter_token_latency:p99"),
        ("inter_token_latency_p95_ms", "inter_token_latency:p95"),
        ("p50_itl_ms", "inter_token_latency"),
        ("ttft", "time_to_first_token"),
        ("std_ttft_ms", "time_to_first_token:std"),
        ("time_to_first_token_s", "time_to_first_token"),
        ("tok/s", "tokens_per_second"),
        ("tokens/s", "tokens_per_second"),
        ("t/s", "tokens_per_second"),
        ("output_throughput", "tokens_per_second"),
        ("predicted_per_second", "decode_tokens_per_second"),
        ("prompt_per_second", "prefill_tokens_per_second"),
        ("engine_decode_tokens_per_second", "engine_decode_tokens_per_second"),
        ("load_ms", "load"),
        ("", ""),
    ],
)
def test_a_quantity_has_one_name(name: str, quantity: str) -> None:
    assert quantity_of(name) == quantity


def test_every_alias_leads_to_its_quantity() -> None:
    for quantity, aliases in ALIASES.items():
        for name in (quantity, *aliases):
            assert quantity_of(name) == quantity
    every = [alias for aliases in ALIASES.values() for alias in aliases]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("formula", "latency/n", "E_FORMULA_DIFFERS"),
        ("unit", "s", "E_FORMULA_DIFFERS"),
        ("clock", "cpu", "E_FORMULA_DIFFERS"),
        ("direction", "higher_is_better", "E_DIRECTION_DIFFERS"),
    ],
)
def test_a_field_that_differs_is_named(field: str, value: str, code: str) -> None:
    other = replace(TPOT, name="mean_tpot_ms", **{field: value})  # type: ignore[arg-type]
    (difference,) = differing_formulas([TPOT], [other])
    assert (difference.quantity, difference.field) == ("time_per_output_token", field)
    assert difference.values == (getattr(TPOT, field), value)
    assert difference.code == code
    assert "mean_tpot_ms" in difference.message
    assert difference.message.endswith(f"{value}.")


def test_what_one_tool_calls_itl_is_the_tpot_of_another() -> None:
    """By its formula it could be held against the other's TPOT; by its name it is refused."""
    theirs = replace(TPOT, name="inter_token_latency")
    (difference,) = differing_formulas([TPOT, ITL], [theirs])
    assert difference.quantity == "inter_token_latency"
    assert difference.values == ("token-gap", "(latency-ttft)/(n-1)")


def test_percentiles_and_means_are_not_held_against_each_other() -> None:
    assert differing_formulas([ITL], [replace(ITL, name="p99_itl_ms", formula="other")]) == []
    assert differing_formulas([ITL], [replace(ITL, name="mean_itl_ms", formula="other")]) != []


def test_a_figure_agrees_where_one_of_its_rivals_does() -> None:
    """Two sources may tell one figure; each is held against its own."""
    one, two = (replace(TPOT, formula=f"{source}:decode_ms/median") for source in ("a", "b"))
    assert differing_formulas([one, two], [two]) == []
    assert differing_formulas([one], [two]) != []


def test_formulas_are_told_in_words() -> None:
    for formula, words in MEANINGS.items():
        assert meaning_of(formula) == words
    told = meaning_of("llama.cpp:perf:(n-1)/decode-time/median")
    assert told == MEANINGS["(n-1)/decode-time"]
    assert meaning_of("somebody's") is None
