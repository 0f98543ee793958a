"""Figures of one name are comparable if formula, unit, clock and direction are the same."""

from dataclasses import replace

import pytest

from pytest_flamegate.receipt.formulas import MEANINGS, differing_formulas, meaning_of
from tests.made import metric

TPOT = metric(
    "time_per_output_token_ms",
    formula="(latency-ttft)/(n-1)",
    unit="ms",
    direction="lower_is_better",
)
ITL = replace(TPOT, name="inter_token_latency_ms", formula="token-gap")
RATE = replace(TPOT, name="tokens_per_second", formula="tokens/total")


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
    other = replace(TPOT, **{field: value})  # type: ignore[arg-type]
    (difference,) = differing_formulas([TPOT, ITL], [other])
    assert (difference.quantity, difference.field) == ("time_per_output_token", field)
    assert difference.values == (getattr(TPOT, field), value)
    assert difference.code == code
    assert difference.message.endswith(f"{value}.")


def test_equal_figures_and_figures_of_one_side_differ_in_nothing() -> None:
    assert differing_formulas([TPOT, ITL], [replace(ITL, value=9.0), TPOT]) == []
    assert differing_formulas([], [TPOT]) == []
    assert differing_formulas([TPOT], []) == []
    p95 = replace(ITL, name="inter_token_latency_p95_ms", formula="other")
    assert differing_formulas([ITL], [p95]) == []


def test_figures_of_other_tools_and_sources_are_compared_with_their_own() -> None:
    theirs = replace(RATE, name="output_tokens_per_second", formula="output-tokens/duration")
    (difference,) = differing_formulas([RATE, ITL], [theirs])
    assert difference.quantity == "tokens_per_second"
    assert difference.values == ("tokens/total", "output-tokens/duration")
    one, two = (replace(TPOT, formula=f"{source}:decode_ms/median") for source in ("a", "b"))
    assert differing_formulas([one, two], [two]) == []
    assert differing_formulas([one], [two]) != []


def test_formulas_have_a_meaning_in_words() -> None:
    assert all(meaning_of(formula) == words for formula, words in MEANINGS.items())
    reported = meaning_of("llama.cpp:perf:(n-1)/decode-time/median")
    assert reported == MEANINGS["(n-1)/decode-time"]
    assert meaning_of("unknown") is None
