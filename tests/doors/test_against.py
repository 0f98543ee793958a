"""``--flamegate-against=REV``: two revisions of a project in pairs, with real git.

Processes are fakes, except in the tests marked ``measures``: their effects are far larger than
any noise, so that no test depends on a quiet machine.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.profile.frames import parse_folded
from tests.doors.project import TOY, Project, workload
from tests.profile.fakes import FakeValgrind
from tests.run import fakes
from tests.run.fakes import World
from tests.workload.repositories import git, write

ON = "--flamegate"
UNPROFILED = (ON, "--flamegate-profiler=none", "--flamegate-budget=20")
SLOWER_NS = round(1.3 * fakes.TOKEN_NS)
STEADY = """

def steady(prompt, max_tokens):
    for _ in generate(prompt, max_tokens):
        yield 7
"""


@pytest.fixture
def history(project: Project) -> Project:
    """A repository whose second commit makes ``hash_round`` twice as slow; tokens stay the same."""
    git(project.path, "init", "-q", "-b", "main")
    declared = {
        "flamegate.toml": workload("toy", target="steady", max_tokens="8"),
        # What the harness around this test writes.
        ".gitignore": "stdout\nstderr\nrunpytest-*\n__pycache__\n.pytest_cache\n",
    }
    for rounds in (4000, 8000):
        write(project.path, {**declared, "toy.py": TOY.replace("{rounds}", str(rounds)) + STEADY})
        git(project.path, "add", "-A")
        git(project.path, "commit", "-q", "-m", f"{rounds} rounds")
    return project


def commit(project: Project) -> None:
    git(project.path, "add", "-A")
    git(project.path, "commit", "-q", "-m", "more")


def evidence(project: Project, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.artifacts / "latest" / "toy" / name).read_text())
    return found


def codes(project: Project, name: str = "toy") -> list[str]:
    return [reason["code"] for reason in project.verdict(name)["reasons"]]


def test_the_slower_commit_fails_and_the_base_stands_beside_it(
    history: Project, world: World
) -> None:
    world.token_ns = SLOWER_NS
    result = history.ask(ON, "--flamegate-against=HEAD~1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "flamegate: 1 workload, at most 0:50; less if the pairs decide sooner",
            "  evidence  .flamegate/latest/toy/diff.svg · *",
            "FAILED flamegate.toml::toy - regressed: 2*% slower*",
        ]
    )
    verdict = history.verdict("toy")
    assert (verdict["method"], verdict["pairs"]) == ("pairs", verdict["looks"][0])
    assert verdict["against"] == git(history.path, "rev-parse", "HEAD~1")
    base, head = evidence(history, "base-evidence.json"), evidence(history, "evidence.json")
    assert (base["side"], head["side"]) == ("base", "head")
    assert base["commit"]["revision"] == verdict["against"]
    assert {"base-profile.folded", "diff.svg"} <= history.latest("toy")
    assert len(git(history.path, "worktree", "list").splitlines()) == 1


def test_uncommitted_changes_are_the_head(history: Project, world: World) -> None:
    world.base_token_ns = SLOWER_NS
    text = (history.path / "toy.py").read_text() + "# faster\n"
    history.write("toy.py", text)
    history.ask(ON, "--flamegate-against=HEAD").assert_outcomes(passed=1)
    assert history.verdict("toy")["verdict"] == "improved"
    assert evidence(history, "evidence.json")["commit"]["uncommitted"] == 1
    assert (history.path / "toy.py").read_text() == text


LAMBDA = """
def test_it(flamegate):
    flamegate.measure(lambda p, n: iter([1] * n), prompt='x', max_tokens=3, name='toy')
"""
BUILD = '["sh", "-c", "test -e made_later || { echo cannot build this; exit 3; }"]'


@pytest.mark.parametrize(
    ("rev", "more", "words"),
    [
        ("nonsense", (), "E_REV_UNKNOWN"),
        ("-f", (), "E_REV_UNKNOWN"),
        ("HEAD", ("test_lambda.py",), "E_CALL_AT_REVISION"),
        ("HEAD", ("flamegate.toml",), "E_BASE_BUILD_FAILED"),
    ],
)
def test_a_base_that_cannot_be_had_is_an_error(
    history: Project, world: World, rev: str, more: tuple[str, ...], words: str
) -> None:
    history.write("test_lambda.py", LAMBDA)
    if words == "E_BASE_BUILD_FAILED":
        history.declare(workload("toy", target="steady", max_tokens="8", build=BUILD))
        history.write("made_later", "")
    result = history.ask(ON, f"--flamegate-against={rev}", *(more or ("flamegate.toml",)))
    result.assert_outcomes(failed=1)
    assert codes(history) == [words]
    if words == "E_BASE_BUILD_FAILED":
        result.stdout.fnmatch_lines(["*cannot build this*"])
    assert world.started == []


def test_the_engine_that_comes_along_differs_in_nothing(project: Project, world: World) -> None:
    git(project.path, "init", "-q", "-b", "main")
    git(project.path, "commit", "-q", "--allow-empty", "-m", "nothing")
    result = project.ask(ON, "--flamegate-against=HEAD", "embedded::1tok")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*E_NOTHING_DIFFERS*"])
    assert world.started == []


@pytest.mark.usefixtures("world")
def test_a_shallow_clone_says_how_to_fetch(
    history: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shallow = history.path / "shallow"
    git(history.path, "clone", "-q", "--depth=1", f"file://{history.path}", str(shallow))
    monkeypatch.chdir(shallow)
    result = history.ask(ON, "--flamegate-against=HEAD~1", f"--rootdir={shallow}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*E_REV_SHALLOW*fetch*"])


def test_other_tokens_are_not_comparable(history: Project, world: World) -> None:
    world.base_tokens = ("7", *world.tokens[1:])
    result = history.ask(ON, "--flamegate-against=HEAD~1", "-rA")
    assert history.verdict("toy")["verdict"] == "not_comparable"
    assert set(codes(history)) >= {"E_TOKENS_DIFFER"}
    result.stdout.fnmatch_lines([f"*token 0 differs: '7' at the *, '{world.tokens[0]}' now*"])


@pytest.mark.usefixtures("world")
def test_options_that_exclude_each_other_are_a_usage_error(history: Project) -> None:
    result = history.ask(ON, "--flamegate-against=HEAD", "--flamegate-update")
    assert (result.ret, "E_UPDATE_CONFLICT" in result.stderr.str()) == (4, True)
    result = history.ask("--flamegate-against=HEAD")
    assert "does nothing without --flamegate" in result.stderr.str()


def test_a_baseline_whose_commit_is_out_of_reach_decides_alone(
    history: Project, world: World
) -> None:
    git(history.path, "checkout", "-q", "HEAD~1")
    history.ask(ON, "--flamegate-update").assert_outcomes(passed=1)
    (history.path / ".git").rename(history.path / "earlier")
    git(history.path, "init", "-q", "-b", "main")
    history.write("toy.py", (history.path / "toy.py").read_text().replace("=4000", "=16000"))
    git(history.path, "add", "toy.py", "flamegate.toml")
    git(history.path, "commit", "-q", "-m", "another history")
    world.token_ns = SLOWER_NS
    history.ask(ON).assert_outcomes(failed=1)
    verdict = history.verdict("toy")
    assert (verdict["verdict"], verdict["method"]) == ("regressed", "stored")
    (note,) = [r["message"] for r in verdict["reasons"] if r["code"] == "I_NOT_COMPARED"]
    assert "E_REV_UNKNOWN" in note


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


# Measured


@pytest.mark.measures
@pytest.mark.usefixtures("py_spy")
def test_a_profile_names_the_function_that_got_slower(history: Project) -> None:
    options = (ON, "--flamegate-profiler=py-spy", "--flamegate-budget=12")
    history.run(*options, "--flamegate-against=HEAD~1").assert_outcomes(failed=1)
    verdict = history.verdict("toy")
    assert verdict["explained_by"] == ["hash_round"]
    assert verdict["attribution"][0]["name"] == "hash_round"
    # Phases are timed by the wall clock, so a busy machine leaves them uncertain.
    assert [phase["name"] for phase in verdict["phases"]] == ["prefill", "decode"]
    assert {"base-evidence.json", "base-profile.folded", "diff.svg"} <= history.latest("toy")
    drawn = (history.artifacts / "latest" / "toy" / "diff.svg").read_text()
    assert "hash_round costs" in drawn
    assert f"base {verdict['against'][:7]}" in drawn
    base, head = evidence(history, "base-evidence.json"), evidence(history, "evidence.json")
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


@pytest.mark.measures
def test_a_function_of_a_test_module_is_imported_on_both_sides(history: Project) -> None:
    history.write("checks/test_speed.py", CHECKS)
    history.write("conftest.py", "")
    commit(history)
    text = (history.path / "toy.py").read_text()
    history.write("toy.py", text.replace("rounds=8000", "rounds=24000"))
    result = history.run(*UNPROFILED, "--flamegate-against=HEAD", "checks")
    result.assert_outcomes(failed=1)
    assert history.verdict("speed")["verdict"] == "regressed"


IN_ENVIRONMENT = """
from only_there import ROUNDS
from toy import hash_round


def steady(prompt, max_tokens):
    for _ in range(max_tokens):
        hash_round(7, ROUNDS)
        yield 7
"""


@pytest.mark.measures
def test_each_side_runs_in_the_environment_that_its_build_makes(history: Project) -> None:
    # The environment has a package that the one running this test has not: of two versions.
    build = (
        f'["sh", "-c", "{sys.executable} -m venv --without-pip .venv && '
        'for place in .venv/lib/python3*/site-packages; do cp speed.py $place/only_there.py; done"]'
    )
    declared = workload("toy", target="steady", max_tokens="8", build=build)
    history.declare(declared.replace("toy:steady", "engine:steady"))
    history.write("engine.py", IN_ENVIRONMENT)
    history.write("speed.py", "ROUNDS = 4000\n")
    history.write(".gitignore", ".venv\n__pycache__\n")
    commit(history)
    history.write("speed.py", "ROUNDS = 12000\n")
    history.run(*UNPROFILED, "--flamegate-against=HEAD").assert_outcomes(failed=1)
    assert history.verdict("toy")["verdict"] == "regressed"


PROGRAM = """
import sys, time
for i in range(12):
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        pass
    print('tok', flush=True)
"""


@pytest.mark.measures
def test_programs_are_compared_and_a_shared_one_is_reported(history: Project) -> None:
    # Far enough apart that a busy machine too reads one at a time, and separates decode.
    history.write("slow.py", PROGRAM.replace("SECONDS", "0.006"))
    history.declare(
        '[workloads.own]\nengine = "command"\ntoken_unit = "word"\nprompt = "x"\n'
        f'max_tokens = 12\ncommand = ["{sys.executable}", "slow.py"]\n',
        '[workloads.shared]\nengine = "command"\ntoken_unit = "word"\nprompt = "x"\n'
        'max_tokens = 2\ncommand = ["sh", "-c", "echo one; echo two"]\n',
    )
    commit(history)
    history.write("slow.py", PROGRAM.replace("SECONDS", "0.024"))
    history.run(*UNPROFILED, "--flamegate-budget=8", "--flamegate-against=HEAD")
    assert history.verdict("own")["verdict"] == "regressed"
    assert "I_NOTE" not in codes(history, "own")
    assert "I_NOTE" in codes(history, "shared")
    assert history.verdict("shared")["verdict"] != "regressed"
