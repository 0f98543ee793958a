"""The report on one run: its frames, its evidence; and variants next to each other."""

from types import MappingProxyType

import pytest

from pytest_flamegate.core.json import replace
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
)
from pytest_flamegate.report.flame import category_shares
from pytest_flamegate.report.markdown import render_section, step_summary
from pytest_flamegate.report.run_report import RunReport, hotspot_section, variant_sections
from pytest_flamegate.report.sections import Items, Section, Table, cell_text, join_line
from pytest_flamegate.report.terminal import summary
from tests.made import MODEL_SHA256, bundle
from tests.receipt.test_metrics import RATE, RECIPE
from tests.report import factory, verdicts

EVIDENCE = factory.evidence()


def tables(section: Section) -> list[list[list[str]]]:
    found = [block for block in section.blocks if isinstance(block, Table)]
    return [[list(map(cell_text, row)) for row in table.rows] for table in found]


def sentences(section: Section) -> list[str]:
    lines = [line for block in section.blocks if isinstance(block, Items) for line in block.lines]
    return [join_line(line, str, str) for line in lines]


def test_the_table_has_the_frames_that_spend_time_themselves() -> None:
    (rows,) = tables(hotspot_section(EVIDENCE, None))
    assert rows[0] == [
        "1", "ternary_gemv", "kernels.py", "matmul", "940", "71.6 %", "71.6 %", "1,383",
    ]  # fmt: skip
    assert [row[1] for row in rows[4:]] == ["decode_step", "memmove"]
    many = tuple(
        replace(factory.hotspots()[0], name=f"f{i:02}", self_samples=99 - i) for i in range(23)
    )
    shown = render_section(hotspot_section(factory.evidence(records=many), None))
    assert shown.count("| `f") == 20
    assert "3 further frames in evidence.json." in shown


def test_categories_add_the_self_shares_of_their_functions() -> None:
    one, two = factory.hotspots()[:2]
    both = (one, replace(two, category="matmul"))
    assert category_shares(both) == {"matmul": pytest.approx(1150 / 1312)}


# Variants


def outcome(variant: str, evidence: Evidence | None, family: str = "decode") -> RunReport:
    receipt = factory.receipt() if evidence is not None else None
    name, verdict = f"{family}[{variant}]", replace(verdicts.no_baseline(), signals=())
    return RunReport(name, verdict, "", receipt, evidence, family=family, variant=variant)


def workload(**changes: object) -> MappingProxyType[str, object]:
    return MappingProxyType({**factory.WORKLOAD, **changes})


FAST = factory.evidence(workload=workload(name="decode[i2s]"))
SLOW = factory.evidence(slow=2.0, workload=workload(name="decode[qk256]"))
BOTH = (outcome("i2s", FAST), outcome("qk256", SLOW))


def compare(*rows: RunReport) -> list[list[list[str]]]:
    (section,) = variant_sections(rows)
    return tables(section)


def test_speed_kinds_and_functions_in_three_tables() -> None:
    speed, kinds, functions = compare(*BOTH[::-1], outcome("broken", None))
    assert [row[:4] for row in speed] == [
        ["qk256", "4.66 ms/tok", "215", "50.0 %"],
        ["i2s", "2.33 ms/tok", "429", "100.0 %"],
        ["broken", "–", "–", "–"],
    ]
    assert speed[0][4] == "ternary_gemv 71.6 %, quantize 16.0 %, softmax 4.3 %"
    assert kinds[0] == ["matmul", "71.6 %", "71.6 %", "–"]
    assert functions[0] == ["ternary_gemv", "1,383", "1,383", "–"]


def test_functions_of_all_variants_by_their_largest_cost() -> None:
    records = factory.hotspots("q_")
    doubled = (replace(records[0], cpu_s_per_token=2e-3), *records[1:])
    other = outcome("b", factory.evidence(records=doubled))
    unprofiled = outcome("c", factory.evidence(profile=None))
    speed, kinds, functions = compare(BOTH[0], other, unprofiled)
    assert functions[:2] == [
        ["q_ternary_gemv", "0", "2,000", "–"], ["ternary_gemv", "1,383", "0", "–"],
    ]  # fmt: skip
    assert len(functions) == 10
    assert kinds[0][-1] == speed[-1][-1] == "–"


def test_the_summary_page_of_a_job_and_of_a_terminal() -> None:
    page = step_summary(BOTH)
    assert "### Variants of decode" in page
    assert "| variant | quiet clock | tokens/s | of fastest | hottest |" in page
    assert "| `ternary_gemv` | 1,383 | 1,383 |" in page
    assert variant_sections(BOTH[:1]) == variant_sections([BOTH[0], outcome("a", SLOW, "o")]) == []
    sections = variant_sections([*BOTH, outcome("a", FAST, "o"), outcome("b", SLOW, "o")])
    assert [section.title for section in sections] == ["Variants of decode", "Variants of o"]
    for width in (80, 300):
        lines = summary(BOTH, width=width)
        assert max(map(len, lines[lines.index("Variants of decode") :])) <= width


# The evidence


REPORTING = bundle().with_reports(kernels={"MUL_MAT": 9}, sample_us=12.0)
SILENT = bundle()


def rows(section: Section) -> list[list[str]]:
    return [row for table in tables(section) for row in table]


RECEIPT = factory.receipt()


def test_everything_needed_to_believe_it_is_there() -> None:
    program = Program("target/release/bitnet", "ab" * 32, 1234, inside=True)
    evidence = replace(EVIDENCE, program=program, engine={"library": "llama.cpp b1"})
    found = [
        *rows(run_section(evidence, RECEIPT)),
        *rows(proof_section(EVIDENCE, RECEIPT, "OBSERVED")),
        *rows(metric_section(EVIDENCE)),
    ]
    for row in (
        ("generated", "2025-10-13T12:00:00Z"),
        ("commit", f"{factory.COMMIT.revision} on main, 2 uncommitted files"),
        ("model path", "models/tiny.gguf"),
        ("model sha256", MODEL_SHA256),
        ("workload prompt", "What is 2+2?"),
        ("tokens", "10 generated of 10 requested"),
        ("machine cpu model", "AMD EPYC"),
        ("build", "cargo build --release"),
        ("program", f"target/release/bitnet · sha256 {'ab' * 32} · 1,234 bytes"),
        ("engine's library", "llama.cpp b1"),
        ("OPENBLAS_NUM_THREADS", "1", "1"),
        ("event", "wall at 100 Hz"),
        ("complete stacks", "99.9 %"),
        ("overhead", "1.8 % CPU"),
        ("degraded", "ptrace is denied: sampled without stopping the process"),
        ("grade", "OBSERVED"),
        ("kernels seen", "ternary_gemv (profile, 940)"),
        ("time to first token (TTFT)", "5.85 ms", "first-token-request", "wall", "12", "measured"),
    ):
        assert list(row) in found
    # The gated clock comes first, with its unit, formula and clock.
    assert rows(metric_section(EVIDENCE))[0] == [
        "quiet time for each token, median of processes", "2.33 ms", "quiet-time/tokens", "quiet",
        "3", "measured",
    ]  # fmt: skip


def test_the_output_is_text() -> None:
    for unit, tokens, shown in (
        ("byte", ("52", "226", "130", "172"), "4€"),
        ("byte", ("52", "255"), "4\ufffd"),
        ("word", ("52", " is"), "52 is"),
        ("word", (), "–"),
    ):
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
    assert "clock)" not in rate
    metrics = [
        replace(each, clock="quiet") if each.name == "decode_tokens_per_second" else each
        for each in REPORTING.evidence.metrics
    ]
    shared = replace(REPORTING.evidence, metrics=tuple(metrics))
    rate, _ = engine_lines(shared, claimed)
    assert " tokens/s (wall clock), observed " in rate
    assert " tokens/s (quiet clock)" in rate
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
    assert kernel_line(EVIDENCE) is None
    benchmark, unjudged = (RunReport("", None, evidence=each) for each in (benchmarked(), EVIDENCE))
    assert benchmark.speed_cells == ("10.0 µs/call", "100,000 calls")
    assert unjudged.speed_cells == ("2.33 ms/tok", "429")
    # The rate of a verdict is the mean of the processes: both are never shown side by side.
    assert replace(unjudged, verdict=verdicts.regressed()).speed_cells[0] == "2.06 ms/tok"
    setup = "its setup is measured with each call"
    assert kernel_line(benchmarked(setup="measured with each call")) == f"{line} · {setup}"


def test_a_file_that_was_never_verified_is_shown_without_its_calls() -> None:
    for calls in (None, "50", 0, -1, 1.5):
        odd = replace(benchmarked(calls=calls), metrics=benchmarked().metrics)
        shown = RunReport("", None, receipt=RECEIPT, evidence=odd)
        assert shown.speed_cells == ("500 µs/tok", "2,000")
        unnamed = tuple(replace(metric, unit="") for metric in odd.metrics)
        assert kernel_line(replace(odd, metrics=unnamed)) is not None
