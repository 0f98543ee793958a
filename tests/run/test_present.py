"""An outcome as it is shown, and as it travels from a worker of pytest-xdist."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Injection
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate.rule import FieldDifference, Reason
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.run import present
from pytest_flamegate.run.hosts import encode_figures
from pytest_flamegate.run.publish import Hints, Outcome
from tests.gate.factory import judge_paired, shifted, sides
from tests.made import bundle
from tests.report import factory, verdicts
from tests.run import fakes

NODE = "flamegate.toml::toy"
ERROR = Verdict("error", (Reason("E_TIMEOUT", "Too long."),), grade="SELF_REPORTED")


def full() -> Verdict:
    """A verdict with something in every field."""
    kernel = FieldDifference("machine.kernel", "6.1", "6.8", "E_MACHINE")
    return replace(
        verdicts.in_pairs(),
        differences=(kernel,),
        more_processes=("timed", "profiled"),
        reported_lines=verdicts.in_pairs().lines,
    )


def shown(verdict: Verdict) -> present.ResultView:
    triple = bundle()
    report = RunReport(
        "toy",
        verdict,
        headline(verdict),
        triple.receipt,
        triple.evidence,
        bricks=factory.shown_bricks(),
    )
    return present.ResultView(
        NODE, report, "regressed: …\n  evidence  x", "flamegate.toml", 3, True, None
    )


def never_measured() -> present.ResultView:
    report = RunReport("toy", ERROR, headline(ERROR))
    return present.ResultView(NODE, report, "error", "flamegate.toml", None, True, None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: shown(full()),
        lambda: shown(verdicts.inconclusive()),
        never_measured,
    ],
)
def test_what_travels_arrives(make: Callable[[], present.ResultView]) -> None:
    """JSON is narrower than what xdist carries: what survives it survives both."""
    sent = make()
    arrived = present.ResultView.from_data(json.loads(json.dumps(dict(sent.as_data()))))
    assert arrived.as_data() == sent.as_data()
    # A field that is empty in all of them would travel untested.
    assert not [name for name in Verdict.__slots__ if getattr(full(), name) in (None, (), "")]


def view(
    root: Path, verdict: Verdict, node: str = NODE, fails: bool = True, **changes: Any
) -> present.ResultView:
    triple = bundle()
    workload = fakes.toy(root, source=node if node != NODE else "flamegate.toml")
    latest = root / ".flamegate" / "latest" / "toy"
    outcome = Outcome(workload, verdict, latest, fails, triple.receipt, triple.evidence)
    return present.view_of(outcome, node, Hints(fakes.settings(root, **changes)))


def test_it_names_the_line_and_the_files_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "flamegate.toml").write_text("# first\n\n[workloads.toy]\n")
    latest = tmp_path / ".flamegate" / "latest" / "toy"
    latest.mkdir(parents=True)
    (latest / "receipt.json").touch()
    found = view(tmp_path, full())
    assert (found.file, found.line) == ("src/norm.c", 221)  # the changed line that costs more
    reported = view(tmp_path, replace(full(), lines=()))
    assert (reported.file, reported.line) == ("src/norm.c", 221)
    unknown = view(tmp_path, replace(full(), lines=(), reported_lines=()))
    assert (unknown.file, unknown.line) == ("flamegate.toml", 3)
    assert "evidence  .flamegate/latest/toy/receipt.json" in found.section
    assert "flamegraph.svg" not in found.section
    # A regression names the difference first.
    for name in ("diff.svg", "flamegraph.svg"):
        (latest / name).touch()
    assert "evidence  .flamegate/latest/toy/diff.svg · " in view(tmp_path, full()).section
    undecided = view(tmp_path, verdicts.inconclusive()).section
    assert "evidence  .flamegate/latest/toy/flamegraph.svg · " in undecided
    again = "pytest flamegate.toml::toy --flamegate --flamegate-against=4f2c91a0c2d1"
    assert f"again     {again}\n" in found.section
    assert found.section.endswith("pytest flamegate.toml::toy --flamegate --flamegate-update")
    # The token times stay where they are.
    assert found.report.evidence is not None
    (run,) = found.report.evidence.runs
    assert run.blocks == ()
    # The text of a failure is not made for a test that passes.
    assert view(tmp_path, full(), fails=False).section == ""
    # Parameters may make the node id longer than any file's name.
    found = view(tmp_path, ERROR, f"tests/test_a.py::test_b[{'x' * 300}]")
    assert "--flamegate-update" not in found.section
    assert (found.file, found.line) == ("tests/test_a.py", None)


def test_a_run_that_wrote_nothing_names_no_file_of_an_earlier_one(tmp_path: Path) -> None:
    latest = tmp_path / ".flamegate" / "latest" / "toy"
    latest.mkdir(parents=True)
    for name in ("receipt.json", "verdict.json", "lines.folded"):
        (latest / name).touch()
    failed = Outcome(fakes.toy(tmp_path), ERROR, latest, fails=True, is_written=False)
    hints = Hints(fakes.settings(tmp_path))
    section = present.view_of(failed, NODE, hints).section
    assert "evidence  no receipt\n" in section
    assert "look" not in section
    written = present.view_of(replace(failed, is_written=True), NODE, hints).section
    assert "latest/toy/verdict.json" in written


def test_options_that_are_not_the_default_are_repeated(tmp_path: Path) -> None:
    given = fakes.settings(
        tmp_path,
        config=tmp_path / "my loads.toml",
        profiler="py-spy",
        budget_s=7.5,
        inject=Injection("rms_norm", 12.5),
        against="HEAD~1",
    )
    given = replace(given, directory=tmp_path / "kept here")
    again = Hints(given).again("my loads.toml::toy", against="4f2c91a0c2d1f6b7a8e9")
    paths = ["config=my loads.toml", "dir=kept here"]
    assert shlex.split(again) == [
        *("pytest", "my loads.toml::toy", "--flamegate"),
        *(f"--flamegate-{each}" for each in paths),
        # The commit, not a branch that moves.
        "--flamegate-against=4f2c91a0c2d1",
        "--flamegate-inject=rms_norm:+12.5%",
        "--flamegate-profiler=py-spy",
        "--flamegate-budget=7.5",
    ]
    command = shlex.split(Hints(given, as_command=True).again())
    assert command[:2] == ["flamegate", "run"]
    assert {"--inject=rms_norm:+12.5%", *(f"--{each}" for each in paths)} < {*command}
    # An accepted run was measured alone, and as it is.
    accept = Hints(given).accept("my loads.toml::toy")
    assert "--flamegate-budget=7.5" in accept
    assert "inject" not in accept
    assert "against" not in accept

    # Defaults are not repeated.
    assert Hints(fakes.settings(tmp_path)).again() == "pytest --flamegate"
    plain = Hints(fakes.settings(tmp_path), as_command=True)
    assert plain.again() == "flamegate run"
    assert plain.again("flamegate.toml::decode[i2s]") == "flamegate run 'decode[i2s]'"
    assert plain.again("embedded::1tok") == "flamegate run embedded::1tok"
    assert plain.accept("decode") == "flamegate run decode --update"
    assert plain.accept_stored("a b") == "flamegate baseline accept 'a b'"
    assert Hints(given).accept_stored("toy").endswith(" toy '--dir=kept here'")


def test_a_required_check_is_repeated_and_accepted_by_its_own_commands(tmp_path: Path) -> None:
    hints = Hints(fakes.settings(tmp_path), as_command=True, checked_against="4f2c91a0c2d1f6b7a8e9")
    assert hints.again("loads.toml::toy") == "flamegate check --base 4f2c91a0c2d1"
    assert hints.accept("loads.toml::a b") == "flamegate accept 'a b' --reason TEXT --until DATE"
    elsewhere = replace(hints, settings=replace(hints.settings, directory=tmp_path / "kept"))
    assert elsewhere.accept("a") == "flamegate accept a --dir=kept --reason TEXT --until DATE"
    assert [hints.accepts(each) for each in (verdicts.regressed(), verdicts.inconclusive())] == [
        *(True, False),
    ]


@pytest.mark.parametrize(
    ("verdict", "recorded", "accept"),
    [
        (verdicts.no_baseline(), {}, "flamegate baseline accept toy"),
        (verdicts.regressed(), {}, "flamegate baseline accept toy"),
        # What was measured in pairs is no baseline; its slowdown can be waived.
        (
            verdicts.in_pairs(),
            {"side": "head"},
            "flamegate accept toy --reason TEXT --until DATE",
        ),
        (replace(verdicts.in_pairs(), verdict="pass"), {"side": "head"}, None),
        (verdicts.no_baseline(), {"injection": "gemv:+30%"}, None),
        (verdicts.in_pairs(), {"side": "head", "injection": "gemv:+30%"}, None),
    ],
)
def test_the_page_of_a_stored_run_names_the_command_that_accepts_it(
    tmp_path: Path, verdict: Verdict, recorded: dict[str, Any], accept: str | None
) -> None:
    triple = bundle()
    injection = {each: recorded[each] for each in ("injection",) if each in recorded}
    changed = {"workload": {**triple.evidence.workload, **injection}, "side": recorded.get("side")}
    settings = fakes.settings(tmp_path)
    latest = settings.directory / "latest" / "toy"
    triple.with_evidence(**changed).recomputed().write(latest)
    (latest / "verdict.json").write_bytes(encode_json(verdict_document(verdict)))
    (found,) = present.report_directory(settings)
    assert found.accept == accept


def test_a_run_with_injected_work_is_not_accepted(tmp_path: Path) -> None:
    """Measured again without the injection, something else would be accepted."""
    injected = view(tmp_path, full(), inject=Injection("rms_norm", 12.5))
    assert injected.report.accept is None
    assert "accept" not in injected.section
    for changes, is_offered in (({}, True), ({"inject": Injection("rms_norm", 12.5)}, False)):
        hints = Hints(fakes.settings(tmp_path, **changes))
        one = replace(shown(verdicts.no_baseline()), fails=False)
        lines = present.summary_lines([one], hints, [NODE], width=100, colour=False)
        assert any(each.startswith("accept ") for each in lines) is is_offered


def test_advice_names_the_options_that_are_taken_here(tmp_path: Path) -> None:
    note = Reason("E_NOISE", "Give it more time (--flamegate-budget).")
    verdict = replace(verdicts.inconclusive(), reasons=(note,))
    outcome = Outcome(fakes.toy(tmp_path), verdict, tmp_path, fails=True)
    for as_command, option in ((True, "--budget"), (False, "--flamegate-budget")):
        found = present.view_of(outcome, "toy", Hints(fakes.settings(tmp_path), as_command))
        assert found.report.verdict is not None
        shown = (found.report.headline, found.report.verdict.reasons[0].message)
        for text in (*shown, found.section):
            assert f"({option})" in text
            assert ("--flamegate-" in text.partition("  again")[0]) != as_command


def test_no_pairs_are_drawn_below_an_interval_that_others_decided_too() -> None:
    base, head = sides(shifted(0.0))
    verdict = judge_paired(base, head)
    assert len(present.pair_changes(verdict, base, head)) == verdict.pairs
    pooled = replace(verdict, reasons=(*verdict.reasons, Reason("I_ATTEMPTS", "Two were.")))
    assert present.pair_changes(pooled, base, head) == ()


def test_accepted_baselines_are_named_and_are_to_be_committed() -> None:
    baselines = ".flamegate/baselines/amd-epyc-2c-30fffa"
    paths = [f"{baselines}/{name}" for name in ("1tok", "10tok", "1tok")]
    assert present.accepted_lines(paths) == [
        f"accepted 2 baselines in {baselines}: 1tok, 10tok. Commit them: git add {baselines}"
    ]
    # A run of another machine may lie among the latest.
    other = f"{baselines}-other/1tok"
    assert len(present.accepted_lines([*paths, other])) == 2
    assert present.accepted_lines([]) == []


def test_of_two_results_of_one_workload_the_pages_show_the_one_that_fails(tmp_path: Path) -> None:
    failed = shown(verdicts.in_pairs())
    passed = replace(shown(verdicts.no_baseline()), fails=False)
    settings = Settings(tmp_path, directory=tmp_path)
    for order in ((failed, passed), (passed, failed)):
        (found,) = present.report_results(order, settings)
        assert found.verdict == failed.report.verdict
        lines = encode_figures(order, passed=False).decode().splitlines()
        assert [each for each in lines if each.startswith("flamegate_passed")] == [
            'flamegate_passed{workload="toy"} 0'
        ]
