"""Each rule over receipt and evidence: what breaks it, what does not, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.git import Commit
from pytest_flamegate.core.text import Finding
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.rules import CHECKS, SHORTFALLS
from pytest_flamegate.receipt.types import Metric
from tests.made import BOOT_TICKS, Bundle, bundle
from tests.receipt import gpu

if TYPE_CHECKING:
    from collections.abc import Callable


NOW = datetime(2025, 10, 13, 13, 0, tzinfo=UTC)
OTHER_SHA256 = "ab" * 32


def verify(triple: Bundle, **options: Any) -> Verification:
    files = triple.files
    return verify_receipt(
        files["receipt.json"],
        evidence=files["evidence.json"],
        profile_folded=files["profile.folded"],
        now=NOW,
        **options,
    )


def codes(answer: Verification) -> set[str]:
    findings: list[Finding] = [*answer.refusals, *answer.warnings]
    return {finding.code for finding in findings}


def honest(**options: Any) -> Bundle:
    return bundle(**options)


def with_block(triple: Bundle, run: int, change: Callable[[Block], Block]) -> Bundle:
    blocks = triple.evidence.runs[run].blocks
    return triple.with_run(run, blocks=(change(blocks[0]), *blocks[1:]))


def decoding(triple: Bundle, tokens: int) -> Bundle:
    """The decode of the first run is told apart, and covers ``tokens`` of its four."""

    def told(block: Block) -> Block:
        gaps = (5_000_000, 0, 2_000_000, 2_000_000)
        decode = Interval(4_000_000, 3_900_000, 0)
        return replace(block, sequences_ns=(gaps,), decode=decode, decode_tokens=tokens)

    return with_block(triple, 0, told)


def copied(triple: Bundle) -> Bundle:
    return triple.with_run(1, blocks=triple.evidence.runs[0].blocks)


def multiplied(triple: Bundle) -> Bundle:
    """The second run is the first one, 3 % slower, and nothing else of it is the same."""
    blocks = tuple(
        replace(
            block,
            interval=Interval(
                round(block.interval.wall_ns * 1.03) + 1234,
                round(block.interval.cpu_ns * 1.03) + 777,
                block.interval.run_delay_ns,
            ),
            sequences_ns=tuple(
                tuple(round(gap * 1.03) for gap in gaps) for gaps in block.sequences_ns
            ),
        )
        for block in triple.evidence.runs[0].blocks
    )
    return triple.with_run(1, blocks=blocks).recomputed()


def same_process(triple: Bundle) -> Bundle:
    first = triple.evidence.runs[0]
    return triple.with_run(1, pid=first.pid, started_ticks=first.started_ticks)


def asleep(triple: Bundle) -> Bundle:
    """Every run sleeps where it should compute."""
    for index, run in enumerate(triple.evidence.runs):
        blocks = tuple(
            replace(block, interval=replace(block.interval, cpu_ns=block.interval.wall_ns // 1000))
            for block in run.blocks
        )
        triple = triple.with_run(index, blocks=blocks)
    return triple.recomputed()


def busy(triple: Bundle, cores: float) -> Bundle:
    """The first block spends the CPU time of that many cores."""

    def change(block: Block) -> Block:
        cpu_ns = round(cores * block.interval.wall_ns)
        return replace(block, interval=replace(block.interval, cpu_ns=cpu_ns))

    return with_block(triple, 0, change).recomputed()


def unknown_cores(triple: Bundle) -> Bundle:
    return triple.with_evidence(machine={"os": "linux"})


def slow(**options: Any) -> Bundle:
    return bundle(token_ns=20_000_000, **options)


def sighted(triple: Bundle, index: int, **changes: Any) -> Bundle:
    kernels = list(triple.evidence.kernels)
    kernels[index] = replace(kernels[index], **changes)
    return triple.with_evidence(kernels=tuple(kernels))


def hotspot(triple: Bundle, **changes: Any) -> Bundle:
    assert triple.evidence.profile is not None
    spots = triple.evidence.profile.hotspots
    return triple.with_profile(hotspots=(replace(spots[0], **changes), *spots[1:]))


def metric(triple: Bundle, name: str, /, **changes: Any) -> Bundle:
    """One metric has other fields; ``value`` is a factor."""

    def edited(old: Metric) -> Metric:
        factor = changes.get("value", 1.0)
        return replace(old, **{**changes, "value": old.value * factor})

    found = (edited(each) if each.name == name else each for each in triple.evidence.metrics)
    return triple.with_evidence(metrics=tuple(found))


def without_hottest(triple: Bundle) -> Bundle:
    assert triple.evidence.profile is not None
    return triple.with_profile(hotspots=triple.evidence.profile.hotspots[1:])


def moved_samples(triple: Bundle) -> Bundle:
    """Samples of one process go from the hottest function to another: shares look steady."""
    assert triple.evidence.profile is not None
    own = dict(triple.evidence.profile.processes[0].self_samples)
    own["ternary_gemv"] -= 20
    own["rms_norm"] += 20
    return process(triple, self_samples=own)


def mute_run(triple: Bundle) -> Bundle:
    """One timed run of several says nothing."""
    return triple.with_run(0, blocks=())


def process(triple: Bundle, **changes: Any) -> Bundle:
    assert triple.evidence.profile is not None
    processes = triple.evidence.profile.processes
    return triple.with_profile(processes=(replace(processes[0], **changes), *processes[1:]))


def crowded(triple: Bundle, times: int = 100) -> Bundle:
    """A hundred times the samples, or as many, everywhere where they are counted."""
    profile = triple.evidence.profile
    assert profile is not None
    folded = "".join(
        f"{line.rpartition(' ')[0]} {int(line.rpartition(' ')[2]) * times}\n"
        for line in triple.folded.decode().splitlines()
    )
    processes = tuple(
        replace(
            entry,
            samples=entry.samples * times,
            self_samples={name: count * times for name, count in entry.self_samples.items()},
        )
        for entry in profile.processes
    )
    hotspots = tuple(
        replace(
            spot,
            self_samples=spot.self_samples * times,
            inclusive_samples=spot.inclusive_samples * times,
        )
        for spot in profile.hotspots
    )
    changed = triple.with_profile(
        samples=profile.samples * times, processes=processes, hotspots=hotspots
    )
    return replace(changed, folded=folded.encode()).sealed()


def on_engine_word(triple: Bundle, *names: str) -> Bundle:
    """Take the profile's word for ``names``, or for every kernel, and let the engine give its."""
    told = names or triple.receipt.kernels
    left = tuple(each for each in triple.evidence.kernels if each.name not in told)
    return triple.with_evidence(kernels=left).with_reports(kernels=dict.fromkeys(told, 5))


def profile_of_another(triple: Bundle) -> Bundle:
    return replace(triple, folded=bundle(shares={"ternary_gemv": 0.9, "rms_norm": 0.1}).folded)


def edited_rate(triple: Bundle, factor: float) -> Bundle:
    return triple.with_receipt(tokens_per_second=triple.receipt.tokens_per_second * factor)


def without_timed_times(triple: Bundle) -> Bundle:
    for index, run in enumerate(triple.evidence.runs):
        if run.role == "timed":
            triple = triple.with_run(index, blocks=())
    return triple


def one_sequence() -> Bundle:
    triple = bundle(timed=1, profiled=1, blocks=1, sequences=1)
    profiled = triple.evidence.runs[1]
    return triple.with_run(1, blocks=(replace(profiled.blocks[0], sequences_ns=()),))


FORGERIES: list[tuple[str, Callable[[], Bundle]]] = [
    ("E_RECEIPT_CHANGED", lambda: _changed_after_sealing()),
    ("E_ORIGIN_MISMATCH", lambda: honest().with_evidence(workload={"engine": "python"})),
    ("E_TPS_MISMATCH", lambda: edited_rate(honest(), 1.01)),
    ("E_TPS_MISMATCH", lambda: edited_rate(honest(), 0.99)),
    ("E_TPS_MISMATCH", lambda: edited_rate(honest(clock_scope="process"), 1.01)),
    ("E_TOKEN_COUNT", lambda: honest().with_receipt(tokens_generated=3)),
    ("E_TOKEN_COUNT", lambda: honest().with_receipt(tokens_requested=5)),
    ("E_TOKEN_COUNT", lambda: with_block(honest(), 0, lambda b: replace(b, sequences_ns=((9,),)))),
    ("E_TOKEN_DIGEST", lambda: honest().with_evidence(tokens=("32", "53", "46", "10"))),
    ("E_NOT_DETERMINISTIC", lambda: honest().with_evidence(differs_at=2)),
    ("E_TOKEN_DIGEST", lambda: differing(2, "46")),
    ("E_TOKEN_DIGEST", lambda: differing(None, "46")),
    ("E_TOKEN_DIGEST", lambda: differing(5, None)),
    ("E_NOT_DETERMINISTIC", lambda: honest().with_run(1, token_digest=OTHER_SHA256)),
    (
        "E_CLOCK_CONTRADICTION",
        lambda: with_block(
            honest(), 0, lambda b: replace(b, interval=Interval(10_000_000, 9_000_000, 0))
        ),
    ),
    ("E_CLOCK_CONTRADICTION", lambda: decoding(honest(clock_scope="process"), 4)),
    ("E_CLOCK_CONTRADICTION", lambda: busy(honest(), 3.0)),
    ("E_CLOCK_CONTRADICTION", lambda: busy(honest(clock_scope="process"), 3.0)),
    ("E_CLOCK_CONTRADICTION", lambda: busy(unknown_cores(honest()), 1.9)),
    (
        "E_CLOCK_CONTRADICTION",
        lambda: with_block(
            honest(), 0, lambda b: replace(b, reference=Interval(1_000_000, 90_000_000, 0))
        ),
    ),
    ("E_COPIED_RUNS", lambda: copied(honest())),
    ("E_COPIED_RUNS", lambda: multiplied(honest())),
    ("E_COPIED_RUNS", lambda: same_process(honest())),
    ("E_ORIGIN_MISMATCH", lambda: honest().with_evidence(model_sha256=OTHER_SHA256)),
    ("E_ORIGIN_MISMATCH", lambda: honest().with_evidence(model_sha256=None)),
    ("E_ORIGIN_MISMATCH", lambda: honest().with_receipt(model={"path": "models/other.gguf"})),
    (
        "E_ORIGIN_MISMATCH",
        lambda: honest().with_evidence(effective_environment={"BITNET_DETERMINISTIC": "0"}),
    ),
    ("E_ORIGIN_MISMATCH", lambda: of_size(honest(), 454_001)),
    ("E_ORIGIN_MISMATCH", lambda: honest().with_evidence(flamegate_version="0.0.9")),
    ("E_ORIGIN_MISMATCH", lambda: on_machine(honest(), os="linux", arch="aarch64")),
    ("E_ORIGIN_MISMATCH", lambda: on_python(honest(), "CPython 3.12.1")),
    ("E_ORIGIN_MISMATCH", lambda: honest().with_evidence(commit=Commit("main", "main", 0))),
    ("E_ORIGIN_MISMATCH", lambda: honest().with_evidence(commit=Commit("a" * 40, "", 0, "b"))),
    ("E_DATES_CONTRADICT", lambda: honest().with_receipt(timestamp="2025-10-11T12:00:00Z")),
    ("E_DATES_CONTRADICT", lambda: honest().with_run(0, started_at="2025-10-13T12:30:00Z")),
    ("E_METRIC_MISMATCH", lambda: honest().with_profile(overhead_pct=99.0)),
    ("E_ORIGIN_MISMATCH", lambda: honest().with_profile(covers="decode")),
    ("E_ORIGIN_MISMATCH", lambda: honest(engine="command")),
    ("E_SAMPLE_COUNT", lambda: honest().with_profile(rate_hz=0)),
    ("E_DATES_CONTRADICT", lambda: at_once(honest())),
    ("E_DATES_CONTRADICT", lambda: at_once(without_ticks(long_run(honest())))),
    ("E_DATES_CONTRADICT", lambda: long_run(honest())),
    ("E_DATES_CONTRADICT", lambda: long_run(honest(), index=4)),
    ("E_DATES_CONTRADICT", lambda: honest().with_run(0, started_at="2025-10-03T12:00:00Z")),
    ("E_DATES_CONTRADICT", lambda: honest().with_run(2, started_ticks=90_000_000)),
    ("E_DATES_CONTRADICT", lambda: redated(honest(timed=6), step_s=20)),
    ("E_PROFILE_CHANGED", lambda: profile_of_another(honest())),
    ("E_PROFILE_MALFORMED", lambda: replace(honest(), folded=b"main (a.py);\xff 3\n").sealed()),
    ("E_PROFILE_MALFORMED", lambda: replace(honest(), folded=b"main (a.py) many\n").sealed()),
    ("E_SAMPLE_COUNT", lambda: honest().with_profile(samples=7)),
    ("E_SAMPLE_COUNT", lambda: process(honest(), samples=1)),
    ("E_HOTSPOT_MISMATCH", lambda: hotspot(honest(), self_samples=100_000)),
    ("E_HOTSPOT_MISMATCH", lambda: hotspot(honest(), self_samples=1)),
    ("E_HOTSPOT_MISMATCH", lambda: hotspot(honest(), name="i2s_gemv")),
    ("E_HOTSPOT_MISMATCH", lambda: hotspot(honest(), name="rms_norm")),
    ("E_HOTSPOT_MISMATCH", lambda: without_hottest(honest())),
    ("E_HOTSPOT_MISMATCH", lambda: hotspot(honest(), self_share=0.7, cpu_s_per_token=None)),
    ("E_HOTSPOT_MISMATCH", lambda: hotspot(honest(), inclusive_share=0.9)),
    ("E_HOTSPOT_MISMATCH", lambda: hotspot(honest(), cpu_s_per_token=0.0001)),
    ("E_HOTSPOT_MISMATCH", lambda: honest().with_evidence(metrics=())),
    ("E_SAMPLE_COUNT", lambda: moved_samples(honest())),
    ("E_PROFILE_PROCESS", lambda: honest().with_profile(nonce="ab" * 16)),
    ("E_METRIC_MISMATCH", lambda: metric(honest(), "quiet_s_per_token", value=0.99)),
    ("E_METRIC_MISMATCH", lambda: metric(honest(), "prefill_tokens_per_second", value=1.03)),
    ("E_METRIC_MISMATCH", lambda: metric(honest(), "load_ms", value=0.0)),
    (
        "E_METRIC_MISMATCH",
        lambda: metric(honest(), "tokens_per_second", direction="lower_is_better"),
    ),
    ("E_METRIC_MISMATCH", lambda: metric(honest(), "cpu_s_per_token", samples=300)),
    ("E_METRIC_MISMATCH", lambda: metric(honest(), "load_ms", name="tokens_per_second")),
    ("E_METRIC_MISMATCH", lambda: mute_run(honest())),
    ("E_KERNEL_UNSEEN", lambda: honest().with_receipt(kernels=("ternary_gemv", "i2s_gemv"))),
    ("E_KERNEL_UNSEEN", lambda: sighted(honest(), 0, count=0)),
    ("E_KERNEL_UNSEEN", lambda: sighted(honest(), 0, count=100_000)),
    (
        "E_KERNEL_UNSEEN",
        lambda: sighted(honest(), 0, name="i2s_gemv").with_receipt(
            kernels=("i2s_gemv", "rms_norm")
        ),
    ),
    ("E_PROFILE_PROCESS", lambda: process(honest(), pid=4000)),
    ("E_PROFILE_PROCESS", lambda: process(honest(), pid=99)),
    ("E_PROFILE_PROCESS", lambda: process(honest(), pid=4004)),
    ("E_PROFILE_PROCESS", lambda: process(honest(), pid=4004, started_ticks=None)),
    ("E_PROFILE_PROCESS", lambda: process(honest(), started_ticks=7)),
    ("E_PROFILE_PROCESS", lambda: process(honest(clock_scope="process"), pid=4000)),
    ("E_SAMPLE_COUNT", lambda: crowded(honest())),
    *gpu.FORGERIES,
]

SHORT: list[tuple[str, Callable[[], Bundle]]] = [
    ("W_ASLEEP", lambda: asleep(slow())),
    ("W_ASLEEP", lambda: asleep(slow(engine="openai"))),
    ("W_NO_TIMED_RUN", lambda: without_timed_times(honest())),
    ("W_DETERMINISM_NOT_SHOWN", one_sequence),
    *gpu.SHORT,
    ("W_MODEL_NOT_HASHED", lambda: _model_not_hashed()),
    ("W_NO_PROFILE", lambda: honest().with_evidence(profile=None)),
    ("W_KERNELS_FROM_ENGINE", lambda: on_engine_word(honest())),
    ("W_KERNELS_FROM_ENGINE", lambda: on_engine_word(honest(), "rms_norm")),
    ("W_TIME_UNACCOUNTED", lambda: unaccounted(honest())),
    ("W_METRIC_MISSING", lambda: first_metrics(honest(), 3)),
    ("W_RECIPE_INCOMPLETE", lambda: recipe(honest(clock_scope="process"), command=[])),
    ("W_WAITS_EXCEED_WALL", lambda: waiting(honest())),
    ("W_FEW_SAMPLES", lambda: honest().with_profile(rate_hz=10_000)),
    ("W_PROFILE_DEGRADED", lambda: honest().with_profile(degraded=("nonblocking",))),
]

HONEST: list[tuple[str, Callable[[], Bundle]]] = [
    ("embedded", honest),
    ("one token", lambda: honest(tokens=("52",))),
    ("a program", lambda: honest(engine="command", clock_scope="process")),
    ("a program of one token", lambda: honest(tokens=("52",), clock_scope="process")),
    ("slow", slow),
    ("a reference kernel slow on a busy machine", lambda: slow_reference(honest(blocks=6))),
    (
        "a program whose children are sampled",
        lambda: crowded(on_machine(bundle(clock_scope="process"), cpu_cores="16"), 8),
    ),
    ("rate rounded", lambda: edited_rate(honest(), 1.002)),
    ("the machine by name", lambda: on_machine(honest(), os="linux", arch="x86_64")),
    ("outside of a repository", lambda: honest().with_evidence(commit=None)),
    ("a wall clock that was set", lambda: clock_set(honest(), 200)),
    ("a wall clock that was set back", lambda: clock_set(honest(), -200)),
    ("two runs within one pair of ticks", lambda: honest(token_ns=1000, timed=12)),
    ("asleep for a moment", lambda: asleep(bundle(token_ns=500_000))),
    ("more threads than were counted", lambda: busy(bundle(), 1.9)),
    ("a program with children", lambda: busy(unknown_cores(bundle(clock_scope="process")), 7.0)),
    (
        "tokens that differ, and nothing claimed",
        lambda: (
            honest(deterministic=False)
            .with_evidence(differs_at=2)
            .with_run(1, token_digest=OTHER_SHA256)
        ),
    ),
    (
        "start times unknown",
        lambda: honest().with_run(0, started_ticks=None).with_run(1, started_ticks=None, pid=4000),
    ),
    ("a profile that does not say when", lambda: process(honest(), started_ticks=None)),
    ("a profiled run that does not say when", lambda: honest().with_run(4, started_ticks=None)),
    ("counts instead of samples", lambda: crowded(honest()).with_profile(rate_hz=0, event="Ir")),
    ("figures rounded to four digits", lambda: metric(honest(), "load_ms", value=1.00005)),
    ("a metric that was counted", lambda: counted(honest())),
    ("a profile from before its nonce was kept", lambda: honest().with_profile(nonce=None)),
    ("costs unknown", lambda: hotspot(honest(), cpu_s_per_token=None)),
    *gpu.HONEST,
]


def differing(at: int | None, other: str | None) -> Bundle:
    triple = honest().with_receipt(deterministic=False)
    return triple.with_evidence(differs_at=at, differs_to=other)


@pytest.mark.parametrize(
    ("at", "other"), [(2, "47"), (2, None), (4, "47"), (4, None), (None, None)]
)
def test_a_difference_that_can_be_is_believed(at: int | None, other: str | None) -> None:
    assert verify(differing(at, other)).refusals == ()


def recipe(triple: Bundle, **changes: Any) -> Bundle:
    return triple.with_evidence(workload={**triple.evidence.workload, **changes})


def unaccounted(triple: Bundle) -> Bundle:
    """Token times fill a third of their blocks."""
    for index, run in enumerate(triple.evidence.runs):
        blocks = tuple(
            replace(
                block,
                sequences_ns=tuple(tuple(gap // 3 for gap in gaps) for gaps in block.sequences_ns),
            )
            for block in run.blocks
        )
        triple = triple.with_run(index, blocks=blocks)
    return triple.recomputed()


def waiting(triple: Bundle) -> Bundle:
    """Every timed block of one thread waits three times as long as it took."""
    for index, run in enumerate(triple.evidence.runs):
        blocks = tuple(
            replace(
                block,
                interval=replace(block.interval, run_delay_ns=3 * block.interval.wall_ns),
            )
            for block in run.blocks
        )
        triple = triple.with_run(index, blocks=blocks)
    return triple.recomputed()


def of_size(triple: Bundle, size_bytes: int) -> Bundle:
    """The receipt alone names another size."""
    return triple.with_receipt(model={**triple.receipt.model, "size_bytes": size_bytes})


def on_machine(triple: Bundle, **facts: str) -> Bundle:
    return triple.with_evidence(machine={**triple.evidence.machine, **facts})


def on_python(triple: Bundle, version: str) -> Bundle:
    environment = {**triple.receipt.environment, "PYTHON_VERSION": "CPython 3.11.7"}
    return on_machine(triple.with_receipt(environment=environment), python=version)


def at_once(triple: Bundle) -> Bundle:
    """All runs are dated alike, by both clocks."""
    for index in range(len(triple.evidence.runs)):
        first = triple.evidence.runs[0]
        ticks, started_at = first.started_ticks, first.started_at
        triple = triple.with_run(index, started_ticks=ticks, started_at=started_at)
    return triple


def slow_reference(triple: Bundle) -> Bundle:
    """The reference kernel takes 0.6 s, once before, between and after the six blocks of a run.

    What ran between two blocks is counted with both: the sum is more than the run took.
    """
    timed = [run for run in triple.evidence.runs if run.role == "timed"]
    for index, run in enumerate(timed):
        blocks = tuple(
            replace(block, reference=Interval(1_200_000_000 + 100 * index + at, 1_000_000_000, 0))
            for at, block in enumerate(run.blocks)
        )
        before_s = 5 * (len(timed) - index)
        triple = triple.with_run(
            index,
            blocks=blocks,
            started_ticks=BOOT_TICKS - 100 * before_s,
            started_at=shifted(timed[0].started_at, -before_s),
        )
    return triple


def without_ticks(triple: Bundle) -> Bundle:
    for index in range(len(triple.evidence.runs)):
        triple = triple.with_run(index, started_ticks=None)
    return triple


def long_run(triple: Bundle, index: int = 0) -> Bundle:
    """A run that claims to have loaded for ten minutes."""
    return triple.with_run(index, load_ns=600 * 10**9).recomputed()


def redated(triple: Bundle, step_s: float) -> Bundle:
    """Each run is dated later than its ticks tell, by one step more each."""
    for index, run in enumerate(triple.evidence.runs):
        triple = triple.with_run(index, started_at=shifted(run.started_at, index * step_s - 200))
    return triple


def clock_set(triple: Bundle, by_s: float) -> Bundle:
    """The wall clock was set after the second run."""
    for index, run in enumerate(triple.evidence.runs[:2]):
        triple = triple.with_run(index, started_at=shifted(run.started_at, -by_s))
    return triple


def shifted(stamp: str, by_s: float) -> str:
    moved = datetime.fromisoformat(stamp) + timedelta(seconds=by_s)
    return moved.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def counted(triple: Bundle) -> Bundle:
    """A metric that no run can reproduce."""
    first = triple.evidence.metrics[0]
    more = replace(first, name="instructions_per_token", provenance="counted", value=7.0)
    return triple.with_evidence(metrics=(*triple.evidence.metrics, more))


def first_metrics(triple: Bundle, count: int) -> Bundle:
    return triple.with_evidence(metrics=triple.evidence.metrics[:count])


def _changed_after_sealing() -> Bundle:
    triple = bundle()
    return replace(triple, receipt=replace(triple.receipt, timestamp="2025-10-13T12:00:01Z"))


def _model_not_hashed() -> Bundle:
    path = {"path": "models/tiny.gguf"}
    return bundle().with_evidence(model_sha256=None, model=path).with_receipt(model=path)


def ids(cases: list[tuple[str, Callable[[], Bundle]]]) -> list[str]:
    return [f"{code}-{index}" for index, (code, _) in enumerate(cases)]


@pytest.mark.parametrize(("code", "make"), FORGERIES, ids=ids(FORGERIES))
def test_a_contradiction_is_refused(code: str, make: Callable[[], Bundle]) -> None:
    answer = verify(make())
    assert code in {refusal.code for refusal in answer.refusals}
    assert "E_INTERNAL" not in codes(answer)
    assert not answer.ok
    assert answer.grade is Grade.CONSISTENT


@pytest.mark.parametrize(("code", "make"), SHORT, ids=ids(SHORT))
def test_what_was_not_observed_lowers_the_grade_and_refuses_nothing(
    code: str, make: Callable[[], Bundle]
) -> None:
    answer = verify(make())
    rule = next(rule for rule in SHORTFALLS if rule.code == code)
    assert code in {notice.code for notice in answer.warnings}
    assert answer.refusals == ()
    assert answer.grade is (Grade.OBSERVED if rule.protects is None else Grade.CONSISTENT)


@pytest.mark.parametrize(("name", "make"), HONEST, ids=[name for name, _ in HONEST])
def test_honest_evidence_reaches_observed(name: str, make: Callable[[], Bundle]) -> None:
    answer = verify(make(), require_grade=Grade.OBSERVED)
    assert answer.refusals == ()
    assert answer.grade is Grade.OBSERVED


def test_every_rule_has_its_own_code_and_its_words() -> None:
    every = [*CHECKS, *SHORTFALLS]
    assert len({rule.sentence for rule in every}) == len(every)
    for rule in every:
        assert rule.code.startswith("W_" if rule in tuple(SHORTFALLS) else "E_")
        assert rule.sentence.endswith(".")
        assert rule.remedy.endswith(".")


def test_both_rates_are_named() -> None:
    triple = edited_rate(honest(), 10)
    message = next(r.message for r in verify(triple).refusals if r.code == "E_TPS_MISMATCH")
    assert f"{triple.receipt.tokens_per_second:.1f} tok/s claimed" in message
    assert f"{honest().receipt.tokens_per_second:.1f} from the token times" in message


def test_an_unseen_kernel_is_told_with_what_the_profile_shows() -> None:
    answer = verify(honest().with_receipt(kernels=("ternary_gemv", "i2s_gemv")))
    message = next(r.message for r in answer.refusals if r.code == "E_KERNEL_UNSEEN")
    assert '"i2s_gemv" is claimed' in message
    assert "400 samples" in message
    assert 'the profile shows "ternary_gemv"' in message


def test_a_semicolon_in_a_frame_makes_no_kernel() -> None:
    """A frame that py-spy wrote as ``evil;ternary_gemv`` must not count as a sighting."""
    triple = honest()
    folded = triple.folded.replace(b";ternary_gemv (kernels.py)", b";evil (x.py) ternary_gemv")
    answer = verify(replace(triple, folded=folded).sealed())
    assert "E_PROFILE_MALFORMED" in codes(answer)
    assert "E_KERNEL_UNSEEN" in codes(answer)


def test_profile_left_out_lowers_the_grade_only() -> None:
    files = honest().files
    answer = verify_receipt(files["receipt.json"], evidence=files["evidence.json"], now=NOW)
    assert answer.ok
    assert answer.grade is Grade.CONSISTENT
    assert codes(answer) == {"W_NO_PROFILE"}


def test_a_decode_covers_what_came_after_its_first_look() -> None:
    triple = honest(clock_scope="process")
    assert "E_CLOCK_CONTRADICTION" not in codes(verify(decoding(triple, 2)))
    assert "E_CLOCK_CONTRADICTION" in codes(verify(decoding(triple, 3)))
