from __future__ import annotations

import dataclasses
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_flamegate.gate import Reason, Verdict
from pytest_flamegate.report.markdown import flamegraph_markdown
from tests.report import factory, verdicts

if TYPE_CHECKING:
    from pytest_flamegate.receipt.types import Evidence


HOSTILE = st.one_of(
    st.text(alphabet="`|\\*_[]()<>#+-.!~&=:1 a\n\x00\u202e'\"/", max_size=25),
    st.sampled_from(
        ["<script>alert(1)</script>", "| a | b |", "```\n# head", "![x](http://e)", "-->", "&lt;"]
    ),
)
AGAIN = 'pytest "flamegate.toml::decode" --flamegate'
TAGS = set(
    "h1 h2 p strong img table thead tbody tr th td code pre ul ol li em a".split()  # noqa: SIM905
)


def page(evidence: Evidence | None = None, verdict: Verdict | None = None) -> str:
    return flamegraph_markdown(
        evidence or factory.evidence(),
        factory.receipt(),
        verdict or verdicts.regressed(),
        regenerate=AGAIN,
    )


def render(markdown: str) -> str:
    return str(MarkdownIt("commonmark").enable("table").render(markdown))


def rows(markdown: str, heading: str) -> list[list[str]]:
    section = markdown.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def plain(cell: str) -> str:
    return cell.replace("\u00a0", " ").strip("`")


def test_the_answer_comes_first_then_the_picture() -> None:
    lines = page().splitlines()
    assert lines[0] == "# Flame graph: decode"
    assert lines[2].startswith("**regressed: 6.2 % slower (5.1 … 7.4, threshold 5)")
    assert lines[4] == "![Flame graph of decode](flamegraph.svg)"


def test_equal_inputs_give_equal_bytes() -> None:
    assert page() == page()
    assert page().endswith("\n")


def test_the_hottest_frames_are_filled_in() -> None:
    found = [[plain(cell) for cell in row] for row in rows(page(), "Hottest frames")]
    assert found[0] == [
        "1", "ternary_gemv", "kernels.py", "matmul", "940", "71.6 %", "71.6 %", "1,383"
    ]  # fmt: skip
    assert found[4][1:] == ["decode_step", "engine.py", "python", "33", "2.5 %", "99.9 %", "49"]
    assert len(found) == 11


def test_a_long_profile_shows_twenty_and_counts_the_rest() -> None:
    many = tuple(
        dataclasses.replace(factory.hotspots()[0], name=f"f{i:02}", self_samples=99 - i)
        for i in range(23)
    )
    markdown = page(factory.evidence(records=many))
    assert len(rows(markdown, "Hottest frames")) == 20
    assert "3 further frames in `evidence.json`." in markdown


@pytest.mark.parametrize(
    ("heading", "row"),
    [
        ("What ran", ["generated", "2026-01-02T03:04:06Z"]),
        ("What ran", ["commit", f"4f2c91a{'0' * 33}` on `main`, 2 uncommitted files"]),
        ("What ran", ["model name", "tiny-ternary"]),
        ("What ran", ["model path", "models/tiny.gguf"]),
        ("What ran", ["model sha256", "c" * 64]),
        ("What ran", ["model quantisation", "i2_s"]),
        ("What ran", ["tokenizer", "models/tokenizer.json"]),
        ("What ran", ["workload engine", "embedded"]),
        ("What ran", ["workload prompt", "What is 2+2?"]),
        ("What ran", ["tokens", "10 generated of 10 requested"]),
        ("Hardware", ["cpu model", "AMD EPYC 7B13"]),
        ("Hardware", ["cpu cores", "2"]),
        ("Build", ["command", "cargo build --release"]),
        ("Build", ["OS", "linux-x86_64"]),
        ("Profiler", ["event", "wall-clock"]),
        ("Profiler", ["rate", "100 Hz"]),
        ("Profiler", ["call graph", "python"]),
        ("Profiler", ["samples", "1,312"]),
        ("Profiler", ["lost", "0"]),
        ("Profiler", ["errors", "2"]),
        ("Profiler", ["complete stacks", "99.9 %"]),
        ("Profiler", ["overhead", "1.8 % CPU"]),
        ("Profiler", ["degraded", "ptrace is denied: sampled without stopping the process"]),
        ("Evidence", ["grade", "OBSERVED"]),
        ("Evidence", ["kernels seen", "ternary_gemv` (profile, 940)"]),
    ],
)
def test_everything_needed_to_believe_it_is_told(heading: str, row: list[str]) -> None:
    assert row in [[plain(cell) for cell in found] for found in rows(page(), heading)]


def test_figures_carry_unit_formula_and_clock() -> None:
    found = [[plain(cell) for cell in row] for row in rows(page(), "Throughput and latency")]
    assert ["time to first token (TTFT)", "5.85 ms", "first-token-request", "wall", "12",
            "measured"] in found  # fmt: skip
    assert ["quiet time for each token", "2.33 ms", "quiet-time/tokens", "quiet", "3",
            "measured"] in found  # fmt: skip
    shown = {row[0].split(" (")[0].split(",")[0] for row in found}
    assert {"throughput", "prefill", "decode", "time per output token"} <= shown


def test_requested_and_effective_environment_stand_side_by_side() -> None:
    evidence = dataclasses.replace(
        factory.evidence(),
        requested_environment=MappingProxyType({"A": "1", "B": "2"}),
        effective_environment=MappingProxyType({"A": "7"}),
    )
    assert rows(page(evidence), "Determinism environment") == [
        ["`A`", "`1`", "`7`"],
        ["`B`", "`2`", "–"],
    ]


def test_the_comparison_shows_every_signal_and_where_it_went() -> None:
    found = [[plain(cell) for cell in row] for row in rows(page(), "Against the baseline")]
    assert found == [
        ["tokens_per_second", "518 tokens/s", "486 tokens/s", "-6.2 %", "-7.4 … -5.1 %", "5 %",
         "1.9 %", "regressed"],
        ["tokens_per_second_wall", "515 tokens/s", "480 tokens/s", "-6.8 %", "–", "–", "–",
         "not gated"],
        ["share:rms_norm", "3.2 %", "8.8 %", "+5.6 pp", "+5.1 … +6.1 pp", "3 pp", "–",
         "regressed"],
        ["share:attention", "4.3 %", "4.0 %", "-0.3 pp", "-0.8 … +0.2 pp", "3 pp", "–", "pass"],
        # The second table's head and rule.
        ["where it went", "before µs/token", "after µs/token", "change µs/token", "explains"],
        ["---", "---:", "---:", "---:", "---:"],
        ["rms_norm", "62", "181", "+119 ±9", "98 %"],
        ["ternary_gemv", "1,383", "1,386", "+3 ±12", "2 %"],
        ["attention", "83", "82", "-1 ±5", "-1 %"],
    ]  # fmt: skip
    assert "14 at the baseline, 14 now" in page()


@pytest.mark.parametrize(
    ("unit", "tokens", "shown"),
    [
        ("byte", ("52", "226", "130", "172"), "`4€`"),
        ("byte", ("52", "255"), "`4\ufffd`"),
        ("byte", ("4", "256"), "`4256`"),
        ("word", ("52", " is"), "`52 is`"),
        ("word", (), "–"),
    ],
)
def test_the_output_is_text(unit: str, tokens: tuple[str, ...], shown: str) -> None:
    evidence = dataclasses.replace(
        factory.evidence(), tokens=tokens, token_source=f"yielded:{unit}"
    )
    assert ["output", shown] in rows(page(evidence), "What ran")


def test_the_build_does_not_repeat_the_determinism_environment() -> None:
    receipt = dataclasses.replace(
        factory.receipt(),
        environment=MappingProxyType({"OS": "linux", "OMP_NUM_THREADS": "1"}),
    )
    markdown = flamegraph_markdown(factory.evidence(), receipt, None, regenerate=AGAIN)
    assert [row[0] for row in rows(markdown, "Build")] == ["command", "`OS`"]
    assert "`OMP_NUM_THREADS`" in [row[0] for row in rows(markdown, "Determinism environment")]


def test_without_a_profile_it_says_so() -> None:
    markdown = page(factory.evidence(with_profile=False))
    assert "No profile was taken." in markdown
    assert "## Profiler" not in markdown


def test_without_a_verdict_or_repository_it_says_so() -> None:
    markdown = flamegraph_markdown(
        factory.evidence(commit=None), factory.receipt(), None, regenerate=AGAIN
    )
    assert "This run was not judged." in markdown
    assert "| commit | not in a repository |" in markdown
    assert "| grade | not judged |" in markdown


def test_it_tells_how_to_make_it_again_and_read_it() -> None:
    assert f"## Make it again\n\n```bash\n{AGAIN}\n```" in page()
    assert "Width is the share of the samples" in page()


@settings(deadline=None)
@given(HOSTILE, HOSTILE, HOSTILE)
def test_hostile_text_stays_text(one: str, two: str, three: str) -> None:
    honest = render(page())
    evidence = factory.evidence(
        records=tuple(
            dataclasses.replace(each, name=one, module=two, category=three)
            for each in factory.hotspots()
        ),
        model=MappingProxyType({"path": one, two: three}),
        workload=MappingProxyType(
            {"name": one, "prompt": two, "command": [three, one], two: {"x": three}, "build": [one]}
        ),
        commit=dataclasses.replace(factory.COMMIT, revision=one, branch=two),
    )
    evidence = dataclasses.replace(
        evidence, machine=MappingProxyType({one: two}), tokens=(one, two, three)
    )
    verdict = dataclasses.replace(
        verdicts.regressed(), reasons=(Reason(one, two),), grade=three, error_rate_basis=one
    )
    html = render(
        flamegraph_markdown(
            evidence, factory.receipt(), verdict, regenerate=three, picture=f"{two}.svg"
        )
    )
    assert set(re.findall(r"<([a-z][a-z0-9]*)", html)) <= TAGS
    assert html.count("<table>") == honest.count("<table>")
    assert html.count("<h1>") == 1
    assert html.count("<h2>") == honest.count("<h2>")
    assert "http://e" not in re.findall(r'(?:href|src)="([^"]*)"', html)
    for row in re.findall(r"<table>.*?</table>", html, re.DOTALL):
        assert len({line.count("<t") for line in row.split("<tr>")[1:]}) <= 2


def test_the_difference_stands_where_the_run_is_compared() -> None:
    def page(difference: str | None) -> str:
        return flamegraph_markdown(
            factory.evidence(),
            factory.receipt(),
            verdicts.regressed(),
            regenerate="pytest",
            difference=difference,
        )

    shown = page("diff.svg")
    assert "## Against the baseline\n\n![What changed in decode](diff.svg)\n\n- " in shown
    assert "diff.svg" not in page(None).split("## How to view")[0]
