"""The commands of the terminal: what they print, what they write, how they exit."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate import __version__
from pytest_flamegate.cli import main
from pytest_flamegate.commands import common
from pytest_flamegate.commands.run import choose_workloads, worst_exit_code
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ReceiptError, ToolError, UndecidedError, UsageError
from pytest_flamegate.gate import EXIT_CODES, Reason, Verdict
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.run.lock import DIRECTORY
from pytest_flamegate.run.publish import Outcome
from tests.doors.project import JUDGED, workload, write_toy
from tests.made import bundle

_PROGRAM = "import sys; from pytest_flamegate.cli import main; sys.exit(main())"


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: what measures starts and reaps processes."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def ask(*arguments: str) -> int:
    """Run a command that measures nothing here; return how it exits, as its process would."""
    try:
        return main(arguments)
    except SystemExit as left:
        return int(left.code or 0)


Told = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, py_spy: None) -> Path:
    """A project in which the command gated its one workload once, with a profile."""
    directory = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CI", "FLAMEGATE_PROFILER"):
            patch.delenv(name, raising=False)
        for name in ("TMPDIR", DIRECTORY):
            patch.setenv(name, str(tmp_path_factory.mktemp("tmp")))
        write_toy(directory)
        (directory / "flamegate.toml").write_text(workload("toy", tokens_per_second='"60%"'))
        done = run(directory, "run", "--budget=1", "--profiler=py-spy", "toy")
    assert "Traceback" not in done.stderr
    # No baseline is no success: nothing was compared.
    assert done.returncode == 4, done.stdout
    assert "no baseline" in done.stdout
    assert "flamegate run --profiler=py-spy --update" in done.stdout
    return directory


@pytest.fixture
def home(measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that project, to change."""
    directory = tmp_path / "home"
    shutil.copytree(measured, directory)
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a made receipt, its evidence and profile."""
    directory = tmp_path / "shelf"
    directory.mkdir()
    for name, data in bundle().sealed().files.items():
        (directory / name).write_bytes(data)
    monkeypatch.chdir(directory)
    return directory


# Words and exit codes


def test_version(capsys: Told) -> None:
    assert ask("--version") == 0
    assert capsys.readouterr().out == f"flamegate {__version__}\n"


def test_the_program_is_installed() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="flamegate")
    assert script.load() is main


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["gate"],
        ["run", "--nope"],
        ["verify-receipt"],
        ["verify-receipt", "x", "--format=xml"],
        ["baseline"],
        ["baseline", "burn"],
        ["baseline", "show"],
    ],
)
def test_a_command_line_that_is_not_understood(arguments: list[str], capsys: Told) -> None:
    assert ask(*arguments) == 2
    assert capsys.readouterr().err.startswith("usage: flamegate")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "tyo"], ("E_UNKNOWN_WORKLOAD", "'tyo'", "Known: toy")),
        (["run", "--budget=soon"], ("E_BAD_OPTION", "flamegate_budget is 'soon'")),
        (["run", "--profiler=vtune"], ("E_BAD_OPTION", "'vtune'")),
        (["run", "--config=nowhere.toml"], ("E_NO_CONFIG", "nowhere.toml")),
        (["run", "--config=broken.toml"], ("E_BAD_TOML", "line 1, column")),
        (["run", "--inject=rms_norm"], ("E_BAD_INJECTION", "FRAME:+PERCENT%")),
        (["run", "--inject=rms_norm:+1%", "--update"], ("E_UPDATE_CONFLICT",)),
        (["flamegraph", "--profiler=none"], ("E_NO_PROFILER", "no flame graph")),
        (["verify-receipt", "x", "--kernel-policy=nobody"], ("E_UNKNOWN_POLICY", "bitnet")),
        (["verify-receipt", "x", "--max-age="], ("E_BAD_AGE", "''")),
        (["verify-receipt", "x", "--max-age=24"], ("E_BAD_AGE", "'24'", "24h")),
        (["verify-receipt", "x", "--max-age=-1h"], ("E_BAD_AGE", "'-1h'")),
        (["verify-receipt", "x", "--require-grade=GOOD"], ("E_UNKNOWN_GRADE", "OBSERVED")),
    ],
)
def test_usage_errors(
    pytester: pytest.Pytester, capsys: Told, arguments: list[str], words: tuple[str, ...]
) -> None:
    (pytester.path / "flamegate.toml").write_text(workload("toy"))
    (pytester.path / "broken.toml").write_text("[workloads.toy\n")
    assert ask(*arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    for word in words:
        assert word in told.err
    assert not (pytester.path / ".flamegate").exists()


@pytest.mark.parametrize("arguments", [("run", "--update"), ("baseline", "accept")])
def test_an_update_under_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: Told, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CI", "true")
    assert ask(*arguments) == 2
    assert "E_UPDATE_IN_CI" in capsys.readouterr().err


def outcome(verdict: str, error: Exception | None = None, *, accepted: bool = False) -> Outcome:
    reason = Reason("E_X", "…")
    return Outcome(
        workload=Workload("toy", "python", "x", 1, "flamegate.toml"),
        verdict=Verdict(verdict, (reason,), "OBSERVED"),  # type: ignore[arg-type]
        directory=Path("x"),
        accepted=Path("y") if accepted else None,
        error=error,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(("verdict", "code"), EXIT_CODES.items())
def test_the_verdict_decides_the_exit_code(verdict: str, code: int) -> None:
    assert worst_exit_code([outcome(verdict)]) == code


@pytest.mark.parametrize(
    ("kind", "code"), [(UsageError, 2), (ReceiptError, 3), (UndecidedError, 4), (ToolError, 5)]
)
def test_what_was_raised_decides_it_before(kind: type[Any], code: int) -> None:
    """By its type: the words say the opposite."""
    error = kind("E_TOOL_REGRESSED", "It passed.", "Exit 0.")
    assert worst_exit_code([outcome("error", error)]) == code


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([], 0),
        (["pass", "improved"], 0),
        (["pass", "no_baseline"], 4),
        (["inconclusive", "error"], 5),
        (["error", "dishonest"], 3),
        (["dishonest", "regressed", "error", "pass"], 1),
    ],
)
def test_the_worst_of_several_decides(verdicts: list[str], code: int) -> None:
    assert worst_exit_code([outcome(each) for each in verdicts]) == code


def test_what_was_accepted_is_no_failure() -> None:
    assert (
        worst_exit_code(
            [outcome("regressed", accepted=True), outcome("no_baseline", accepted=True)]
        )
        == 0
    )


def test_workloads_are_chosen_by_name() -> None:
    known = [SimpleNamespace(name=name, family=None) for name in ("one", "two", "three")]
    names = [each.name for each in choose_workloads(known, ["three", "one"])]  # type: ignore[arg-type]
    assert names == ["three", "one"]
    assert len(choose_workloads(known, [])) == 3  # type: ignore[arg-type]


def test_a_reader_that_has_seen_enough(shelf: Path) -> None:
    """The pipe is closed before a word is written: the exit code is that of what was found."""
    (shelf / "other.json").write_text("{}")
    for arguments, code in ((["receipt.json"], 0), (["other.json", "receipt.json"], 3)):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, "verify-receipt", *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        os.close(writer)
        assert (done.stderr, done.returncode) == ("", code)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied", "/x"), "Permission denied: '/x'"),
        (MemoryError(), "not enough memory"),
        (RecursionError(), "nested too deeply"),
    ],
)
def test_what_the_system_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: Told, error: Exception, words: str
) -> None:
    def refuse(_: object) -> None:
        raise error

    monkeypatch.setattr(ArtifactStore, "list_baselines", refuse)
    assert ask("baseline", "list") == 5
    told = capsys.readouterr().err
    assert told.startswith("E_SYSTEM: ")
    assert words in told


# run


def test_what_a_run_leaves(measured: Path) -> None:
    latest = measured / ".flamegate" / "latest" / "toy"
    assert {path.name for path in latest.iterdir()} == {
        "receipt.json",
        "evidence.json",
        "profile.folded",
        "flamegraph.svg",
        "flamegraph.html",
        "flamegraph.md",
        "verdict.json",
    }
    assert json.loads((latest / "verdict.json").read_text())["verdict"] == "no_baseline"
    assert "hash_round" in (latest / "profile.folded").read_text()


def test_accepted_then_run_again(home: Path) -> None:
    done = run(home, "baseline", "accept")
    assert done.returncode == 0
    assert done.stdout.startswith("accepted toy: ")
    done = run(home, "run", "--budget=1", "--profiler=py-spy")
    document = json.loads((home / ".flamegate/latest/toy/verdict.json").read_text())
    assert document["verdict"] in JUDGED
    assert done.returncode == EXIT_CODES[document["verdict"]]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "arguments", "code", "words"),
    [
        (workload("toy", "raises"), (), 5, "E_ENGINE_RAISED"),
        (workload("toy", "is_not_there"), (), 5, "E_TARGET_NOT_FOUND"),
        (workload("toy"), ("--inject=rms_norm:+10%",), 2, "E_UNKNOWN_FRAME"),
        (workload("toy"), ("--dir=toy.py/artifacts",), 5, "E_CANNOT_WRITE"),
    ],
)
def test_what_cannot_be_measured(
    tmp_path: Path, text: str, arguments: tuple[str, ...], code: int, words: str
) -> None:
    write_toy(tmp_path)
    (tmp_path / "flamegate.toml").write_text(text)
    done = run(tmp_path, "run", "--budget=1", "--profiler=none", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stdout
    assert "Traceback" not in done.stderr


def test_a_baseline_that_was_tampered_with(home: Path) -> None:
    assert ask("baseline", "accept") == 0
    (evidence,) = (home / ".flamegate" / "baselines").glob("*/toy/evidence.json")
    evidence.write_text(evidence.read_text()[:-20])
    done = run(home, "run", "--budget=1", "--profiler=none")
    assert done.returncode == 3, done.stdout
    assert "E_BASELINE_CORRUPT" in done.stdout


def test_the_project_s_thresholds_are_those_of_the_command_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_toy(tmp_path)
    (tmp_path / "flamegate.toml").write_text(
        '[workloads.a]\ntarget = "toy:generate"\nprompt = "p"\nmax_tokens = 4\n'
        '[workloads.b]\ntarget = "toy:generate"\nprompt = "p"\nmax_tokens = 4\n'
        'tokens_per_second = "3%"\n'
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nflamegate_tokens_per_second = 90%\n")
    monkeypatch.chdir(tmp_path)
    found = common.read_workloads(common.read_settings(argparse.Namespace()))
    assert [each.thresholds.tokens_per_second_pct for each in found] == [90.0, 3.0]


def test_the_home_of_nobody(home: Path) -> None:
    done = run(home, "run", "--dir=~nobody-of-this-name/x")
    assert done.returncode == 2
    assert "E_BAD_OPTION" in done.stderr
    assert "Traceback" not in done.stderr


# flamegraph


@pytest.mark.usefixtures("py_spy")
def test_flamegraph(tmp_path: Path) -> None:
    (tmp_path / ".flamegate" / "latest" / "1tok").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\nflamegate_budget = 1\n")
    done = run(tmp_path, "flamegraph", "", "words.json", "out", "--profiler=py-spy")
    assert done.returncode == 0, done.stdout + done.stderr
    # What was gated before stays: pictures are neither kept nor judged nor recorded.
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob(".flamegate/**/*")}
    assert left == {".flamegate/latest", ".flamegate/latest/1tok"}
    note, preamble, *written = done.stdout.splitlines()
    assert "py-spy" in preamble
    assert note.startswith("TOKENIZER words.json is not used")
    out = tmp_path / "out"
    ends = (".svg", ".html", ".md")
    names = {"README.md", *(f"{name}{end}" for name in ("1tok", "10tok") for end in ends)}
    assert {path.name for path in out.iterdir()} == names
    assert set(written) == {f"out/{name}" for name in names}
    for name in ("1tok.svg", "10tok.svg"):
        picture = (out / name).read_text()
        assert picture.startswith(("<?xml", "<svg"))
        assert "ternary_gemv" in picture
        page = (out / name).with_suffix(".md").read_text()
        assert f"({name})" in page
        assert "This run was not judged." in page
        assert "words.json" not in page
    guide = (out / "README.md").read_text()
    assert "1tok.svg" in guide
    assert "flamegate flamegraph '' '' out" in guide


def test_a_flamegraph_of_a_model_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "flamegraph", "missing.gguf", "", "out", "--budget=1")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "E_MODEL_MISSING" in done.stdout
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_a_flamegraph_that_cannot_be_written_is_not_measured(
    pytester: pytest.Pytester, capsys: Told
) -> None:
    (pytester.path / "occupied").touch()
    assert ask("flamegraph", "", "", "occupied/out") == 5
    assert "E_CANNOT_WRITE" in capsys.readouterr().err
    assert not (pytester.path / ".flamegate").exists()


# verify-receipt


def test_an_honest_receipt(shelf: Path, capsys: Told) -> None:
    assert ask("verify-receipt", "receipt.json") == 0
    told = capsys.readouterr().out
    assert told.startswith("receipt.json: accepted (grade OBSERVED)")


def test_of_several_receipts_the_sum_is_told(measured: Path, tmp_path: Path, capsys: Told) -> None:
    path = measured / ".flamegate" / "latest" / "toy" / "receipt.json"
    assert ask("verify-receipt", str(path), str(tmp_path / "none.json"), str(path)) == 3
    assert capsys.readouterr().out.endswith("\n2 accepted, 1 refused\n")


def test_a_receipt_of_a_run(measured: Path, capsys: Told) -> None:
    path = measured / ".flamegate" / "latest" / "toy" / "receipt.json"
    assert ask("verify-receipt", str(path), "--require-grade=observed", "--max-age=1d") == 0
    assert "accepted (grade OBSERVED, wanted OBSERVED)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--max-age=1d"], "E_EXPIRED"),
        (["--require-gpu-kernels"], "E_GPU_REQUIRED"),
        (["--kernel-policy=bitnet"], "E_NO_COMPUTE_KERNEL"),
    ],
)
def test_an_honest_receipt_that_is_not_enough(
    shelf: Path, capsys: Told, arguments: list[str], code: str
) -> None:
    assert ask("verify-receipt", "receipt.json", *arguments) == 3
    told = capsys.readouterr().out
    assert told.startswith("receipt.json: refused")
    assert code in told


def test_without_its_evidence(shelf: Path, capsys: Told) -> None:
    (shelf / "evidence.json").unlink()
    assert ask("verify-receipt", "receipt.json") == 0
    assert "accepted (grade CONSISTENT)" in capsys.readouterr().out
    assert ask("verify-receipt", "receipt.json", "--require-grade=OBSERVED") == 3
    told = capsys.readouterr().out
    assert "refused (grade CONSISTENT, wanted OBSERVED)" in told
    assert "E_GRADE" in told


def test_a_receipt_that_was_edited(shelf: Path, capsys: Told) -> None:
    path = shelf / "receipt.json"
    document = json.loads(path.read_text())
    document["tokens_per_second"] *= 10
    path.write_text(json.dumps(document))
    assert ask("verify-receipt", "receipt.json") == 3
    assert "refused" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff\xfe", b"{" * 100_000, b'{"a": 1, "a": 2}', None]
)
def test_what_is_no_receipt(shelf: Path, capsys: Told, content: bytes | None) -> None:
    path = shelf / "receipt.json"
    path.unlink() if content is None else path.write_bytes(content)
    assert ask("verify-receipt", "receipt.json") == 3
    told = capsys.readouterr()
    assert told.out.startswith("receipt.json: refused (grade SELF_REPORTED)")
    assert told.err == ""


def test_json_tells_the_same(shelf: Path, capsys: Told) -> None:
    (shelf / "other.json").write_text("{}")
    assert ask("verify-receipt", "receipt.json", "other.json", "--format=json") == 3
    good, bad = json.loads(capsys.readouterr().out)
    assert (good["path"], good["ok"], good["grade"]) == ("receipt.json", True, "OBSERVED")
    assert good["refusals"] == []
    assert good["ceiling"]
    assert (bad["path"], bad["ok"]) == ("other.json", False)
    assert all(each["code"].startswith("E_") and each["message"] for each in bad["refusals"])
    assert bad["refusals"]


# baseline


def test_there_is_no_baseline_yet(home: Path, capsys: Told) -> None:
    assert ask("baseline", "list") == 0
    assert capsys.readouterr().out.startswith("no baselines")
    assert ask("baseline", "show", "toy") == 4
    assert "E_NO_BASELINE" in capsys.readouterr().err
    assert ask("baseline", "prune") == 0
    assert "nothing to prune" in capsys.readouterr().out


def test_accept_list_show(home: Path, capsys: Told) -> None:
    assert ask("baseline", "accept", "toy") == 0
    artifacts = ArtifactStore(home / ".flamegate")
    ((machine, name, directory),) = artifacts.list_baselines()
    assert name == "toy"
    assert capsys.readouterr().out == f"accepted toy: {directory}\n"
    latest = artifacts.latest_directory("toy")
    for path in latest.iterdir():
        assert (directory / path.name).read_bytes() == path.read_bytes()
    assert ask("baseline", "list") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split()[:2] == ["toy", machine]
    assert "tokens/s" in line
    assert ask("baseline", "show", "toy") == 0
    told = capsys.readouterr().out
    assert f"toy on {machine}: " in told
    assert "hash_round" in told


def test_nothing_to_accept(pytester: pytest.Pytester, capsys: Told) -> None:
    assert ask("baseline", "accept") == 4
    assert "E_NO_RUN" in capsys.readouterr().err
    assert ask("baseline", "accept", "toy") == 2
    assert "E_NO_RUN" in capsys.readouterr().err


def test_an_update_under_ci_that_is_meant(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert ask("baseline", "accept", "--update-in-ci") == 0
    assert len(ArtifactStore(home / ".flamegate").list_baselines()) == 1


def falsify(latest: Path) -> None:
    document = json.loads((latest / "receipt.json").read_text())
    document["tokens_per_second"] *= 10
    (latest / "receipt.json").write_text(json.dumps(document))


def inject(latest: Path) -> None:
    """Make it a run that was made slower on purpose: it is honest, and still no baseline."""
    document = json.loads((latest / "evidence.json").read_text())
    document["workload"]["injection"] = "norm:+10%"
    (latest / "evidence.json").write_text(json.dumps(document))


def hide_evidence(latest: Path) -> None:
    (latest / "evidence.json").unlink()


def put_a_directory(latest: Path) -> None:
    (latest / "flamegraph.md").unlink()
    (latest / "flamegraph.md").mkdir()


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (falsify, 3, ("E_NOT_ACCEPTED", "is not honest")),
        (inject, 4, ("E_NOT_ACCEPTED", "norm:+10%")),
        (hide_evidence, 3, ("E_NOT_ACCEPTED", "evidence")),
        (put_a_directory, 3, ("E_NOT_A_FILE", "flamegraph.md")),
    ],
)
def test_what_is_not_accepted(
    home: Path, capsys: Told, spoil: Callable[[Path], None], code: int, words: tuple[str, ...]
) -> None:
    spoil(home / ".flamegate" / "latest" / "toy")
    assert ask("baseline", "accept") == code
    told = capsys.readouterr().err
    for word in words:
        assert word in told
    assert not (home / ".flamegate" / "baselines").exists()


def test_a_broken_baseline_is_listed_as_such(home: Path, capsys: Told) -> None:
    broken = home / ".flamegate" / "baselines" / "machine" / "old"
    broken.mkdir(parents=True)
    (broken / "evidence.json").write_text("{")
    assert ask("baseline", "list") == 0
    assert "unusable" in capsys.readouterr().out
    assert ask("baseline", "show", "old") == 0
    assert "unusable" in capsys.readouterr().out


def test_prune_removes_what_nothing_declares_and_says_so_first(home: Path, capsys: Told) -> None:
    assert ask("baseline", "accept") == 0
    ((_, _, accepted),) = ArtifactStore(home / ".flamegate").list_baselines()
    of_test, embedded = accepted.with_name("of-a-test"), accepted.with_name("1tok")
    shutil.copytree(accepted, of_test)
    shutil.copytree(accepted, embedded)
    evidence = json.loads((of_test / "evidence.json").read_text())
    evidence["workload"]["source"] = "tests/test_a.py::test_b"
    (of_test / "evidence.json").write_text(json.dumps(evidence))
    (of_test / "baseline.json").unlink()
    (home / "flamegate.toml").write_text(workload("new"))
    capsys.readouterr()
    assert ask("baseline", "prune") == 0
    told = capsys.readouterr().out
    assert told == f"would remove toy: {accepted}\nsay --yes to remove them\n"
    assert accepted.is_dir()
    assert ask("baseline", "prune", "--yes") == 0
    assert capsys.readouterr().out == f"removed toy: {accepted}\n"
    assert not accepted.exists()
    # Tests and the embedded engine declare nothing, and still measure these.
    assert of_test.is_dir()
    assert embedded.is_dir()


# doctor


@pytest.mark.usefixtures("py_spy")
def test_doctor(tmp_path: Path) -> None:
    done = run(tmp_path, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    starts = {line.split()[0] for line in lines if line.strip()}
    assert {"machine", "py-spy", "perf", "platform", "quiet", "pressure", "model"} <= starts
    assert {"allowed", "temporary", "artifacts"} <= starts
    (python,) = [line for line in lines if line.startswith("Python engines")]
    assert "a gate runs here: pytest --flamegate (py-spy samples Python frames" in python
    assert any(line.startswith("native commands: ") for line in lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("python", "native"), [(True, False), (False, True), (True, True)])
def test_doctor_tells_the_two_kinds_of_engine_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: Told, python: bool, native: bool
) -> None:
    from pytest_flamegate.profile.profilers.base import Probe

    # In place of the table, not in it: put back one by one its entries would change their order.
    table = import_module("pytest_flamegate.profile.profilers.choose")
    seen = Probe("perf", "6.1", usable=True, sees_python=python, sees_native=native)
    one = SimpleNamespace(name="perf", probe=lambda: seen)
    monkeypatch.setattr(table, "PROFILERS", {"perf": lambda _: one})
    assert ask("doctor") == 0
    lines = capsys.readouterr().out.splitlines()
    said = [
        next(line for line in lines if line.startswith(kind)) for kind in ("Python eng", "native c")
    ]
    assert ["a gate runs here" in line for line in said] == [python, native]
    assert ["--flamegate-profiler=none" in line for line in said] == [not python, not native]


def test_doctor_where_no_profiler_works(tmp_path: Path) -> None:
    """Told with what to do instead, and with the exit code of a tool that failed."""
    code = (
        "from importlib import import_module;"
        "known = import_module('pytest_flamegate.profile.profilers.choose').PROFILERS;"
        "[known.pop(name) for name in list(known) if name != 'none'];"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + _PROGRAM, "doctor"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert "--flamegate-profiler=none" in done.stdout.splitlines()[-2]
    assert "E_NO_PROFILER" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(("name", "code"), [("receipt.json", 0), ("nothing.json", 3)])
def test_nobody_listens(shelf: Path, name: str, code: int) -> None:
    # As python starts where both are closed: flamegate ... >&- 2>&-
    script = (
        "import sys; sys.stdout = sys.stderr = None; from pytest_flamegate.cli import main; "
        f"sys.exit(main(['verify-receipt', {name!r}]))"
    )
    left = subprocess.run([sys.executable, "-c", script], cwd=shelf, check=False)
    assert left.returncode == code
