"""``flamegate check`` on repositories, policies and uploads that are not as usual."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.gate.judge import judge
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.run import stored_run
from tests.commands.asked import SLOWER_NS, Command, Repository
from tests.doors.project import workload
from tests.workload.repositories import git


def test_without_a_repository_nothing_is_checked(project: Path, command: Command) -> None:
    printed = command(2, "check", "--base=main").err
    assert "E_NO_REPOSITORY" in printed
    assert "inside a clone of the project's repository" in printed


@pytest.mark.parametrize("by_hash", [True, False], ids=["hash", "branch"])
def test_a_shallow_clone_is_told_the_fetch_that_helps(
    repo: Repository, monkeypatch: pytest.MonkeyPatch, by_hash: bool
) -> None:
    base = repo.git("rev-parse", "HEAD")
    repo.git("branch", "stable")
    repo.commit()
    clone = repo.path.parent / "clone"
    git(repo.path.parent, "clone", "-q", "--depth=1", f"file://{repo.path}", str(clone))
    monkeypatch.chdir(clone)
    rev = base if by_hash else "origin/stable"
    printed = repo.check(2, base=rev).err
    assert "E_REV_SHALLOW" in printed
    found = re.search(r"git (fetch --depth=1 .+?) \(", printed)
    assert found is not None
    git(clone, *found[1].split())
    repo.check(0, base=rev)


def test_a_check_takes_no_workload(repo: Repository) -> None:
    for words in (("toy", "--base=HEAD~1"), ("--base=HEAD~1", "toy")):
        error = repo.run(2, "check", *words).err
        assert "all workloads that its base requires" in error
        assert "flamegate run toy --against=HEAD~1" in error


def test_a_detached_head_and_a_merge_are_commits_like_any_other(repo: Repository) -> None:
    repo.git("switch", "-q", "-c", "change")
    (repo.path / "more.py").write_text("")
    repo.commit()
    repo.git("switch", "-q", "main")
    repo.declare(workload("toy", seed="7"))
    repo.git("merge", "-q", "--no-edit", "change")
    repo.git("switch", "-q", "--detach")
    repo.check(0, base="HEAD^1")
    assert "toy: seed 42 → 7" in repo.check(0, base="HEAD^2").out


def test_a_base_without_a_workload_requires_nothing(repo: Repository) -> None:
    (repo.path / "flamegate.toml").unlink()
    repo.commit()
    assert "E_REQUIRED_WORKLOAD" in repo.check(2).out
    repo.check(2, base="HEAD")
    repo.declare()
    assert "required nothing" in repo.check(0).out


def test_a_policy_that_does_not_parse_fails(repo: Repository) -> None:
    for first, second in (("[workloads.toy\n", workload("toy")), (workload("toy"), "[x\n")):
        repo.declare(first)
        repo.declare(second)
        is_of_the_base = second != "[x\n"
        place = repo.git("rev-parse", "HEAD~1")[:12] + ":" if is_of_the_base else f"{repo.path}/"
        assert f"E_BAD_TOML: {place}flamegate.toml is not valid TOML" in repo.check(2).err


def test_runs_of_another_repository_are_rejected(repo: Repository) -> None:
    repo.declare()
    repo.check(0)
    runs = repo.upload()
    repo.git("checkout", "-q", "--orphan", "other")
    repo.commit()
    repo.declare(workload("toy"), "# another repository\n")
    printed = repo.check(3, f"--receipts={runs}").out
    assert "E_OTHER_COMMIT" in printed
    assert f" --receipts={runs}\n" in printed.partition("  again ")[2]
    assert "--receipts" not in repo.page()  # whoever reads it has not these runs


def test_a_clock_that_went_backwards_is_found(repo: Repository) -> None:
    repo.declare()
    repo.world._began = datetime.now(UTC) + timedelta(days=3)
    assert "E_CLOCK_CONTRADICTION" in repo.check(3).out


def test_receipts_are_held_against_the_requirements_of_verify_receipt(repo: Repository) -> None:
    pytest.importorskip("cryptography")
    repo.declare()
    repo.check(0)
    runs = repo.upload()
    judge = ("check", "--base=HEAD~1", f"--receipts={runs}")
    repo.run(0, "keygen", "-o", "../key")
    signed = (*judge, "--key=../key.pub", "--require-grade=ATTESTED")
    for arguments, code in (
        ((*judge, "--kernel-policy=bitnet"), "E_NO_COMPUTE_KERNEL"),
        ((*judge, "--require-grade=REPLAYED"), "E_GRADE"),
        (signed, "E_SIGNATURE_MISSING"),
    ):
        assert code in repo.run(3, *arguments).out
    repo.run(0, "sign", str(runs / "toy/receipt.json"), "--key=../key")
    repo.run(0, *signed)
    # The base is signed as well, if it is there: its figures decide as much as the head's.
    repo.run(0, "verify-receipt", str(runs / "toy/receipt.json"), "--key=../key.pub")
    (runs / "toy/base-attestation.dsse.json").unlink()
    repo.run(3, *signed)
    for option in ("--key=../key.pub", "--require-grade=REPLAYED", "--kernel-policy=generic"):
        assert "E_BAD_OPTION" in repo.check(2, option).err
    assert "E_BAD_KEY" in repo.run(2, *judge, "--require-grade=ATTESTED").err


def test_the_judge_of_stored_runs_says_what_they_warn_of(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(*arguments: Any) -> Verdict:
        verdict = judge(*arguments)
        return replace(verdict, reasons=(*verdict.reasons, Reason("W_WHOLE_UNCERTAIN", "Slow.")))

    repo.declare()
    repo.check(0)
    runs = repo.upload()
    monkeypatch.setattr(stored_run, "judge", warn)
    assert "toy: W_WHOLE_UNCERTAIN: Slow." in repo.check(0, f"--receipts={runs}").out
    assert "UNCERTAIN: Slow." in repo.page().replace("\\", "")


@pytest.mark.parametrize("name", ["run", "check"])
def test_a_workload_file_outside_of_the_repository_declares_both_sides(
    repo: Repository, name: str
) -> None:
    policy = repo.path.parent / "policy/flamegate.toml"
    policy.parent.mkdir()
    policy.write_text(workload("toy", prompt='"of the policy"', tokens_per_second='"60%"'))
    repo.declare(workload("toy", seed="7"))
    repo.world.token_ns = SLOWER_NS
    base = {"run": "--against=HEAD~1", "check": "--base=HEAD~1"}[name]
    repo.run(0, name, base, f"--config={policy}")
    for file in ("evidence.json", "base-evidence.json"):
        assert "of the policy" in (repo.path / ".flamegate/latest/toy" / file).read_text()


@pytest.mark.parametrize("samples", [None, 9])
def test_the_judge_finds_by_itself_that_a_profile_has_too_few_samples(
    repo: Repository, samples: int | None
) -> None:
    """The job that measures notes it, and no note is in the files that are judged."""
    repo.declare()
    repo.world.samples = samples
    repo.check(0)
    measured = repo.verdicts()
    repo.check(0, f"--receipts={repo.upload()}")
    assert repo.verdicts() == measured
    assert ("I_NO_PROFILE" in str(repo.reasons())) == (samples is not None)
