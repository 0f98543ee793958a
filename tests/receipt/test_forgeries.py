"""Every kind of forgery gets the answer that it should, and every rule stops one."""

from functools import cache
from random import Random
from typing import Any

import pytest

from pytest_flamegate.receipt import Grade, verify, verify_receipt
from pytest_flamegate.receipt.rules import CHECKS, NOTICES, RULES, SHORTFALLS, SUSPICIONS
from pytest_flamegate.receipt.rules.rule import Rule, Rulebook
from tests.receipt.forgeries import DETECTABLE, KINDS
from tests.receipt.forgeries.__main__ import DOCUMENT, make_page
from tests.receipt.forgeries.book import Attempt, Kind
from tests.receipt.forgeries.draft import NAMES, PRODUCED, load

VARIATIONS = [pytest.param(range(4), id="some"),
              pytest.param(range(4, 60), id="often", marks=pytest.mark.nightly)]  # fmt: skip
SEARCHED = 10
"""How many variations are searched for a forgery that one rule alone stops."""
BOOKS: dict[str, Rulebook[Any]] = {
    "RULES": RULES,
    "NOTICES": NOTICES,
    "CHECKS": CHECKS,
    "SUSPICIONS": SUSPICIONS,
    "SHORTFALLS": SHORTFALLS,
}
RULE_IDS = [
    (f"{rule.code}{rule.find.__name__.removeprefix('_check')}", book, rule)
    for book, rules in BOOKS.items()
    for rule in rules
]


def forge(kind: Kind, variation: int) -> Attempt:
    """Return one variation: the same kind and number give the same files."""
    return kind.attempt(Random(f"{kind.name}-{variation}"))


answer = cache(forge)


@pytest.mark.parametrize("variations", VARIATIONS)
@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_forgery_gets_its_answer(kind: Kind, variations: range) -> None:
    for variation in variations:
        attempt = answer(kind, variation)
        assert "E_INTERNAL" not in attempt.codes
        if kind.fate == "passes":
            # A limit of every verifier of files: if one of these is found, its entry is wrong.
            assert attempt.refused == set()
            assert attempt.answer.grade is Grade.OBSERVED
        else:
            outcome = kind.outcome(attempt)
            assert outcome == "right", f"{variation}: {outcome}, {sorted(attempt.codes)}"


@pytest.mark.parametrize(
    ("book", "rule"),
    [(book, rule) for _, book, rule in RULE_IDS],
    ids=[name for name, *_ in RULE_IDS],
)
def test_without_the_rule_a_forgery_gets_through(
    book: str, rule: Rule[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rule is idle: each stops a kind that no other rule stops."""
    fewer: Rulebook[Any] = Rulebook()
    fewer.rules = tuple(each for each in BOOKS[book] if each is not rule)
    for variation in range(SEARCHED):
        kinds = [kind for kind in DETECTABLE if rule.code in kind.codes]
        found = [(answer(kind, variation), kind) for kind in kinds or DETECTABLE]
        found = [entry for entry in found if rule.code in entry[0].codes]
        for with_it, kind in sorted(found, key=lambda entry: len(entry[0].codes)):
            with monkeypatch.context() as patch:
                patch.setattr(verify, book, fewer)
                without = forge(kind, variation)
            if gets_through(rule, with_it, without):
                return
    pytest.fail(f"without {rule.code} no forgery gets through")


def gets_through(rule: Rule[Any], with_it: Attempt, without: Attempt) -> bool:
    """Whether a stopped forgery is accepted without the rule, or at the grade it protects."""
    if rule.protects is None and rule.code.startswith("W_"):
        return rule.code in with_it.codes - without.codes
    if not with_it.answer.ok:
        return without.answer.ok
    assert rule.protects is not None
    return with_it.answer.grade < rule.protects <= without.answer.grade


def test_each_kind_is_described_and_listed() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert len(DETECTABLE) >= 196
    assert DOCUMENT.read_text("utf-8") == make_page(), "run python -m tests.receipt.forgeries"


@pytest.mark.parametrize("name", NAMES)
def test_the_measurements_are_honest_and_recomputing_changes_nothing(name: str) -> None:
    answer = verify_receipt(PRODUCED / name / "receipt.json")
    assert answer.refusals == ()
    assert answer.grade is Grade.OBSERVED
    before, after = load(name), load(name).retime().recount()
    assert after.receipt == before.receipt
    for draft in (before, after):
        for process in draft.profile["processes"]:
            del process["self_samples"], process["samples"]
    assert after.profile == before.profile
    assert after.evidence == before.evidence
