"""Each rule over receipt and evidence: evidence that breaks it, and evidence that just does not."""

from dataclasses import replace

import pytest

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.git import Commit
from pytest_flamegate.engines import ENGINES
from pytest_flamegate.receipt import Grade, verify_receipt
from pytest_flamegate.receipt.rules import CHECKS, SHORTFALLS, origin
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


FORGED: dict[str, list[Make]] = {
    "E_RECEIPT_CHANGED": [edited_after_sealing],
    "E_ORIGIN_MISMATCH": [
        lambda: bundle().with_evidence(workload={"engine": "python"}),
        lambda: bundle(engine="command"),
        lambda: bundle().with_profile(covers="decode"),
        lambda: bundle().with_evidence(model_sha256=OTHER_SHA256),
        lambda: bundle().with_evidence(model_sha256=None),
        lambda: bundle().with_receipt(model={"path": "models/other.gguf"}),
        lambda: bundle().with_receipt(model={**bundle().receipt.model, "size_bytes": 454_001}),
        lambda: bundle().with_evidence(effective_environment={"BITNET_DETERMINISTIC": "0"}),
        lambda: bundle().with_evidence(flamegate_version="0.0.9"),
        lambda: with_machine(bundle(), os="linux", arch="aarch64"),
        lambda: with_python(bundle(), "CPython 3.12.1"),
        lambda: bundle().with_evidence(commit=Commit("main", "main", 0)),
        lambda: bundle().with_evidence(commit=Commit("a" * 40, "", 0, "b")),
    ],
    "E_TPS_MISMATCH": [
        lambda: claim_rate(bundle(), 1.01),
        lambda: claim_rate(bundle(), 0.99),
        lambda: claim_rate(program(), 1.01),
    ],
    "E_TOKEN_COUNT": [
        lambda: bundle().with_receipt(tokens_generated=3),
        lambda: bundle().with_receipt(tokens_requested=5),
        lambda: first_block(bundle(), lambda block: replace(block, sequences_ns=((9,),))),
        lambda: bundle().with_run(0, tokens_per_sequence=5),
    ],
    "E_TOKEN_DIGEST": [
        lambda: bundle().with_evidence(tokens=("32", "53", "46", "10")),
        lambda: differing(2, "46"),
        lambda: differing(None, "46"),
        lambda: differing(5, None),
    ],
    "E_NOT_DETERMINISTIC": [
        lambda: bundle().with_evidence(differs_at=2),
        lambda: bundle().with_run(1, token_digest=OTHER_SHA256),
    ],
    "E_CLOCK_CONTRADICTION": [
        lambda: first_block(bundle(), with_interval(wall_ns=10_000_000, cpu_ns=9_000_000)),
        lambda: busy(bundle(), 3.0),
        lambda: busy(program(), 3.0),
        lambda: busy(without_cores(bundle()), 1.9),
        lambda: with_reference(90_000_000),
    ],
    "E_COPIED_RUNS": [
        lambda: copied(bundle()),
        lambda: multiplied(bundle()),
        lambda: same_process(bundle()),
    ],
    "E_DATES_CONTRADICT": [
        lambda: bundle().with_receipt(timestamp="2025-10-11T12:00:00Z"),
        lambda: redated(bundle(), HOUR_S),
        lambda: redated(bundle(), -170 * HOUR_S),
        lambda: all_at_once(bundle()),
        lambda: each_run(all_at_once(long_load(bundle())), started_ticks=None),
        lambda: long_load(bundle()),
        lambda: long_load(bundle(), index=4),
        lambda: bundle().with_run(2, started_ticks=90_000_000),
        lambda: redated(bundle(timed=6), *range(-200, 0, 20)),
    ],
    "E_METRIC_MISMATCH": [
        lambda: with_metric(bundle(), "quiet_s_per_token", value=0.99),
        lambda: with_metric(bundle(), "prefill_tokens_per_second", value=1.03),
        lambda: with_metric(bundle(), "load_ms", value=0.0),
        lambda: with_metric(bundle(), "tokens_per_second", direction="lower_is_better"),
        lambda: with_metric(bundle(), "cpu_s_per_token", samples=300),
        lambda: with_metric(bundle(), "load_ms", name="tokens_per_second"),
        lambda: bundle().with_run(0, blocks=()),
        lambda: bundle().with_profile(overhead_pct=99.0),
    ],
    "E_PROFILE_CHANGED": [other_profile],
    "E_PROFILE_MALFORMED": [
        lambda: with_folded(b"main (a.py);\xff 3\n"),
        lambda: with_folded(b"main (a.py) many\n"),
    ],
    "E_SAMPLE_COUNT": [
        lambda: bundle().with_profile(samples=7),
        lambda: with_process(bundle(), samples=1),
        lambda: with_moved_samples(bundle()),
        lambda: bundle().with_profile(rate_hz=0),
        lambda: with_more_samples(bundle(), 100),
    ],
    "E_HOTSPOT_MISMATCH": [
        lambda: with_hotspot(bundle(), self_samples=100_000),
        lambda: with_hotspot(bundle(), self_samples=1),
        lambda: with_hotspot(bundle(), name="i2s_gemv"),
        lambda: with_hotspot(bundle(), name="rms_norm"),
        lambda: without_hottest(bundle()),
        lambda: with_hotspot(bundle(), self_share=0.7, cpu_s_per_token=None),
        lambda: with_hotspot(bundle(), inclusive_share=0.9),
        lambda: with_hotspot(bundle(), cpu_s_per_token=0.0001),
        lambda: bundle().with_evidence(metrics=()),
    ],
    "E_PROFILE_PROCESS": [
        lambda: bundle().with_profile(nonce="ab" * 16),
        lambda: with_process(bundle(), pid=4000),
        lambda: with_process(bundle(), pid=99),
        lambda: with_process(bundle(), pid=4004),
        lambda: with_process(bundle(), pid=4004, started_ticks=None),
        lambda: with_process(bundle(), started_ticks=7),
    ],
    "E_KERNEL_UNSEEN": [
        lambda: bundle().with_receipt(kernels=("ternary_gemv", "i2s_gemv")),
        lambda: with_sighting(bundle(), 0, count=0),
        lambda: with_sighting(bundle(), 0, count=100_000),
        lambda: with_sighting(bundle(), 0, name="i2s_gemv").with_receipt(
            kernels=("i2s_gemv", "rms_norm")
        ),
    ],
}

SHORT: dict[str, list[Make]] = {
    "W_ASLEEP": [
        lambda: asleep(slow()),
        lambda: asleep(slow(engine="openai")),
    ],
    "W_NO_TIMED_RUN": [lambda: without_timed_blocks(bundle())],
    "W_DETERMINISM_NOT_SHOWN": [one_sequence],
    "W_MODEL_NOT_HASHED": [unhashed_model],
    "W_NO_PROFILE": [lambda: bundle().with_evidence(profile=None)],
    "W_KERNELS_FROM_ENGINE": [
        lambda: reported_by_engine(bundle()),
        lambda: reported_by_engine(bundle(), "rms_norm"),
    ],
    "W_TIME_UNACCOUNTED": [lambda: map_blocks(bundle(), scale_gaps(1 / 3))],
    "W_METRIC_MISSING": [lambda: bundle().with_evidence(metrics=bundle().evidence.metrics[:3])],
    "W_RECIPE_INCOMPLETE": [lambda: with_recipe(program(), command=[])],
    "W_WAITS_EXCEED_WALL": [lambda: waiting(bundle(), 3.0)],
    "W_FEW_SAMPLES": [lambda: bundle().with_profile(rate_hz=10_000)],
    "W_PROFILE_DEGRADED": [lambda: bundle().with_profile(degraded=("nonblocking",))],
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


def listed(table: dict[str, list[Make]], more: list[tuple[str, Make]]) -> pytest.MarkDecorator:
    """Parametrize by code and evidence: each entry of ``table``, then ``more``."""
    entries = [(code, make) for code, makes in table.items() for make in makes] + more
    return pytest.mark.parametrize(("code", "make"), entries, ids=[code for code, _ in entries])


@listed(FORGED, gpu.FORGERIES)
def test_a_contradiction_rejects_the_receipt(code: str, make: Make) -> None:
    answer = verify(make())
    assert code in {refusal.code for refusal in answer.refusals}
    assert "E_INTERNAL" not in codes(answer)
    assert answer.grade is Grade.CONSISTENT


@listed(SHORT, gpu.SHORT)
def test_a_shortfall_lowers_the_grade_and_rejects_nothing(code: str, make: Make) -> None:
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
"""Evidence just within and just beyond the limit of a rule."""


def days_before(hours: float) -> Bundle:
    """All runs started ``hours`` before the evidence was written, by both clocks."""
    made = bundle()
    for index, run in enumerate(made.evidence.runs):
        ticks = (run.started_ticks or 0) - round(hours * HOUR_S * 100) + 10**9
        made = made.with_run(index, started_ticks=ticks)
    return redated(made, *[-hours * HOUR_S] * len(made.evidence.runs))


def reading(times: float) -> Bundle:
    """A model whose weights, read once per token, need ``times`` the bandwidth of two cores."""
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


def test_the_scope_of_every_engine_is_known() -> None:
    assert {*origin._SCOPES} == {*ENGINES}
