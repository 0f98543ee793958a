"""Thresholds: how they are written, and which layer wins."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from pytest_flamegate.config.thresholds import parse_hotspots, parse_thresholds
from pytest_flamegate.config.workload import Thresholds
from pytest_flamegate.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("rms_norm=3pp", {"rms_norm": "3pp"}),
        ("matmul_i2s=3pp, *=5pp", {"matmul_i2s": "3pp", "*": "5pp"}),
        ("\n  matmul_i2s = 3pp\n\n  * = 5pp,\n", {"matmul_i2s": "3pp", "*": "5pp"}),
        ("map<int, int>::at=3pp, f(a, b)=4pp", {"map<int, int>::at": "3pp", "f(a, b)": "4pp"}),
        ("operator===3pp", {"operator==": "3pp"}),
        ("  ", {}),
        (["a=1pp", "b, c=2pp"], {"a": "1pp", "b, c": "2pp"}),
    ],
)
def test_a_table_in_one_text(text: str | list[str], table: dict[str, str]) -> None:
    assert parse_hotspots(text, "key") == table


@pytest.mark.parametrize("text", ["matmul", "3pp", "=3pp", "a=3pp, b, *=5pp", "a=3pp, a=4pp"])
def test_a_text_that_is_no_table(text: str) -> None:
    with pytest.raises(UsageError, match="flamegate_hotspots is") as raised:
        parse_hotspots(text, "flamegate_hotspots")
    assert raised.value.code == "E_BAD_THRESHOLD"


LAYERS = [
    (None, None, Thresholds(7.0, {"*": 4.0, "a": 1.0})),
    ("3%", None, Thresholds(3.0, {"*": 4.0, "a": 1.0})),
    (None, {"a": "2pp"}, Thresholds(7.0, {"*": 4.0, "a": 2.0})),
    (None, {"b": "2pp"}, Thresholds(7.0, {"*": 4.0, "a": 1.0, "b": 2.0})),
    ("3%", {"*": "9pp"}, Thresholds(3.0, {"*": 9.0, "a": 1.0})),
    (None, {}, Thresholds(7.0, {"*": 4.0, "a": 1.0})),
]


@pytest.mark.parametrize(("drop", "shares", "found"), LAYERS)
def test_a_layer_wins_where_it_says_something(
    drop: str | None, shares: dict[str, str] | None, found: Thresholds
) -> None:
    below = Thresholds(7.0, MappingProxyType({"*": 4.0, "a": 1.0}))
    assert parse_thresholds(drop, shares, "", below) == found


def test_without_a_layer_below_it_stands_on_the_defaults() -> None:
    assert parse_thresholds(None, None, "") == Thresholds()
    assert parse_thresholds(None, {"a": "1pp"}, "").share_pp("b") == Thresholds().share_pp("b")
