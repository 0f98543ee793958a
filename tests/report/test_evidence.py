"""The sections of the evidence: measured figures, the engine's own, kernel benchmarks."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from pytest_flamegate.observe.build import Program
from pytest_flamegate.receipt.metrics import kernel_rates
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report.evidence import (
    engine_lines,
    engine_section,
    kernel_line,
    metric_section,
    metric_value,
    proof_section,
    run_section,
    speed_cells,
)
from pytest_flamegate.report.sections import Section, Table, cell_text
from tests.made import bundle
from tests.receipt.test_metrics import RATE, RECIPE
from tests.report import factory

REPORTING = bundle().with_reports(kernels={"MUL_MAT": 9}, sample_us=12.0)
SILENT = bundle()


def rows(section: Section) -> list[list[str]]:
    tables = [block for block in section.blocks if isinstance(block, Table)]
    return [[cell_text(cell) for cell in row] for table in tables for row in table.rows]


EVIDENCE, RECEIPT = factory.evidence(), factory.receipt()


def test_everything_needed_to_believe_it_is_there() -> None:
    found = rows(run_section(EVIDENCE, RECEIPT)) + rows(
        proof_section(EVIDENCE, RECEIPT, "OBSERVED")
    )
    for row in (
        ("generated", "2026-01-02T03:04:06Z"),
        ("commit", f"4f2c91a{'0' * 33} on main, 2 uncommitted files"),
        ("model path", "models/tiny.gguf"),
        ("model sha256", "c" * 64),
        ("workload prompt", "What is 2+2?"),
        ("tokens", "10 generated of 10 requested"),
        ("machine cpu model", "AMD EPYC 7B13"),
        ("build", "cargo build --release"),
        ("OMP_NUM_THREADS", "1", "1"),
        ("event", "wall-clock at 100 Hz"),
        ("complete stacks", "99.9 %"),
        ("overhead", "1.8 % CPU"),
        ("degraded", "ptrace is denied: sampled without stopping the process"),
        ("grade", "OBSERVED"),
        ("kernels seen", "ternary_gemv (profile, 940)"),
    ):
        assert list(row) in found


def test_the_gated_clock_comes_first_with_unit_formula_and_clock() -> None:
    found = rows(metric_section(EVIDENCE))
    assert found[0] == [
        "quiet time for each token", "2.33 ms", "quiet-time/tokens", "quiet", "3", "measured",
    ]  # fmt: skip
    assert [
        "time to first token (TTFT)", "5.85 ms", "first-token-request", "wall", "12", "measured",
    ] in found  # fmt: skip


def test_the_program_and_the_engine_are_named() -> None:
    program = Program("target/release/bitnet", "ab" * 32, 1234, inside=True)
    evidence = replace(EVIDENCE, program=program, engine={"library": "llama.cpp b1"})
    shown = f"target/release/bitnet · sha256 {'ab' * 32} · 1,234 bytes"
    found = rows(run_section(evidence, RECEIPT))
    assert ["program", shown] in found
    assert ["engine's library", "llama.cpp b1"] in found


@pytest.mark.parametrize(
    ("unit", "tokens", "shown"),
    [
        ("byte", ("52", "226", "130", "172"), "4€"),
        ("byte", ("52", "255"), "4\ufffd"),
        ("word", ("52", " is"), "52 is"),
        ("word", (), "–"),
    ],
)
def test_the_output_is_text(unit: str, tokens: tuple[str, ...], shown: str) -> None:
    evidence = replace(EVIDENCE, tokens=tokens, token_source=f"yielded:{unit}")
    assert ["output", shown] in rows(run_section(evidence, RECEIPT))


# The engine's own figures


def test_each_reported_figure_has_the_measured_one_next_to_it() -> None:
    metrics = {metric.name: metric for metric in REPORTING.evidence.metrics}
    found = {row[0]: row[1:] for row in rows(engine_section(REPORTING.evidence))}
    assert found["decode rate"] == [
        "llama.cpp:perf",
        metric_value(metrics["engine_decode_tokens_per_second"]),
        metric_value(metrics["decode_tokens_per_second"]),
        "engine: tokens but the first ÷ the engine's decode time; "
        "observer: 1 ÷ the median time per output token",
    ]
    assert found["tokens generated"][1:] == ["3 tokens", "–", ""]
    assert len(found) + len(rows(metric_section(REPORTING.evidence))) == len(metrics)


def test_of_very_many_figures_the_first_are_shown_and_the_rest_counted() -> None:
    triple = SILENT
    for number in range(30):
        triple = triple.with_reports(f"source-{number}")
    found = rows(engine_section(triple.evidence))
    reported = len(triple.evidence.metrics) - len(rows(metric_section(triple.evidence)))
    assert len(found) < 100 < reported
    assert found[-1][0] == f"{reported - len(found) + 1} more, in evidence.json"


def test_kernels_in_no_profile_are_named() -> None:
    claimed = replace(REPORTING.receipt, kernels=(*REPORTING.receipt.kernels, *map(str, range(6))))
    rate, kernels = engine_lines(REPORTING.evidence, claimed)
    assert rate.startswith("reported by the engine (llama.cpp:perf, not gated): ")
    assert ", observed " in rate
    assert kernels == "kernels that only the engine reports, in no profile: 0, 1, 2, 3 and 2 more"


# Kernel benchmarks


def benchmarked(**more: object) -> Evidence:
    recipe = {**RECIPE, **more}
    cost = replace(RATE, name="quiet_s_per_token", value=0.0005, unit="s")
    metrics = (RATE, cost, *kernel_rates(recipe, [RATE]))
    return replace(EVIDENCE, workload=MappingProxyType(recipe), metrics=metrics)


def test_the_line_of_a_benchmark_names_every_declared_rate() -> None:
    line = "100 k calls/s · 51.2 M elements/s · 410 MB/s · 0.102 GFLOP/s · 50 calls a round"
    assert kernel_line(benchmarked()) == line
    setup = "its setup is measured with each call"
    assert kernel_line(benchmarked(setup="measured with each call")) == f"{line} · {setup}"


def test_the_table_shows_the_calls_of_a_benchmark_and_not_its_rounds() -> None:
    assert speed_cells(None, benchmarked()) == ("10.0 µs/call", "100,000 calls")
    assert speed_cells(None, EVIDENCE) == ("2.33 ms/tok", "429")
    assert kernel_line(EVIDENCE) is None


@pytest.mark.parametrize("calls", [None, "50", 0, -1, 1.5])
def test_a_file_that_was_never_verified_is_shown_without_its_calls(calls: object) -> None:
    found = benchmarked()
    odd = replace(found, workload=MappingProxyType({**found.workload, "calls": calls}))
    assert speed_cells(RECEIPT, odd) == ("500 µs/tok", "427")
    unnamed = tuple(replace(metric, unit="") for metric in found.metrics)
    assert kernel_line(replace(odd, metrics=unnamed)) is not None
