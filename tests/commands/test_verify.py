"""``flamegate verify-receipt``."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.commands import verify
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import decode_plain, encode_plain
from pytest_flamegate.receipt import Verification, verify_receipt
from pytest_flamegate.run.required_check import CheckAnswer, CheckedWorkload
from tests.commands.asked import Command, Repository, ask
from tests.made import COMMIT
from tests.run import fakes
from tests.workload.repositories import git


@pytest.mark.usefixtures("receipt_directory")
def test_an_honest_receipt_can_be_less_than_required(command: Command) -> None:
    for option, code in (
        ("--max-age=1d", "E_EXPIRED"),
        ("--require-gpu-kernels", "E_GPU_REQUIRED"),
        ("--kernel-policy=bitnet", "E_NO_COMPUTE_KERNEL"),
        ("--workload=another", "E_OTHER_WORKLOAD"),
        (f"--commit={COMMIT.revision[::-1]}", "E_OTHER_COMMIT"),
        (f"--commit={COMMIT.revision[:6]}", "E_OTHER_COMMIT"),  # too short
    ):
        printed = command(3, "verify-receipt", "receipt.json", option).out
        assert printed.startswith("receipt.json: rejected")
        assert code in printed
    name = json.loads(Path("evidence.json").read_text())["workload"]["name"]
    asked = (f"--commit={COMMIT.revision[:7]}", f"--workload={name}")
    command(0, "verify-receipt", "receipt.json", *asked)


def test_a_run_without_a_name_is_not_the_one_that_was_asked_for(
    receipt_directory: Path, command: Command
) -> None:
    path = receipt_directory / "evidence.json"
    evidence = json.loads(path.read_text())
    del evidence["workload"]["name"]
    path.write_text(json.dumps(evidence))
    printed = command(3, "verify-receipt", "receipt.json", "--workload=toy").out
    assert "The workload is unknown, wanted 'toy'" in printed
    assert "E_INTERNAL" not in printed


def test_the_receipt_of_the_base_belongs_to_the_files_of_the_base(
    receipt_directory: Path, command: Command
) -> None:
    for path in list(receipt_directory.iterdir()):
        path.rename(path.with_name(f"base-{path.name}"))
    for name in ("evidence.json", "profile.folded"):
        (receipt_directory / name).write_text("of the head\n")
    printed = command(0, "verify-receipt", "base-receipt.json").out
    assert "accepted" in printed
    assert "W_SIGNATURE_UNCHECKED" not in printed
    (receipt_directory / "base-evidence.json").unlink()
    printed = command(0, "verify-receipt", "base-receipt.json").out
    assert "CONSISTENT" in printed
    assert "E_CANNOT_READ" not in printed


def test_a_ref_without_a_workflow_that_ran_at_it_is_an_error(command: Command) -> None:
    printed = command(2, "verify-receipt", "receipt.json", "--source-ref=refs/heads/x").err
    assert "--source-ref has no effect without --signer-workflow" in printed


def test_a_file_that_is_no_receipt_is_rejected(receipt_directory: Path, command: Command) -> None:
    path = receipt_directory / "receipt.json"
    for content in (b"", b"{}", b"[]", b"\xff\xfe", b"{" * 100_000, b'{"a": 1, "a": 2}'):
        path.write_bytes(content)
        captured = command(3, "verify-receipt", "receipt.json")
        assert captured.out.startswith("receipt.json: rejected (grade SELF_REPORTED)")
        assert captured.err == ""


@pytest.mark.parametrize("path", ["nothing.json", "no/receipt.json", "empty"])
def test_a_mistyped_path_is_a_usage_error(
    receipt_directory: Path, command: Command, path: str
) -> None:
    (receipt_directory / "empty").mkdir()
    printed = command(2, "verify-receipt", "receipt.json", path)
    assert printed.out == ""
    assert printed.err.startswith("E_NO_RUN: There is no file ")
    assert len(printed.err.splitlines()) == 2
    # What is there and cannot be read is rejected.
    (receipt_directory / "dangling.json").symlink_to("nothing.json")
    assert "E_CANNOT_READ" in command(3, "verify-receipt", "dangling.json").out


@pytest.mark.usefixtures("receipt_directory")
def test_the_directory_of_a_run_stands_for_its_receipt(command: Command) -> None:
    assert "receipt.json" in command(0, "verify-receipt", ".").out


def test_several_receipts_are_counted_and_json_has_the_same_result(
    receipt_directory: Path, command: Command
) -> None:
    document = json.loads((receipt_directory / "receipt.json").read_text())
    document["tokens_per_second"] *= 10
    (receipt_directory / "edited.json").write_text(json.dumps(document))
    given = ("verify-receipt", "receipt.json", "edited.json", "receipt.json")
    printed = command(3, *given).out
    assert printed.startswith("receipt.json: accepted (grade OBSERVED)")
    assert printed.endswith("\n2 accepted, 1 rejected\n")
    good, bad, _ = json.loads(command(3, *given, "--format=json").out)
    assert (good["path"], good["ok"], good["grade"]) == ("receipt.json", True, "OBSERVED")
    assert good["refusals"] == []
    assert good["ceiling"]
    assert (bad["path"], bad["ok"]) == ("edited.json", False)
    assert bad["refusals"]
    assert all(each["code"].startswith("E_") and each["message"] for each in bad["refusals"])


def test_a_judge_can_ask_for_the_verdict_and_the_repository(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.declare()
    latest = repo.path / ".flamegate/latest/toy"
    verify = ("verify-receipt", str(latest / "receipt.json"), "--require-verdict")
    for token_ns, code in ((1.0, 0), (1.3, 1)):
        repo.world.token_ns = round(token_ns * fakes.TOKEN_NS)
        repo.check(code)
        printed = repo.run(code, *verify).out
    assert "E_VERDICT  " in printed
    repo.run(3, *verify, "--max-age=0.001s")
    # A receipt that nobody attested is not honest, whatever its verdict.
    monkeypatch.chdir(repo.path.parent)
    monkeypatch.setenv("PATH", str(repo.path.parent), prepend=os.pathsep)
    write_gh("[]")
    monkeypatch.chdir(repo.path)
    assert "E_NOT_ATTESTED" in repo.run(3, *verify, f"--signer-workflow={WORKFLOW}").out
    Path("asked.json").unlink()
    (latest / "verdict.json").unlink()
    repo.run(3, *verify)
    repo.run(4, "run", "toy")  # without a base it says neither
    repo.run(4, *verify)
    repository = (*verify[:2], f"--repository={repo.path}")
    repo.run(0, *repository)
    git(repo.path.parent, "init", "-q", "another")
    # A name is one of that repository.
    repo.run(0, *repository, "--commit=HEAD")
    assert "E_OTHER_COMMIT" in repo.run(3, *repository, "--commit=HEAD~1").out
    for name in ("nowhere", "--all"):
        failed = repo.run(2, *repository, f"--commit={name}")
        assert f"E_BAD_OPTION: --commit is {name!r}, which names no commit" in failed.err
    failed = repo.run(2, *verify[:2], "--commit=HEAD")
    assert "E_BAD_OPTION: --commit is 'HEAD', and a receipt names its commit by" in failed.err
    another = f"--repository={repo.path.parent / 'another'}"
    assert "E_OTHER_COMMIT" in repo.run(3, *verify[:2], another).out
    git(repo.path.parent, "clone", "-q", "--bare", str(repo.path), "bare")
    repo.run(0, *verify[:2], f"--repository={repo.path.parent / 'bare'}")
    for mistyped in ("/nonexistent", str(repo.path / "toy.py"), str(repo.path.parent)):
        failed = repo.run(2, *verify[:2], f"--repository={mistyped}")
        assert failed.out == ""
        assert f"E_BAD_OPTION: --repository is {mistyped!r}" in failed.err


def test_the_repository_has_the_code_of_the_evidence_that_was_verified(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.declare()
    ask("run", "toy")
    latest = repo.path / ".flamegate/latest/toy"
    given = ("verify-receipt", str(latest / "receipt.json"), f"--repository={repo.path}")

    def verify_and_remove(*args: Any, **options: Any) -> Verification:
        found = verify_receipt(*args, **options)
        (latest / "evidence.json").unlink()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(verify, "verify_receipt", verify_and_remove)
        repo.run(0, *given)
    (repo.path / "toy.py").write_text((repo.path / "toy.py").read_text() + "# changed\n")
    ask("run", "toy")
    assert "+ 1 uncommitted file, which the repository" in repo.run(3, *given).out


GH = """\
#!{python}
import json, pathlib, sys
pathlib.Path("asked.json").write_text(json.dumps(sys.argv[1:]))
sys.stderr.write({stderr!r})
sys.stdout.write({stdout!r})
sys.exit({status})
"""
WORKFLOW = "o/r/.github/workflows/flamegate-judge.yml"


@pytest.fixture
def judged(receipt_directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The entry that gh prints for a judgement that covers the receipt of the directory."""
    monkeypatch.setenv("PATH", str(receipt_directory), prepend=os.pathsep)
    evidence = json.loads((receipt_directory / "evidence.json").read_text())
    files = ("receipt.json", "evidence.json")
    digests = [hashlib.sha256((receipt_directory / each).read_bytes()) for each in files]
    check = CheckAnswer(
        head=evidence["commit"]["revision"],
        passed=True,
        required=(CheckedWorkload(evidence["workload"]["name"], "pass", exit_code=0),),
    )
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest.hexdigest()}}
            for name, digest in zip(files, digests, strict=True)
        ],
        "predicateType": "urn:pytest-flamegate:check:1.0.0",
        "predicate": encode_plain(check),
    }
    return {
        "attestation": {"bundle": {}},
        "verificationResult": {"mediaType": "x", "statement": statement, "signature": {}},
    }


def write_gh(stdout: str, status: int = 0, stderr: str = "") -> None:
    """Write a gh into the current directory, which prints this."""
    text = GH.format(python=sys.executable, stdout=stdout, status=status, stderr=stderr)
    Path("gh").write_text(text)
    Path("gh").chmod(0o755)


def ask_signer(command: Command, code: int, *more: str) -> str:
    return command(
        code, "verify-receipt", "receipt.json", f"--signer-workflow={WORKFLOW}", *more
    ).out


def test_a_receipt_that_the_judge_attested_is_accepted(
    judged: dict[str, Any], command: Command
) -> None:
    other = json.loads(json.dumps(judged).replace('"passed": true', '"passed": false'))
    write_gh(json.dumps([other, judged]))
    assert "accepted" in ask_signer(command, 0, "--source-ref=refs/heads/trunk")
    assert json.loads(Path("asked.json").read_text()) == [
        *("attestation", "verify", str(Path("receipt.json").absolute()), "--repo", "o/r"),
        *("--signer-workflow", WORKFLOW, "--source-ref", "refs/heads/trunk"),
        *("--predicate-type", "urn:pytest-flamegate:check:1.0.0", "--format", "json"),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"passed": true', '"passed": false'),
        ('"workload": "', '"workload": "x'),
        ('"head": "', '"head": "0'),
        ('"receipt.json", "digest": {"sha256": "', '"receipt.json", "digest": {"sha256": "0'),
        ('"evidence.json", "digest": {"sha256": "', '"evidence.json", "digest": {"sha256": "0'),
        ('"predicateType": "urn:', '"predicateType": "other:'),
        ('"subject"', '"subjects"'),
        ('"passed": true', '"passed": 1'),
    ],
)
def test_an_attestation_of_something_else_is_rejected(
    old: str, new: str, judged: dict[str, Any], command: Command
) -> None:
    text = json.dumps([judged])
    assert old in text
    write_gh(text.replace(old, new))
    assert "E_NOT_ATTESTED" in ask_signer(command, 3)


@pytest.mark.usefixtures("judged")
def test_an_attestation_that_gh_does_not_find_is_rejected(command: Command) -> None:
    write_gh("", 1, "Loaded digest\nError: verifying with issuer \x1b[31mfailed\n")
    printed = ask_signer(command, 3)
    assert "E_NOT_ATTESTED" in printed
    assert "verifying with issuer" in printed
    assert "\x1b" not in printed
    for nothing in ("[]", "", "{}", "[[[["):
        write_gh(nothing)
        assert "E_NOT_ATTESTED" in ask_signer(command, 3)


@pytest.mark.usefixtures("judged")
def test_an_attestation_needs_gh_and_the_name_of_a_workflow(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert (
        "E_CANNOT_START"
        in command(5, "verify-receipt", "receipt.json", f"--signer-workflow={WORKFLOW}").err
    )
    for name in ("judge.yml", "o/r/judge.yml", "--repo/r/.github/workflows/a.yml x", ""):
        found = command(2, "verify-receipt", "receipt.json", f"--signer-workflow={name}")
        assert "OWNER/REPO" in found.err


def test_an_answer_of_an_earlier_version_lacks_the_newer_fields() -> None:
    answer = CheckAnswer(
        head="a" * 40, passed=True, required=(CheckedWorkload("toy", "pass", exit_code=0),)
    )
    document = encode_plain(answer)
    for name in ("attempt", "ended", "declarations"):
        del document[name]
    assert decode_plain(document, CheckAnswer) == answer
    del document["passed"]
    with pytest.raises(ReceiptError, match='"passed" is missing'):
        decode_plain(document, CheckAnswer)
