"""``flamegate check`` on repositories, policies and uploads that are not as usual."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.commands.asked import Command, ask, commit
from tests.doors.project import workload
from tests.run import fakes
from tests.workload.repositories import git

Declare = Callable[..., str]


def move_runs(project: Path) -> Path:
    """Return a new directory with the runs of the project, as another job would upload them."""
    return Path(shutil.move(project / ".flamegate/latest", project.parent / "uploaded"))


def test_without_a_repository_nothing_is_checked(project: Path, command: Command) -> None:
    assert "E_NO_REPOSITORY" in command(2, "check", "--base=main").err


@pytest.mark.parametrize("by_hash", [True, False], ids=["hash", "branch"])
def test_a_shallow_clone_is_told_the_fetch_that_helps(
    project: Path,
    world: fakes.World,
    declare: Declare,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    by_hash: bool,
) -> None:
    base = git(project, "rev-parse", "HEAD")
    git(project, "branch", "stable")
    commit(project)
    clone = project.parent / "clone"
    git(project.parent, "clone", "-q", "--depth=1", f"file://{project}", str(clone))
    monkeypatch.chdir(clone)
    rev = base if by_hash else "origin/stable"
    printed = command(2, "check", f"--base={rev}").err
    assert "E_REV_SHALLOW" in printed
    found = re.search(r"git (fetch --depth=1 .+?) \(", printed)
    assert found is not None
    git(clone, *found[1].split())
    assert ask("check", f"--base={rev}") == 0


def test_a_detached_head_and_a_merge_are_commits_like_any_other(
    project: Path, world: fakes.World, declare: Declare, command: Command
) -> None:
    git(project, "switch", "-q", "-c", "change")
    (project / "more.py").write_text("")
    commit(project)
    git(project, "switch", "-q", "main")
    declare(workload("toy", seed="7"))
    git(project, "merge", "-q", "--no-edit", "change")
    git(project, "switch", "-q", "--detach")
    assert ask("check", "--base=HEAD^1") == 0
    assert "toy: seed 42 → 7" in command(0, "check", "--base=HEAD^2").out


def test_a_base_without_a_workload_requires_nothing(
    project: Path, world: fakes.World, declare: Declare, command: Command
) -> None:
    (project / "flamegate.toml").unlink()
    commit(project)
    assert "E_REQUIRED_WORKLOAD" in command(2, "check", "--base=HEAD~1").out
    assert ask("check", "--base=HEAD") == 2
    declare(workload("toy"))
    assert "required nothing" in command(0, "check", "--base=HEAD~1").out


def test_a_policy_that_does_not_parse_fails(
    project: Path, world: fakes.World, declare: Declare, command: Command
) -> None:
    for first, second in (("[workloads.toy\n", workload("toy")), (workload("toy"), "[x\n")):
        declare(first)
        declare(second)
        assert "E_BAD_TOML" in command(2, "check", "--base=HEAD~1").err


def test_runs_of_another_repository_are_rejected(
    project: Path, world: fakes.World, declare: Declare, command: Command
) -> None:
    declare(workload("toy"))
    assert ask("check", "--base=HEAD~1") == 0
    runs = move_runs(project)
    git(project, "checkout", "-q", "--orphan", "other")
    commit(project)
    declare(workload("toy"), "# another repository\n")
    assert "E_OTHER_COMMIT" in command(3, "check", "--base=HEAD~1", f"--receipts={runs}").out


def test_a_clock_that_went_backwards_is_found(
    project: Path, world: fakes.World, declare: Declare, command: Command
) -> None:
    declare(workload("toy"))
    world._began = datetime.now(UTC) + timedelta(days=3)
    assert "E_CLOCK_CONTRADICTION" in command(3, "check", "--base=HEAD~1").out


def test_receipts_are_held_against_the_requirements_of_verify_receipt(
    project: Path, world: fakes.World, declare: Declare, command: Command
) -> None:
    pytest.importorskip("cryptography")
    declare(workload("toy"))
    assert ask("check", "--base=HEAD~1") == 0
    runs = move_runs(project)
    judge = ("check", "--base=HEAD~1", f"--receipts={runs}")
    assert ask("keygen", "-o", "../key") == 0
    signed = (*judge, "--key=../key.pub", "--require-grade=ATTESTED")
    for arguments, code in (
        ((*judge, "--kernel-policy=bitnet"), "E_NO_COMPUTE_KERNEL"),
        ((*judge, "--require-grade=REPLAYED"), "E_GRADE"),
        (signed, "E_SIGNATURE_MISSING"),
    ):
        assert code in command(3, *arguments).out
    assert ask("sign", str(runs / "toy/receipt.json"), "--key=../key") == 0
    assert ask(*signed) == 0
    # The base is signed as well, if it is there: its figures decide as much as the head's.
    assert ask("verify-receipt", str(runs / "toy/receipt.json"), "--key=../key.pub") == 0
    (runs / "toy/base-attestation.dsse.json").unlink()
    assert ask(*signed) == 3
    for option in ("--key=../key.pub", "--require-grade=REPLAYED", "--kernel-policy=generic"):
        assert "E_BAD_OPTION" in command(2, "check", "--base=HEAD~1", option).err
    assert "E_BAD_KEY" in command(2, *judge, "--require-grade=ATTESTED").err


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_workload_file_outside_of_the_repository_declares_both_sides(
    project: Path, world: fakes.World, declare: Declare, command: str
) -> None:
    policy = project.parent / "policy/flamegate.toml"
    policy.parent.mkdir()
    policy.write_text(workload("toy", prompt='"of the policy"', tokens_per_second='"60%"'))
    declare(workload("toy", seed="7"))
    world.token_ns = round(1.3 * fakes.TOKEN_NS)
    base = {"run": "--against=HEAD~1", "check": "--base=HEAD~1"}[command]
    assert ask(command, base, f"--config={policy}") == 0
    for name in ("evidence.json", "base-evidence.json"):
        assert "of the policy" in (project / ".flamegate/latest/toy" / name).read_text()


@pytest.mark.parametrize("samples", [None, 9])
def test_the_judge_finds_by_itself_that_a_profile_has_too_few_samples(
    project: Path, world: fakes.World, declare: Declare, samples: int | None
) -> None:
    """The job that measures notes it, and no note is in the files that are judged."""
    declare(workload("toy"))
    world.samples = samples
    assert ask("check", "--base=HEAD~1") == 0
    measured = json.loads((project / ".flamegate/check.json").read_text())["required"]
    assert ask("check", "--base=HEAD~1", f"--receipts={move_runs(project)}") == 0
    judged = json.loads((project / ".flamegate/check.json").read_text())["required"]
    assert [each["verdict"] for each in judged] == [each["verdict"] for each in measured]
    found = {code for each in judged for code in each["reasons"]}
    assert ("I_NO_PROFILE" in found) == (samples is not None)
