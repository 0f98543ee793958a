"""Variants of one workload, as pytest and the command line gate them."""

from __future__ import annotations

import json

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.commands.run import choose_workloads
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.declare import read_file
from tests.doors.project import QUICK, SEEN, Project, refused, workload
from tests.doors.test_collect import collected

pytestmark = pytest.mark.measures

TOYS = (
    workload("toy"),
    "[workloads.toy.variants.small]\nenv = { A = '1' }",
    "[workloads.toy.variants.large]\nmax_tokens = 8",
    workload("plain"),
)
SMALL, LARGE, PLAIN = "toy[small]", "toy[large]", "plain"
NODES = [f"flamegate.toml::{name}" for name in (SMALL, LARGE, PLAIN)]


@pytest.mark.parametrize(
    ("arguments", "nodes"),
    [
        ([], NODES),
        (NODES[:1], NODES[:1]),
        ([NODES[1], NODES[2]], NODES[1:]),
        (["flamegate.toml::toy"], NODES[:2]),
        (["-k", "large"], NODES[1:2]),
        (["--deselect", NODES[0]], NODES[1:]),
    ],
)
def test_variants_are_items(project: Project, arguments: list[str], nodes: list[str]) -> None:
    project.declare(*TOYS)
    assert collected(project, *arguments) == nodes


def test_a_variant_that_there_is_not(project: Project) -> None:
    project.declare(*TOYS)
    refused(project.ask("--flamegate", "flamegate.toml::toy[huge]"), "flamegate.toml::toy")


def test_the_command_line_takes_a_variant_or_all_of_them(project: Project) -> None:
    project.declare(*TOYS)
    known = read_file(project.path / "flamegate.toml")

    def names(*asked: str) -> list[str]:
        return [each.name for each in choose_workloads(known, asked)]

    assert names() == [SMALL, LARGE, PLAIN]
    assert names("toy") == [SMALL, LARGE]
    assert names(LARGE) == [LARGE]
    assert names(LARGE, "toy", PLAIN) == [LARGE, SMALL, PLAIN]
    with pytest.raises(UsageError, match=r"Known: toy\[small\], toy\[large\], plain"):
        names("small")


def test_each_has_a_baseline_of_its_own(project: Project) -> None:
    project.declare(*TOYS)
    accepted = project.run(*QUICK, "--flamegate-update")
    accepted.assert_outcomes(passed=3)
    (machine,) = (project.artifacts / "baselines").iterdir()
    assert {path.name for path in machine.iterdir()} == {SMALL, LARGE, PLAIN}
    evidence = json.loads((machine / LARGE / "evidence.json").read_text())
    assert (evidence["workload"]["name"], evidence["workload"]["max_tokens"]) == (LARGE, 8)
    again = project.run(*QUICK, NODES[0])
    assert again.ret in (0, 1)
    assert project.verdict(SMALL)["verdict"] != "no_baseline"
    assert "variants of" not in again.stdout.str()


def test_a_test_gates_one(project: Project) -> None:
    project.declare(*TOYS)
    project.write(
        "test_a.py",
        "import pytest\n@pytest.mark.flamegate(workload='toy[large]')\ndef test_large(): pass\n",
    )
    project.run(*QUICK, "test_a.py").assert_outcomes(passed=1)
    assert project.latest(LARGE) >= {"evidence.json", "verdict.json"}


@pytest.mark.usefixtures("py_spy")
def test_embedded_variants_side_by_side(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    page = project.path / "page.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    project.declare(
        "[workloads.decode]\nmax_tokens = 4",
        "[workloads.decode.variants.short]\nprompt = '2+2='",
        "[workloads.decode.variants.long]\nprompt = 'The gate stands between a change and main.'",
    )
    result = project.run(*SEEN)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "variants of decode, side by side, shown and never gated",
            "variant *tokens/s *quiet clock *of fastest *hottest",
            "short * ms/tok * 100.0 % *",
            "long * ms/tok *",
            "share of CPU *short *long",
            "matmul *% *%",
            "µs/token *short *long",
            "ternary_gemv *",
            "Declared otherwise: prompt.",
            "Not the same work (prompt):*",
        ]
    )
    assert "### Variants of `decode`" in page.read_text()
    assert project.latest("decode[long]") >= {"receipt.json", "profile.folded", "flamegraph.svg"}


def test_one_variant_is_tested_at_a_time(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.declare(*TOYS)
    monkeypatch.chdir(project.path)
    assert main(["selftest", "toy"]) == 2
    told = capsys.readouterr().err
    assert "E_SEVERAL_WORKLOADS" in told
    assert "toy[small], toy[large]" in told
