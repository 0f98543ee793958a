"""The hottest frames, and the findings of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flamegate.receipt.types import Evidence, Metric
from pytest_flamegate.report.markdown import render_section
from pytest_flamegate.report.run_report import (
    category_shares,
    finding_section,
    hotspot_section,
    rank_by_self_share,
)
from pytest_flamegate.report.sections import Items, Table, cell_text, join_line
from tests.report import factory


def find(evidence: Evidence, words: str = "") -> list[str]:
    blocks = finding_section(evidence).blocks
    lines = [line for block in blocks if isinstance(block, Items) for line in block.lines]
    shown = [join_line(line, str, str) for line in lines]
    return [line for line in shown if words in line]


def with_metric(evidence: Evidence, name: str, value: float) -> Evidence:
    changed = tuple(
        replace(metric, value=value) if metric.name == name else metric
        for metric in evidence.metrics
    )
    assert changed != evidence.metrics
    return replace(evidence, metrics=changed)


def test_the_table_has_the_frames_that_spend_time_themselves() -> None:
    tables = [b for b in hotspot_section(factory.evidence(), None).blocks if isinstance(b, Table)]
    rows = [[cell_text(cell) for cell in row] for row in tables[0].rows]
    assert rows[0] == [
        "1", "ternary_gemv", "kernels.py", "matmul", "940", "71.6 %", "71.6 %", "1,383",
    ]  # fmt: skip
    assert [row[1] for row in rows[4:]] == ["decode_step", "memmove"]


def test_a_long_profile_shows_twenty_frames_and_counts_the_rest() -> None:
    many = tuple(
        replace(factory.hotspots()[0], name=f"f{i:02}", self_samples=99 - i) for i in range(23)
    )
    shown = render_section(hotspot_section(factory.evidence(records=many), None))
    assert shown.count("| `f") == 20
    assert "3 further frames in evidence.json." in shown


def test_ranking_breaks_ties_by_inclusive_share_then_name() -> None:
    names = [each.name for each in rank_by_self_share(factory.hotspots()[::-1])]
    assert names[:3] == ["ternary_gemv", "quantize", "softmax"]
    assert names[-4:] == ["main", "generate", "swiglu_ffn", "attention"]


def test_the_first_finding_covers_the_hottest_three() -> None:
    assert find(factory.evidence())[0] == (
        "ternary_gemv, quantize and softmax cover 91.9 % of all samples; "
        "everything else together is 8.1 %."
    )
    only = factory.hotspots()[:1]
    assert find(factory.evidence(records=only))[0].startswith("ternary_gemv covers 71.6 %")


def test_categories_add_up_their_frames() -> None:
    one, two = factory.hotspots()[:2]
    both = (one, replace(two, category="matmul"))
    assert category_shares(both) == {"matmul": pytest.approx(1150 / 1312)}


@pytest.mark.parametrize(("tail_ms", "is_long"), [(4.48, True), (2.0, False)])
def test_a_long_tail_of_gaps(tail_ms: float, is_long: bool) -> None:
    evidence = with_metric(factory.evidence(), "inter_token_latency_p95_ms", tail_ms)
    found = find(evidence, "is 2.3 times the median or more (4.48 ms against 1.95 ms)")
    assert bool(found) is is_long


@pytest.mark.parametrize(("cpu_s", "is_off"), [(1.16e-3, True), (2.32e-3, False)])
def test_time_off_the_cpu(cpu_s: float, is_off: bool) -> None:
    evidence = with_metric(factory.evidence(), "cpu_s_per_token", cpu_s)
    assert bool(find(evidence, "of the quiet time was not spent on a CPU")) is is_off


def test_findings_that_depend_on_the_run() -> None:
    evidence = factory.evidence()
    assert find(evidence, "Some process waited for a CPU 84 % of the time")
    quiet = tuple(replace(run, cpu_pressure_pct=3.0) for run in evidence.runs)
    assert not find(replace(evidence, runs=quiet), "waited for a CPU")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"completeness": 0.8}, "Only 80.0 % of the stacks"),
        ({"overhead_pct": 36.0}, "Profiling cost 36 % more CPU"),
    ],
)
def test_a_poor_profile_is_a_finding(change: dict[str, float], words: str) -> None:
    record = replace(factory.profile_record(), **change)  # type: ignore[arg-type]
    assert find(replace(factory.evidence(), profile=record), words)
    assert not find(factory.evidence(), words)


def test_missing_figures_and_zeros_are_no_finding() -> None:
    bare = replace(factory.evidence(with_profile=False), runs=())
    zeros = tuple(
        Metric(m.name, 0.0, m.formula, m.unit, m.direction, m.clock, m.samples, m.provenance)
        for m in bare.metrics
    )
    assert find(replace(bare, metrics=())) == []
    assert find(replace(bare, metrics=zeros)) == []
