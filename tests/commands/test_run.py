"""``flamegate run`` and ``flamegate flamegraph``."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_flamegate.commands import common, pictures
from pytest_flamegate.commands.run import choose_entries
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.run.instruments import Instruments
from pytest_flamegate.run.publish import Outcome
from tests.commands.asked import PROGRAM, Command, Repository, ask
from tests.doors.project import workload
from tests.run import fakes

FILES = {
    *("receipt.json", "evidence.json", "profile.folded", "verdict.json"),
    *("flamegraph.svg", "flamegraph.html", "flamegraph.md"),
}


def test_a_run_is_gated_and_a_slower_one_fails(
    project: Path, world: fakes.World, command: Command
) -> None:
    printed = command(4, "run").out
    assert "no baseline" in printed
    assert "flamegate baseline accept toy" in printed
    latest = project / ".flamegate" / "latest" / "toy"
    assert {path.name for path in latest.iterdir()} == FILES
    assert ask("run", "--update", "toy") == 0
    world.token_ns = round(1.3 * fakes.TOKEN_NS)
    assert ask("run", "--report=run.html") == 1
    assert json.loads((latest / "verdict.json").read_text())["verdict"] == "regressed"
    assert "report: run.html" in command.read().out
    assert (project / "run.html").read_text().startswith("<!")


@pytest.mark.parametrize(
    ("target", "arguments", "error"),
    [
        ("is_not_there", (), "E_TARGET_NOT_FOUND"),
        ("generate", ("--dir=toy.py/artifacts",), "E_CANNOT_WRITE"),
    ],
)
def test_a_workload_that_cannot_be_measured_is_an_error(
    project: Path, command: Command, target: str, arguments: tuple[str, ...], error: str
) -> None:
    (project / "flamegate.toml").write_text(workload("toy", target))
    assert error in command(5, "run", "--profiler=none", *arguments).out


def no_profiler(*_: object, **__: object) -> None:
    raise ToolError("E_NO_PROFILER", "No profiler works.", "Install one.")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "E_NO_PROFILER"),
        (("--against=nosuch",), "E_REV_UNKNOWN"),
        (("--against=main", "--config=../flamegate.toml"), "E_NO_REPOSITORY"),
    ],
)
def test_what_keeps_all_workloads_from_being_measured_is_one_error_before_anything_waits(
    clone: Repository,
    world: fakes.World,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    error: str,
) -> None:
    if not arguments:
        monkeypatch.setattr(Instruments, "choose_profiler", no_profiler)
    if error == "E_NO_REPOSITORY":
        (clone.path / ".git").rename(clone.path / "not git")
    declared = workload("one") + workload("two")
    for directory in (clone.path, clone.path.parent):
        (directory / "flamegate.toml").write_text(declared)
    # A profiler is a tool, and a wrong name a mistake of the user.
    printed = clone.run(2 if arguments else 5, "run", *arguments)
    assert (printed.out, printed.err.count(error)) == ("", 1)
    assert "about" not in printed.err
    assert world.started == []
    assert not (clone.path / ".flamegate").exists()


def test_a_declaration_with_an_error_does_not_block_the_others(
    project: Path, world: fakes.World, command: Command
) -> None:
    (project / "flamegate.toml").write_text(workload("toy") + workload("wrong", treshold="1"))
    printed = command(2, "run")
    assert "E_UNKNOWN_KEY" in printed.out
    assert "1 workload, about 0:15" in printed.err
    assert (project / ".flamegate/latest/toy/receipt.json").exists()
    world.started.clear()
    # A workload that is named is an error of the command if it cannot be read.
    assert "E_UNKNOWN_KEY" in command(2, "run", "wrong").err
    ask("run", "toy", "embedded::1tok")
    assert "flamegate baseline accept toy\n" in command.read().out
    assert (project / ".flamegate/latest/1tok/verdict.json").exists()


@pytest.mark.parametrize("has_file", [True, False])
def test_a_project_without_a_workload_is_announced(
    project: Path, world: fakes.World, command: Command, has_file: bool
) -> None:
    (project / "flamegate.toml").write_text("# nothing yet\n")
    if not has_file:
        (project / "flamegate.toml").unlink()
    for arguments, times in ((), 1), (("10tok",), 0):
        ask("run", *arguments)
        place = "flamegate.toml" if has_file else str(project)
        assert command.read().err.count(f"flamegate: {place} declares no workload") == times


TEMPLATE = """[workloads.two]
target = "toy:generate"
prompt = "x"
max_tokens = 4
variants.a.seed = 1
variants.b = { sed = 2 }
"""


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ((), "one two[a] two[b]"),
        (("two", "two[a]", "one"), "two[a] two[b] one"),
        (("flamegate.toml::one", "embedded::1tok", "10tok"), "one 1tok 10tok"),
        (("../project/flamegate.toml::two", "./flamegate.toml::one"), "two[a] two[b] one"),
        (("embedded", "flamegate.toml"), "1tok 10tok passage one two[a] two[b]"),
        (("./flamegate.toml",), "one two[a] two[b]"),
    ],
)
def test_workloads_are_chosen_by_name_and_by_template(
    project: Path, names: tuple[str, ...], chosen: str
) -> None:
    (project / "flamegate.toml").write_text(workload("one") + TEMPLATE)
    settings = common.read_settings(argparse.Namespace())
    assert " ".join(each.name for each in choose_entries(settings, names)) == chosen
    for unknown in ("three", "other.toml::one", "embedded::one", "", ".", "x/flamegate.toml::one"):
        with pytest.raises(UsageError, match="E_UNKNOWN_WORKLOAD"):
            choose_entries(settings, [unknown])


@pytest.mark.parametrize(
    "names",
    [("flamegate.toml::1tok", "embedded::1tok"), ("embedded::1tok", "1tok"), ("embedded", "1tok")],
)
def test_a_declared_and_an_embedded_workload_of_one_name_are_not_run_together(
    project: Path, command: Command, names: tuple[str, ...]
) -> None:
    """The one would take the place of the other."""
    (project / "flamegate.toml").write_text(workload("1tok"))
    both = "E_BAD_OPTION: flamegate.toml::1tok and embedded::1tok have one name"
    assert both in command(2, "run", *names).err
    settings = common.read_settings(argparse.Namespace())
    assert len(choose_entries(settings, ["1tok", "flamegate.toml"])) == 1


def test_only_a_named_declaration_may_have_an_error(
    project: Path, world: fakes.World, command: Command
) -> None:
    assert ask("run", "--update") == 0
    (project / "flamegate.toml").write_text(workload("bad", sed="1") + TEMPLATE + workload("toy"))
    command.read()
    assert "nothing to prune" in command(0, "baseline", "prune").out
    assert ask("selftest", "bad") == ask("selftest", "two[b]") == 2
    assert command.read().err.count("E_UNKNOWN_KEY") == 2
    assert ask("selftest", "toy", "--frame=ternary_gemv") != 2


def test_thresholds_of_pytest_s_file_hold_on_the_command_line_too(project: Path) -> None:
    (project / "flamegate.toml").write_text(workload("a") + workload("b", tokens_per_second='"3%"'))
    (project / "pytest.ini").write_text("[pytest]\nflamegate_tokens_per_second = 90%\n")
    _, found = common.read_declarations(common.read_settings(argparse.Namespace()))
    limits = [each.thresholds for each in found if isinstance(each, Workload)]
    assert [each.tokens_per_second_pct for each in limits] == [90.0, 3.0]


def test_flame_graphs_of_both_workloads_are_written_with_a_guide(
    project: Path, world: fakes.World, command: Command
) -> None:
    (project / "flamegate.toml").unlink()
    world.tokens = world.tokens[:1]
    assert ask("flamegraph", "", "words.json", "out") == 0
    assert command.read().out.startswith("TOKENIZER words.json is not used")
    out = project / "out"
    ends = (".svg", ".html", ".md")
    names = {"README.md", *(f"{name}{end}" for name in ("1tok", "10tok") for end in ends)}
    assert {path.name for path in out.iterdir()} == names
    for name in ("1tok", "10tok"):
        assert "ternary_gemv" in (out / f"{name}.svg").read_text()
        assert "This run was not judged." in (out / f"{name}.md").read_text()
    assert "flamegate flamegraph '' '' out" in (out / "README.md").read_text()
    # Pictures are neither gated nor recorded.
    assert not (project / ".flamegate").exists()


def test_flame_graphs_compare_nothing_and_have_their_own_prompts(
    project: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pytest.ini").write_text(
        "[pytest]\nflamegate_against = main\nflamegate_bricks = 3\nflamegate_instructions = true\n"
    )
    (project / "sub").mkdir()
    (project / "sub/own.toml").write_text(
        "[workloads.t]\ncommand = ['x', '{model}', '{tokenizer}', '{prompt}', '{max_tokens}']\n"
        "prompts = ['a', 'b']\nmax_tokens = 3\n"
    )
    asked: list[tuple[Settings, list[Workload]]] = []

    def gate(settings: Settings, workloads: list[Workload]) -> list[Outcome]:
        asked.append((settings, workloads))
        return []

    monkeypatch.setattr(pictures, "gate_all", gate)
    assert ask("flamegraph", "m.gguf", "words.json", "out", "--config=sub/own.toml") == 0
    ((settings, workloads),) = asked
    assert (settings.against, settings.bricks, settings.instructions) == (None, None, False)
    for each, prompt in zip(workloads, ("2+2=", "What is 2+2?"), strict=True):
        assert each.all_prompts == (prompt,)
        assert (each.model, each.tokenizer) == ("../m.gguf", "../words.json")
    outcome = Outcome(workloads[0], Verdict("pass", (), "OBSERVED"), project)
    again = "flamegate flamegraph m.gguf words.json out"
    assert pictures._command([outcome], Path("out")) == again


def test_flame_graphs_of_a_declaration_with_an_error_are_not_those_of_the_embedded_model(
    project: Path, world: fakes.World, command: Command
) -> None:
    declared = "command = ['x', '{model}']\nprompt = 'a'\nmax_tokens = 3\n"
    (project / "flamegate.toml").write_text(f"[workloads.t]\n{declared}threds = 1\n")
    assert "E_UNKNOWN_KEY: flamegate.toml:5" in command(2, "flamegraph", "", "", "out").err
    assert world.started == []


@pytest.mark.measures
def test_the_program_measures(project: Path, tmp_path: Path) -> None:
    """The one test of the commands that starts an engine."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, "run", "--profiler=none", "--budget=1"],
        cwd=project,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "no baseline" in done.stdout) == (4, True), done.stdout + done.stderr


def test_a_missing_model_or_output_is_reported_before_measuring(
    project: Path, world: fakes.World, command: Command
) -> None:
    (project / "occupied").touch()
    assert ask("flamegraph", "", "", "occupied/out") == 5
    assert command(5, "run", "--report=occupied/run.html").err.count("E_CANNOT_WRITE") == 2
    assert world.started == []
    (project / "flamegate.toml").unlink()
    assert ask("flamegraph", "missing.gguf", "", "out", "--budget=1") == 5
    assert "E_MODEL_MISSING" in command.read().out
    assert list((project / "out").iterdir()) == []
