"""A seeded slice of the corpus of forgeries, and what each rule is there for.

``python -m tests.receipt.forgeries --variations 1000`` does it at length.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from pytest_flamegate.receipt import Grade, verify, verify_receipt
from pytest_flamegate.receipt.rules import CHECKS, NOTICES, RULES, SHORTFALLS, SUSPICIONS
from pytest_flamegate.receipt.rules.rule import Rule, Rulebook
from tests.receipt.forgeries import DETECTABLE, KINDS, PENDING, UNDETECTABLE
from tests.receipt.forgeries.__main__ import listed
from tests.receipt.forgeries.book import Attempt, Kind
from tests.receipt.forgeries.draft import NAMES, PRODUCED, load
from tests.receipt.forgeries.trial import source_of

VARIATIONS = 10
FEW = 3
BOOKS: dict[str, Rulebook[Any]] = {
    "RULES": RULES,
    "NOTICES": NOTICES,
    "CHECKS": CHECKS,
    "SUSPICIONS": SUSPICIONS,
    "SHORTFALLS": SHORTFALLS,
}


@cache
def seen(kind: Kind) -> tuple[Attempt, ...]:
    """Return the answers to a slice of one kind, without the files, which are large."""
    count = VARIATIONS if kind in DETECTABLE else FEW
    attempts = (kind.attempt(source_of(kind, variation)) for variation in range(count))
    return tuple(Attempt({}, attempt.answer) for attempt in attempts)


def named(kinds: tuple[Kind, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=[kind.name for kind in kinds])


@named(DETECTABLE)
def test_it_is_found(kind: Kind) -> None:
    for variation, attempt in enumerate(seen(kind)):
        assert "E_INTERNAL" not in attempt.codes
        outcome = kind.outcome(attempt)
        assert outcome == "right", f"variation {variation}: {outcome}, {sorted(attempt.codes)}"


@named(PENDING)
def test_a_missing_rule_breaks_nothing(kind: Kind) -> None:
    """What passes for want of a rule passes whole; with the rule it is refused or lowered."""
    for attempt in seen(kind):
        assert "E_INTERNAL" not in attempt.codes
        assert attempt.answer.grade >= Grade.CONSISTENT or attempt.refused


@named(UNDETECTABLE)
def test_it_passes_and_the_list_says_so(kind: Kind) -> None:
    """A limit of every verifier of files: were one of these found, its entry would be wrong."""
    for attempt in seen(kind):
        assert attempt.refused == set()
        assert attempt.answer.grade is Grade.OBSERVED


def rules() -> list[tuple[str, Rule[Any]]]:
    return [(book, rule) for book, entries in BOOKS.items() for rule in entries]


def name_of(rule: Rule[Any]) -> str:
    return f"{rule.code}{rule.find.__name__.removeprefix('_check')}"


@pytest.mark.parametrize(("book", "rule"), rules(), ids=[name_of(rule) for _, rule in rules()])
def test_without_the_rule_a_forgery_gets_through(
    book: str, rule: Rule[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rule is idle: each stops a kind that no other rule stops."""
    found = [
        (kind, variation, attempt)
        for kind in DETECTABLE
        for variation, attempt in enumerate(seen(kind))
        if rule.code in attempt.codes
    ]
    assert found, f"no forgery is found by {rule.code}"
    entries: Rulebook[Any] = Rulebook()
    entries.rules = tuple(each for each in BOOKS[book] if each is not rule)
    monkeypatch.setattr(verify, book, entries)
    found.sort(key=lambda entry: (entry[1], len(entry[2].codes)))
    for kind, variation, with_it in found:
        if got_through(rule, with_it, kind.attempt(source_of(kind, variation))):
            return
    pytest.fail(f"without {name_of(rule)} no forgery gets through")


def got_through(rule: Rule[Any], with_it: Attempt, attempt: Attempt) -> bool:
    """Whether what the rule stopped is stopped no more: accepted, or at the grade it protects."""
    if rule.protects is None and rule.code.startswith("W_"):
        return rule.code in with_it.codes - attempt.codes
    if not with_it.answer.ok:
        return attempt.answer.ok
    assert rule.protects is not None
    return with_it.answer.grade < rule.protects <= attempt.answer.grade


def test_there_are_many_kinds_and_each_says_what_it_is() -> None:
    assert len(DETECTABLE) >= 75
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        assert kind.does.endswith("."), kind.name
        assert (kind.finds.endswith(".")) is (kind.fate in ("pending", "passes")), kind.name
        assert kind.codes or kind.fate not in ("refused", "suspected"), kind.name


def test_the_list_names_every_kind() -> None:
    text = listed()
    for kind in KINDS:
        assert f"| {kind.name} | {kind.does} |" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_material_is_honest_and_whoever_recomputes_it_changes_nothing(name: str) -> None:
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


@pytest.mark.parametrize("name", NAMES)
def test_the_material_holds_nothing_of_the_machine_it_was_made_on(name: str) -> None:
    for path in (PRODUCED / name).iterdir():
        text = path.read_text()
        assert "/tmp" not in text.replace("/tmp/project", "")
        for odd in ("/root", "/home/", "/usr/", "site-packages", "SECRET", "TOKEN="):
            assert odd not in text, odd
    workload = json.loads((PRODUCED / name / "evidence.json").read_text())["workload"]
    assert workload["env"] == {}
