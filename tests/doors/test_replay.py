"""``verify-receipt --replay``: what runs, what is refused, and what comes of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.commands.verify import Answer
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.declare import read_file
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.compose import recipe
from pytest_flamegate.run.lock import DIRECTORY
from tests.commands.asked import run_program as run
from tests.doors.forged import evidence_in, faster, other_tokens, reseal
from tests.doors.project import workload, write_toy
from tests.made import bundle

if TYPE_CHECKING:
    from collections.abc import Mapping


pytestmark = pytest.mark.measures


EMBEDDED = '[workloads.emb]\nprompt = "2+2="\nmax_tokens = 1\n'
PROGRAM = """\
import sys
import time
x = 7
for _ in range(int(sys.argv[2])):
    for _ in range(20000):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    print(x % 100, flush=True)
"""
COMMAND = f"""
[workloads.prog]
command = ["{sys.executable}", "prog.py", "{{prompt}}", "{{max_tokens}}"]
prompt = "hi"
max_tokens = 8
token_unit = "line"
"""
BUDGET = "--budget=1"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, py_spy: None) -> Path:
    """A project in which two workloads were measured once, with receipts."""
    directory = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CI", "FLAMEGATE_PROFILER"):
            patch.delenv(name, raising=False)
        for name in ("TMPDIR", DIRECTORY):
            patch.setenv(name, str(tmp_path_factory.mktemp("tmp")))
        write_toy(directory)
        (directory / "flamegate.toml").write_text(workload("toy") + EMBEDDED)
        done = run(directory, "run", BUDGET, "--profiler=py-spy")
    assert done.returncode == 4, done.stdout + done.stderr
    return directory


@pytest.fixture
def home(measured: Path, tmp_path: Path) -> Path:
    """A copy of that project, to change."""
    return Path(shutil.copytree(measured, tmp_path / "home"))


def latest(home: Path, name: str) -> Path:
    return home / ".flamegate" / "latest" / name


def replay(home: Path, name: str, *more: str) -> tuple[int, dict[str, Any]]:
    """Replay a receipt; return the exit code and the answer."""
    path = latest(home, name) / "receipt.json"
    options = ("--replay", BUDGET, "--format=json")
    done = run(home, "verify-receipt", str(path), *options, *more)
    assert "Traceback" not in done.stderr
    assert done.stdout, done.stderr
    (answer,) = json.loads(done.stdout)
    return done.returncode, answer


def asked(home: Path, name: str, *more: str) -> tuple[int, dict[str, Any]]:
    """Do the same in this process, for what is refused before anything runs."""
    path = latest(home, name) / "receipt.json"
    said = io.StringIO()
    with contextlib.chdir(home), contextlib.redirect_stdout(said):
        code = main(["verify-receipt", str(path), "--replay", BUDGET, "--format=json", *more])
    (answer,) = json.loads(said.getvalue())
    return code, answer


def codes(answer: Mapping[str, Any], kind: str = "refusals") -> list[str]:
    return [each["code"] for each in answer[kind]]


def files(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("name", ["emb", "toy"])
def test_an_honest_receipt_is_never_refused_and_nothing_is_written(home: Path, name: str) -> None:
    before = files(home)
    code, answer = replay(home, name)
    assert answer["ok"] is True
    assert answer["replayed"]["tokens"] == "equal"
    assert answer["replayed"]["processes"] >= 5
    # How close the rate is depends on how quiet the machine is; the exit code follows from it.
    assert (code, answer["grade"]) in ((0, "REPLAYED"), (4, "OBSERVED"))
    assert (answer["replayed"]["rate"] == "inside") is (code == 0)
    assert files(home) == before


def test_a_claim_that_is_consistent_and_too_fast_is_caught(home: Path) -> None:
    directory = latest(home, "emb")
    path = reseal(directory, faster(evidence_in(directory), 10.0))
    assert verify_receipt(path).grade.name == "OBSERVED"
    code, answer = replay(home, "emb")
    assert answer["grade"] != "REPLAYED"
    assert code in (3, 4)
    # On a busy machine that may be all that can be said; its processes decide.
    if answer["replayed"]["rate"] == "claim_faster":
        assert codes(answer) == ["E_REPLAY_RATE"]
        assert code == 3


def test_other_tokens_are_refused(home: Path) -> None:
    directory = latest(home, "toy")
    path = reseal(directory, other_tokens(evidence_in(directory)))
    assert verify_receipt(path).grade.name == "OBSERVED"
    code, answer = replay(home, "toy")
    assert code == 3
    assert "E_REPLAY_TOKENS" in codes(answer)
    assert answer["replayed"]["tokens"] == "differ"
    assert answer["grade"] == "CONSISTENT"


def test_a_dishonest_receipt_is_not_run(home: Path) -> None:
    (home / "toy.py").write_text("raise SystemExit('it ran')\n")
    directory = latest(home, "toy")
    reseal(directory, evidence_in(directory), tokens_per_second=1e6)
    code, answer = asked(home, "toy")
    assert code == 3
    assert "E_TPS_MISMATCH" in codes(answer)
    assert "replayed" not in answer
    assert "not_replayed" not in answer


def program(home: Path, **changes: Any) -> None:
    """Let the receipt of ``toy`` be one of a program, made up to agree with itself."""
    (home / "prog.py").write_text(PROGRAM)
    (home / "other.toml").write_text(COMMAND)
    (declared,) = read_file(home / "other.toml")
    told = {**recipe(declared), **changes, "max_tokens": 4}
    model = {"path": "prog.py"}
    made = bundle(clock_scope="process").with_receipt(model=model)
    made = made.with_evidence(workload=told, model=model, model_sha256=None)
    made.write(latest(home, "toy"))


@pytest.mark.parametrize(
    "command",
    [["/bin/rm", "-rf", "MARK"], ["/bin/sh", "-c", "touch MARK.touched"], ["touch", "MARK"]],
)
def test_what_is_not_declared_here_does_not_run(home: Path, command: list[str]) -> None:
    mark = home / "mark"
    mark.mkdir()
    told = [part.replace("MARK", str(mark)) for part in command]
    program(home, command=told)
    code, answer = asked(home, "toy")
    assert code == 4, answer
    assert answer["not_replayed"]["code"] == "E_REPLAY_UNTRUSTED"
    assert json.dumps(told) in answer["not_replayed"]["message"]
    assert "--replay-untrusted" in answer["not_replayed"]["message"]
    assert answer["grade"] == "OBSERVED"
    assert mark.exists()
    assert not mark.with_suffix(".touched").exists()


def test_an_undeclared_program_runs_where_that_is_allowed(home: Path) -> None:
    program(home)
    code, answer = replay(home, "toy", "--replay-untrusted")
    # It ran; its tokens are not those of the function whose evidence was borrowed.
    assert code == 3
    assert "E_REPLAY_TOKENS" in codes(answer)


UNTRUSTED: dict[str, dict[str, Any]] = {
    "a build": {"build": ["touch", "mark"]},
    "an environment": {"env": {"LD_PRELOAD": "evil.so"}},
    "another target": {"engine": "python", "target": "os:system"},
}


@pytest.mark.parametrize("what", UNTRUSTED)
def test_an_embedded_recipe_may_not_bring_anything_that_runs(home: Path, what: str) -> None:
    directory = latest(home, "emb")
    found = evidence_in(directory)
    reseal(directory, replace(found, workload={**found.workload, **UNTRUSTED[what]}))
    code, answer = asked(home, "emb")
    assert (code, answer.get("not_replayed", {}).get("code")) in (
        (4, "E_REPLAY_UNTRUSTED"),
        (3, None),  # another engine than the receipt's is refused before
    )
    assert not (home / "mark").exists()


REFUSED: dict[str, tuple[dict[str, Any], str, int]] = {
    "E_REPLAY_CALLABLE": ({"source": "tests/test_a.py::test_b"}, "E_REPLAY_CALLABLE", 4),
    "E_REPLAY_INJECTED": ({"injection": "gemv:+10%"}, "E_REPLAY_INJECTED", 4),
    "unknown part": ({"shell": "rm"}, "E_REPLAY_RECIPE", 3),
    "no time-out": ({"prompt": "2+2=5", "timeout_s": 1e9}, "E_REPLAY_RECIPE", 3),
    "too many threads": ({"threads": 10**6}, "E_REPLAY_RECIPE", 3),
    "other model": ({"prompt": "2+2=5"}, "E_REPLAY_OTHER_MODEL", 4),
    "traversal": ({"prompt": "2+2=5", "model": "../../../../etc/passwd"}, "E_MODEL_MISSING", 5),
    "pattern": ({"prompt": "2+2=5", "model": "/**/*"}, "E_MODEL_MISSING", 5),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_again_is_said(home: Path, case: str) -> None:
    changes, code, exit_code = REFUSED[case]
    directory = latest(home, "emb")
    found = evidence_in(directory)
    found = replace(found, workload={**found.workload, **changes})
    if code == "E_REPLAY_OTHER_MODEL":
        model = {**found.model, "sha256": "0" * 64}
        found = replace(found, model_sha256="0" * 64, model=model)
        reseal(directory, found, model=model)
    else:
        reseal(directory, found)
    returned, answer = asked(home, "emb")
    assert answer["not_replayed"]["code"] == code
    assert returned == exit_code
    assert answer["grade"] == "OBSERVED"


def test_a_foreign_value_that_was_redacted_cannot_run(home: Path) -> None:
    program(home, env={"HF_TOKEN": "redacted"})
    code, answer = asked(home, "toy", "--replay-untrusted")
    assert (code, answer["not_replayed"]["code"]) == (4, "E_REPLAY_REDACTED")


def test_a_receipt_alone_has_no_recipe(home: Path) -> None:
    (latest(home, "emb") / "evidence.json").unlink()
    code, answer = asked(home, "emb")
    assert (code, answer["not_replayed"]["code"]) == (4, "E_REPLAY_NO_EVIDENCE")


def test_a_model_given_by_hand_must_be_the_very_file(home: Path) -> None:
    from pytest_flamegate.engines.embedded import SHIPPED_MODEL

    copy = home / "copy.gguf"
    copy.write_bytes(SHIPPED_MODEL.read_bytes())
    code, answer = replay(home, "emb", "--model=copy.gguf")
    assert code in (0, 4)
    assert answer["replayed"]["tokens"] == "equal"
    with copy.open("ab") as file:
        file.write(b"\0")
    code, answer = asked(home, "emb", "--model=copy.gguf")
    assert (code, answer["not_replayed"]["code"]) == (4, "E_REPLAY_OTHER_MODEL")
    code, answer = asked(home, "emb", "--model=nowhere.gguf")
    assert (code, answer["not_replayed"]["code"]) == (5, "E_MODEL_MISSING")
    code, answer = asked(home, "toy", "--model=copy.gguf")
    assert (code, answer["not_replayed"]["code"]) == (2, "E_REPLAY_MODEL_FIXED")


def test_what_hangs_ends_by_its_time_out(home: Path) -> None:
    toy = workload("toy", timeout="1")
    (home / "flamegate.toml").write_text(toy + EMBEDDED)
    code = (home / "toy.py").read_text()
    (home / "toy.py").write_text(code.replace("yield x % 100", "yield x % 100; time.sleep(60)"))
    returned, answer = replay(home, "toy")
    assert returned == 5
    assert answer["not_replayed"]["code"] == "E_TIMEOUT"


@pytest.mark.parametrize("grade", [Grade.OBSERVED, Grade.ATTESTED])
def test_a_replay_that_shows_too_little_is_no_success_whatever_the_grade(grade: Grade) -> None:
    found = Verification(True, grade, (), (), "embedded", "", obtained_again=False)
    assert Answer(found).exit_code(replay=False) == 0
    assert Answer(found).exit_code(replay=True) == 4
    held = replace(found, obtained_again=True)
    assert Answer(held).exit_code(replay=True) == 0
    failed = ToolError("E_X", "It failed.", "Mend it.")
    assert Answer(found, failed).exit_code(replay=True) == 5
    assert Answer(replace(held, ok=False), failed).exit_code(replay=True) == 3


def test_options_that_do_nothing_alone_are_refused(home: Path) -> None:
    for option in ("--replay-untrusted", "--model=x.gguf", BUDGET):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            assert main(["verify-receipt", str(home / "receipt.json"), option]) == 2
        assert "E_REPLAY_OPTION" in said.getvalue()


def test_an_interrupt_leaves_nothing_behind(home: Path) -> None:
    before = files(home)
    began = home / "began"
    code = (home / "toy.py").read_text()
    slow = f"open({str(began)!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(60); yield x % 100"
    (home / "toy.py").write_text(code.replace("yield x % 100", slow))
    path = latest(home, "toy") / "receipt.json"
    program = "import sys; from pytest_flamegate.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", program, "verify-receipt", str(path), "--replay", BUDGET],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        end_s = time.monotonic() + 120
        while not (began.exists() and began.read_text()) and time.monotonic() < end_s:
            time.sleep(0.05)
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=120)
    assert started.returncode == 130
    assert "interrupted" in said
    for pid in began.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    began.unlink()
    (home / "toy.py").write_text(code)
    assert files(home) == before
