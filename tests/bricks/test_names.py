"""The known bricks are all there, and every one has its category."""

from __future__ import annotations

from collections import Counter

from pytest_flamegate.bricks.record import ALIASES, CATEGORIES, KNOWN, canonical, category_of


def test_fifteen_bricks_in_four_categories() -> None:
    assert Counter(KNOWN.values()) == {"Norm": 2, "Attention": 6, "FFN": 4, "Other": 3}
    assert set(CATEGORIES) == set(KNOWN.values())


def test_every_alias_leads_to_a_known_brick() -> None:
    for alias, name in ALIASES.items():
        assert alias not in KNOWN
        assert canonical(alias) == name
        assert category_of(alias) == KNOWN[name]


def test_any_other_name_is_itself() -> None:
    assert canonical("Quantize") == "Quantize"
    assert category_of("Quantize") == "Other"
