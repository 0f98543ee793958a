"""Suspicions, and reasons why an honest receipt is not usable as a baseline."""

from typing import Any

import pytest

from pytest_flamegate.core.git import Commit
from pytest_flamegate.core.json import replace
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.receipt import Grade, verify_receipt
from pytest_flamegate.receipt.rules import SUSPICIONS
from pytest_flamegate.receipt.rules.fitness import REASONS
from tests.made import Bundle, bundle
from tests.receipt.rules.changes import (
    NOW,
    Make,
    each_run,
    map_blocks,
    slow,
    verify,
    with_model,
    with_recipe,
    with_share,
)
from tests.receipt.rules.test_windows import windows


def rounded(block: Block) -> Block:
    """Token times as a clock of 10 µs gives them."""
    sequences = tuple(tuple(round(gap, -4) for gap in gaps) for gaps in block.sequences_ns)
    return replace(block, sequences_ns=sequences)


def equal_clocks() -> Bundle:
    return map_blocks(bundle(), with_share("cpu_ns", 1.0))


def whole_rate() -> Bundle:
    made = bundle()
    return made.with_receipt(tokens_per_second=float(round(made.receipt.tokens_per_second)))


def kernels_from_engine() -> Bundle:
    made = bundle().with_evidence(kernels=())
    return made.with_reports(kernels=dict.fromkeys(made.receipt.kernels, 5))


def other_tokens(**changes: Any) -> Bundle:
    return bundle(deterministic=False).with_evidence(**changes)


SUSPICIOUS: list[tuple[str, Make]] = [
    ("W_TOO_ROUND", lambda: map_blocks(bundle(timed=6), rounded)),
    ("W_TOO_ROUND", equal_clocks),
    ("W_TOO_ROUND", whole_rate),
    ("W_TOO_ROUND", lambda: bundle(shares={f"gemv_{n}": 0.05 for n in range(20)})),
    ("W_FASTER_THAN_MEMORY", lambda: with_model(bundle(token_ns=100_000), 400 << 30)),
    ("W_MODEL_NOT_READ", lambda: with_model(bundle(), 4 << 30)),
    ("W_FEW_SAMPLES", lambda: bundle().with_profile(rate_hz=1000)),
]

UNUSABLE: list[tuple[str, Make]] = [
    ("F_NOT_DETERMINISTIC", lambda: bundle(deterministic=False)),
    ("F_NOT_DETERMINISTIC", lambda: other_tokens(differs_at=2)),
    ("F_NOT_DETERMINISTIC", lambda: other_tokens().with_run(0, token_digest="ab" * 32)),
    ("F_TOO_SHORT", lambda: bundle(timed=2)),
    ("F_ONE_PROCESS", windows),
    ("F_PROFILE", lambda: bundle().with_evidence(profile=None)),
    ("F_TOO_SHORT", lambda: bundle(profiled=1, shares={"gemv_ternary": 0.9})),
    ("F_PROFILE", lambda: bundle().with_profile(completeness=0.2)),
    ("F_PROFILE", lambda: bundle().with_profile(degraded=("nonblocking",))),
    ("F_PROFILE", kernels_from_engine),
    ("F_INJECTED", lambda: with_recipe(bundle(), injection="ternary_gemv:+10%")),
    ("F_SIDE_OF_COMPARISON", lambda: bundle().with_evidence(side="head")),
    ("F_NO_COMMIT", lambda: bundle().with_evidence(commit=None)),
    ("F_NO_COMMIT", lambda: bundle().with_evidence(commit=Commit("a" * 40, "main", 2))),
    ("F_MACHINE_BUSY", lambda: each_run(bundle(), cpu_pressure_pct=80.0)),
    ("F_MACHINE_BUSY", lambda: map_blocks(bundle(), with_share("run_delay_ns", 0.5))),
    ("F_WHOLE_PROCESS", lambda: bundle(tokens=("52",), clock_scope="process")),
    ("F_SUSPICIOUS", equal_clocks),
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


def test_files_that_differ_from_the_commit_are_counted() -> None:
    for uncommitted, words in ((1, "1 file differed"), (2, "2 files differed")):
        commit = Commit("a" * 40, "main", uncommitted)
        messages = [each.message for each in verify(bundle().with_evidence(commit=commit)).unfit]
        assert f"{words} from the commit." in messages


def test_each_rule_is_tried() -> None:
    tried = {code for code, _ in (*SUSPICIOUS, *UNUSABLE)}
    assert {rule.code for rule in (*SUSPICIONS, *REASONS)} <= tried


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
    assert answer.fit
    assert answer.warnings == ()


def test_use_as_a_baseline_needs_evidence_and_is_evaluated_for_honest_receipts_alone() -> None:
    answer = verify_receipt(bundle().files["receipt.json"], now=NOW)
    assert answer.honest
    assert [notice.code for notice in answer.unfit] == ["F_NO_EVIDENCE"]
    answer = verify(bundle().with_receipt(tokens_per_second=1.0))
    assert (answer.honest, answer.fit, answer.unfit) == (False, False, ())
