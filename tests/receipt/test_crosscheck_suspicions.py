"""Suspicions and fitness: what they look at, and that neither refuses an honest receipt."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.core.git import Commit
from pytest_flamegate.receipt import Grade, verify_receipt
from pytest_flamegate.receipt.rules import SUSPICIONS
from pytest_flamegate.receipt.rules.fitness import REASONS
from tests.made import Bundle, bundle
from tests.receipt.test_crosscheck import NOW, OTHER_SHA256, asleep, slow, verify

if TYPE_CHECKING:
    from collections.abc import Callable


def model(triple: Bundle, size_bytes: int) -> Bundle:
    facts = {**triple.evidence.model, "size_bytes": size_bytes}
    return triple.with_evidence(model=facts).with_receipt(model=facts)


def each_block(triple: Bundle, change: Callable[[Any], Any]) -> Bundle:
    for index, run in enumerate(triple.evidence.runs):
        triple = triple.with_run(index, blocks=tuple(map(change, run.blocks)))
    return triple.recomputed()


def same_clocks(triple: Bundle) -> Bundle:
    return each_block(
        triple,
        lambda block: replace(
            block, interval=replace(block.interval, cpu_ns=block.interval.wall_ns)
        ),
    )


def waiting(triple: Bundle) -> Bundle:
    return each_block(
        triple,
        lambda block: replace(
            block, interval=replace(block.interval, run_delay_ns=block.interval.wall_ns // 2)
        ),
    )


def whole_rate(triple: Bundle) -> Bundle:
    return triple.with_receipt(tokens_per_second=float(round(triple.receipt.tokens_per_second)))


def pressed(triple: Bundle) -> Bundle:
    for index in range(len(triple.evidence.runs)):
        triple = triple.with_run(index, cpu_pressure_pct=80.0)
    return triple


def by_engine(triple: Bundle) -> Bundle:
    names = dict.fromkeys(triple.receipt.kernels, 5)
    return triple.with_evidence(kernels=()).with_reports(kernels=names)


def rounded(triple: Bundle) -> Bundle:
    """Token times as a clock of 10 \u00b5s tells them."""
    return each_block(
        triple,
        lambda block: replace(
            block,
            sequences_ns=tuple(
                tuple(round(gap, -4) for gap in gaps) for gaps in block.sequences_ns
            ),
        ),
    )


SUSPECT: list[tuple[str, Callable[[], Bundle]]] = [
    ("W_TOO_ROUND", lambda: rounded(bundle(timed=6))),
    ("W_TOO_ROUND", lambda: same_clocks(bundle())),
    ("W_TOO_ROUND", lambda: whole_rate(bundle())),
    ("W_FASTER_THAN_MEMORY", lambda: model(bundle(token_ns=100_000), 400 << 30)),
    ("W_MODEL_NOT_READ", lambda: model(bundle(), 4 << 30)),
    ("W_FEW_SAMPLES", lambda: bundle().with_profile(rate_hz=1000)),
]

UNFIT: list[tuple[str, Callable[[], Bundle]]] = [
    ("F_NOT_DETERMINISTIC", lambda: bundle(deterministic=False)),
    ("F_NOT_DETERMINISTIC", lambda: bundle(deterministic=False).with_evidence(differs_at=2)),
    (
        "F_NOT_DETERMINISTIC",
        lambda: bundle(deterministic=False).with_run(0, token_digest=OTHER_SHA256),
    ),
    ("F_FEW_PROCESSES", lambda: bundle(timed=2)),
    ("F_ONE_PROCESS", lambda: of_one_process(bundle())),
    ("F_NO_PROFILE", lambda: bundle().with_evidence(profile=None)),
    ("F_FEW_SAMPLES", lambda: bundle(profiled=1, shares={"gemv_ternary": 0.9})),
    ("F_PROFILE_DEGRADED", lambda: bundle().with_profile(completeness=0.2)),
    ("F_PROFILE_DEGRADED", lambda: bundle().with_profile(degraded=("nonblocking",))),
    ("F_KERNELS_FROM_ENGINE", lambda: by_engine(bundle())),
    (
        "F_INJECTED",
        lambda: injected(bundle()),
    ),
    ("F_SIDE_OF_COMPARISON", lambda: bundle().with_evidence(side="head")),
    ("F_NO_COMMIT", lambda: bundle().with_evidence(commit=None)),
    ("F_NO_COMMIT", lambda: bundle().with_evidence(commit=Commit("a" * 40, "main", 2))),
    ("F_MACHINE_BUSY", lambda: pressed(bundle())),
    ("F_MACHINE_BUSY", lambda: waiting(bundle())),
    ("F_WHOLE_PROCESS", lambda: bundle(tokens=("52",), clock_scope="process")),
    ("F_SUSPICIOUS", lambda: same_clocks(bundle())),
]


def of_one_process(triple: Bundle) -> Bundle:
    """Every timed run is a window of one server, and says so."""
    server = {"engine": "openai", "url": "http://127.0.0.1:8080"}
    for index in range(len(triple.evidence.runs)):
        triple = triple.with_run(index, load_ns=None)
    told = triple.with_evidence(workload={**triple.evidence.workload, **server}).recomputed()
    environment = {**told.receipt.environment, "FLAMEGATE_ENGINE": "openai"}
    return told.with_receipt(environment=environment)


def injected(triple: Bundle) -> Bundle:
    return triple.with_evidence(
        workload={**triple.evidence.workload, "injection": "ternary_gemv:+10%"}
    )


@pytest.mark.parametrize(("code", "make"), SUSPECT)
def test_a_suspicion_refuses_nothing_and_lowers_nothing(
    code: str, make: Callable[[], Bundle]
) -> None:
    answer = verify(make(), require_grade=Grade.OBSERVED)
    assert answer.refusals == ()
    assert code in {notice.code for notice in answer.warnings}
    assert answer.honest
    assert not answer.fit
    assert any(code in notice.message for notice in answer.unfit if notice.code == "F_SUSPICIOUS")


@pytest.mark.parametrize(("code", "make"), UNFIT)
def test_an_honest_receipt_may_be_unfit(code: str, make: Callable[[], Bundle]) -> None:
    answer = verify(make())
    assert answer.honest, answer.refusals
    assert not answer.fit
    assert code in {notice.code for notice in answer.unfit}


@pytest.mark.parametrize("book", [SUSPICIONS, REASONS], ids=["suspicions", "reasons"])
def test_each_rule_is_tried(book: Any) -> None:
    tried = {code for code, _ in (*SUSPECT, *UNFIT)}
    assert {rule.code for rule in book} <= tried
    assert all(rule.protects is None for rule in book)


@pytest.mark.parametrize(
    "make",
    [
        bundle,
        slow,
        lambda: bundle(tokens=("52",)),
        lambda: model(bundle(), 3_011_616),
        lambda: bundle(clock_scope="process"),
    ],
)
def test_an_honest_receipt_is_fit(make: Callable[[], Bundle]) -> None:
    answer = verify(make())
    assert answer.honest
    assert answer.fit
    assert answer.warnings == ()


def test_without_evidence_it_is_honest_and_not_fit() -> None:
    answer = verify_receipt(bundle().files["receipt.json"], now=NOW)
    assert answer.ok
    assert answer.honest
    assert not answer.fit
    assert [notice.code for notice in answer.unfit] == ["F_NO_EVIDENCE"]


def test_of_what_is_not_honest_fitness_is_not_asked() -> None:
    answer = verify(bundle().with_receipt(tokens_per_second=1.0))
    assert not answer.honest
    assert not answer.fit
    assert answer.unfit == ()


def test_the_readers_wish_is_no_matter_of_honesty() -> None:
    answer = verify(bundle(), max_age_s=1.0)
    assert not answer.ok
    assert answer.honest
    assert answer.fit


def test_who_sleeps_is_not_suspected_of_it_twice() -> None:
    answer = verify(asleep(slow()))
    assert answer.honest
    assert answer.grade is Grade.CONSISTENT
