"""The command line reads pytest's configuration file as pytest does."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from pytest_flamegate.commands import common
from pytest_flamegate.config import settings as config_settings
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.core.errors import UsageError
from tests.config.test_settings import FILES, FLOATS, LINES, NATIVE, NUMBERS, TOML, WORDS


def settings(**given: str) -> Settings:
    return common.read_settings(argparse.Namespace(**given))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, text.format(lines=LINES)) for name, text in FILES.items()),
        ("pytest.ini", "[pytest]\nflamegate_dir = %(here)s\n    # a note\n"),
        pytest.param(".pytest.ini", "", marks=NATIVE),
        ("tox.ini", "[tox]\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\n" + TOML.format(**WORDS)),
        ("pyproject.toml", "[tool.other]\n"),
        pytest.param("pyproject.toml", "[tool.pytest]\n" + TOML.format(**FLOATS), marks=NATIVE),
        pytest.param("pytest.toml", "[pytest]\n" + TOML.format(**NUMBERS), marks=NATIVE),
        pytest.param(".pytest.toml", "", marks=NATIVE),
    ],
)
def test_the_command_line_reads_the_values_that_pytest_reads(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    (pytester.path / name).write_text(text)
    (pytester.path / "loads.toml").touch()
    assert settings() == Settings.from_pytest(pytester.parseconfig())
    if name != "tox.ini":
        # The file is found from a directory below too, and its paths start at its own.
        monkeypatch.chdir(pytester.mkdir("below"))
    assert settings() == Settings.from_pytest(pytester.parseconfig())


def test_the_first_file_counts(pytester: pytest.Pytester) -> None:
    (pytester.path / "tox.ini").write_text("[pytest]\nflamegate_budget = 3\n")
    (pytester.path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nflamegate_dir='x'\n")
    assert settings().budget_s == 15.0
    assert settings() == Settings.from_pytest(pytester.parseconfig())


def test_argument_before_environment_before_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nflamegate_profiler = perf\nflamegate_dir = artifacts\n")
    assert settings().profiler == "perf"
    monkeypatch.setenv("FLAMEGATE_PROFILER", "py-spy")
    assert settings().profiler == "py-spy"
    assert settings(profiler="none").profiler == "none"
    monkeypatch.chdir(pytester.mkdir("below"))
    assert settings().directory == pytester.path / "artifacts"
    assert settings(dir="here").directory == pytester.path / "below" / "here"


@pytest.mark.parametrize(
    ("words", "shown"), [(["--bricks"], 20), (["--bricks=3"], 3), (["load", "--bricks", "3"], 3)]
)
def test_bricks_as_an_argument(words: list[str], shown: int) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="*")
    common.add_options(parser, "bricks")
    assert common.read_settings(parser.parse_args(words)).bricks == shown
    with pytest.raises(UsageError, match=r"'load'.*--flamegate-bricks=20"):
        common.read_settings(parser.parse_args(["--bricks", "load"]))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("pytest.ini", "[pytest]\nflamegate_strict = perhaps\n", "flamegate_strict"),
        ("pytest.ini", "[pytest]\nflamegate_budget = abc\n", "flamegate_budget"),
        ("pytest.ini", "flamegate_budget = 2\n", "pytest.ini"),
        ("pytest.ini", b"\xff", "cannot be read"),
        ("pyproject.toml", "[tool.pytest.ini_options]\nflamegate_budget = []\n", "_budget"),
        ("pyproject.toml", "[tool\n", "pyproject.toml"),
    ],
)
def test_a_file_or_value_that_pytest_rejects_is_an_error(
    pytester: pytest.Pytester, name: str, text: str | bytes, words: str
) -> None:
    path = pytester.path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=f"E_BAD_OPTION.*{words}"):
        settings()


def test_without_a_file_the_root_is_the_current_directory(tmp_path: Path) -> None:
    assert config_settings.read_ini(tmp_path) == (tmp_path, {})
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert config_settings.read_ini(tmp_path / "below") == (tmp_path, {})
    (tmp_path / "pyproject.toml").write_text("tool = 1\n")
    with pytest.raises(UsageError, match="E_BAD_OPTION"):
        config_settings.read_ini(tmp_path)
