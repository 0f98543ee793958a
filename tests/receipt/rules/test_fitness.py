"""Suspicions, and reasons why an honest receipt is not usable as a baseline."""

from dataclasses import replace
from typing import Any

import pytest

from pytest_flamegate.core.git import Commit
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.receipt import Grade, verify_receipt
from pytest_flamegate.receipt.rules import SUSPICIONS
from pytest_flamegate.receipt.rules.fitness import REASONS
from tests.made import Bundle, bundle
from tests.receipt.rules.changes import (
    NOW,
    OTHER_SHA256,
    Make,
    asleep,
    codes,
    each_run,
    map_blocks,
    reported_by_engine,
    slow,
    verify,
    waiting,
    with_interval,
    with_model,
    with_recipe,
)


def equal_clocks(block: Block) -> Block:
    return with_interval(cpu_ns=block.interval.wall_ns)(block)


def rounded(block: Block) -> Block:
    """Token times as a clock of 10 µs gives them."""
    sequences = tuple(tuple(round(gap, -4) for gap in gaps) for gaps in block.sequences_ns)
    return replace(block, sequences_ns=sequences)


def whole_rate(made: Bundle) -> Bundle:
    return made.with_receipt(tokens_per_second=float(round(made.receipt.tokens_per_second)))


def one_server(made: Bundle) -> Bundle:
    """The runs asked a server that was running before."""
    made = each_run(made, load_ns=None)
    made = with_recipe(made, engine="openai", url="http://127.0.0.1:8080").recomputed()
    environment = {**made.receipt.environment, "FLAMEGATE_ENGINE": "openai"}
    return made.with_receipt(environment=environment)


SUSPICIOUS: list[tuple[str, Make]] = [
    ("W_TOO_ROUND", lambda: map_blocks(bundle(timed=6), rounded)),
    ("W_TOO_ROUND", lambda: map_blocks(bundle(), equal_clocks)),
    ("W_TOO_ROUND", lambda: whole_rate(bundle())),
    ("W_FASTER_THAN_MEMORY", lambda: with_model(bundle(token_ns=100_000), 400 << 30)),
    ("W_MODEL_NOT_READ", lambda: with_model(bundle(), 4 << 30)),
    ("W_FEW_SAMPLES", lambda: bundle().with_profile(rate_hz=1000)),
]

UNUSABLE: list[tuple[str, Make]] = [
    ("F_NOT_DETERMINISTIC", lambda: bundle(deterministic=False)),
    ("F_NOT_DETERMINISTIC", lambda: bundle(deterministic=False).with_evidence(differs_at=2)),
    (
        "F_NOT_DETERMINISTIC",
        lambda: bundle(deterministic=False).with_run(0, token_digest=OTHER_SHA256),
    ),
    ("F_FEW_PROCESSES", lambda: bundle(timed=2)),
    ("F_ONE_PROCESS", lambda: one_server(bundle())),
    ("F_NO_PROFILE", lambda: bundle().with_evidence(profile=None)),
    ("F_FEW_SAMPLES", lambda: bundle(profiled=1, shares={"gemv_ternary": 0.9})),
    ("F_PROFILE_DEGRADED", lambda: bundle().with_profile(completeness=0.2)),
    ("F_PROFILE_DEGRADED", lambda: bundle().with_profile(degraded=("nonblocking",))),
    ("F_KERNELS_FROM_ENGINE", lambda: reported_by_engine(bundle())),
    ("F_INJECTED", lambda: with_recipe(bundle(), injection="ternary_gemv:+10%")),
    ("F_SIDE_OF_COMPARISON", lambda: bundle().with_evidence(side="head")),
    ("F_NO_COMMIT", lambda: bundle().with_evidence(commit=None)),
    ("F_NO_COMMIT", lambda: bundle().with_evidence(commit=Commit("a" * 40, "main", 2))),
    ("F_MACHINE_BUSY", lambda: each_run(bundle(), cpu_pressure_pct=80.0)),
    ("F_MACHINE_BUSY", lambda: waiting(bundle(), 0.5)),
    ("F_WHOLE_PROCESS", lambda: bundle(tokens=("52",), clock_scope="process")),
    ("F_SUSPICIOUS", lambda: map_blocks(bundle(), equal_clocks)),
]


@pytest.mark.parametrize(("code", "make"), SUSPICIOUS)
def test_a_suspicion_neither_rejects_nor_lowers_the_grade(code: str, make: Make) -> None:
    answer = verify(make(), require_grade=Grade.OBSERVED)
    assert answer.refusals == ()
    assert code in {notice.code for notice in answer.warnings}
    assert answer.honest
    assert not answer.fit
    assert any(code in notice.message for notice in answer.unfit if notice.code == "F_SUSPICIOUS")


@pytest.mark.parametrize(("code", "make"), UNUSABLE)
def test_an_honest_receipt_may_be_unusable_as_a_baseline(code: str, make: Make) -> None:
    answer = verify(make())
    assert answer.honest, answer.refusals
    assert not answer.fit
    assert code in {notice.code for notice in answer.unfit}


@pytest.mark.parametrize("book", [SUSPICIONS, REASONS], ids=["suspicions", "reasons"])
def test_each_rule_is_tried(book: Any) -> None:
    tried = {code for code, _ in (*SUSPICIOUS, *UNUSABLE)}
    assert {rule.code for rule in book} <= tried
    assert all(rule.protects is None for rule in book)


@pytest.mark.parametrize(
    "make",
    [
        bundle,
        slow,
        lambda: bundle(tokens=("52",)),
        lambda: with_model(bundle(), 3_011_616),
        lambda: bundle(clock_scope="process"),
    ],
)
def test_an_honest_receipt_is_usable_as_a_baseline(make: Make) -> None:
    answer = verify(make())
    assert answer.honest
    assert answer.fit
    assert answer.warnings == ()


def test_a_receipt_without_evidence_is_honest_and_unusable() -> None:
    answer = verify_receipt(bundle().files["receipt.json"], now=NOW)
    assert answer.ok
    assert answer.honest
    assert [notice.code for notice in answer.unfit] == ["F_NO_EVIDENCE"]


def test_use_as_a_baseline_is_evaluated_only_for_honest_receipts() -> None:
    answer = verify(bundle().with_receipt(tokens_per_second=1.0))
    assert not answer.honest
    assert not answer.fit
    assert answer.unfit == ()


def test_a_wish_of_the_reader_does_not_concern_honesty() -> None:
    answer = verify(bundle(), max_age_s=1.0)
    assert [refusal.code for refusal in answer.refusals] == ["E_EXPIRED"]
    assert answer.honest
    assert answer.fit


def test_a_sleeping_process_is_a_shortfall_and_no_suspicion() -> None:
    answer = verify(asleep(slow()))
    assert answer.honest
    assert answer.grade is Grade.CONSISTENT
    assert "F_SUSPICIOUS" not in codes(answer)
