"""Variants next to each other: their figures and notes, in a terminal and in Markdown."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report.markdown import step_summary
from pytest_flamegate.report.run_report import RunReport, variant_sections
from pytest_flamegate.report.sections import Items, Table, cell_text
from pytest_flamegate.report.terminal import summary
from tests.report import factory, verdicts


def outcome(variant: str, evidence: Evidence | None, family: str = "decode") -> RunReport:
    receipt = factory.receipt() if evidence is not None else None
    return RunReport(
        f"{family}[{variant}]",
        verdicts.no_baseline(),
        "",
        receipt,
        evidence,
        family=family,
        variant=variant,
    )


def workload(**changes: object) -> MappingProxyType[str, object]:
    return MappingProxyType({**factory.WORKLOAD, **changes})


FAST = factory.evidence(workload=workload(name="decode[i2s]"))
SLOW = factory.evidence(slow=2.0, workload=workload(name="decode[qk256]"))
PROFILE = factory.profile_record()
BOTH = (outcome("i2s", FAST), outcome("qk256", SLOW))


def tables(*rows: RunReport) -> list[list[list[str]]]:
    (section,) = variant_sections(rows)
    found = [block for block in section.blocks if isinstance(block, Table)]
    return [[list(map(cell_text, row)) for row in table.rows] for table in found]


def test_speed_kinds_and_functions_in_three_tables() -> None:
    speed, kinds, functions = tables(*BOTH[::-1])
    assert [row[:4] for row in speed] == [
        ["qk256", "4.66 ms/tok", "427", "50.0 %"],
        ["i2s", "2.33 ms/tok", "427", "100.0 %"],
    ]
    assert speed[0][4] == "ternary_gemv 71.6 %, quantize 16.0 %, softmax 4.3 %"
    assert kinds[0] == ["matmul", "71.6 %", "71.6 %"]
    assert functions[0] == ["ternary_gemv", "1,383", "1,383"]


def test_functions_of_all_variants_by_their_largest_cost() -> None:
    records = factory.hotspots("q_")
    doubled = (replace(records[0], cpu_s_per_token=2e-3), *records[1:])
    other = outcome("b", factory.evidence(records=doubled))
    unprofiled = outcome("c", factory.evidence(with_profile=False))
    speed, kinds, functions = tables(BOTH[0], other, unprofiled)
    assert functions[:2] == [
        ["q_ternary_gemv", "0", "2,000", "–"], ["ternary_gemv", "1,383", "0", "–"],
    ]  # fmt: skip
    assert len(functions) == 10
    assert kinds[0][-1] == speed[-1][-1] == "–"


def test_a_variant_that_was_never_measured_has_dashes() -> None:
    speed, *_ = tables(BOTH[0], outcome("broken", None))
    assert speed[1] == ["broken", "–", "–", "–", "–"]


def test_one_variant_alone_has_no_family() -> None:
    assert variant_sections(BOTH[:1]) == []
    assert variant_sections([BOTH[0], outcome("a", SLOW, "other")]) == []
    sections = variant_sections([*BOTH, outcome("a", FAST, "other"), outcome("b", SLOW, "other")])
    assert [section.title for section in sections] == ["Variants of decode", "Variants of other"]


@pytest.mark.parametrize(
    ("other", "notes"),
    [
        (SLOW, ()),
        (
            replace(SLOW, workload=workload(threads=2, env={"A": "b"})),
            ("Declared differently: threads, env.",),
        ),
        (
            replace(SLOW, workload=workload(prompt="x", max_tokens=4)),
            ("Declared differently: prompt, max_tokens.", "Different work (prompt, max_tokens)"),
        ),
        (replace(SLOW, token_digest="e" * 64), ("answered with different tokens",)),
        (replace(SLOW, clock_scope="process"), ("cover a whole program",)),
        (replace(SLOW, machine={"cpu_model": "other"}), ("different machines",)),
        (replace(SLOW, profile=replace(PROFILE, profiler="perf", rate_hz=99)), ("profiler, rate",)),
        (replace(SLOW, profile=None), ()),
    ],
)
def test_differences_are_notes(other: Evidence, notes: tuple[str, ...]) -> None:
    rows = [BOTH[0], outcome("b", other)]
    (section,) = variant_sections(rows)
    found = [line for block in section.blocks if isinstance(block, Items) for line in block.lines]
    assert len(found) == len(notes)
    for note, words in zip(found, notes, strict=True):
        assert words in note
        assert str(note) in "\n".join(summary(rows, width=100))


@pytest.mark.parametrize("width", [80, 300])
def test_lines_fit_the_terminal(width: int) -> None:
    lines = summary(BOTH, width=width)
    assert max(map(len, lines[lines.index("Variants of decode") :])) <= width


def test_the_summary_page_of_a_job() -> None:
    hostile = replace(BOTH[1], variant="a|b`<img>")
    page = step_summary([BOTH[0], hostile])
    assert "### Variants of decode" in page
    assert "| variant | quiet clock | wall tokens/s | of fastest | hottest |" in page
    assert r"| ``a\|b`<img>`` |" in page
    assert "| `ternary_gemv` | 1,383 | 1,383 |" in page
    assert "Variants" not in step_summary(BOTH[:1])
