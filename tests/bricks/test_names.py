"""The known bricks are all there, and every one has its category."""

from __future__ import annotations

from collections import Counter

from pytest_flamegate.bricks.record import (
    ALIASES,
    CATEGORIES,
    KNOWN_BRICKS,
    find_category,
    resolve_alias,
)


def test_fifteen_bricks_in_four_categories() -> None:
    assert Counter(KNOWN_BRICKS.values()) == {"Norm": 2, "Attention": 6, "FFN": 4, "Other": 3}
    assert set(CATEGORIES) == set(KNOWN_BRICKS.values())


def test_every_alias_leads_to_a_known_brick() -> None:
    for alias, name in ALIASES.items():
        assert alias not in KNOWN_BRICKS
        assert resolve_alias(alias) == name
        assert find_category(alias) == KNOWN_BRICKS[name]


def test_any_other_name_is_itself() -> None:
    assert resolve_alias("Quantize") == "Quantize"
    assert find_category("Quantize") == "Other"
