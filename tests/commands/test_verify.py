"""``flamegate verify-receipt``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.commands import verify
from pytest_flamegate.receipt import Verification, verify_receipt
from tests.commands.asked import Command, ask
from tests.doors.project import workload
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
    assert ask("verify-receipt", "receipt.json", *asked) == 0


def test_a_file_that_is_no_receipt_is_rejected(receipt_directory: Path, command: Command) -> None:
    path = receipt_directory / "receipt.json"
    for content in (b"", b"{}", b"[]", b"\xff\xfe", b"{" * 100_000, b'{"a": 1, "a": 2}', None):
        path.unlink() if content is None else path.write_bytes(content)
        captured = command(3, "verify-receipt", "receipt.json")
        assert captured.out.startswith("receipt.json: rejected (grade SELF_REPORTED)")
        assert captured.err == ""


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
    project: Path, world: fakes.World, declare: Callable[..., str], command: Command
) -> None:
    declare(workload("toy"))
    latest = project / ".flamegate/latest/toy"
    verify = ("verify-receipt", str(latest / "receipt.json"), "--require-verdict")
    for token_ns, code in ((1.0, 0), (1.3, 1)):
        world.token_ns = round(token_ns * fakes.TOKEN_NS)
        assert ask("check", "--base=HEAD~1") == code
        assert ask(*verify) == code
    assert "E_VERDICT  " in command.read().out
    assert ask(*verify, "--max-age=0.001s") == 3
    (latest / "verdict.json").unlink()
    assert ask(*verify) == 3
    assert ask("run", "toy") == 4  # without a base it says neither
    assert ask(*verify) == 4
    repository = (*verify[:2], f"--repository={project}")
    assert ask(*repository) == 0
    git(project.parent, "init", "-q", "another")
    command.read()
    assert ask(*repository[:2], f"--repository={project.parent / 'another'}") == 3
    assert "E_OTHER_REPOSITORY" in command.read().out


def test_the_repository_has_the_code_of_the_evidence_that_was_verified(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declare(workload("toy"))
    ask("run", "toy")
    latest = project / ".flamegate/latest/toy"
    given = ("verify-receipt", str(latest / "receipt.json"), f"--repository={project}")

    def verify_and_remove(*args: Any, **options: Any) -> Verification:
        found = verify_receipt(*args, **options)
        (latest / "evidence.json").unlink()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(verify, "verify_receipt", verify_and_remove)
        assert ask(*given) == 0
    (project / "toy.py").write_text((project / "toy.py").read_text() + "# changed\n")
    ask("run", "toy")
    command.read()
    assert "+ 1 uncommitted file, which the repository" in command(3, *given).out
