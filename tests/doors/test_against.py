"""``--flamegate-against=REV``: two revisions of a project, measured in pairs, for real.

The effects are far larger than any noise, so that no test depends on a quiet machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.profile.folded import parse_folded
from tests.doors.project import TOY, workload
from tests.profile.fake_valgrind import FakeValgrind
from tests.workload.repositories import git, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doors.project import Project


pytestmark = pytest.mark.measures


UNPROFILED = ("--flamegate", "--flamegate-profiler=none", "--flamegate-budget=20")


def toy(rounds: int) -> dict[str, str]:
    return {"toy.py": TOY.replace("{rounds}", str(rounds))}


@pytest.fixture
def history(project: Project) -> Project:
    """A repository whose second commit makes ``hash_round`` twice as slow; tokens stay the same."""
    git(project.path, "init", "-q", "-b", "main")
    declared = {
        "flamegate.toml": workload("toy", target="steady", max_tokens="8"),
        # What the harness around this test writes.
        ".gitignore": "stdout\nstderr\nrunpytest-*\n__pycache__\n.pytest_cache\n",
    }
    steady = (
        "\n\ndef steady(prompt, max_tokens):\n"
        "    for _ in generate(prompt, max_tokens):\n        yield 7\n"
    )
    for rounds in (4000, 8000):
        files = {"toy.py": toy(rounds)["toy.py"] + steady}
        write(project.path, {**declared, **files})
        git(project.path, "add", "-A")
        git(project.path, "commit", "-q", "-m", f"{rounds} rounds")
    return project


def evidence(project: Project, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.artifacts / "latest" / "toy" / name).read_text())
    return found


def test_the_slower_commit_fails_and_the_base_stands_beside_it(history: Project) -> None:
    result = history.run(*UNPROFILED, "--flamegate-against=HEAD~1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED flamegate.toml::toy - regressed: 4*% slower*"])
    verdict = history.verdict("toy")
    assert verdict["method"] == "pairs"
    assert verdict["pairs"] in verdict["looks"]
    assert verdict["against"] == git(history.path, "rev-parse", "HEAD~1")
    base, head = evidence(history, "base-evidence.json"), evidence(history, "evidence.json")
    assert (base["side"], head["side"]) == ("base", "head")
    assert base["commit"]["revision"] == verdict["against"]
    assert base["token_digest"] == head["token_digest"]
    for old, new in zip(base["runs"], head["runs"], strict=True):
        assert (old["pair"], old["cpu"]) == (new["pair"], new["cpu"])
    told = json.dumps(base)
    assert "flamegate-" not in told.replace("pytest-flamegate", "")
    assert len(git(history.path, "worktree", "list").splitlines()) == 1


def test_the_other_way_round_it_is_improved(history: Project) -> None:
    git(history.path, "checkout", "-q", "HEAD~1")
    result = history.run(*UNPROFILED, "--flamegate-against=main")
    result.assert_outcomes(passed=1)
    assert history.verdict("toy")["verdict"] == "improved"


def test_changes_that_are_not_committed_are_compared(history: Project) -> None:
    text = (history.path / "toy.py").read_text()
    history.write("toy.py", text.replace("rounds=8000", "rounds=24000"))
    result = history.run(*UNPROFILED, "--flamegate-against=HEAD")
    result.assert_outcomes(failed=1)
    assert history.verdict("toy")["verdict"] == "regressed"
    assert evidence(history, "evidence.json")["commit"]["uncommitted"] >= 1
    assert "rounds=24000" in (history.path / "toy.py").read_text()


@pytest.mark.usefixtures("py_spy")
def test_a_profile_names_the_function_that_got_slower(history: Project) -> None:
    options = ("--flamegate", "--flamegate-profiler=py-spy", "--flamegate-budget=30")
    result = history.run(*options, "--flamegate-against=HEAD~1")
    result.assert_outcomes(failed=1)
    verdict = history.verdict("toy")
    assert verdict["explained_by"] == ["hash_round"]
    assert verdict["attribution"][0]["name"] == "hash_round"
    assert {phase["name"]: phase["certain"] for phase in verdict["phases"]}["decode"] is True
    assert {"base-evidence.json", "base-profile.folded", "diff.svg"} <= history.latest("toy")
    drawn = (history.artifacts / "latest" / "toy" / "diff.svg").read_text()
    assert "hash_round costs" in drawn
    assert f"base {verdict['against'][:7]}" in drawn
    result.stdout.fnmatch_lines(["  evidence  .flamegate/latest/toy/diff.svg · *"])


@pytest.mark.parametrize(("rev", "code"), [("nonsense", "E_REV_UNKNOWN"), ("-f", "E_REV_UNKNOWN")])
def test_a_revision_that_is_none_is_an_error(history: Project, rev: str, code: str) -> None:
    result = history.run(*UNPROFILED, f"--flamegate-against={rev}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{code}*"])
    assert history.verdict("toy")["verdict"] == "error"


def test_a_shallow_clone_says_how_to_fetch(history: Project) -> None:
    shallow = history.path / "shallow"
    git(history.path, "clone", "-q", "--depth=1", f"file://{history.path}", str(shallow))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *UNPROFILED, "--flamegate-against=HEAD~1"],
        cwd=shallow,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "E_REV_SHALLOW" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_base_that_does_not_build_is_not_blamed_on_the_change(history: Project) -> None:
    build = '["sh", "-c", "test -e made_later || { echo cannot build this; exit 3; }"]'
    history.declare(workload("toy", target="steady", max_tokens="8", build=build))
    history.write("made_later", "")
    result = history.run(*UNPROFILED, "--flamegate-against=HEAD")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*E_BASE_BUILD_FAILED*", "*cannot build this*"])
    assert history.verdict("toy")["verdict"] == "error"


def test_other_tokens_are_not_comparable(history: Project) -> None:
    text = (history.path / "toy.py").read_text()
    history.write("toy.py", text.replace("yield 7", "yield 8"))
    result = history.run(*UNPROFILED, "--flamegate-against=HEAD", "-rA")
    assert history.verdict("toy")["verdict"] == "not_comparable"
    codes = [reason["code"] for reason in history.verdict("toy")["reasons"]]
    assert codes[:2] == ["E_TOKENS_DIFFER", "E_TOKENS_DIFFER"]
    result.stdout.fnmatch_lines(["*token 0 differs: '7' at the baseline, '8' now*"])


def test_a_lambda_cannot_be_had_at_another_revision(history: Project) -> None:
    history.write(
        "test_lambda.py",
        "def test_it(flamegate):\n"
        "    flamegate.measure(lambda p, n: iter([1] * n), prompt='x', max_tokens=3)\n",
    )
    result = history.run(*UNPROFILED, "--flamegate-against=HEAD", "test_lambda.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*E_CALL_AT_REVISION*"])


def test_a_function_of_a_test_module_is_imported_on_both_sides(history: Project) -> None:
    history.write(
        "checks/test_speed.py",
        "from toy import steady\n\n\n"
        "def engine(prompt, max_tokens):\n    yield from steady(prompt, max_tokens)\n\n\n"
        "def test_speed(flamegate):\n"
        "    flamegate.measure(engine, prompt='x', max_tokens=8, name='speed')\n",
    )
    history.write("conftest.py", "")
    git(history.path, "add", "-A")
    git(history.path, "commit", "-q", "-m", "a test")
    text = (history.path / "toy.py").read_text()
    history.write("toy.py", text.replace("rounds=8000", "rounds=24000"))
    result = history.run(*UNPROFILED, "--flamegate-against=HEAD", "checks")
    result.assert_outcomes(failed=1)
    assert history.verdict("speed")["verdict"] == "regressed"


def test_what_cannot_go_together_is_refused(history: Project) -> None:
    result = history.run(*UNPROFILED, "--flamegate-against=HEAD", "--flamegate-update")
    assert "E_UPDATE_CONFLICT" in result.stderr.str() + result.stdout.str()
    result = history.run("--flamegate-against=HEAD")
    assert "does nothing without --flamegate" in result.stderr.str() + result.stdout.str()


def test_the_engine_that_comes_along_differs_in_nothing(project: Project) -> None:
    git(project.path, "init", "-q", "-b", "main")
    git(project.path, "commit", "-q", "--allow-empty", "-m", "nothing")
    result = project.run(*UNPROFILED, "--flamegate-against=HEAD", "embedded::1tok")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*E_NOTHING_DIFFERS*"])


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_ctrl_c_leaves_no_worktree_and_no_process(history: Project, number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *UNPROFILED, "--flamegate-against=HEAD~1"],
        cwd=history.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        deadline_s = time.monotonic() + 60
        while len(git(history.path, "worktree", "list").splitlines()) < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        time.sleep(1.0)
        os.kill(process.pid, number)
        process.communicate(timeout=60)
    assert len(git(history.path, "worktree", "list").splitlines()) == 1
    assert not list(_left(history.path))


def _left(directory: Path) -> list[str]:
    """Return the command lines of processes that run in ``directory``."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(directory) and process.pid != os.getpid():
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def test_a_suspicion_is_settled_in_pairs_with_the_baselines_commit(history: Project) -> None:
    git(history.path, "checkout", "-q", "HEAD~1")
    options = ("--flamegate", "--flamegate-profiler=none", "--flamegate-budget=3")
    history.run(*options, "--flamegate-update")
    git(history.path, "checkout", "-q", "main")
    result = history.run(*options)
    result.assert_outcomes(failed=1)
    verdict = history.verdict("toy")
    assert (verdict["verdict"], verdict["method"]) == ("regressed", "pairs")
    assert verdict["against"] == git(history.path, "rev-parse", "HEAD~1")
    # Twice as slow is regressed, unless the machine was in another state altogether.
    (told,) = [r["message"] for r in verdict["reasons"] if r["code"] == "I_STORED_BASELINE"]
    assert told.startswith("The stored baseline alone said ")


def test_where_the_base_is_out_of_reach_the_stored_baseline_decides(history: Project) -> None:
    git(history.path, "checkout", "-q", "HEAD~1")
    options = ("--flamegate", "--flamegate-profiler=none", "--flamegate-budget=3")
    history.run(*options, "--flamegate-update")
    (history.path / ".git").rename(history.path / "kept")
    git(history.path, "init", "-q", "-b", "main")
    history.write("toy.py", (history.path / "toy.py").read_text().replace("=4000", "=16000"))
    git(history.path, "add", "toy.py", "flamegate.toml")
    git(history.path, "commit", "-q", "-m", "another history")
    history.run(*options)
    verdict = history.verdict("toy")
    assert verdict["method"] == "stored"
    # Four times as slow: a machine in another state may leave it open, and never lets it pass.
    assert verdict["verdict"] in ("regressed", "not_comparable", "inconclusive")
    (told,) = [r["message"] for r in verdict["reasons"] if r["code"] == "I_NOT_COMPARED"]
    assert "E_REV_UNKNOWN" in told


def test_each_side_runs_in_the_environment_that_its_build_makes(history: Project) -> None:
    # The environment has a package that the one running this test has not: of two versions.
    build = (
        f'["sh", "-c", "{sys.executable} -m venv --without-pip .venv && '
        'for place in .venv/lib/python3*/site-packages; do cp speed.py $place/only_there.py; done"]'
    )
    engine = (
        "from only_there import ROUNDS\nfrom toy import hash_round\n\n\n"
        "def steady(prompt, max_tokens):\n"
        "    for _ in range(max_tokens):\n"
        "        hash_round(7, ROUNDS)\n        yield 7\n"
    )
    history.declare(workload("toy", target="steady", max_tokens="8", build=build))
    text = (history.path / "flamegate.toml").read_text()
    history.write("flamegate.toml", text.replace("toy:steady", "engine:steady"))
    history.write("engine.py", engine)
    history.write("speed.py", "ROUNDS = 4000\n")
    history.write(".gitignore", ".venv\n__pycache__\n")
    git(history.path, "add", "-A")
    git(history.path, "commit", "-q", "-m", "an environment")
    history.write("speed.py", "ROUNDS = 12000\n")
    result = history.run(*UNPROFILED, "--flamegate-against=HEAD")
    result.assert_outcomes(failed=1)
    assert history.verdict("toy")["verdict"] == "regressed"


def test_programs_are_compared_and_a_shared_one_is_told(history: Project) -> None:
    script = "import sys, time\nfor i in range(12):\n    t = time.perf_counter() + {s}\n" + (
        "    while time.perf_counter() < t: pass\n    print('tok', flush=True)\n"
    )
    # Far enough apart that a busy machine too reads one at a time, and tells decode apart.
    history.write("slow.py", script.replace("{s}", "0.006"))
    history.declare(
        '[workloads.own]\nengine = "command"\ntoken_unit = "word"\nprompt = "x"\n'
        f'max_tokens = 12\ncommand = ["{sys.executable}", "slow.py"]\n',
        '[workloads.shared]\nengine = "command"\ntoken_unit = "word"\nprompt = "x"\n'
        'max_tokens = 2\ncommand = ["sh", "-c", "echo one; sleep 0.01; echo two"]\n',
    )
    git(history.path, "add", "-A")
    git(history.path, "commit", "-q", "-m", "programs")
    history.write("slow.py", script.replace("{s}", "0.024"))
    history.run(*UNPROFILED, "--flamegate-against=HEAD")
    assert history.verdict("own")["verdict"] == "regressed"
    assert "I_NOTE" not in {reason["code"] for reason in history.verdict("own")["reasons"]}
    assert "I_NOTE" in {reason["code"] for reason in history.verdict("shared")["reasons"]}
    assert history.verdict("shared")["verdict"] != "regressed"


def test_counted_instructions_of_both_sides_stand_beside_it(
    history: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    FakeValgrind(tools, per_token=100)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    options = (*UNPROFILED, "--flamegate-budget=1", "-o", "flamegate_instructions=true")
    history.run(*options, "--flamegate-against=HEAD~1")
    latest = history.artifacts / "latest" / "toy"
    base, head = (
        parse_folded((latest / name).read_text())
        for name in ("base-instructions.folded", "instructions.folded")
    )
    assert {stack[-1].name: n for stack, n in base.items()} == {"decode": 700}
    assert base == head
    assert "700 instructions" in (latest / "instructions.svg").read_text()
