"""An outcome as it is shown, and as it travels from a worker of pytest-xdist."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Injection, Workload
from pytest_flamegate.gate import Comparability, FieldDifference, Reason, Verdict, headline
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.run.present import (
    ResultView,
    accepted_lines,
    rows,
    view_of,
    workflow_commands,
)
from pytest_flamegate.run.publish import Hints, Outcome, relative
from tests.made import bundle
from tests.report import factory, verdicts


def full() -> Verdict:
    """A verdict with something in every field."""
    return replace(
        verdicts.in_pairs(),
        comparability=Comparability(
            (FieldDifference("machine.kernel", "6.1", "6.8", "E_MACHINE"),)
        ),
        helped_by=("timed", "profiled"),
    )


def shown(verdict: Verdict, *, measured: bool = True) -> ResultView:
    triple = bundle()
    return ResultView(
        node="flamegate.toml::toy",
        report=RunReport(
            "toy",
            verdict,
            headline(verdict),
            triple.receipt if measured else None,
            triple.evidence if measured else None,
            bricks=factory.shown_bricks() if measured else None,
        ),
        section="regressed: …\n  evidence  x",
        file="flamegate.toml",
        line=3 if measured else None,
        fails=True,
        accepted=None,
    )


@pytest.mark.parametrize("make", [full, verdicts.no_baseline, verdicts.inconclusive])
def test_what_travels_arrives(make: Callable[[], Verdict]) -> None:
    """JSON is narrower than what xdist carries: what survives it survives both."""
    sent = shown(make())
    assert sent.report.evidence is not None
    assert sent.report.evidence.runs
    assert sent.report.evidence.profile is not None
    arrived = ResultView.from_data(json.loads(json.dumps(dict(sent.as_data()))))
    assert arrived.as_data() == sent.as_data()


def test_an_outcome_that_was_never_measured_travels_too() -> None:
    sent = shown(
        Verdict.unjudged("error", [Reason("E_TIMEOUT", "…")], grade="SELF_REPORTED"), measured=False
    )
    assert ResultView.from_data(dict(sent.as_data())) == sent


def test_every_field_of_a_verdict_is_tried() -> None:
    """A field that is empty above would travel untested."""
    verdict = full()
    empty = [name for name in Verdict.__slots__ if getattr(verdict, name) in (None, (), "")]
    assert not empty


def outcome(directory: Path, verdict: Verdict, *, source: str = "flamegate.toml") -> Outcome:
    triple = bundle()
    workload = Workload(
        name="toy", engine="python", prompt="x", max_tokens=1, source=source, directory=directory
    )
    latest = directory / ".flamegate" / "latest" / "toy"
    return Outcome(workload, verdict, latest, True, triple.receipt, triple.evidence)


def test_it_names_the_line_and_the_files_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "flamegate.toml").write_text("# first\n\n[workloads.toy]\n")
    latest = tmp_path / ".flamegate" / "latest" / "toy"
    latest.mkdir(parents=True)
    (latest / "receipt.json").touch()
    settings = Settings(root=tmp_path, directory=tmp_path / ".flamegate")
    found = view_of(outcome(tmp_path, full()), "flamegate.toml::toy", Hints(settings))
    assert (found.file, found.line) == ("flamegate.toml", 3)
    assert ".flamegate/latest/toy/receipt.json" in found.section
    assert "flamegraph.svg" not in found.section
    again = "pytest flamegate.toml::toy --flamegate --flamegate-against=4f2c91a0c2d1"
    assert f"again     {again}\n" in found.section
    assert found.section.endswith("pytest flamegate.toml::toy --flamegate --flamegate-update")
    # The token times stay where they are.
    assert found.report.evidence is not None
    (run,) = found.report.evidence.runs
    assert run.blocks == ()


@pytest.mark.parametrize(
    ("verdict", "first"), [(full(), "diff.svg"), (verdicts.inconclusive(), "flamegraph.svg")]
)
def test_a_regression_names_the_difference_first(
    tmp_path: Path, verdict: Verdict, first: str
) -> None:
    latest = tmp_path / ".flamegate" / "latest" / "toy"
    latest.mkdir(parents=True)
    for name in ("diff.svg", "flamegraph.svg", "receipt.json"):
        (latest / name).touch()
    settings = Settings(root=tmp_path, directory=tmp_path / ".flamegate")
    section = view_of(outcome(tmp_path, verdict), "flamegate.toml::toy", Hints(settings)).section
    assert f"evidence  .flamegate/latest/toy/{first} · " in section


def test_a_source_too_long_for_any_file(tmp_path: Path) -> None:
    """The node id of a test whose parameters are long."""
    settings = Settings(root=tmp_path, directory=tmp_path / ("x" * 300))
    node = f"test_a.py::test_b[{'x' * 300}]"
    found = view_of(outcome(tmp_path, full(), source=node), node, Hints(settings))
    assert (found.file, found.line) == ("test_a.py", None)


def test_what_is_an_error_cannot_be_accepted(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, directory=tmp_path / ".flamegate")
    verdict = Verdict.unjudged(
        "error", [Reason("E_TIMEOUT", "It took too long.")], grade="SELF_REPORTED"
    )
    found = view_of(outcome(tmp_path, verdict), "tests/test_a.py::test_b", Hints(settings))
    assert "--flamegate-update" not in found.section
    assert (found.file, found.line) == ("tests/test_a.py", None)


def test_what_is_not_the_default_is_said_again(tmp_path: Path) -> None:
    settings = Settings(
        root=tmp_path,
        directory=tmp_path / "kept here",
        config=tmp_path / "my loads.toml",
        profiler="py-spy",
        inject=Injection("rms_norm", 12.5),
    )
    found = view_of(outcome(tmp_path, full()), "my loads.toml::toy", Hints(settings))
    (again,) = [line for line in found.section.splitlines() if line.startswith("  again ")]
    said = ["config=my loads.toml", "dir=kept here", "profiler=py-spy"]
    assert shlex.split(again)[1:] == [
        *("pytest", "my loads.toml::toy", "--flamegate"),
        *(f"--flamegate-{each}" for each in said[:2]),
        # A run in pairs is repeated against the same commit.
        "--flamegate-against=4f2c91a0c2d1",
        "--flamegate-inject=rms_norm:+12.5%",
        "--flamegate-profiler=py-spy",
    ]
    command = Hints(settings, as_command=True).again()
    said.insert(2, "inject=rms_norm:+12.5%")
    assert shlex.split(command) == ["flamegate", "run", *(f"--{each}" for each in said)]
    assert "inject" not in Hints(settings).accept()


def test_what_is_the_default_is_not_said(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, directory=tmp_path / ".flamegate")
    assert Hints(settings).again() == "pytest --flamegate"
    command = Hints(settings, as_command=True)
    assert command.again() == "flamegate run"
    assert command.again("flamegate.toml::decode[i2s]") == "flamegate run 'decode[i2s]'"
    assert command.again("embedded::1tok") == "flamegate run embedded::1tok"
    assert command.accept("decode") == "flamegate run decode --update"


def test_a_command_names_the_commit_and_not_a_branch_that_moves(tmp_path: Path) -> None:
    hints = Hints(Settings(tmp_path, tmp_path / ".flamegate", against="HEAD~1"))
    again = hints.again("flamegate.toml::toy", against="4f2c91a0c2d1f6b7a8e9")
    assert again == "pytest flamegate.toml::toy --flamegate --flamegate-against=4f2c91a0c2d1"
    # What is accepted was measured alone.
    assert "against" not in hints.accept("flamegate.toml::toy")


def test_the_text_of_a_failure_is_not_made_for_a_test_that_passes(tmp_path: Path) -> None:
    passed = replace(outcome(tmp_path, full()), fails=False)
    settings = Settings(root=tmp_path, directory=tmp_path / ".flamegate")
    assert view_of(passed, "flamegate.toml::toy", Hints(settings)).section == ""


def test_rows_of_one_workload_are_told_apart_by_their_tests() -> None:
    first = shown(full())
    second = replace(first, node="test_engine.py::test_decode")
    other = replace(
        first, report=replace(first.report, name="another"), node="flamegate.toml::another"
    )
    assert [row.name for row in rows([first, second, other])] == [
        "flamegate.toml::toy",
        "test_engine.py::test_decode",
        "another",
    ]


def test_accepted_baselines_are_named_and_are_to_be_committed() -> None:
    baselines = ".flamegate/baselines/amd-epyc-2c-30fffa"
    results = [
        replace(shown(full()), accepted=f"{baselines}/{name}") for name in ("1tok", "10tok", "1tok")
    ]
    assert accepted_lines([*results, shown(full())]) == [
        f"accepted 2 baselines in {baselines}: 1tok, 10tok. Commit them: git add {baselines}"
    ]
    assert "accepted 1 baseline in" in accepted_lines(results[:1])[0]
    assert "Commit it" in accepted_lines(results[:1])[0]
    assert accepted_lines([shown(full())]) == []


def test_only_what_fails_is_annotated() -> None:
    good = replace(shown(verdicts.no_baseline()), fails=False)
    (line,) = workflow_commands([good, shown(full())])
    assert line.startswith("::error file=flamegate.toml,line=3,title=flamegate%3A toy::regressed")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("path", "told"), [("/a/b/c", "b/c"), ("/a", "."), ("/x/y", "/x/y"), ("/ab", "/ab")]
)
def test_relative(path: str, told: str) -> None:
    assert relative(Path(path), Path("/a")) == told
