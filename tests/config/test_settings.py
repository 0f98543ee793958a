"""Every option: where it can be given, which place wins, and the errors."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.commands import common
from pytest_flamegate.config.options import is_enabled
from pytest_flamegate.config.settings import Settings, is_ci, read_ini
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Injection, Workload
from pytest_flamegate.core.errors import UsageError

ROOT = Path("/home/of/project")


def settings(**values: Any) -> Settings:
    return Settings.from_values(values, root=ROOT)


def command_settings(**given: str) -> Settings:
    return common.read_settings(argparse.Namespace(**given))


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("budget", "", None),
        ("budget", 86400.0, 86400.0),
        ("bricks", "1000", 1000),
        ("peak_gflops", "83.2", 83.2),
        ("share_drift", "strict", "strict"),
        ("dir", "", ROOT / ".flamegate"),
        ("dir", "out/perf", ROOT / "out" / "perf"),
        ("inject", "std::exp:+2.5%", Injection("std::exp", 2.5)),
    ],
)
def test_an_accepted_value(name: str, value: object, found: object) -> None:
    assert settings() == Settings(root=ROOT, directory=ROOT / ".flamegate")
    field = {"budget": "budget_s", "dir": "directory"}.get(name, name)
    assert getattr(settings(**{name: value}), field) == found


NUMBERS_OUT_OF_RANGE = {
    "budget": ("0.99", "86401", "nan", "1s", True),
    "bricks": ("0", "1001", 2.5, "1e3000"),
    "peak_gflops": ("0", "inf"),
}


@pytest.mark.parametrize(
    ("name", "value", "code", "words"),
    [
        *(
            (name, value, "E_BAD_OPTION", f"flamegate_{name} is ")
            for name, values in NUMBERS_OUT_OF_RANGE.items()
            for value in values
        ),
        ("profiler", "vtune", "E_BAD_OPTION", "flamegate_profiler is 'vtune'"),
        ("hotspots", "norm", "E_BAD_THRESHOLD", "flamegate_hotspots is 'norm'"),
        ("hotspots", "norm=3%", "E_BAD_THRESHOLD", "flamegate_hotspots.norm is '3%'"),
        ("dir", "~no-such-user/x", "E_BAD_OPTION", "no user of that name"),
        ("config", "a\0b", "E_BAD_OPTION", "NUL character"),
        *(
            ("inject", text, "E_BAD_INJECTION", "")
            for text in ("x:10%", ":+10%", "x:+0%", f"x:+{'9' * 400}%")
        ),
    ],
)
def test_a_bad_value_is_named(name: str, value: object, code: str, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        settings(**{name: value})
    assert raised.value.code == code
    assert words in raised.value.problem


def test_ci_is_recognised_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert (is_ci(), settings().ci) == (False, False)
    for value in ("true", "yes", "woodpecker", "", "0", "false", "no"):
        monkeypatch.setenv("CI", value)
        assert is_ci() is settings().ci is (value in ("true", "yes", "woodpecker"))


@pytest.mark.parametrize(
    ("ci", "values", "code"),
    [
        ("", {"update": True}, None),
        ("true", {"update": True}, "E_UPDATE_IN_CI"),
        ("true", {"update": True, "update_in_ci": True}, None),
        ("true", {"update_in_ci": True}, "E_BAD_OPTION"),
        ("", {"inject": "rms_norm:+10%"}, None),
        ("", {"inject": "rms_norm:+10%", "update": True}, "E_BAD_OPTION"),
        ("", {"against": "main", "update": True}, "E_BAD_OPTION"),
    ],
)
def test_options_that_exclude_an_update_are_an_error(
    monkeypatch: pytest.MonkeyPatch, ci: str, values: Mapping[str, object], code: str | None
) -> None:
    monkeypatch.setenv("CI", ci)
    if code is None:
        assert settings(**values).update is bool(values.get("update"))
        return
    with pytest.raises(UsageError) as raised:
        settings(**values)
    assert raised.value.code == code


def test_a_revision_in_the_file_is_overridden_by_an_empty_one(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nflamegate_against = main\n")
    assert command_settings().against == "main"
    assert command_settings(against="").against is None
    update = "--flamegate-update"
    with pytest.raises(UsageError, match="-o flamegate_against= ") as raised:
        Settings.from_pytest(pytester.parseconfig(update))
    assert raised.value.code == "E_BAD_OPTION"
    for empty in (("-o", "flamegate_against="), ("--flamegate-against=",)):
        assert Settings.from_pytest(pytester.parseconfig(update, *empty)).against is None


def test_artifacts_in_the_project_itself_are_an_error(tmp_path: Path) -> None:
    (tmp_path / ".flamegate").symlink_to(".")
    for values in ({}, {"dir": "."}, {"dir": ""}):
        with pytest.raises(UsageError, match=r"flamegate_dir is .*the project itself") as raised:
            Settings.from_values(values, root=tmp_path)
        assert raised.value.code == "E_BAD_OPTION"


@pytest.mark.parametrize(
    ("engine", "drop_pct", "given", "compare_s"),
    [
        ("command", 2.0, "", 50.0),
        ("command", 1.9, "", 110.0),
        ("command", 1.0, "7", 7.0),
        ("benchmark", 1.0, "", 20.0),
    ],
)
def test_a_fine_threshold_has_more_time(
    tmp_path: Path, engine: str, drop_pct: float, given: str, compare_s: float
) -> None:
    fine = Thresholds(tokens_per_second_pct=drop_pct)
    workload = Workload("w", engine, "x", 1, "test", tmp_path, thresholds=fine)
    found = Settings.from_values({"budget": given}, root=tmp_path)
    assert found.budget_of(workload, compare=True) == compare_s


def test_a_workload_file_that_is_named_must_exist(tmp_path: Path) -> None:
    (tmp_path / "there.toml").touch()
    found = Settings.from_values({"config": "there.toml"}, root=tmp_path)
    assert found.config == tmp_path / "there.toml"
    for missing in ("missing.toml", ".", "x" * 300):
        with pytest.raises(UsageError) as raised:
            Settings.from_values({"config": missing}, root=tmp_path)
        assert raised.value.code == "E_BAD_OPTION"


# Through pytest


def test_option_before_environment_before_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nflamegate_profiler = perf\nflamegate_dir = artifacts\n")

    def profilers(**given: str) -> set[str]:
        options = [f"--flamegate-{name}={value}" for name, value in given.items()]
        under_pytest = Settings.from_pytest(pytester.parseconfig(*options))
        return {under_pytest.profiler, command_settings(**given).profiler}

    assert profilers() == {"perf"}
    monkeypatch.setenv("FLAMEGATE_PROFILER", "py-spy")
    assert profilers() == {"py-spy"}
    assert profilers(profiler="none") == {"none"}
    monkeypatch.chdir(pytester.mkdir("below"))
    assert command_settings().directory == pytester.path / "artifacts"
    assert command_settings(dir="here").directory == pytester.path / "below" / "here"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], 5),
        (["--bricks"], 20),
        (["--bricks", "3"], 3),
        (["load", "--bricks"], 20),
    ],
)
def test_bricks_with_and_without_their_number(
    pytester: pytest.Pytester, arguments: list[str], shown: int
) -> None:
    pytester.makeini("[pytest]\nflamegate_bricks = 5\n")
    pytester.mkdir("load")
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="*")
    common.add_options(parser, "bricks", "budget")
    assert common.read_settings(parser.parse_args(arguments)).bricks == shown
    with pytest.raises(UsageError, match=r"'load'.*--flamegate-bricks=20"):
        common.read_settings(parser.parse_args(["--bricks", "load"]))
    options = [each.replace("--", "--flamegate-") for each in arguments]
    assert Settings.from_pytest(pytester.parseconfig(*options)).bricks == shown


KEYS = {
    "flamegate": True, "flamegate_budget": 2, "flamegate_bricks": 3, "flamegate_profiler": "none",
    "flamegate_dir": "artifacts", "flamegate_config": "loads.toml", "flamegate_strict": True,
    "flamegate_share_drift": "strict", "flamegate_tokens_per_second": "3%",
    "flamegate_hotspots": "matmul_i2s=2pp, *=4pp",
}  # fmt: skip
LINES = "".join(f"{name} = {value}\n" for name, value in KEYS.items())
TOML = "".join(f"{name} = {json.dumps(value)}\n" for name, value in KEYS.items())
QUOTED = TOML.replace("= 2", '= "2"').replace("= 3", '= "3"')
NATIVE = pytest.mark.skipif(
    pytest.version_tuple < (9,), reason="[tool.pytest] and its types came with pytest 9"
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\n" + LINES),
        ("setup.cfg", "[tool:pytest]\n" + LINES),
        ("pyproject.toml", "[tool.pytest.ini_options]\n" + QUOTED),
        pytest.param("pyproject.toml", "[tool.pytest]\n" + TOML, marks=NATIVE),
    ],
)
def test_keys_of_every_kind_of_file(pytester: pytest.Pytester, name: str, text: str) -> None:
    (pytester.path / name).write_text(text)
    (pytester.path / "loads.toml").touch()
    config = pytester.parseconfig()
    assert is_enabled(config)
    assert (
        Settings.from_pytest(config)
        == command_settings()
        == Settings(
            root=pytester.path,
            directory=pytester.path / "artifacts",
            config=pytester.path / "loads.toml",
            profiler="none",
            budget_s=2.0,
            bricks=3,
            strict=True,
            share_drift="strict",
            thresholds=Thresholds(3.0, {"*": 4.0, "matmul_i2s": 2.0}),
        )
    )


@pytest.mark.filterwarnings("ignore:Passing a value that is not a string")  # pytest 9.2 and later
@pytest.mark.parametrize("table", ["ini_options", pytest.param("", marks=NATIVE)])
def test_the_limits_of_shares_may_be_a_list_if_pytest_takes_one(
    pytester: pytest.Pytester, table: str
) -> None:
    section = f"[tool.pytest{'.' if table else ''}{table}]\n"
    pytester.makepyprojecttoml(f'{section}flamegate_hotspots = ["a=3pp", "*=5pp"]\n')
    if table:
        found = Settings.from_pytest(pytester.parseconfig())
        assert found == command_settings()
        assert found.thresholds.hotspots_pp == {"*": 5.0, "a": 3.0}
        pytester.makepyprojecttoml(f"{section}flamegate_hotspots = [3]\n")
        with pytest.raises(UsageError, match=r"E_BAD_THRESHOLD: flamegate_hotspots is \[3\]"):
            command_settings()
    else:
        with pytest.raises(UsageError, match="E_BAD_OPTION: flamegate_hotspots in"):
            command_settings()


@NATIVE
def test_a_native_key_of_the_wrong_type_is_named(pytester: pytest.Pytester) -> None:
    for key, value in (
        ("budget", '"2"'), ("profiler", "3"), ("strict", "1"), ("tokens_per_second", "5"),
        ("hotspots", '["a=3pp"]'),
    ):  # fmt: skip
        pytester.makepyprojecttoml(f"[tool.pytest]\nflamegate_{key} = {value}\n")
        with pytest.raises(pytest.UsageError, match=f"flamegate_{key}"):
            Settings.from_pytest(pytester.parseconfig())


def test_a_path_on_the_command_line_starts_at_the_current_directory(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path in the configuration file starts at the root."""
    pytester.makeini("[pytest]\nflamegate_dir = artifacts\nflamegate_config = loads.toml\n")
    below = pytester.mkdir("below")
    for directory in (pytester.path, below):
        (directory / "loads.toml").touch()
    monkeypatch.chdir(below)
    here = ("--flamegate-dir=here", "--flamegate-config=loads.toml")
    found = Settings.from_pytest(pytester.parseconfig(*here))
    assert found.root == pytester.path
    assert (found.directory, found.config) == (below / "here", below / "loads.toml")
    found = Settings.from_pytest(pytester.parseconfig())
    assert found.directory == pytester.path / "artifacts"
    assert found.config == pytester.path / "loads.toml"


# Through the command line, which reads the file as pytest does


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\nflamegate_dir = %(here)s\n    # a note\n"),
        ("tox.ini", "[tox]\n"),
        pytest.param(".pytest.toml", "", marks=NATIVE),
    ],
)
def test_the_command_line_reads_the_values_that_pytest_reads(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    (pytester.path / name).write_text(text)
    (pytester.path / "loads.toml").touch()
    assert command_settings() == Settings.from_pytest(pytester.parseconfig())
    if name != "tox.ini":
        # The file is found from a directory below too, and its paths start at its own.
        monkeypatch.chdir(pytester.mkdir("below"))
    assert command_settings() == Settings.from_pytest(pytester.parseconfig())


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
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
        command_settings()


def test_without_a_file_the_root_is_the_current_directory(tmp_path: Path) -> None:
    assert read_ini(tmp_path) == (tmp_path, {})
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert read_ini(tmp_path / "below") == (tmp_path, {})
    (tmp_path / "pyproject.toml").write_text("tool = 1\n")
    with pytest.raises(UsageError, match="E_BAD_OPTION"):
        read_ini(tmp_path)
