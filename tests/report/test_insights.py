from __future__ import annotations

import dataclasses

import pytest

from pytest_flamegate.receipt.types import Evidence, Metric
from pytest_flamegate.report.sections import (
    by_self_share,
    category_shares,
    insights,
    samples_for_shift,
)
from tests.report import factory


def with_metric(evidence: Evidence, name: str, value: float) -> Evidence:
    changed = tuple(
        dataclasses.replace(metric, value=value) if metric.name == name else metric
        for metric in evidence.metrics
    )
    assert changed != evidence.metrics
    return dataclasses.replace(evidence, metrics=changed)


def said(evidence: Evidence, words: str) -> list[str]:
    return [each for each in insights(evidence) if words in each]


def test_the_hottest_three_and_what_is_left() -> None:
    assert insights(factory.evidence())[0] == (
        "`ternary_gemv`, `quantize` and `softmax` cover 91.9 % of all samples; "
        "everything else together is 8.1 %."
    )


def test_one_frame_alone() -> None:
    only = factory.hotspots()[:1]
    assert insights(factory.evidence(records=only))[0].startswith("`ternary_gemv` covers 71.6 %")


def test_categories_add_up_their_frames() -> None:
    one, two = factory.hotspots()[:2]
    both = (one, dataclasses.replace(two, category="matmul"))
    assert category_shares(both) == {"matmul": pytest.approx(1150 / 1312)}
    assert "By category: `matmul` 87.7 %." in insights(factory.evidence(records=both))


def test_python_frames_and_what_they_cost() -> None:
    assert said(factory.evidence(), "takes 2.5 % of the samples, 48.5 µs/token.")
    assert not said(factory.evidence(records=factory.hotspots()[:3]), "Python code")


@pytest.mark.parametrize(
    ("share", "samples"), [(0.5, 22_271), (0.716, 18_114), (0.05, 4_231), (0.0, 0), (1.0, 0)]
)
def test_samples_for_a_shift_of_two_points(share: float, samples: int) -> None:
    # 2 p (1 - p) (2.576 + 1.645)² / 0.02²
    assert samples_for_shift(share) == pytest.approx(samples, rel=2e-3)


def test_more_samples_are_needed_for_a_smaller_shift() -> None:
    assert samples_for_shift(0.5, 0.01) == pytest.approx(4 * samples_for_shift(0.5), rel=1e-4)


def test_the_samples_asked_for_stand_beside_those_there_are() -> None:
    assert said(factory.evidence(), "about 18,097 samples on each side")
    assert said(factory.evidence(), "this profile holds 1,312.")


@pytest.mark.parametrize(("tail_ms", "told"), [(4.48, True), (2.0, False)])
def test_a_long_tail_of_gaps(tail_ms: float, told: bool) -> None:
    evidence = with_metric(factory.evidence(), "inter_token_latency_p95_ms", tail_ms)
    assert bool(said(evidence, "is 2.3 times the median or more (4.48 ms against 1.95 ms)")) is told
    assert bool(said(evidence, "pauses the decode")) is told


def test_the_first_token_against_the_others() -> None:
    assert said(factory.evidence(), "takes 5.85 ms, 3.0 times as long")
    process = dataclasses.replace(factory.evidence(), clock_scope="process")
    assert not said(process, "first token")


@pytest.mark.parametrize(("cpu_s", "told"), [(1.16e-3, True), (2.32e-3, False)])
def test_time_off_the_cpu(cpu_s: float, told: bool) -> None:
    evidence = with_metric(factory.evidence(), "cpu_s_per_token", cpu_s)
    assert bool(said(evidence, "of the quiet time was not spent on a CPU")) is told


def test_contention_is_said_where_it_was() -> None:
    assert said(factory.evidence(), "Something waited for a CPU 84 % of the time")
    quiet = dataclasses.replace(
        factory.evidence(),
        runs=tuple(
            dataclasses.replace(run, cpu_pressure_pct=3.0) for run in factory.evidence().runs
        ),
    )
    assert not said(quiet, "waited for a CPU")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"completeness": 0.8}, "Only 80.0 % of the stacks"),
        ({"overhead_pct": 36.0}, "Profiling cost 36 % more CPU"),
    ],
)
def test_a_poor_profile_is_called_one(change: dict[str, float], words: str) -> None:
    record = dataclasses.replace(factory.profile_record(), **change)  # type: ignore[arg-type]
    assert said(dataclasses.replace(factory.evidence(), profile=record), words)
    assert not said(factory.evidence(), words)


def test_nothing_is_said_of_what_is_not_there() -> None:
    bare = dataclasses.replace(factory.evidence(with_profile=False), metrics=(), runs=())
    assert insights(bare) == []


def test_a_zero_figure_is_not_divided_by() -> None:
    zeroed = tuple(
        Metric(m.name, 0.0, m.formula, m.unit, m.direction, m.clock, m.samples, m.provenance)
        for m in factory.evidence().metrics
    )
    evidence = dataclasses.replace(factory.evidence(with_profile=False), metrics=zeroed, runs=())
    assert insights(evidence) == []


def test_ranking_breaks_ties_by_inclusive_share_then_name() -> None:
    names = [each.name for each in by_self_share(factory.hotspots()[::-1])]
    assert names[:3] == ["ternary_gemv", "quantize", "softmax"]
    assert names[-4:] == ["main", "generate", "swiglu_ffn", "attention"]
