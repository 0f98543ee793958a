"""Thresholds: how they are written, and which layer wins."""

import pytest

from pytest_flamegate.config.thresholds import (
    BrickBudget,
    Thresholds,
    parse_hotspots,
    parse_thresholds,
)
from pytest_flamegate.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("\n  matmul_i2s = 3pp\n\n  * = 5pp,\n", {"matmul_i2s": "3pp", "*": "5pp"}),
        ("map<int, int>::at=3pp, f(a, b)=4pp", {"map<int, int>::at": "3pp", "f(a, b)": "4pp"}),
        ("operator===3pp", {"operator==": "3pp"}),
        ("  ", {}),
        (["a=1pp", "b, c=2pp"], {"a": "1pp", "b, c": "2pp"}),
    ],
)
def test_hotspots_can_be_written_in_one_text(text: str | list[str], table: dict[str, str]) -> None:
    assert parse_hotspots(text, "key") == table


@pytest.mark.parametrize("text", ["=3pp", "a=3pp, b, *=5pp", "a=3pp, a=4pp"])
def test_a_malformed_text_of_hotspots_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="flamegate_hotspots is") as raised:
        parse_hotspots(text, "flamegate_hotspots")
    assert raised.value.code == "E_BAD_THRESHOLD"


def test_a_malformed_threshold_is_an_error_that_names_its_key() -> None:
    drops = [(drop, None, "tokens_per_second") for drop in ("5", "5pp", 5, "0%", "100%")]
    for drop, shares, key in (
        *drops, (None, {"x": "3%"}, "hotspots.x"), (None, "x=3pp", "hotspots")
    ):  # fmt: skip
        with pytest.raises(UsageError, match=f"^E_BAD_THRESHOLD: here_{key} is"):
            parse_thresholds({"tokens_per_second": drop, "hotspots": shares}, "here_")


def test_a_table_that_is_none_is_shown_as_one_with_its_own_name() -> None:
    for prefix in ("flamegate_", "tests/test_a_b.py::test_c ", ""):
        with pytest.raises(UsageError, match=r"Write a table: hotspots = \{ "):
            parse_thresholds({"hotspots": 3}, prefix)


def budgets(bricks: object, below: Thresholds | None = None) -> dict[str, BrickBudget]:
    return dict(parse_thresholds({"bricks": bricks}, "here_", below or Thresholds()).bricks)


def test_a_brick_has_a_limit_of_a_call_of_its_growth_or_both() -> None:
    for written, budget in (
        ("1.5 µs", BrickBudget(1.5)),
        ("1.5 μs", BrickBudget(1.5)),
        ("250ns", BrickBudget(0.25)),
        (" 2ms ", BrickBudget(2000.0)),
        ("7.5 %", BrickBudget(growth_pct=7.5)),
        (("10%", "1.5us"), BrickBudget(1.5, 10.0)),
    ):
        assert budgets({"RmsNorm": written}) == {"RmsNorm": budget}


@pytest.mark.parametrize(
    "bricks",
    [
        "RmsNorm=1us",
        ["1us"],
        *(
            {"RmsNorm": value}
            for value in ("1.5", "0us", "100%", "9" * 400 + "us", None, [], ["1us", "2us"],
                          ["1us", "2%", "3%"], [["1us"]])
        ),
        {"*": ["1us", "10%"]},
        {" ": "1us"},
    ],
    ids=lambda bricks: str(bricks)[:40],
)  # fmt: skip
def test_a_malformed_budget_is_an_error_that_names_its_key(bricks: object) -> None:
    with pytest.raises(UsageError, match=r"^E_BAD_THRESHOLD: here_bricks"):
        budgets(bricks)


def test_a_layer_overrides_brick_by_brick() -> None:
    below = parse_thresholds({"bricks": {"RmsNorm": "1us", "*": "15%"}}, "")
    assert budgets(None, below) == below.bricks
    assert budgets({}, below) == below.bricks
    found = budgets({"RmsNorm": "5%", "Up": "2us"}, below)
    assert found == {
        "RmsNorm": BrickBudget(growth_pct=5.0),
        "Up": BrickBudget(2.0),
        "*": BrickBudget(growth_pct=15.0),
    }
    # The gate takes the last of several names of one brick: that of the highest layer.
    assert list(budgets({"RmsNorm": "5%"}, below))[-1] == "RmsNorm"
