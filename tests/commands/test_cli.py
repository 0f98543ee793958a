"""The command line itself: usage errors, exit codes, closed streams."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from unittest.mock import Mock

import pytest

from pytest_flamegate import __version__, cli
from pytest_flamegate.cli import main
from pytest_flamegate.commands import accuracy, pictures, sign
from pytest_flamegate.commands.common import escape_controls
from pytest_flamegate.commands.run import worst_exit_code
from pytest_flamegate.config.options import shorten_options
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import (
    FlamegateError,
    ReceiptError,
    ToolError,
    UndecidedError,
    UsageError,
)
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.verdict import KINDS, Verdict
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.run import calibration, selftest
from pytest_flamegate.run.publish import Outcome
from tests.commands.asked import PROGRAM, Captured, Command, ask


def test_version(command: Command) -> None:
    assert command(0, "--version").out == f"flamegate {__version__}\n"
    (script,) = metadata.entry_points(group="console_scripts", name="flamegate")
    assert script.load() is main


def test_an_unknown_command_line_prints_the_usage(command: Command) -> None:
    for line in (
        "", "gate", "run --nope", "verify-receipt", "verify-receipt x --format=xml",
        "baseline burn", "baseline show",
    ):  # fmt: skip
        assert command(2, *line.split()).err.startswith("usage: flamegate")
    assert ask("slftest", "--budget=3") == 2
    assert "there is no command 'slftest'. Did you mean 'selftest'?" in command.read().err
    assert ask("baseline", "accpt") == 2
    assert "baseline has no action 'accpt'. Did you mean 'accept'?" in command.read().err


def test_an_error_names_the_options_of_the_command(
    project: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    assert "write --bricks=20." in command(2, "run", "--bricks", "toy").err
    monkeypatch.setenv("CI", "1")
    assert "add --update-in-ci if" in command(2, "baseline", "accept").err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Give --flamegate-budget, --flamegate-dir=x.", "Give --budget, --dir=x."),
        (
            "Measure first: pytest --flamegate, or run.",
            "Measure first: pytest --flamegate, or run.",
        ),
        *[("pytest 'a b' --flamegate --flamegate-budget=5 --flamegate-dir=x",) * 2],
        ("Not under pytest. --flamegate-dir", "Not under pytest. --dir"),
        ("under pytest --flamegate-dir", "under pytest --dir"),
    ],
)
def test_a_command_line_of_pytest_keeps_its_options(text: str, shown: str) -> None:
    assert shorten_options(text) == shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "tyo"], ("E_UNKNOWN_WORKLOAD", "'tyo'", "'toy'")),
        (["run", "--budget=soon"], ("E_BAD_OPTION", "flamegate_budget is 'soon'")),
        (["run", "--config=nowhere.toml"], ("E_BAD_OPTION", "nowhere.toml")),
        (["run", "--inject=rms_norm"], ("E_BAD_INJECTION", "FRAME:+PERCENT%")),
        (["run", "--update"], ("E_UPDATE_IN_CI",)),
        (["baseline", "accept"], ("E_UPDATE_IN_CI",)),
        (["flamegraph", "--profiler=none"], ("E_NO_PROFILER",)),
        (["verify-receipt", "x", "--kernel-policy=nobody"], ("E_BAD_OPTION", "bitnet")),
        (["verify-receipt", "x", "--max-age=24"], ("E_BAD_OPTION", "'24'", "24h")),
        (["verify-receipt", "x", "--max-age=-1h"], ("E_BAD_OPTION", "'-1h'")),
        (["verify-receipt", "x", "--require-grade=GOOD"], ("E_BAD_OPTION", "OBSERVED")),
    ],
)
def test_a_usage_error_names_the_value_and_changes_nothing(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
    arguments: list[str],
    words: tuple[str, ...],
) -> None:
    monkeypatch.setenv("CI", "true")
    captured = command(2, *arguments)
    assert captured.out == ""
    for word in words:
        assert word in captured.err
    assert not (project / ".flamegate").exists()


def outcome(
    verdict: str, error: FlamegateError | None = None, *, accepted: bool = False
) -> Outcome:
    return Outcome(
        workload=Workload("toy", "python", "x", 1, "flamegate.toml"),
        verdict=Verdict(verdict, (Reason("E_X", "…"),), "OBSERVED"),  # type: ignore[arg-type]
        directory=Path("x"),
        accepted=Path("y") if accepted else None,
        error=error,
    )


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        *(([outcome(verdict)], kind.exit_code) for verdict, kind in KINDS.items()),
        *(
            ([outcome("error", kind("E_TOOL_REGRESSED", "It passed.", "Exit 0."))], kind.exit_code)
            for kind in (UsageError, ReceiptError, UndecidedError, ToolError)
        ),
        ([], 0),
        ([outcome("pass"), outcome("improved")], 0),
        ([outcome("pass"), outcome("no_baseline")], 4),
        ([outcome("inconclusive"), outcome("error")], 5),
        ([outcome("error"), outcome("dishonest")], 3),
        ([outcome("dishonest"), outcome("regressed"), outcome("error")], 1),
        ([outcome("regressed", accepted=True), outcome("no_baseline", accepted=True)], 0),
    ],
)
def test_the_worst_outcome_decides_the_exit_code(outcomes: list[Outcome], code: int) -> None:
    assert worst_exit_code(outcomes) == code


def test_an_error_of_the_system_has_a_code(
    monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    for error, words in (
        (PermissionError(13, "Permission denied", "/x"), "Permission denied: '/x'"),
        (MemoryError(), "not enough memory"),
        (RecursionError(), "nested too deeply"),
    ):
        monkeypatch.setattr(ArtifactStore, "list_baselines", Mock(side_effect=error))
        message = command(5, "baseline", "list").err
        assert message.startswith("E_SYSTEM: ")
        assert words in message


def test_a_closed_pipe_does_not_change_the_exit_code(receipt_directory: Path) -> None:
    (receipt_directory / "other.json").write_text("{}")
    for arguments, code in (
        (("verify-receipt", "other.json", "receipt.json"), 3),
        (("export", "profile.folded", "--format=folded"), 0),
        (("export", "nothing.folded", "--format=folded"), 5),
    ):
        for stderr in (subprocess.PIPE, subprocess.STDOUT):
            reader, writer = os.pipe()
            os.close(reader)
            command = [sys.executable, "-c", PROGRAM, *arguments]
            done = subprocess.run(command, stdout=writer, stderr=stderr, text=True, check=False)
            os.close(writer)
            assert done.returncode == code
            assert "Traceback" not in (done.stderr or "")


def test_progress_without_a_reader_ends_no_command() -> None:
    """As in ``flamegate run 2>&1 | head``: the exit code is that of the verdicts."""
    reader, writer = os.pipe()
    os.close(reader)
    words = (
        "import sys; from pytest_flamegate.core.progress import stream_progress as shown; "
        "progress = shown(sys.stderr); [progress.announce(each) for each in 'ab']; sys.exit(4)"
    )
    done = subprocess.run([sys.executable, "-c", words], stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 4


@pytest.mark.usefixtures("receipt_directory")
def test_a_process_without_streams_still_has_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python starts in a shell if both streams are closed: ``flamegate ... >&- 2>&-``."""
    for name, code in (("receipt.json", 0), ("nothing.json", 2)):
        monkeypatch.setattr(sys, "stdout", None)
        monkeypatch.setattr(sys, "stderr", None)
        assert main(["verify-receipt", name]) == code
        for stream in (sys.stdout, sys.stderr):
            stream.close()


def test_of_all_control_characters_only_our_colours_are_printed() -> None:
    for text, shown in (
        ("plain\ntext", "plain\ntext"),
        ("\x1b[1m\x1b[31mred\x1b[0m", "\x1b[1m\x1b[31mred\x1b[0m"),
        ("\x1b[8mhidden", "\\x1b[8mhidden"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb\u202e", "a\\x0db\\u202e"),
    ):
        assert escape_controls(text, colour=True) == shown
        assert "\x1b" not in escape_controls(text)


def test_defaults_in_the_help_are_those_of_the_code() -> None:
    words = {name: row.get("arguments", {}) for name, row in cli._COMMANDS.items()}
    assert words["calibrate"]["--pairs"]["default"] == calibration.PAIRS
    assert words["keygen"]["-o --output"]["default"] == sign.NAME
    assert words["flamegraph"]["output"]["default"] == str(pictures.DEFAULT_DIRECTORY)
    for command, argument, default in (
        ("calibrate", "--budget", f"(default {calibration.BUDGET_S:g})"),
        ("calibrate", "--pairs", f"(default {calibration.PAIRS})"),
        ("selftest", "--budget", f"(default {selftest.BUDGET_S:g})"),
        ("selftest", "workload", f"default: {accuracy._DEFAULT}"),
    ):
        assert words[command][argument]["help"].endswith(default)


@pytest.mark.parametrize("command", cli._COMMANDS)
def test_help_of_every_command(command: str, capsys: Captured) -> None:
    assert ask(command, "--help") == 0
    assert f"usage: flamegate {command}" in capsys.readouterr().out
