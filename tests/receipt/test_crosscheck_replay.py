"""What a replay says of a receipt: each rule alone, and the grade that comes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.replayed import RateAgain, Replayed
from pytest_flamegate.receipt.rules import replay
from tests.made import bundle

if TYPE_CHECKING:
    from tests.made import Bundle


NOW = datetime(2025, 10, 13, 13, 0, tzinfo=UTC)
RATE = RateAgain("inside", 512.0, 498.0, 471.0, 527.0, 480.0)


def replay_of(triple: Bundle, **changes: Any) -> Replayed:
    """A replay of ``triple`` that holds, but for the ``changes``."""
    holds = Replayed(
        receipt_sha256=triple.evidence.receipt_sha256,
        processes=8,
        tokens=triple.evidence.tokens,
        differs_at=None,
        rate=RATE,
    )
    return replace(holds, **changes)


def verified(triple: Bundle, replay: Replayed | None, **wishes: Any) -> Verification:
    files = triple.files
    return verify_receipt(
        files["receipt.json"],
        evidence=files["evidence.json"],
        profile_folded=files["profile.folded"],
        now=NOW,
        replay=replay,
        **wishes,
    )


def codes(found: Verification) -> list[str]:
    return [each.code for each in (*found.refusals, *found.warnings)]


def test_a_replay_that_holds_is_worth_its_grade() -> None:
    triple = bundle()
    replay = replay_of(triple)
    found = verified(triple, replay, require_grade=Grade.REPLAYED)
    assert found.ok
    assert found.grade is Grade.REPLAYED
    assert found.replayed is replay
    assert found.obtained_again
    assert codes(found) == []
    assert "obtained again here" in found.ceiling


def test_without_a_replay_the_way_to_the_grade_is_told() -> None:
    found = verified(bundle(), None, require_grade=Grade.REPLAYED)
    assert codes(found) == ["E_GRADE"]
    assert "--replay" in found.refusals[0].remedy
    assert found.grade is Grade.OBSERVED


BREAKS: list[tuple[str, dict[str, Any], Grade]] = [
    ("E_REPLAY_OF_ANOTHER", {"receipt_sha256": "0" * 64}, Grade.OBSERVED),
    ("E_REPLAY_TOKENS", {"tokens": ("32", "52", "99", "10")}, Grade.CONSISTENT),
    ("E_REPLAY_RATE", {"rate": replace(RATE, answer="claim_faster")}, Grade.CONSISTENT),
    ("W_REPLAY_SLOWER_CLAIM", {"rate": replace(RATE, answer="claim_slower")}, Grade.OBSERVED),
    (
        "W_REPLAY_RATE_UNKNOWN",
        {"rate": RateAgain("other_machine", 512.0), "machine": ("cpu was A and is B",)},
        Grade.OBSERVED,
    ),
    (
        "W_REPLAY_RATE_UNKNOWN",
        {"rate": RateAgain("unknown", 512.0, why="The machine was too noisy.")},
        Grade.OBSERVED,
    ),
    ("W_REPLAY_CHANGED", {"machine": ("kernel was 6.1 and is 6.2",)}, Grade.REPLAYED),
    ("W_REPLAY_CHANGED", {"version": "It was 0.1"}, Grade.REPLAYED),
    ("W_REPLAY_CHANGED", {"commit": "It was 4f2c"}, Grade.REPLAYED),
    ("W_REPLAY_CHANGED", {"redacted": ("env.HF_TOKEN",)}, Grade.REPLAYED),
]


@pytest.mark.parametrize(("code", "changes", "grade"), BREAKS)
def test_each_difference_has_its_code_and_its_grade(
    code: str, changes: dict[str, Any], grade: Grade
) -> None:
    triple = bundle()
    found = verified(triple, replay_of(triple, **changes))
    assert codes(found) == [code]
    assert found.ok is code.startswith("W_")
    assert found.grade is grade
    assert found.obtained_again is (grade is Grade.REPLAYED)


def test_tokens_that_may_differ_cannot_be_obtained_again() -> None:
    triple = bundle(deterministic=False)
    for tokens in (triple.evidence.tokens, ("1",)):
        found = verified(triple, replay_of(triple, tokens=tokens))
        assert codes(found) == ["W_REPLAY_NOT_DETERMINISTIC"]
        assert found.grade is Grade.OBSERVED


def test_there_is_a_case_for_every_rule() -> None:
    rules = [*replay.CHECKS, *replay.SHORTFALLS]
    assert {rule.code for rule in rules} == {
        *(code for code, *_ in BREAKS),
        "W_REPLAY_NOT_DETERMINISTIC",
    }
    for rule in rules:
        assert rule.sentence.endswith(".")
        assert rule.remedy.endswith(".")


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        (("32", "52", "99", "10"), 'Token 2 is "46" in the evidence, but "99" in the replay'),
        (("32", "52"), 'Token 2 is "46" in the evidence, but missing in the replay'),
        (("32", "52", "46", "10", "7"), "Token 4 is missing in the evidence"),
        ((), 'Token 0 is "32" in the evidence, but missing in the replay'),
        (("\x1b[2J", "52", "46", "10"), r"\u001b[2J"),
    ],
)
def test_the_first_token_that_differs_is_named(tokens: tuple[str, ...], told: str) -> None:
    triple = bundle()
    found = verified(triple, replay_of(triple, tokens=tokens))
    assert codes(found) == ["E_REPLAY_TOKENS"]
    assert told in found.refusals[0].message
    assert found.refusals[0].message.isascii()


def test_sequences_that_differ_here_contradict_the_claim_of_determinism() -> None:
    triple = bundle()
    found = verified(triple, replay_of(triple, differs_at=3, commit="It was 4f2c"))
    assert codes(found)[0] == "E_REPLAY_TOKENS"
    assert "differ at token 3 (on another commit)" in found.refusals[0].message


def test_a_replay_helps_nothing_that_is_refused_or_was_not_observed() -> None:
    triple = bundle()
    forged = triple.with_receipt(tokens_per_second=triple.receipt.tokens_per_second * 1.5)
    found = verified(forged, replay_of(forged))
    assert "E_TPS_MISMATCH" in codes(found)
    assert found.grade < Grade.OBSERVED
    alone = verify_receipt(triple.files["receipt.json"], now=NOW, replay=replay_of(triple))
    assert alone.grade is Grade.CONSISTENT
    old = verified(triple, replay_of(triple), max_age_s=1.0)
    assert not old.ok
    assert old.grade is Grade.OBSERVED
