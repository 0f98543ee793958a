"""The report on one run: its hottest frames; and variants next to each other."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report.markdown import render_section, step_summary
from pytest_flamegate.report.run_report import (
    RunReport,
    category_shares,
    hotspot_section,
    rank_by_self_share,
    variant_sections,
)
from pytest_flamegate.report.sections import Items, Section, Table, cell_text, join_line
from pytest_flamegate.report.terminal import summary
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


def test_ranking_breaks_ties_by_inclusive_share_then_name() -> None:
    names = [each.name for each in rank_by_self_share(factory.hotspots()[::-1])]
    assert names[:3] == ["ternary_gemv", "quantize", "softmax"]
    assert names[-4:] == ["main", "generate", "swiglu_ffn", "attention"]


def test_categories_add_up_their_frames() -> None:
    one, two = factory.hotspots()[:2]
    both = (one, replace(two, category="matmul"))
    assert category_shares(both) == {"matmul": pytest.approx(1150 / 1312)}


# Variants


def outcome(variant: str, evidence: Evidence | None, family: str = "decode") -> RunReport:
    receipt = factory.receipt() if evidence is not None else None
    name, verdict = f"{family}[{variant}]", verdicts.no_baseline()
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
        ["qk256", "4.66 ms/tok", "427", "50.0 %"],
        ["i2s", "2.33 ms/tok", "427", "100.0 %"],
        ["broken", "–", "–", "–"],
    ]
    assert speed[0][4] == "ternary_gemv 71.6 %, quantize 16.0 %, softmax 4.3 %"
    assert kinds[0] == ["matmul", "71.6 %", "71.6 %", "–"]
    assert functions[0] == ["ternary_gemv", "1,383", "1,383", "–"]


def test_functions_of_all_variants_by_their_largest_cost() -> None:
    records = factory.hotspots("q_")
    doubled = (replace(records[0], cpu_s_per_token=2e-3), *records[1:])
    other = outcome("b", factory.evidence(records=doubled))
    unprofiled = outcome("c", factory.evidence(with_profile=False))
    speed, kinds, functions = compare(BOTH[0], other, unprofiled)
    assert functions[:2] == [
        ["q_ternary_gemv", "0", "2,000", "–"], ["ternary_gemv", "1,383", "0", "–"],
    ]  # fmt: skip
    assert len(functions) == 10
    assert kinds[0][-1] == speed[-1][-1] == "–"


def test_one_variant_alone_has_no_family() -> None:
    assert variant_sections(BOTH[:1]) == []
    assert variant_sections([BOTH[0], outcome("a", SLOW, "other")]) == []
    sections = variant_sections([*BOTH, outcome("a", FAST, "other"), outcome("b", SLOW, "other")])
    assert [section.title for section in sections] == ["Variants of decode", "Variants of other"]


PERF = replace(factory.profile_record(), profiler="perf", rate_hz=99)


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({}, ()),
        (
            {"workload": workload(threads=2, env={"A": "b"})},
            ("Declared differently: threads, env.",),
        ),
        (
            {"workload": workload(prompt="x", max_tokens=4)},
            ("Declared differently: prompt, max_tokens.", "Different work (prompt, max_tokens)"),
        ),
        ({"token_digest": "e" * 64}, ("answered with different tokens",)),
        ({"clock_scope": "process"}, ("cover a whole program",)),
        ({"machine": {"cpu_model": "other"}}, ("different machines",)),
        ({"profile": PERF}, ("profiler, rate",)),
        ({"profile": None}, ()),
    ],
)
def test_differences_are_notes(changes: dict[str, object], notes: tuple[str, ...]) -> None:
    rows = [BOTH[0], outcome("b", replace(SLOW, **changes))]  # type: ignore[arg-type]
    found = sentences(variant_sections(rows)[0])
    assert len(found) == len(notes)
    for note, words in zip(found, notes, strict=True):
        assert words in note
        assert note in "\n".join(summary(rows, width=100))


@pytest.mark.parametrize("width", [80, 300])
def test_lines_fit_the_terminal(width: int) -> None:
    lines = summary(BOTH, width=width)
    assert max(map(len, lines[lines.index("Variants of decode") :])) <= width


def test_the_summary_page_of_a_job() -> None:
    page = step_summary(BOTH)
    assert "### Variants of decode" in page
    assert "| variant | quiet clock | wall tokens/s | of fastest | hottest |" in page
    assert "| `ternary_gemv` | 1,383 | 1,383 |" in page
    assert "Variants" not in step_summary(BOTH[:1])
