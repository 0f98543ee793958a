"""keygen, sign, verify-receipt --key: what they write, what they print, how they exit."""

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_flamegate.commands import sign
from pytest_flamegate.receipt import keys
from pytest_flamegate.receipt import sign as receipt_sign
from pytest_flamegate.receipt.artifacts import ArtifactStore
from tests.commands.asked import Captured, Command, ask
from tests.made import bundle

SECRET = "correct horse"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody at a terminal, and no passphrase from outside."""
    monkeypatch.delenv(sign.PASSPHRASE, raising=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)


@pytest.fixture
def signed(receipt_directory: Path, capsys: Captured) -> Path:
    """A receipt, signed with ``flamegate.key``."""
    assert ask("keygen") == 0
    assert ask("sign", "receipt.json", "--key", "flamegate.key") == 0
    capsys.readouterr()
    return receipt_directory


def keyid(path: Path) -> str:
    return keys.load_public_key(path.read_bytes()).keyid


def reject(command: Command, code: str, *arguments: str, exit_code: int = 2) -> str:
    """Run a command that must end with this error alone; return it."""
    out, error = command(exit_code, *arguments)
    assert (out, len(error.splitlines())) == ("", 2)
    assert error.startswith(f"{code}: ")
    return error


# keygen


def test_a_key_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    try:
        assert ask("keygen") == 0
    finally:
        os.umask(before)
    private, public = tmp_path / "flamegate.key", tmp_path / "flamegate.key.pub"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [private.name, public.name]
    made = keys.load_private_key(private.read_bytes())
    assert made.public.pem == public.read_bytes()
    printed = command.read().out
    assert made.public.keyid in printed
    assert "not encrypted" in printed
    assert private.read_text().splitlines()[1] not in printed
    private.chmod(0o644)
    assert ask("sign", str(bundle().write(tmp_path)), "--key", "flamegate.key") == 0
    assert "chmod 600 flamegate.key" in command.read().out


def test_a_key_goes_to_a_file_or_a_directory_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    for output, private in (
        ("mine.pem", "mine.pem"), ("there", "there/flamegate.key"), ("new/", "new/flamegate.key")
    ):  # fmt: skip
        assert ask("keygen", "-o", output) == 0
        assert (tmp_path / private).is_file()
        assert (tmp_path / f"{private}.pub").is_file()
    command.read()
    for taken in ("a", "b.pub"):
        (tmp_path / taken).write_text("mine")
        (tmp_path / f"link-{taken}").symlink_to("nowhere")
    before = sorted(tmp_path.iterdir())
    for output in ("a", "b", "link-a", "link-b"):
        reject(command, "E_NOT_OVERWRITTEN", "keygen", "-o", output)
    assert sorted(tmp_path.iterdir()) == before


def test_a_passphrase_from_the_environment_or_the_terminal(
    receipt_directory: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    sign_it = ("sign", "receipt.json", "--key", "flamegate.key")
    monkeypatch.setenv(sign.PASSPHRASE, SECRET)
    assert ask("keygen") == 0
    assert "(encrypted;" in command.read().out
    assert b"ENCRYPTED" in (receipt_directory / "flamegate.key").read_bytes()
    assert ask(*sign_it) == 0
    command.read()
    for value in ("wrong", ""):
        monkeypatch.setenv(sign.PASSPHRASE, value)
        assert SECRET not in reject(command, "E_KEY_PASSPHRASE", *sign_it)
    typed = [SECRET]
    monkeypatch.setattr("pytest_flamegate.commands.sign.getpass", lambda prompt: typed.pop(0))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert ask(*sign_it) == 0
    assert SECRET not in command.read().out
    make = ("keygen", "--passphrase", "-o", "second")
    for answers in ([""], [SECRET, "other"]):
        typed[:] = answers
        reject(command, "E_KEY_PASSPHRASE", *make)
    typed[:] = [SECRET, SECRET]
    assert ask(*make) == 0


# sign


def test_signed_and_verified(signed: Path, command: Command) -> None:
    public = signed / "flamegate.key.pub"
    wanted = ("--require-grade", "ATTESTED", "--key", str(public))
    printed = command(0, "verify-receipt", "receipt.json", *wanted).out
    assert "accepted (grade ATTESTED, wanted ATTESTED)" in printed
    assert f"signed by {keyid(public)}" in printed
    assert "not that it happened" in printed
    assert ask("verify-receipt", "receipt.json", *wanted, "--format=json") == 0
    (answer,) = json.loads(command.read().out)
    assert (answer["grade"], answer["signed_by"]) == ("ATTESTED", keyid(public))


def test_the_directory_of_a_run_stands_for_its_receipt(
    receipt_directory: Path, command: Command
) -> None:
    assert ask("keygen") == 0
    command.read()
    printed = command(0, "sign", str(receipt_directory), "--key=flamegate.key").out
    assert printed.startswith(str(receipt_directory / "attestation.dsse.json"))
    reject(command, "E_NO_RUN", "sign", "nowhere", "--key=flamegate.key")


def test_signers_at_the_same_time_lose_no_signature(receipt_directory: Path) -> None:
    names = [f"key-{number}" for number in range(5)]
    assert {ask("keygen", "-o", name) for name in names} == {0}
    path = str(receipt_directory / "receipt.json")
    with ThreadPoolExecutor(len(names)) as threads:
        assert set(threads.map(lambda name: ask("sign", path, "--key", name), names)) == {0}
    assert {ask("verify-receipt", path, "--key", f"{name}.pub") for name in names} == {0}


def test_what_is_not_honest_is_not_signed(signed: Path, command: Command) -> None:
    before = (signed / "attestation.dsse.json").read_bytes()
    path = signed / "receipt.json"
    document = json.loads(path.read_text())
    document["tokens_per_second"] *= 10
    path.write_text(json.dumps(document))
    for grade in ("OBSERVED", "CONSISTENT", "SELF_REPORTED"):
        given = ("sign", "receipt.json", "--key=flamegate.key", f"--require-grade={grade}")
        reject(command, "E_NOT_SIGNED", *given, exit_code=3)
    assert (signed / "attestation.dsse.json").read_bytes() == before


def test_what_was_not_observed_is_signed_only_if_that_is_said(
    receipt_directory: Path, command: Command
) -> None:
    assert ask("keygen") == 0
    for name in ("evidence.json", "profile.folded"):
        (receipt_directory / name).unlink()
    command.read()
    given = ("sign", "receipt.json", "--key", "flamegate.key")
    assert "E_GRADE" in reject(command, "E_NOT_SIGNED", *given, exit_code=3)
    assert ask(*given, "--require-grade", "consistent") == 0
    assert ask("verify-receipt", "receipt.json", "--key", "flamegate.key.pub") == 0
    assert "accepted (grade CONSISTENT)" in command.read().out


def test_bad_keys(signed: Path, command: Command) -> None:
    (signed / "link").symlink_to("flamegate.key")
    (signed / "link.pub").symlink_to("flamegate.key.pub")
    for given in ("link", "flamegate.key.pub", "nowhere", "receipt.json", "."):
        reject(command, "E_BAD_KEY", "sign", "receipt.json", "--key", given)
    for given in ("link.pub", "flamegate.key", "nowhere", "receipt.json", "."):
        good = ("--key", "flamegate.key.pub")
        reject(command, "E_BAD_KEY", "verify-receipt", "receipt.json", *good, "--key", given)
    reject(command, "E_BAD_KEY", "verify-receipt", "receipt.json", "--require-grade", "attested")


@pytest.mark.parametrize("part", ["receipt.json", "evidence.json", "attestation.dsse.json"])
def test_links_are_not_signed_nor_followed(signed: Path, command: Command, part: str) -> None:
    real = signed / "real"
    (signed / part).rename(real)
    (signed / part).symlink_to(real)
    before = real.read_bytes()
    exit_code = 5 if part == "attestation.dsse.json" else 3
    given = ("sign", "receipt.json", "--key", "flamegate.key")
    reject(command, "E_CANNOT_READ", *given, exit_code=exit_code)
    assert real.read_bytes() == before


def test_the_predicate_for_another_signer_overwrites_nothing(
    signed: Path, command: Command
) -> None:
    before = {path.name: path.read_bytes() for path in signed.iterdir()}
    for part in ("receipt.json", "evidence.json", "attestation.dsse.json"):
        reject(
            command, "E_NOT_OVERWRITTEN", "sign", "receipt.json", "--predicate", str(signed / part)
        )
    assert {path.name: path.read_bytes() for path in signed.iterdir()} == before
    for output in ("predicate.json", "out/predicate.json", "../predicate.json"):
        printed = command(0, "sign", "receipt.json", "--predicate", output).out
        assert dict(line.split("=", 1) for line in printed.splitlines()) == {
            "subject-path": "receipt.json,evidence.json,profile.folded",
            "predicate-type": receipt_sign.PREDICATE_TYPE,
            "predicate-path": output,
        }
        assert json.loads((signed / output).read_bytes()) == json.loads(before["evidence.json"])


def test_without_cryptography(signed: Path) -> None:
    rejected = (
        ("keygen", "-o", "other"),
        ("sign", "receipt.json", "--key", "flamegate.key"),
        ("verify-receipt", "receipt.json", "--key", "flamegate.key.pub"),
    )
    allowed = (
        ("verify-receipt", "receipt.json"),
        ("sign", "receipt.json", "--predicate", "predicate.json"),
    )
    program = (
        "import sys; sys.modules['cryptography'] = None; from pytest_flamegate.cli import main;"
        f"sys.exit([main(each) for each in {(*rejected, *allowed)}] != [5, 5, 5, 0, 0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("E_NO_SIGNING: ") == len(rejected)
    assert done.stderr.count("pip install 'pytest-flamegate[sign]'") == len(rejected)
    assert not (signed / "other").exists()


def test_a_baseline_keeps_the_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for name in ("CI", "FLAMEGATE_UPDATE_IN_CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    artifacts = ArtifactStore(tmp_path / ".flamegate")
    receipt = bundle().write(artifacts.latest_directory("4tok"))
    assert ask("keygen") == 0
    assert ask("sign", str(receipt), "--key", "flamegate.key") == 0
    assert ask("baseline", "accept", "4tok") == 0
    ((_, _, directory),) = artifacts.list_baselines()
    wanted = ("--key", "flamegate.key.pub", "--require-grade", "ATTESTED")
    assert ask("verify-receipt", str(directory / "receipt.json"), *wanted) == 0
    # It may be signed again there, by another person, and stays a baseline.
    assert ask("keygen", "-o", "second") == 0
    assert ask("sign", str(directory / "receipt.json"), "--key", "second") == 0
    assert ask("verify-receipt", str(directory / "receipt.json"), *wanted) == 0
    assert artifacts.read_baseline(directory.parent.name, "4tok") is not None
