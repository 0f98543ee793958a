"""Figures and kernels that are made of what engines say of themselves."""

import math
from dataclasses import replace

import pytest

from pytest_flamegate.engines.figures import Report
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.receipt.formulas import meaning_of
from pytest_flamegate.receipt.metrics import value_of
from pytest_flamegate.receipt.policies import policy_for
from pytest_flamegate.receipt.reported import (
    FIGURES,
    claimed_kernels,
    engine_kernels,
    engine_metrics,
    observed_as,
    of_engine,
    source_of,
)
from pytest_flamegate.receipt.types import KernelSighting, Metric
from tests.made import bundle

RUN = bundle().evidence.runs[0]
"""A timed run of four tokens a sequence."""
SIGHTINGS = [
    KernelSighting("i2s_gemv", "engine", 5, "log"),
    KernelSighting("cuda_gemm_fp16", "engine", 5, "log"),
    KernelSighting("cuda_sync", "engine", 5, "log"),
    KernelSighting("mock_gemv", "engine", 5, "log"),
    KernelSighting("rms_norm", "profile", 5),
]


def runs(*reports: Report) -> list[Run]:
    """One timed run for each report."""
    return [replace(RUN, reported=(report,)) for report in reports]


def told(*values: float, name: str = "decode_ms", source: str = "log") -> list[Run]:
    return runs(*(Report(source, {name: value}) for value in values))


def named(found: tuple[Metric, ...]) -> dict[str, Metric]:
    return {metric.name: metric for metric in found}


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_becomes_a_metric_of_its_own(name: str) -> None:
    (metric,) = engine_metrics(told(3.0, 1.0, 8.0, name=name))
    assert metric.value == 3.0
    assert metric.name == f"engine_{name}"
    assert metric.formula == f"log:{name}/median"
    assert (metric.unit, metric.direction) == FIGURES[name]
    assert (metric.clock, metric.samples, metric.provenance) == ("wall", 3, "ingested")
    assert of_engine(metric)
    assert meaning_of(metric.formula) is not None or metric.unit == "tokens"
    assert source_of(metric) == "log"


def test_three_sequences_are_enough() -> None:
    assert engine_metrics(told(1.0, 2.0)) == ()
    sequences = tuple(Report("log", {"decode_ms": value}) for value in (1.0, 2.0, 4.0, 100.0))
    (metric,) = engine_metrics([replace(RUN, reported=sequences)])
    assert (metric.value, metric.samples) == (3.0, 4)


def test_figures_of_two_sources_stand_apart() -> None:
    found = engine_metrics([*told(1.0, 2.0, 3.0, source="b"), *told(5.0, 6.0, 7.0, source="a")])
    assert [(metric.formula, metric.value) for metric in found] == [
        ("a:decode_ms/median", 6.0),
        ("b:decode_ms/median", 2.0),
    ]
    assert engine_metrics([*told(1.0, 2.0, source="b"), *told(5.0, 6.0, source="a")]) == ()


def test_a_rate_of_nothing_is_no_rate_and_a_time_of_nothing_is_a_time() -> None:
    assert engine_metrics(told(0.0, 0.0, 0.0, name="tokens_per_second")) == ()
    (metric,) = engine_metrics(told(0.0, 0.0, 0.0, name="sample_us"))
    assert metric.value == 0.0


@pytest.mark.parametrize(
    ("tokens", "formula"),
    [
        (4, "log:n/decode-time/median"),
        (3, "log:(n-1)/decode-time/median"),
        (5, "log:(n+1)/decode-time/median"),
        (9, "log:predicted-tokens/decode-time/median"),
    ],
)
def test_a_rate_is_derived_and_its_formula_tells_of_how_many_tokens(
    tokens: float, formula: str
) -> None:
    report = Report("log", {"tokens": tokens, "decode_ms": 2.0})
    metric = named(engine_metrics(runs(report, report, report)))["engine_decode_tokens_per_second"]
    assert metric.value == 500.0 * tokens
    assert (metric.formula, metric.provenance) == (formula, "derived")
    assert meaning_of(metric.formula) is not None


def test_counts_of_two_kinds_have_a_formula_that_is_true_of_both() -> None:
    one, other = (Report("log", {"tokens": n, "decode_ms": 2.0}) for n in (3, 4))
    metric = named(engine_metrics(runs(one, other, one)))["engine_decode_tokens_per_second"]
    assert metric.formula == "log:predicted-tokens/decode-time/median"


def test_the_prompt_has_a_rate_too_unless_the_engine_reports_one() -> None:
    figures = {"prompt_tokens": 6.0, "prefill_ms": 3.0}
    for stated, value, provenance in (
        ({}, 2000.0, "derived"),
        ({"prefill_tokens_per_second": 1990.0}, 1990.0, "ingested"),
    ):
        report = Report("log", {**figures, **stated})
        metric = named(engine_metrics(runs(*3 * [report])))["engine_prefill_tokens_per_second"]
        assert (metric.value, metric.provenance) == (value, provenance)


@pytest.mark.parametrize("spent_ms", [0.0, 5e-324])
def test_no_time_gives_no_rate(spent_ms: float) -> None:
    found = engine_metrics(runs(*3 * [Report("log", {"tokens": 4.0, "decode_ms": spent_ms})]))
    assert "engine_decode_tokens_per_second" not in named(found)
    assert all(math.isfinite(metric.value) for metric in found)


def test_figures_stand_behind_those_of_the_observer() -> None:
    triple = bundle().with_reports(counted=-1)
    names = [metric.name for metric in triple.evidence.metrics]
    own = [of_engine(metric) for metric in triple.evidence.metrics]
    assert own == sorted(own)
    assert names[0] == "tokens_per_second"
    rate = named(triple.evidence.metrics)["engine_decode_tokens_per_second"]
    assert rate.formula == "llama.cpp:perf:(n-1)/decode-time/median"
    beside = observed_as(rate, triple.evidence.metrics)
    assert beside is not None
    assert beside.value == value_of(triple.evidence.metrics, "decode_tokens_per_second")
    assert rate.value == pytest.approx(beside.value, rel=0.02)


def test_kernels_are_counted_over_all_runs_by_their_source() -> None:
    reports = [
        Report("a", {}, {"ROPE": 2, "MUL_MAT": 9, "NEVER": 0}),
        Report("a", {}, {"MUL_MAT": 1, "rms_norm": 4}),
        Report("b", {}, {"ROPE": 1}),
    ]
    assert engine_kernels(runs(*reports), {"rms_norm"}) == (
        KernelSighting("MUL_MAT", "engine", 10, "a"),
        KernelSighting("ROPE", "engine", 2, "a"),
        KernelSighting("ROPE", "engine", 1, "b"),
    )
    many = {f"k{number}": number for number in range(1, 100)}
    found = engine_kernels(runs(Report("a", {}, many)), ())
    assert (len(found), found[0].name) == (64, "k99")
    for name in ("gemv\u202e", " gemv", "g\nv", "漢" * 50, "x" * 129):  # no names
        assert engine_kernels(runs(Report("a", {}, {name: 2})), ()) == ()


@pytest.mark.parametrize(
    ("named_by_profile", "backend", "claimed"),
    [
        (True, "cpu", ("rms_norm", "mock_gemv")),
        (False, "cpu", ("rms_norm", "i2s_gemv", "mock_gemv")),
        (True, "cuda", ("rms_norm", "cuda_gemm_fp16", "mock_gemv")),
        (False, "cuda", ("rms_norm", "i2s_gemv", "cuda_gemm_fp16", "cuda_sync", "mock_gemv")),
    ],
)
def test_what_is_claimed_by_the_engines_word(
    named_by_profile: bool, backend: str, claimed: tuple[str, ...]
) -> None:
    found = claimed_kernels(
        SIGHTINGS,
        named_by_profile=named_by_profile,
        backend=backend,  # type: ignore[arg-type]
        policy=policy_for("generic"),
    )
    assert found == claimed


def test_where_the_profile_shows_nothing_of_the_engines_policy_its_word_is_claimed() -> None:
    """Else a receipt of a real engine would be refused, because its profiler sees Python alone."""
    told = KernelSighting("MUL_MAT", "engine", 9, "cb_eval")
    for seen, claimed in (("ggml_vec_dot_q4_1_q8_1", ()), ("attention", ("MUL_MAT",))):
        found = claimed_kernels(
            [KernelSighting(seen, "profile", 5), told],
            named_by_profile=True,
            backend="cpu",
            policy=policy_for("ggml"),
        )
        assert found == (seen, *claimed)
