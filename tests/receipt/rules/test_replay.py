"""Rules over a receipt and a replay of it, and the grade that results."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.observe.observation import Answer
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.rules.replay import CHECKS, RateAgain, Replay, Replayed
from tests.made import Bundle, bundle
from tests.receipt.rules.changes import NOW, verify

RATE = RateAgain("inside", 512.0, 498.0, 471.0, 527.0, 480.0)


def replay_of(made: Bundle, **changes: Any) -> Replayed:
    """A replay that agrees with ``made``, except for the ``changes``."""
    evidence = made.evidence
    agreeing = Replayed(evidence.receipt_sha256, 8, evidence.tokens, None, RATE)
    return replace(agreeing, **changes)


def codes(found: Verification) -> list[str]:
    return [each.code for each in (*found.refusals, *found.warnings)]


def test_a_replay_that_agrees_earns_the_grade() -> None:
    replayed = replay_of(bundle())
    found = verify(bundle(), replay=replayed, require_grade=Grade.REPLAYED)
    assert found.ok
    assert found.grade is Grade.REPLAYED
    assert found.replayed is replayed
    assert found.obtained_again
    assert codes(found) == []
    assert "obtained again here" in found.ceiling
    found = verify(bundle(), require_grade=Grade.REPLAYED)
    assert codes(found) == ["E_GRADE"]
    assert "--replay" in found.refusals[0].remedy
    assert found.grade is Grade.OBSERVED


DIFFERENCES: list[tuple[str, dict[str, Any], Grade]] = [
    ("E_REPLAY_OF_ANOTHER", {"receipt_sha256": "0" * 64}, Grade.OBSERVED),
    ("E_REPLAY_TOKENS", {"tokens": ("32", "52", "99", "10")}, Grade.CONSISTENT),
    ("E_REPLAY_RATE", {"rate": replace(RATE, answer="claim_faster")}, Grade.CONSISTENT),
    ("W_REPLAY_RATE", {"rate": replace(RATE, answer="claim_slower")}, Grade.OBSERVED),
    ("W_REPLAY_RATE", {"rate": RateAgain("other_machine", 512.0)}, Grade.OBSERVED),
    ("W_REPLAY_RATE", {"rate": RateAgain("unknown", 512.0, why="Few.")}, Grade.OBSERVED),
    ("W_REPLAY_CHANGED", {"machine": ("kernel was 6.1 and is 6.2",)}, Grade.REPLAYED),
    ("W_REPLAY_CHANGED", {"version": "It was 0.1"}, Grade.REPLAYED),
    ("W_REPLAY_CHANGED", {"commit": "It was 4f2c"}, Grade.REPLAYED),
    ("W_REPLAY_CHANGED", {"redacted": ("env.HF_TOKEN",)}, Grade.REPLAYED),
]


@pytest.mark.parametrize(("code", "changes", "grade"), DIFFERENCES)
def test_each_difference_has_its_code_and_its_grade(
    code: str, changes: dict[str, Any], grade: Grade
) -> None:
    found = verify(bundle(), replay=replay_of(bundle(), **changes))
    assert codes(found) == [code]
    assert found.ok is code.startswith("W_")
    assert found.grade is grade
    assert found.obtained_again is (grade is Grade.REPLAYED)


def test_tokens_without_a_claim_of_determinism_are_not_compared() -> None:
    made = bundle(deterministic=False)
    for tokens in (made.evidence.tokens, ("1",)):
        found = verify(made, replay=replay_of(made, tokens=tokens))
        assert codes(found) == ["W_REPLAY_NOT_DETERMINISTIC"]
        assert found.grade is Grade.OBSERVED


def test_answers_to_the_prompts_that_both_were_asked_are_compared() -> None:
    made = bundle()
    known = (Answer(0, 4, made.evidence.token_digest), Answer(3, 4, "a" * 64))
    case: Any = SimpleNamespace(
        claim=SimpleNamespace(deterministic=True),
        evidence=replace(made.evidence, answers=known),
        receipt_sha256=made.evidence.receipt_sha256,
    )
    for digest, expected in (("a", []), ("b", ["The replay answered prompt 4 with other tokens."])):
        replayed = replay_of(
            made, answers=(known[0], Answer(2, 4, "c" * 64), Answer(3, 4, digest * 64))
        )
        assert [text for _, text in CHECKS.find_breaches(Replay(case, replayed))] == expected


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (("32", "52", "99", "10"), 'Token 2 is "46" in the evidence, but "99" in the replay'),
        (("32", "52", "46", "10", "7"), "Token 4 is missing in the evidence"),
        ((), 'Token 0 is "32" in the evidence, but missing in the replay'),
        (("\x1b[2J", "52", "46", "10"), r"\u001b[2J"),
    ],
)
def test_the_first_differing_token_is_named(tokens: tuple[str, ...], message: str) -> None:
    found = verify(bundle(), replay=replay_of(bundle(), tokens=tokens))
    assert codes(found) == ["E_REPLAY_TOKENS"]
    assert message in found.refusals[0].message
    assert found.refusals[0].message.isascii()
    found = verify(bundle(), replay=replay_of(bundle(), differs_at=3, commit="It was 4f2c"))
    assert codes(found)[0] == "E_REPLAY_TOKENS"
    assert "differ at token 3 (on another commit)" in found.refusals[0].message


def test_a_replay_does_not_repair_a_receipt() -> None:
    made = bundle()
    forged = made.with_receipt(tokens_per_second=made.receipt.tokens_per_second * 1.5)
    found = verify(forged, replay=replay_of(forged))
    assert "E_TPS_MISMATCH" in codes(found)
    assert found.grade < Grade.OBSERVED
    alone = verify_receipt(made.files["receipt.json"], now=NOW, replay=replay_of(made))
    assert alone.grade is Grade.CONSISTENT
    old = verify(made, replay=replay_of(made), max_age_s=1.0)
    assert not old.ok
    assert old.grade is Grade.OBSERVED
