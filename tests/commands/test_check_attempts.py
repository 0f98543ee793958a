"""``flamegate check`` of a commit that was tried before: all attempts count."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.receipt.documents import decode_evidence
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.run import find_runs
from tests.commands.asked import SLOWER_NS, Repository, ask
from tests.run import fakes


@pytest.fixture
def attempts(repo: Repository) -> Path:
    """Return a directory with the one attempt so far: the head was slower, and is no longer."""
    repo.declare()
    repo.world.token_ns = SLOWER_NS
    repo.check(1)
    repo.world.token_ns = fakes.TOKEN_NS
    directory = repo.path.parent / "attempts"
    shutil.copytree(repo.path / ".flamegate/latest", directory / "1")
    return directory


def answer(repo: Repository) -> tuple[str, int]:
    found = repo.answer()
    return found["required"][0]["verdict"], found["attempt"]


def test_a_red_attempt_stays_red_until_all_of_them_contradict_it(
    repo: Repository, attempts: Path
) -> None:
    repo.check(0)  # as if it were the first
    for number in range(2, 9):
        code = ask("check", "--base=HEAD~1", f"--earlier={attempts}")
        assert answer(repo) == ("pass" if code == 0 else "regressed", number)
        assert f"in attempt {number}, with all earlier ones" in repo.run.read().out
        # A copy of an attempt is no further one, and no reason to forget it.
        judged = ("check", "--base=HEAD~1", f"--receipts={repo.path / '.flamegate/latest'}")
        shutil.copytree(repo.path / ".flamegate/latest", attempts / str(number))
        repo.run(code, *judged, f"--earlier={attempts}")
        repo.run(0, *judged)
        if code == 0:
            break
    assert 2 < number < 8


def rename(run: Path) -> None:
    run.rename(run.with_name("other"))


def edit_receipt(run: Path) -> None:
    (run / "receipt.json").write_text((run / "receipt.json").read_text().replace("1", "2", 1))


@pytest.mark.parametrize(
    "change",
    [
        rename,
        edit_receipt,
        lambda run: (run / "profile.folded").unlink(),
        lambda run: (run / "base-evidence.json").unlink(),
        lambda run: (run / "evidence.json").write_text("{"),
    ],
)
def test_an_attempt_that_cannot_be_judged_leaves_a_later_pass_open(
    repo: Repository, attempts: Path, change: Callable[[Path], object]
) -> None:
    change(attempts / "1/toy")
    printed = repo.check(4, f"--earlier={attempts}", "--attempt=2").out
    assert answer(repo) == ("inconclusive", 2)
    assert "E_EARLIER_ATTEMPT" in printed
    assert "attempts/1" in "".join(printed.split())


def test_an_attempt_of_a_base_that_nobody_has_cannot_be_judged(
    repo: Repository, attempts: Path
) -> None:
    path = attempts / "1/toy/base-evidence.json"
    revision = re.search(r'"revision": "(\w{40})"', path.read_text())
    assert revision is not None
    path.write_text(path.read_text().replace(revision[1], "0" * 40))
    printed = repo.check(4, f"--earlier={attempts}", "--attempt=2").out
    assert "its base 000000000000 is no commit of the repository" in " ".join(printed.split())


def test_an_attempt_without_a_verdict_is_missing_by_name(repo: Repository, attempts: Path) -> None:
    (attempts / "1/toy/verdict.json").unlink()
    printed = repo.check(4, f"--earlier={attempts}", "--attempt=2").err
    assert "No attempt, because it has no verdict.json: '1'." in printed


def test_an_attempt_of_another_head_leaves_a_pass_open_and_one_with_another_base_does_not(
    repo: Repository, attempts: Path
) -> None:
    repo.commit()
    repo.check(4, f"--earlier={attempts}", base="HEAD~2")
    repo.world.token_ns = SLOWER_NS
    repo.check(1)
    repo.world.token_ns = fakes.TOKEN_NS
    shutil.rmtree(attempts / "1")
    shutil.copytree(repo.path / ".flamegate/latest", attempts / "1")
    repo.check(0, f"--earlier={attempts}", base="HEAD~2")


def test_a_green_attempt_does_not_become_the_first_by_a_copy_or_a_nonce(
    repo: Repository, attempts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = f"--earlier={attempts}"
    repo.check(1, earlier)
    shutil.copytree(repo.path / ".flamegate/latest", attempts / "10")
    shutil.copytree(attempts / "1", attempts / "2")
    # The red one again: as the last of two, it would leave the first answer to the green one.
    repo.check(1, earlier, f"--receipts={attempts / '1'}")

    def with_one_nonce(data: bytes) -> Evidence:
        found = decode_evidence(data)
        return replace(found, nonce="0" * 32) if found.side == "head" else found

    monkeypatch.setattr("pytest_flamegate.run.stored_run.decode_evidence", with_one_nonce)
    shutil.rmtree(attempts / "10")  # two green ones outweigh the red one
    repo.check(1, earlier)


@pytest.mark.parametrize(
    ("options", "attempt", "code"),
    [
        (("--attempt=3",), None, 4),
        (("--attempt=2",), None, 1),
        (("--attempt=0",), None, 2),
        (("--attempt=-1",), None, 2),
        ((), "2", 1),
        ((), None, 1),
    ],
)
def test_an_attempt_that_is_missing_fails_the_check(
    repo: Repository,
    attempts: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    attempt: str | None,
    code: int,
) -> None:
    if attempt is not None:
        monkeypatch.setenv("GITHUB_RUN_ATTEMPT", attempt)
        assert "E_ATTEMPTS_MISSING" in repo.check(4).err
        assert not repo.answer()["passed"]
        # The judge's own attempts are none of the measurement.
        repo.check(1, f"--receipts={attempts / '1'}")
    # These are no attempts.
    (attempts / "2/toy").mkdir(parents=True)
    (attempts / "README.txt").write_text("Nothing.")
    printed = repo.check(code, f"--earlier={attempts}", *options)
    assert ("E_ATTEMPTS_MISSING" in printed.err) == (code == 4)
    if code != 1:
        document = repo.answer()
        assert (document["passed"], document["exit_code"]) == (False, code)
        assert document["sentence"].startswith(
            "check failed: --attempt is "
            if code == 2
            else "check failed: This is attempt 3 at this commit, and 1 of the 2 earlier ones"
        )
        assert "check failed: " in repo.page()


def test_a_number_of_an_attempt_of_any_length_is_a_large_one(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.declare()
    repo.commit()
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "9" * 5000)
    assert "E_ATTEMPTS_MISSING: This is attempt 999999999 at" in repo.check(4).err


def test_an_attempt_that_ended_with_an_error_is_not_missing(
    repo: Repository, attempts: Path
) -> None:
    (attempts / "2/toy").mkdir(parents=True)
    repo.world.fail(ToolError("E_ENGINE_FAILED", "It broke.", ""), times=1)
    repo.check(4)
    shutil.copy(repo.path / ".flamegate/latest/toy/verdict.json", attempts / "2/toy")
    printed = repo.check(1, f"--earlier={attempts}", "--attempt=3")
    assert answer(repo) == ("regressed", 3)
    assert "no earlier attempt" not in printed.out


def test_the_limit_of_directories_holds_for_all_attempts_together(
    repo: Repository, attempts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_runs, "MAX_DIRECTORIES", 4)
    for number in (2, 3):
        shutil.copytree(attempts / "1", attempts / str(number))
    printed = repo.check(3, f"--earlier={attempts}").err
    assert "E_TOO_MANY_RUNS" in printed
    assert "There are more than 4 directories in '" in printed
    assert all(f"{attempts / str(number)}'" in printed for number in (1, 2, 3))


GH = """\
#!/usr/bin/env python3
import json, os, subprocess, sys
from pathlib import Path

words = sys.argv[1:]
if words[:2] == ["run", "download"]:
    Path(words[words.index("--dir") + 1]).mkdir(parents=True)
    sys.exit()
path = next(each for each in words if each.startswith("repos/"))
answers = json.loads(Path(os.environ["ANSWERS"]).read_text())
query = words[words.index("--jq") + 1]
found = json.dumps(answers[path.removeprefix("repos/o/r/actions/").partition("&per_page")[0]])
sys.exit(subprocess.run(["jq", "-r", query], input=found, text=True).returncode)
"""
"""Answers like ``gh`` from a file of the server's documents."""


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_workflow_counts_the_attempts_of_all_runs_and_takes_those_it_kept(
    tmp_path: Path,
) -> None:
    yaml = pytest.importorskip("yaml")
    page = Path(__file__).parents[2] / "docs/github/flamegate-judge.yml"
    steps = yaml.safe_load(page.read_text())["jobs"]["judge"]["steps"]
    script = next(each["run"] for each in steps if each.get("name") == "Find the earlier attempts")

    def kept(run: int, branch: str = "main", repository: int = 1) -> dict[str, object]:
        found = {"id": run, "head_branch": branch, "head_repository_id": repository}
        return {"workflow_run": {**found, "repository_id": 1}}

    def jobs(conclusion: str) -> dict[str, object]:
        return {"jobs": [{"steps": [{"name": "Measure", "conclusion": conclusion}]}, {}]}

    documents = {
        "artifacts?name=flamegate-abc": {
            # This run is 12, which is started again. 9 and 10 are of a branch and of a fork.
            "artifacts": [kept(11), kept(12), kept(13), kept(9, "change"), kept(10, repository=2)]
        },
        "workflows/7/runs?head_sha=abc": {
            "workflow_runs": [{"id": 1, "run_attempt": 3}, {"id": 2, "run_attempt": 1}]
        },
        "runs/1/attempts/1/jobs": jobs("failure"),
        "runs/1/attempts/2/jobs": jobs("skipped"),
        "runs/1/attempts/3/jobs": jobs("cancelled"),
        "runs/2/attempts/1/jobs": jobs("success"),
    }
    (tmp_path / "answers").write_text(json.dumps(documents))
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    environment = {
        "REPOSITORY": "o/r",
        "HEAD": "abc",
        "DEFAULT": "main",
        "WORKFLOW": "7",
        "GITHUB_RUN_ID": "12",
        "GITHUB_ENV": "env",
        "RUNNER_TEMP": str(tmp_path),
        "ANSWERS": str(tmp_path / "answers"),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, check=True)
    assert [each.name for each in (tmp_path / "earlier").iterdir()] == ["11"]
    assert (tmp_path / "env").read_text() == "COUNT=3\n"


def test_a_change_cannot_bring_its_own_earlier_attempts(repo: Repository, attempts: Path) -> None:
    shutil.copytree(attempts, repo.path / ".flamegate/attempts")
    (repo.path / ".flamegate/linked").symlink_to("attempts")
    repo.git("add", "-f", ".flamegate/attempts")
    repo.commit()
    # A link could point to an empty directory, and a file holds no attempts.
    (repo.path / ".flamegate/void").symlink_to("../build")
    (repo.path / "build").mkdir()
    (repo.path / ".flamegate/file").write_text("")
    for name in ("attempts", "linked", "void", "void/below", "file"):
        printed = repo.check(2, f"--earlier=.flamegate/{name}", base="HEAD~2")
        assert "E_BAD_OPTION" in printed.err
    printed = repo.check(0, "--earlier=nowhere", base="HEAD~2")
    assert "\nno earlier attempt in nowhere\n" in printed.out
