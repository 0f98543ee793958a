"""Each rule over receipt and evidence: evidence that breaks it, and evidence that just does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.git import Commit
from pytest_flamegate.receipt import Grade, verify_receipt
from pytest_flamegate.receipt.rules import CHECKS, SHORTFALLS
from tests.made import Bundle, bundle
from tests.receipt import gpu
from tests.receipt.rules.changes import (
    NOW,
    OTHER_SHA256,
    Make,
    all_at_once,
    asleep,
    busy,
    codes,
    copied,
    differing,
    each_run,
    first_block,
    long_load,
    map_blocks,
    multiplied,
    one_sequence,
    redated,
    refusals,
    reported_by_engine,
    same_process,
    scale_gaps,
    slow,
    slow_reference,
    verify,
    waiting,
    with_decode,
    with_hotspot,
    with_interval,
    with_machine,
    with_metric,
    with_model,
    with_more_samples,
    with_moved_samples,
    with_process,
    with_python,
    with_recipe,
    with_sighting,
    without_cores,
    without_hottest,
    without_timed_blocks,
)

HOUR_S = 3600.0


def claim_rate(made: Bundle, factor: float) -> Bundle:
    return made.with_receipt(tokens_per_second=made.receipt.tokens_per_second * factor)


def program(**options: object) -> Bundle:
    return bundle(clock_scope="process", **options)  # type: ignore[arg-type]


def with_reference(cpu_ns: int) -> Bundle:
    reference = Interval(1_000_000, cpu_ns, 0)
    return first_block(bundle(), lambda block: replace(block, reference=reference))


def edited_after_sealing() -> Bundle:
    made = bundle()
    return replace(made, receipt=replace(made.receipt, timestamp="2025-10-13T12:00:01Z"))


def with_folded(folded: bytes) -> Bundle:
    return replace(bundle(), folded=folded).sealed()


def other_profile() -> Bundle:
    return replace(bundle(), folded=bundle(shares={"ternary_gemv": 0.9, "rms_norm": 0.1}).folded)


def unhashed_model() -> Bundle:
    model = {"path": "models/tiny.gguf"}
    return bundle().with_evidence(model_sha256=None, model=model).with_receipt(model=model)


FORGED: dict[str, tuple[str, Make]] = {
    # origin
    "the receipt changed after sealing": ("E_RECEIPT_CHANGED", edited_after_sealing),
    "another engine": (
        "E_ORIGIN_MISMATCH",
        lambda: bundle().with_evidence(workload={"engine": "python"}),
    ),
    "an engine of another clock": ("E_ORIGIN_MISMATCH", lambda: bundle(engine="command")),
    "a profile of another phase": (
        "E_ORIGIN_MISMATCH",
        lambda: bundle().with_profile(covers="decode"),
    ),
    "two model digests": (
        "E_ORIGIN_MISMATCH",
        lambda: bundle().with_evidence(model_sha256=OTHER_SHA256),
    ),
    "a model digest in the receipt alone": (
        "E_ORIGIN_MISMATCH",
        lambda: bundle().with_evidence(model_sha256=None),
    ),
    "another model path": (
        "E_ORIGIN_MISMATCH",
        lambda: bundle().with_receipt(model={"path": "models/other.gguf"}),
    ),
    "another model size": (
        "E_ORIGIN_MISMATCH",
        lambda: bundle().with_receipt(model={**bundle().receipt.model, "size_bytes": 454_001}),
    ),
    "another environment": (
        "E_ORIGIN_MISMATCH",
        lambda: bundle().with_evidence(effective_environment={"BITNET_DETERMINISTIC": "0"}),
    ),
    "another version": (
        "E_ORIGIN_MISMATCH",
        lambda: bundle().with_evidence(flamegate_version="0.0.9"),
    ),
    "another system": (
        "E_ORIGIN_MISMATCH",
        lambda: with_machine(bundle(), os="linux", arch="aarch64"),
    ),
    "another Python": ("E_ORIGIN_MISMATCH", lambda: with_python(bundle(), "CPython 3.12.1")),
    "a branch for a commit": (
        "E_ORIGIN_MISMATCH",
        lambda: bundle().with_evidence(commit=Commit("main", "main", 0)),
    ),
    "a tree that is no digest": (
        "E_ORIGIN_MISMATCH",
        lambda: bundle().with_evidence(commit=Commit("a" * 40, "", 0, "b")),
    ),
    # rate and tokens
    "a rate 1 % higher": ("E_TPS_MISMATCH", lambda: claim_rate(bundle(), 1.01)),
    "a rate 1 % lower": ("E_TPS_MISMATCH", lambda: claim_rate(bundle(), 0.99)),
    "a program's rate 1 % higher": ("E_TPS_MISMATCH", lambda: claim_rate(program(), 1.01)),
    "fewer tokens claimed": ("E_TOKEN_COUNT", lambda: bundle().with_receipt(tokens_generated=3)),
    "more tokens requested": ("E_TOKEN_COUNT", lambda: bundle().with_receipt(tokens_requested=5)),
    "a sequence cut": (
        "E_TOKEN_COUNT",
        lambda: first_block(bundle(), lambda block: replace(block, sequences_ns=((9,),))),
    ),
    "another sequence length": (
        "E_TOKEN_COUNT",
        lambda: bundle().with_run(0, tokens_per_sequence=5),
    ),
    "other tokens": (
        "E_TOKEN_DIGEST",
        lambda: bundle().with_evidence(tokens=("32", "53", "46", "10")),
    ),
    "a difference to the same token": ("E_TOKEN_DIGEST", lambda: differing(2, "46")),
    "a differing token without a place": ("E_TOKEN_DIGEST", lambda: differing(None, "46")),
    "a difference after the end": ("E_TOKEN_DIGEST", lambda: differing(5, None)),
    "a sequence that differs": (
        "E_NOT_DETERMINISTIC",
        lambda: bundle().with_evidence(differs_at=2),
    ),
    "a run of other tokens": (
        "E_NOT_DETERMINISTIC",
        lambda: bundle().with_run(1, token_digest=OTHER_SHA256),
    ),
    # times
    "token times longer than their block": (
        "E_CLOCK_CONTRADICTION",
        lambda: first_block(bundle(), with_interval(wall_ns=10_000_000, cpu_ns=9_000_000)),
    ),
    "three cores of two": ("E_CLOCK_CONTRADICTION", lambda: busy(bundle(), 3.0)),
    "three cores of two, of a program": ("E_CLOCK_CONTRADICTION", lambda: busy(program(), 3.0)),
    "two cores of one thread": (
        "E_CLOCK_CONTRADICTION",
        lambda: busy(without_cores(bundle()), 1.9),
    ),
    "a reference kernel on 90 cores": ("E_CLOCK_CONTRADICTION", lambda: with_reference(90_000_000)),
    "a copied run": ("E_COPIED_RUNS", lambda: copied(bundle())),
    "a multiplied run": ("E_COPIED_RUNS", lambda: multiplied(bundle())),
    "a process listed twice": ("E_COPIED_RUNS", lambda: same_process(bundle())),
    # dates
    "a receipt of another day": (
        "E_DATES_CONTRADICT",
        lambda: bundle().with_receipt(timestamp="2025-10-11T12:00:00Z"),
    ),
    "a run after the evidence": ("E_DATES_CONTRADICT", lambda: redated(bundle(), HOUR_S)),
    "a run of last week": ("E_DATES_CONTRADICT", lambda: redated(bundle(), -170 * HOUR_S)),
    "runs side by side": ("E_DATES_CONTRADICT", lambda: all_at_once(bundle())),
    "runs side by side, by their dates": (
        "E_DATES_CONTRADICT",
        lambda: each_run(all_at_once(long_load(bundle())), started_ticks=None),
    ),
    "a run longer than the time to the next": ("E_DATES_CONTRADICT", lambda: long_load(bundle())),
    "a run longer than the time to the evidence": (
        "E_DATES_CONTRADICT",
        lambda: long_load(bundle(), index=4),
    ),
    "a process of another boot": (
        "E_DATES_CONTRADICT",
        lambda: bundle().with_run(2, started_ticks=90_000_000),
    ),
    "a wall clock that is set before each run": (
        "E_DATES_CONTRADICT",
        lambda: redated(bundle(timed=6), *range(-200, 0, 20)),
    ),
    # metrics
    "a metric 1 % lower": (
        "E_METRIC_MISMATCH",
        lambda: with_metric(bundle(), "quiet_s_per_token", value=0.99),
    ),
    "a prefill rate of a fraction of a token": (
        "E_METRIC_MISMATCH",
        lambda: with_metric(bundle(), "prefill_tokens_per_second", value=1.03),
    ),
    "a metric of zero": ("E_METRIC_MISMATCH", lambda: with_metric(bundle(), "load_ms", value=0.0)),
    "a flipped direction": (
        "E_METRIC_MISMATCH",
        lambda: with_metric(bundle(), "tokens_per_second", direction="lower_is_better"),
    ),
    "more samples of a metric": (
        "E_METRIC_MISMATCH",
        lambda: with_metric(bundle(), "cpu_s_per_token", samples=300),
    ),
    "a metric listed twice": (
        "E_METRIC_MISMATCH",
        lambda: with_metric(bundle(), "load_ms", name="tokens_per_second"),
    ),
    "a timed run without blocks": ("E_METRIC_MISMATCH", lambda: bundle().with_run(0, blocks=())),
    "another overhead": ("E_METRIC_MISMATCH", lambda: bundle().with_profile(overhead_pct=99.0)),
    # profile
    "another profile": ("E_PROFILE_CHANGED", other_profile),
    "a profile that is no text": (
        "E_PROFILE_MALFORMED",
        lambda: with_folded(b"main (a.py);\xff 3\n"),
    ),
    "a line without a count": (
        "E_PROFILE_MALFORMED",
        lambda: with_folded(b"main (a.py) many\n"),
    ),
    "fewer samples in the record": ("E_SAMPLE_COUNT", lambda: bundle().with_profile(samples=7)),
    "fewer samples in a process": ("E_SAMPLE_COUNT", lambda: with_process(bundle(), samples=1)),
    "samples moved in a process": ("E_SAMPLE_COUNT", lambda: with_moved_samples(bundle())),
    "samples at no rate": ("E_SAMPLE_COUNT", lambda: bundle().with_profile(rate_hz=0)),
    "100 times the samples": ("E_SAMPLE_COUNT", lambda: with_more_samples(bundle(), 100)),
    "more samples of a hotspot": (
        "E_HOTSPOT_MISMATCH",
        lambda: with_hotspot(bundle(), self_samples=100_000),
    ),
    "fewer samples of a hotspot": (
        "E_HOTSPOT_MISMATCH",
        lambda: with_hotspot(bundle(), self_samples=1),
    ),
    "a hotspot that is in no stack": (
        "E_HOTSPOT_MISMATCH",
        lambda: with_hotspot(bundle(), name="i2s_gemv"),
    ),
    "a hotspot listed twice": (
        "E_HOTSPOT_MISMATCH",
        lambda: with_hotspot(bundle(), name="rms_norm"),
    ),
    "the hottest function left out": ("E_HOTSPOT_MISMATCH", lambda: without_hottest(bundle())),
    "another share": (
        "E_HOTSPOT_MISMATCH",
        lambda: with_hotspot(bundle(), self_share=0.7, cpu_s_per_token=None),
    ),
    "another inclusive share": (
        "E_HOTSPOT_MISMATCH",
        lambda: with_hotspot(bundle(), inclusive_share=0.9),
    ),
    "another cost": (
        "E_HOTSPOT_MISMATCH",
        lambda: with_hotspot(bundle(), cpu_s_per_token=0.0001),
    ),
    "a cost without a metric": (
        "E_HOTSPOT_MISMATCH",
        lambda: bundle().with_evidence(metrics=()),
    ),
    "a profile of another measurement": (
        "E_PROFILE_PROCESS",
        lambda: bundle().with_profile(nonce="ab" * 16),
    ),
    "a profile of a timed run": ("E_PROFILE_PROCESS", lambda: with_process(bundle(), pid=4000)),
    "a profile of no run": ("E_PROFILE_PROCESS", lambda: with_process(bundle(), pid=99)),
    "a process twice in the profile": (
        "E_PROFILE_PROCESS",
        lambda: with_process(bundle(), pid=4004),
    ),
    "a process twice, once without its start": (
        "E_PROFILE_PROCESS",
        lambda: with_process(bundle(), pid=4004, started_ticks=None),
    ),
    "a profiled process of another start": (
        "E_PROFILE_PROCESS",
        lambda: with_process(bundle(), started_ticks=7),
    ),
    # kernels
    "a kernel that was never seen": (
        "E_KERNEL_UNSEEN",
        lambda: bundle().with_receipt(kernels=("ternary_gemv", "i2s_gemv")),
    ),
    "a kernel that was seen 0 times": (
        "E_KERNEL_UNSEEN",
        lambda: with_sighting(bundle(), 0, count=0),
    ),
    "a kernel seen more often than sampled": (
        "E_KERNEL_UNSEEN",
        lambda: with_sighting(bundle(), 0, count=100_000),
    ),
    "a kernel seen in no stack": (
        "E_KERNEL_UNSEEN",
        lambda: with_sighting(bundle(), 0, name="i2s_gemv").with_receipt(
            kernels=("i2s_gemv", "rms_norm")
        ),
    ),
    **{f"GPU {index}": entry for index, entry in enumerate(gpu.FORGERIES)},
}

SHORT: dict[str, tuple[str, Make]] = {
    "asleep": ("W_ASLEEP", lambda: asleep(slow())),
    "a server asleep": ("W_ASLEEP", lambda: asleep(slow(engine="openai"))),
    "no timed run": ("W_NO_TIMED_RUN", lambda: without_timed_blocks(bundle())),
    "one sequence": ("W_DETERMINISM_NOT_SHOWN", one_sequence),
    "no model digest": ("W_MODEL_NOT_HASHED", unhashed_model),
    "no profile": ("W_NO_PROFILE", lambda: bundle().with_evidence(profile=None)),
    "kernels of the engine": ("W_KERNELS_FROM_ENGINE", lambda: reported_by_engine(bundle())),
    "one kernel of the engine": (
        "W_KERNELS_FROM_ENGINE",
        lambda: reported_by_engine(bundle(), "rms_norm"),
    ),
    "a third of the time": ("W_TIME_UNACCOUNTED", lambda: map_blocks(bundle(), scale_gaps(1 / 3))),
    "metrics left out": (
        "W_METRIC_MISSING",
        lambda: bundle().with_evidence(metrics=bundle().evidence.metrics[:3]),
    ),
    "no command": ("W_RECIPE_INCOMPLETE", lambda: with_recipe(program(), command=[])),
    "waits longer than the runs": ("W_WAITS_EXCEED_WALL", lambda: waiting(bundle(), 3.0)),
    "1 % of the samples": ("W_FEW_SAMPLES", lambda: bundle().with_profile(rate_hz=10_000)),
    "degraded": ("W_PROFILE_DEGRADED", lambda: bundle().with_profile(degraded=("nonblocking",))),
    **{f"GPU {index}": entry for index, entry in enumerate(gpu.SHORT)},
}

HONEST: dict[str, Make] = {
    "embedded": bundle,
    "one token": lambda: bundle(tokens=("52",)),
    "a program": program,
    "a program of one token": lambda: program(tokens=("52",)),
    "slow": slow,
    "a reference kernel slow on a busy machine": lambda: slow_reference(bundle(blocks=6)),
    "a program whose children are sampled": lambda: with_more_samples(
        with_machine(program(), cpu_cores="16"), 8
    ),
    "a rounded rate": lambda: claim_rate(bundle(), 1.002),
    "the machine by name": lambda: with_machine(bundle(), os="linux", arch="x86_64"),
    "outside of a repository": lambda: bundle().with_evidence(commit=None),
    "a wall clock that was set": lambda: redated(bundle(), -200, -200),
    "a wall clock that was set back": lambda: redated(bundle(), 200, 200),
    "two runs within one pair of ticks": lambda: bundle(token_ns=30_000, timed=12),
    "asleep for a moment": lambda: asleep(bundle(token_ns=500_000)),
    "more threads than were counted": lambda: busy(bundle(), 1.9),
    "a program with children": lambda: busy(without_cores(program()), 7.0),
    "tokens that differ, and no claim": lambda: (
        bundle(deterministic=False)
        .with_evidence(differs_at=2)
        .with_run(1, token_digest=OTHER_SHA256)
    ),
    "unknown starts of processes": lambda: (
        bundle().with_run(0, started_ticks=None).with_run(1, started_ticks=None, pid=4000)
    ),
    "a profile without its process's start": lambda: with_process(bundle(), started_ticks=None),
    "a profiled run without its start": lambda: bundle().with_run(4, started_ticks=None),
    "counts instead of samples": lambda: with_more_samples(bundle(), 100).with_profile(
        rate_hz=0, event="Ir"
    ),
    "figures of four digits": lambda: with_metric(bundle(), "load_ms", value=1.00005),
    "a counted metric": lambda: bundle().with_evidence(
        metrics=(
            *bundle().evidence.metrics,
            replace(bundle().evidence.metrics[0], name="instructions", provenance="counted"),
        )
    ),
    "a profile of an older version": lambda: bundle().with_profile(nonce=None),
    "unknown costs": lambda: with_hotspot(bundle(), cpu_s_per_token=None),
    "a differing token": lambda: differing(2, "47"),
    "a sequence that ended early": lambda: differing(4, None),
    "a sequence that ended late": lambda: differing(4, "47"),
    "a difference of an older version": lambda: differing(2, None),
    **dict(gpu.HONEST),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_contradiction_rejects_the_receipt(name: str) -> None:
    code, make = FORGED[name]
    answer = verify(make())
    assert code in {refusal.code for refusal in answer.refusals}
    assert "E_INTERNAL" not in codes(answer)
    assert answer.grade is Grade.CONSISTENT


@pytest.mark.parametrize("name", SHORT)
def test_a_shortfall_lowers_the_grade_and_rejects_nothing(name: str) -> None:
    code, make = SHORT[name]
    answer = verify(make())
    rule = next(rule for rule in SHORTFALLS if rule.code == code)
    assert code in {notice.code for notice in answer.warnings}
    assert answer.refusals == ()
    assert answer.grade is (Grade.OBSERVED if rule.protects is None else Grade.CONSISTENT)


@pytest.mark.parametrize("name", HONEST)
def test_honest_evidence_reaches_observed(name: str) -> None:
    answer = verify(HONEST[name](), require_grade=Grade.OBSERVED)
    assert answer.refusals == ()


ALLOWED: dict[str, tuple[str, Make, Make]] = {
    "2 and 3 steps of the wall clock": (
        "E_DATES_CONTRADICT",
        lambda: redated(bundle(timed=6), 0, 10, *[20] * 6),
        lambda: redated(bundle(timed=6), 0, 10, 20, *[30] * 5),
    ),
    "2 and 3 tokens in a decode after whose start 2 arrived": (
        "E_CLOCK_CONTRADICTION",
        lambda: with_decode(program(), 2),
        lambda: with_decode(program(), 3),
    ),
    "a run 23 and 25 hours old": (
        "E_DATES_CONTRADICT",
        lambda: days_before(23.0),
        lambda: days_before(25.0),
    ),
    "receipt and evidence 23 and 25 hours apart": (
        "E_DATES_CONTRADICT",
        lambda: bundle().with_receipt(timestamp="2025-10-12T13:00:00Z"),
        lambda: bundle().with_receipt(timestamp="2025-10-12T11:00:00Z"),
    ),
    "60 % and 40 % of the time accounted for": (
        "W_TIME_UNACCOUNTED",
        lambda: map_blocks(bundle(), scale_gaps(0.6)),
        lambda: map_blocks(bundle(), scale_gaps(0.4)),
    ),
    "a model read at 3 and at 5 times the memory's rate": (
        "W_FASTER_THAN_MEMORY",
        lambda: reading(3.0),
        lambda: reading(5.0),
    ),
}
"""Evidence just within and just beyond what a rule allows."""


def days_before(hours: float) -> Bundle:
    """All runs started ``hours`` before the evidence was written, by both clocks."""
    made = bundle()
    for index, run in enumerate(made.evidence.runs):
        ticks = (run.started_ticks or 0) - round(hours * HOUR_S * 100) + 10**9
        made = made.with_run(index, started_ticks=ticks)
    return redated(made, *[-hours * HOUR_S] * len(made.evidence.runs))


def reading(times: float) -> Bundle:
    """A model whose weights, read once per token, need ``times`` what two cores can read."""
    size_bytes = times * 2 * 100e9 / slow().receipt.tokens_per_second
    return with_model(slow(), int(size_bytes))


@pytest.mark.parametrize("name", ALLOWED)
def test_rules_begin_at_their_limits(name: str) -> None:
    code, within, beyond = ALLOWED[name]
    assert code not in codes(verify(within()))
    assert code in codes(verify(beyond()))


def test_every_rule_is_described() -> None:
    rules = [*CHECKS, *SHORTFALLS]
    assert len({rule.sentence for rule in rules}) == len(rules)
    remedies: dict[tuple[str, Grade | None], str] = {}
    for rule in rules:
        assert rule.code.startswith("W_" if rule in tuple(SHORTFALLS) else "E_")
        assert rule.sentence.endswith(".")
        assert rule.remedy.endswith(".")
        # Rules that share a code lead to the same action.
        if rule.code != "E_KERNEL_UNSEEN":
            assert remedies.setdefault((rule.code, rule.protects), rule.remedy) == rule.remedy


def test_both_rates_are_named() -> None:
    made = claim_rate(bundle(), 10)
    message = next(r.message for r in verify(made).refusals if r.code == "E_TPS_MISMATCH")
    assert f"{made.receipt.tokens_per_second:.1f} tok/s claimed" in message
    assert f"{bundle().receipt.tokens_per_second:.1f} from the token times" in message


def test_an_unseen_kernel_is_named_next_to_the_hottest_function() -> None:
    answer = verify(bundle().with_receipt(kernels=("ternary_gemv", "i2s_gemv")))
    message = next(r.message for r in answer.refusals if r.code == "E_KERNEL_UNSEEN")
    assert '"i2s_gemv" is claimed' in message
    assert "400 samples" in message
    assert 'the profile shows "ternary_gemv"' in message


def test_a_semicolon_in_a_frame_makes_no_kernel() -> None:
    """A frame that py-spy writes as ``evil;ternary_gemv`` must not count as a sighting."""
    folded = bundle().folded.replace(b";ternary_gemv (kernels.py)", b";evil (x.py) ternary_gemv")
    assert {"E_PROFILE_MALFORMED", "E_KERNEL_UNSEEN"} <= refusals(with_folded(folded))


def test_a_missing_profile_only_lowers_the_grade() -> None:
    files = bundle().files
    answer = verify_receipt(files["receipt.json"], evidence=files["evidence.json"], now=NOW)
    assert answer.ok
    assert answer.grade is Grade.CONSISTENT
    assert codes(answer) == {"W_NO_PROFILE"}
