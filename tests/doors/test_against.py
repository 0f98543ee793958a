"""``--flamegate-against=REV``: two revisions of a project in pairs, with real git.

Processes are fakes, except in the tests marked ``measures``: their effects are far larger than
any noise, so that no test depends on a quiet machine.
"""

import dataclasses
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import NoBaselineError, ToolError
from pytest_flamegate.profile.frames import parse_folded
from pytest_flamegate.run.checkouts import base_error, declare_base
from tests.doors.project import Project, workload, write_toy
from tests.profile.fakes import FakeValgrind
from tests.run import fakes
from tests.run.fakes import World
from tests.workload.declared import read_file
from tests.workload.repositories import git

ON = "--flamegate"
UNPROFILED = (ON, "--flamegate-profiler=none", "--flamegate-budget=20")
SLOWER_NS = round(1.3 * fakes.TOKEN_NS)


def declare(project: Project, target: str = "toy:steady", **more: str) -> None:
    declared = workload("toy", max_tokens="8", **more)
    project.declare(declared.replace("toy:generate", target))


@pytest.fixture
def history(project: Project) -> Project:
    """A repository whose second commit makes ``hash_round`` twice as slow; tokens stay the same."""
    declare(project)
    for rounds in (4000, 8000):
        write_toy(project.path, rounds)
        project.commit()
    return project


def test_the_slower_commit_fails_and_the_base_stands_beside_it(
    history: Project, world: World
) -> None:
    world.token_ns = SLOWER_NS
    result = history.ask(ON, "--flamegate-against=HEAD~1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "flamegate: 1 workload, up to about 0:50, plus builds*",
            "  evidence  .flamegate/latest/toy/diff.svg · *",
            "FAILED flamegate.toml::toy - regressed: 2*% slower*",
        ]
    )
    verdict = history.verdict("toy")
    assert (verdict["method"], verdict["pairs"]) == ("pairs", verdict["looks"][0])
    assert verdict["against"] == git(history.path, "rev-parse", "HEAD~1")
    base, head = history.document("toy", "base-evidence.json"), history.document("toy")
    assert (base["side"], head["side"]) == ("base", "head")
    assert base["commit"]["revision"] == verdict["against"]
    assert {"base-profile.folded", "diff.svg"} <= history.latest("toy")
    assert history.has_one_worktree()
    assert not (history.artifacts / "baselines").exists()


def test_uncommitted_changes_are_the_head(history: Project, world: World) -> None:
    world.base_token_ns = SLOWER_NS
    text = (history.path / "toy.py").read_text() + "# faster\n"
    history.write("toy.py", text)
    history.ask(ON, "--flamegate-against=HEAD").assert_outcomes(passed=1)
    assert history.verdict("toy")["verdict"] == "improved"
    assert history.document("toy")["commit"]["uncommitted"] == 1
    assert (history.path / "toy.py").read_text() == text


def test_each_side_is_built_and_started_as_it_declares(history: Project, world: World) -> None:
    # The head introduces a build, which the base has no file for, and renames the target.
    declare(history, "toy:renamed", build='["test", "-e", "made_later"]')
    history.write("made_later", "")
    history.ask(ON, "--flamegate-against=HEAD~1").assert_outcomes(passed=1)
    base, head = (
        history.document("toy", name)["workload"]
        for name in ("base-evidence.json", "evidence.json")
    )
    assert (base["target"], base["build"]) == ("toy:steady", [])
    assert (head["target"], head["build"]) == ("toy:renamed", ["test", "-e", "made_later"])
    note = history.reasons("toy")["I_NOTE"]
    assert note.startswith("Each side is started as it declares: ")
    # It need not be declared in the file of the same name.
    declared = (history.path / "flamegate.toml").read_text()
    history.write("pyproject.toml", declared.replace("[workloads", "[tool.flamegate.workloads"))
    (history.path / "flamegate.toml").unlink()
    history.ask(ON, "--flamegate-against=HEAD~1").assert_outcomes(passed=1)
    assert history.document("toy", "base-evidence.json")["workload"]["target"] == "toy:steady"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": '"other"'}, "prompt is '2+2=' at {base} and 'other' now."),
        ({"env": "{ A = '1', CFLAGS = '-O1' }"}, "env is {} at {base} and {'A': '1',"),
        ({"model": '"toy.py"'}, "model is None at {base} and 'toy.py' now."),
    ],
)
def test_a_base_that_declares_other_work_is_not_comparable(
    history: Project, world: World, changes: dict[str, str], words: str
) -> None:
    history.declare(workload("toy", "steady", **{"max_tokens": "8", **changes}))
    history.ask(ON, "--flamegate-against=HEAD~1")
    assert history.verdict("toy")["verdict"] == "not_comparable"
    commit = git(history.path, "rev-parse", "HEAD~1")[:12]
    assert words.replace("{base}", commit) in history.reasons("toy")["E_WORKLOAD_DIFFERS"]
    assert world.started == []


def test_flags_of_the_build_may_differ(history: Project, world: World) -> None:
    history.declare(workload("toy", "steady", max_tokens="8", env="{ CFLAGS = '-O1' }", build=MAKE))
    history.commit()
    history.declare(workload("toy", "steady", max_tokens="8", env="{ CFLAGS = '-O2' }", build=MAKE))
    history.ask(ON, "--flamegate-against=HEAD")
    assert "E_WORKLOAD_DIFFERS" not in history.reasons("toy")


def test_a_broken_base_is_no_verdict_and_a_new_workload_passes(
    history: Project, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    for error in ("E_TARGET_NOT_FOUND", "E_DIED"):
        world.fail(ToolError(error, "It is missing.", ""), times=1)
        history.ask(ON, "--flamegate-against=HEAD~1").assert_outcomes(failed=1)
        assert history.verdict("toy")["verdict"] == "inconclusive"
    history.write("flamegate.toml", "[workloads.toy]\n")
    history.commit()
    declare(history)
    history.ask(ON, "--flamegate-against=HEAD").assert_outcomes(failed=1)
    assert history.verdict("toy")["verdict"] == "inconclusive"
    assert "says nothing about the change" in history.reasons("toy")["E_BAD_VALUE"]
    history.write("flamegate.toml", workload("fresh"))
    world.fail(ToolError("E_TARGET_NOT_FOUND", "It is missing.", ""), times=1)
    history.ask(ON, "--flamegate-against=HEAD~1").assert_outcomes(passed=1)
    assert history.verdict("fresh")["verdict"] == "no_baseline"


def test_a_commit_is_not_compared_with_itself(history: Project, world: World) -> None:
    history.ask(ON, "--flamegate-against=main").assert_outcomes(failed=1)
    assert "--flamegate-against=HEAD~1" in history.reasons("toy")["E_SAME_CODE"]
    assert world.started == []
    # Work that is injected is a difference.
    inject = "--flamegate-inject=toy:hash_round:+900%"
    history.ask(ON, "--flamegate-against=main", inject)
    assert history.verdict("toy")["pairs"]


@pytest.mark.usefixtures("world")
def test_an_engine_without_code_of_the_repository_says_so(history: Project) -> None:
    history.declare('[workloads.own]\nengine = "embedded"\nprompt = "x"\nmax_tokens = 8\n')
    history.commit()
    # Work that is injected is a difference.
    history.ask(ON, "--flamegate-against=HEAD", "--flamegate-inject=own:ternary_gemv:+30%")
    assert history.verdict("own")["pairs"]
    assert "W_SAME_PROGRAM" not in history.reasons("own")
    history.write("toy.py", "# a comment\n")
    result = history.ask(ON, "--flamegate-against=HEAD")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*W_SAME_PROGRAM: NO CODE WAS COMPARED*"])
    assert history.reasons("own")["W_SAME_PROGRAM"].startswith("NO CODE WAS COMPARED")


MAKE = '["true"]'
BUILD = '["sh", "-c", "test -e made_later || { echo cannot build this; exit 3; }"]'


LAMBDA = """
def test_it(flamegate):
    flamegate.measure(lambda p, n: iter([1] * n), prompt='x', max_tokens=3, name='toy')
"""


def test_a_base_that_cannot_be_had_is_an_error(history: Project, world: World) -> None:
    result = history.ask(ON, "--flamegate-against=-f")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (result.stdout.str() + result.stderr.str()).count("E_REV_UNKNOWN") == 1
    assert not history.artifacts.exists()
    history.write("test_lambda.py", LAMBDA)
    result = history.ask(ON, "--flamegate-against=HEAD", "test_lambda.py")
    result.stdout.fnmatch_lines(["*E_CALL_AT_REVISION*"])
    declare(history, build=BUILD)
    history.commit()
    history.write("made_later", "")
    history.ask(ON, "--flamegate-against=HEAD", "flamegate.toml").assert_outcomes(passed=1)
    assert history.verdict("toy")["verdict"] == "inconclusive"
    assert "cannot build this" in history.reasons("toy")["E_BUILD_FAILED"]
    assert world.started == []


def test_a_baseline_whose_commit_is_out_of_reach_decides_alone(
    history: Project, world: World
) -> None:
    git(history.path, "checkout", "-q", "HEAD~1")
    history.ask(ON, "--flamegate-update").assert_outcomes(passed=1)
    (history.path / ".git").rename(history.path / "earlier")
    history.write(".gitignore", "earlier\n")
    write_toy(history.path, 16000)
    history.commit()
    world.token_ns = SLOWER_NS
    history.ask(ON).assert_outcomes(failed=1)
    verdict = history.verdict("toy")
    assert (verdict["verdict"], verdict["method"]) == ("regressed", "stored")
    assert verdict["reasons"][0]["code"] == "E_SLOWER"
    assert "E_REV_UNKNOWN" in history.reasons("toy")["I_NOT_COMPARED"]


@pytest.mark.usefixtures("world")
def test_counted_instructions_of_both_sides_stand_beside_it(
    history: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    FakeValgrind(tools, per_token=100)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    history.ask(ON, "-o", "flamegate_instructions=true", "--flamegate-against=HEAD~1")
    latest = history.artifacts / "latest" / "toy"
    base, head = (
        parse_folded((latest / name).read_text())
        for name in ("base-instructions.folded", "instructions.folded")
    )
    assert {stack[-1].name: n for stack, n in base.items()} == {"decode": 700}
    assert base == head
    assert "700 instructions" in (latest / "instructions.svg").read_text()


COMMAND = '[workloads.{}]\ncommand = {}\nprompt = "x"\nmax_tokens = 8\n'


def test_a_program_that_both_sides_share_is_reported(
    history: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes.install(monkeypatch, profiled=False)
    history.write("own.sh", "echo one\n")
    programs = {"own": '["sh", "own.sh"]', "shared": '["sh", "-c", "echo one"]'}
    history.declare(*(COMMAND.format(*each) for each in programs.items()))
    history.commit()
    history.write("own.sh", "echo two\n")
    history.ask(*UNPROFILED, "--flamegate-against=HEAD").assert_outcomes(passed=2)
    assert "W_SAME_PROGRAM" not in history.reasons("own")
    assert "I_NOTE" in history.reasons("shared")


# Measured


def test_a_file_that_only_the_project_has_is_named(tmp_path: Path) -> None:
    command = ("./run", "model.bin", "-t")
    based = Workload("toy", "command", "x", 1, "", command=command, directory=tmp_path)
    died = ToolError("E_ENGINE_DIED", "It ended: Couldn't open file model.bin", "Run it by hand.")
    assert "model.bin is not in the checkout of ffffff" in base_error(based, "f" * 40, died).remedy
    (tmp_path / "model.bin").touch()
    assert base_error(based, "f" * 40, died).remedy == "Run it by hand."


def test_a_workload_that_a_policy_elsewhere_declares_is_never_new(tmp_path: Path) -> None:
    based = Workload("toy", "command", "x", 1, "policy.toml", command=("./run",))
    based = dataclasses.replace(based, directory=tmp_path)
    failed = ToolError("E_BUILD_FAILED", "make: no network.", "Build it by hand.")
    assert isinstance(base_error(based, "f" * 40, failed), NoBaselineError)
    assert base_error(based, "f" * 40, failed, has_workload=True).code == "E_BUILD_FAILED"


def test_a_new_test_is_new_whatever_file_declares_the_other_workloads(
    history: Project, world: World, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text((history.path / "flamegate.toml").read_text())
    test = "def test_own(flamegate):\n    flamegate.measure(toy.steady, prompt='x', max_tokens=8)\n"
    for text, expected in ((f"import toy\n{test}", "I_NEW_WORKLOAD"), ("", "E_TARGET_NOT_FOUND")):
        world.fail(ToolError("E_TARGET_NOT_FOUND", "It is missing.", "Look."), times=1)
        history.write("test_own.py", text)
        history.ask(
            *UNPROFILED,
            f"--flamegate-config={policy}",
            "--flamegate-against=HEAD",
            *(["test_own.py"] if text else []),
        )
        name = "test_own.test_own" if text else "toy"
        assert expected in history.reasons(name)


@pytest.mark.measures
@pytest.mark.usefixtures("py_spy", "brief")
def test_a_profile_names_the_function_that_got_slower(history: Project) -> None:
    options = (ON, "--flamegate-profiler=py-spy", "--flamegate-budget=30")
    # Four times as slow: four pairs decide.
    write_toy(history.path, 16_000)
    history.commit()
    history.ask(*options, "--flamegate-against=HEAD~2").assert_outcomes(failed=1)
    verdict = history.verdict("toy")
    assert verdict["attribution"][0]["name"] == "hash_round"
    # Phases are timed by the wall clock, so a busy machine leaves them uncertain.
    assert [phase["name"] for phase in verdict["phases"]] == ["prefill", "decode"]
    drawn = (history.artifacts / "latest" / "toy" / "diff.svg").read_text()
    assert "hash_round" in drawn
    assert f"base {verdict['against'][:7]}" in drawn
    base, head = history.document("toy", "base-evidence.json"), history.document("toy")
    assert base["token_digest"] == head["token_digest"]
    for old, new in zip(base["runs"], head["runs"], strict=True):
        assert (old["pair"], old["cpu"]) == (new["pair"], new["cpu"])
    # No path of the checkout stays in it.
    assert "flamegate-" not in json.dumps(base).replace("pytest-flamegate", "")


CHECKS = """
from toy import steady


def engine(prompt, max_tokens):
    yield from steady(prompt, max_tokens)


def test_speed(flamegate):
    flamegate.measure(engine, prompt='x', max_tokens=8, name='speed')
"""


def require_own_tokens(project: Project, name: str) -> None:
    """Each side ran its own code: the base yields 7, the head 8. One pair of processes shows it."""
    assert "E_TOKENS_DIFFER" in project.reasons(name)
    for file, token in (("base-evidence.json", "7"), ("evidence.json", "8")):
        assert project.document(name, file)["tokens"] == [token] * 8


@pytest.mark.measures
def test_a_function_of_a_test_module_is_imported_on_both_sides(history: Project) -> None:
    history.write("checks/test_speed.py", CHECKS)
    history.write("conftest.py", "")
    history.commit()
    history.write("toy.py", (history.path / "toy.py").read_text().replace("yield 7", "yield 8"))
    history.ask(*UNPROFILED, "--flamegate-against=HEAD", "checks")
    require_own_tokens(history, "speed")


@pytest.mark.measures
def test_each_side_runs_in_the_environment_that_its_build_makes(history: Project) -> None:
    # The environment has a package that the one running this test has not: of two versions.
    build = (
        f'["sh", "-c", "{sys.executable} -m venv --without-pip .venv && '
        'for place in .venv/lib/python3*/site-packages; do cp side.py $place/only_there.py; done"]'
    )
    declare(history, "engine:steady", build=build)
    engine = "def steady(prompt, max_tokens):\n    return iter([TOKEN] * max_tokens)\n"
    history.write("engine.py", f"from only_there import TOKEN\n\n\n{engine}")
    history.write("side.py", "TOKEN = 7\n")
    history.write(".gitignore", ".venv\n__pycache__\n")
    history.commit()
    history.write("side.py", "TOKEN = 8\n")
    history.ask(*UNPROFILED, "--flamegate-against=HEAD")
    require_own_tokens(history, "toy")


def test_a_program_that_the_base_cannot_build_is_built_as_the_head_declares(
    project: Project,
) -> None:
    declared = '[workloads.toy]\ncommand = ["bin/engine"]\nprompt = "2"\nmax_tokens = 4\n'
    project.write("base/flamegate.toml", declared)
    project.declare(f'{declared}build = ["make"]\n')
    (head,) = read_file(project.path / "flamegate.toml")
    checkout: Any = SimpleNamespace(move_path=lambda path: path / "base", commit="b" * 40)
    assert declare_base(head, checkout, []).build == ("make",)
    project.write("base/bin/engine", "")
    assert declare_base(head, checkout, []).build == ()
