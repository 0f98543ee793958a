"""``verify-receipt --replay``: what may run here, what is compared, and how it ends."""

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.commands.verify import ReceiptAnswer
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import replace
from pytest_flamegate.engines.gguf import SHIPPED_MODEL
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.compose import recipe
from pytest_flamegate.receipt.documents import decode_evidence, decode_receipt
from pytest_flamegate.receipt.types import Evidence
from tests.made import Bundle, bundle
from tests.receipt.forgeries.draft import PRODUCED
from tests.workload.declared import read_file

PROGRAM = "import sys\nfor n in range(int(sys.argv[2])):\n    print(n, flush=True)\n"
DECLARED = """\
[workloads.callable]
engine = "python"
target = "toy:generate"
prompt = "2+2="
max_tokens = 6

[workloads.embedded-1tok]
engine = "embedded"
prompt = "2+2="
max_tokens = 1
"""
COMMAND = f"""
[workloads.prog]
command = ["{sys.executable}", "prog.py", "{{prompt}}", "{{max_tokens}}"]
prompt = "hi"
max_tokens = 8
token_unit = "line"
"""
TOY = """\
def generate(prompt, max_tokens):
    x = len(prompt)
    for _ in range(max_tokens):
        for _ in range(1250):
            x ^= (x << 3) & 0xFFFF
        for _ in range(5000):
            x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        yield x % 100
"""
BUDGET = "--budget=1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the receipts of two of its workloads, measured on another machine."""
    for name in ("embedded-1tok", "callable"):
        shutil.copytree(PRODUCED / name, tmp_path / name)
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "flamegate.toml").write_text(DECLARED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def replay(home: Path, name: str, *more: str) -> tuple[int, dict[str, Any]]:
    """Replay a receipt; return the exit code and the answer."""
    path = home / name / "receipt.json"
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = main(["verify-receipt", str(path), "--replay", BUDGET, "--format=json", *more])
    (answer,) = json.loads(output.getvalue())
    return code, answer


def codes(answer: dict[str, Any]) -> list[str]:
    return [each["code"] for each in answer["refusals"]]


def read_evidence(home: Path, name: str) -> Evidence:
    return decode_evidence((home / name / "evidence.json").read_bytes())


def reseal(directory: Path, evidence: Evidence, **claims: Any) -> Path:
    """Write ``evidence`` and a receipt with these claims that belongs to it."""
    receipt = decode_receipt((directory / "receipt.json").read_bytes())
    folded = (directory / "profile.folded").read_bytes()
    return Bundle(replace(receipt, **claims), evidence, folded).sealed().write(directory)


def with_workload(home: Path, **changes: Any) -> None:
    found = read_evidence(home, "embedded-1tok")
    reseal(home / "embedded-1tok", replace(found, workload={**found.workload, **changes}))


@pytest.mark.measures
def test_an_honest_receipt_is_not_rejected_and_nothing_is_written(home: Path) -> None:
    def files() -> dict[str, bytes]:
        paths = (path for path in home.rglob("*") if "__pycache__" not in path.parts)
        return {str(path): path.read_bytes() for path in paths if path.is_file()}

    before = files()
    code, answer = replay(home, "embedded-1tok")
    assert answer["ok"] is True
    assert answer["replayed"]["tokens"] == "equal"
    assert answer["replayed"]["processes"] >= 5
    # The rate depends on the machine, and the exit code follows from it.
    assert (code, answer["grade"]) in ((0, "REPLAYED"), (4, "OBSERVED"))
    assert (answer["replayed"]["rate"] == "inside") is (code == 0)
    assert files() == before


@pytest.mark.measures
def test_other_tokens_are_rejected(home: Path) -> None:
    found = read_evidence(home, "callable")
    tokens = (*found.tokens[:-1], "7")
    digest = token_digest(tokens)
    runs = tuple(replace(run, token_digest=digest) for run in found.runs)
    path = reseal(home / "callable", replace(found, tokens=tokens, token_digest=digest, runs=runs))
    assert verify_receipt(path).grade is Grade.OBSERVED
    code, answer = replay(home, "callable")
    assert (code, answer["grade"], answer["replayed"]["tokens"]) == (3, "CONSISTENT", "differ")
    assert "E_REPLAY_TOKENS" in codes(answer)


def test_a_dishonest_receipt_is_not_run(home: Path) -> None:
    (home / "toy.py").write_text("raise SystemExit('it ran')\n")
    reseal(home / "callable", read_evidence(home, "callable"), tokens_per_second=1e6)
    code, answer = replay(home, "callable")
    assert code == 3
    assert "E_TPS_MISMATCH" in codes(answer)
    assert not {"replayed", "not_replayed"} & answer.keys()


def write_program(home: Path, **changes: Any) -> None:
    """Write a receipt of a program that is not declared here."""
    (home / "prog.py").write_text(PROGRAM)
    (home / "other.toml").write_text(COMMAND)
    (declared,) = read_file(home / "other.toml")
    model = {"path": "prog.py"}
    made = bundle(clock_scope="process").with_receipt(model=model)
    workload = {**recipe(declared), **changes, "max_tokens": 4}
    made.with_evidence(workload=workload, model=model, model_sha256=None).write(home / "program")


@pytest.mark.parametrize("command", [["/bin/rm", "-rf", "MARK"], ["touch", "MARK.touched"]])
def test_a_program_that_is_not_declared_here_does_not_run(home: Path, command: list[str]) -> None:
    mark = home / "mark"
    mark.mkdir()
    stated = [part.replace("MARK", str(mark)) for part in command]
    write_program(home, command=stated)
    code, answer = replay(home, "program")
    assert (code, answer["grade"]) == (4, "OBSERVED")
    assert answer["not_replayed"]["code"] == "E_REPLAY_UNTRUSTED"
    assert json.dumps(stated) in answer["not_replayed"]["message"]
    assert "--replay-untrusted" in answer["not_replayed"]["message"]
    assert mark.exists()
    assert not mark.with_suffix(".touched").exists()
    write_program(home, env={"HF_TOKEN": "redacted"})
    code, answer = replay(home, "program", "--replay-untrusted")
    assert (code, answer["not_replayed"]["code"]) == (4, "E_REPLAY_IMPOSSIBLE")
    name = read_evidence(home, "program").workload["name"]
    for declared, error in (("another", "E_REPLAY_IMPOSSIBLE"), (name, "E_BAD_VALUE")):
        (home / "flamegate.toml").write_text(f"[workloads.{declared}]\n")
        _, answer = replay(home, "program", "--replay-untrusted")
        assert answer["not_replayed"]["code"] == error


@pytest.mark.measures
def test_an_undeclared_program_runs_if_that_is_allowed(home: Path) -> None:
    write_program(home)
    code, answer = replay(home, "program", "--replay-untrusted")
    # Its tokens are not those of the bundle.
    assert code == 3
    assert "E_REPLAY_TOKENS" in codes(answer)


@pytest.mark.parametrize(
    ("changes", "code", "exit_code"),
    [
        ({"build": ["touch", "mark"]}, "E_REPLAY_UNTRUSTED", 4),
        ({"env": {"LD_PRELOAD": "evil.so"}}, "E_REPLAY_UNTRUSTED", 4),
        ({"source": "tests/test_a.py::test_b"}, "E_REPLAY_IMPOSSIBLE", 4),
        ({"injection": "gemv:+10%"}, "E_REPLAY_IMPOSSIBLE", 4),
        ({"shell": "rm"}, "E_REPLAY_RECIPE", 3),
        ({"prompt": "2+2=5", "model": "/**/*"}, "E_MODEL_MISSING", 5),
    ],
    ids=str,
)
def test_the_reason_is_stated_if_nothing_can_be_run(
    home: Path, changes: dict[str, Any], code: str, exit_code: int
) -> None:
    with_workload(home, **changes)
    returned, answer = replay(home, "embedded-1tok")
    assert answer["not_replayed"]["code"] == code
    assert (returned, answer["grade"]) == (exit_code, "OBSERVED")
    assert not (home / "mark").exists()


def test_another_model_is_not_run_and_a_receipt_alone_has_no_recipe(home: Path) -> None:
    found = read_evidence(home, "embedded-1tok")
    model = {**found.model, "sha256": "0" * 64}
    reseal(home / "embedded-1tok", replace(found, model_sha256="0" * 64, model=model), model=model)
    code, answer = replay(home, "embedded-1tok")
    assert (code, answer["not_replayed"]["code"]) == (4, "E_REPLAY_OTHER_MODEL")
    (home / "embedded-1tok" / "evidence.json").unlink()
    code, answer = replay(home, "embedded-1tok")
    assert (code, answer["not_replayed"]["code"]) == (4, "E_REPLAY_NO_EVIDENCE")


def test_a_model_that_is_given_must_be_the_same_file(home: Path) -> None:
    (home / "copy.gguf").write_bytes(SHIPPED_MODEL.read_bytes() + b"\0")
    for name, model, expected in (
        ("embedded-1tok", "copy.gguf", (4, "E_REPLAY_OTHER_MODEL")),
        ("embedded-1tok", "nowhere.gguf", (5, "E_MODEL_MISSING")),
        ("callable", "copy.gguf", (2, "E_BAD_OPTION")),
    ):
        code, answer = replay(home, name, f"--model={model}")
        assert (code, answer["not_replayed"]["code"]) == expected


@pytest.mark.parametrize("grade", [Grade.OBSERVED, Grade.ATTESTED])
def test_a_replay_that_shows_too_little_is_no_success_at_any_grade(grade: Grade) -> None:
    found = Verification(True, grade, (), (), "embedded", "", obtained_again=False)
    assert ReceiptAnswer(Path(), found).exit_code(replay=False) == 0
    assert ReceiptAnswer(Path(), found).exit_code(replay=True) == 4
    agreed = replace(found, obtained_again=True)
    assert ReceiptAnswer(Path(), agreed).exit_code(replay=True) == 0
    failed = ToolError("E_X", "It failed.", "Mend it.")
    assert ReceiptAnswer(Path(), found, failed).exit_code(replay=True) == 5
    assert ReceiptAnswer(Path(), replace(agreed, ok=False), failed).exit_code(replay=True) == 3


@pytest.mark.parametrize("option", ["--replay-untrusted", "--model=x.gguf", BUDGET])
def test_options_of_a_replay_need_one(
    home: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify-receipt", str(home / "callable" / "receipt.json"), option]) == 2
    assert "E_BAD_OPTION" in capsys.readouterr().err
