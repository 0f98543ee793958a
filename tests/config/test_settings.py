"""Every option: where it can be given, which place wins, and the errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.config.options import DEFAULT_BUDGET_S, OPTIONS, is_enabled
from pytest_flamegate.config.settings import Settings, is_ci
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Injection
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


ROOT = Path("/home/of/project")


def settings(**values: Any) -> Settings:
    return Settings.from_values(values, root=ROOT)


def test_without_options_the_defaults_hold() -> None:
    found = settings()
    assert found == Settings(root=ROOT, directory=ROOT / ".flamegate")
    assert found.budget_s == DEFAULT_BUDGET_S


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(None, 15.0), ("", 15.0), ("1", 1.0), (20, 20.0), ("2.5", 2.5), (86400.0, 86400.0)],
)
def test_budget(value: object, seconds: float) -> None:
    assert settings(budget=value).budget_s == seconds


@pytest.mark.parametrize("value", ["0", 0, "-1", "0.99", "86401", "nan", "inf", "ten", "1s", True])
def test_a_bad_budget_is_an_error(value: object) -> None:
    with pytest.raises(UsageError, match="flamegate_budget") as raised:
        settings(budget=value)
    assert raised.value.code == "E_BAD_OPTION"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, None), ("", None), ("1", 1), (20, 20), (20.0, 20), ("7.0", 7), ("1000", 1000)],
)
def test_bricks(value: object, shown: int | None) -> None:
    assert settings(bricks=value).bricks == shown


@pytest.mark.parametrize(
    "value", ["0", "-1", "1001", "2.5", 2.5, "nan", "inf", "ten", True, "tests/", "1e3000"]
)
def test_a_bad_number_of_bricks_is_an_error(value: object) -> None:
    with pytest.raises(UsageError, match=r"flamegate_bricks is .*from 1 to 1000") as raised:
        settings(bricks=value)
    assert raised.value.code == "E_BAD_OPTION"


@pytest.mark.parametrize(("value", "gflops"), [(None, None), ("", None), ("83.2", 83.2), (4, 4.0)])
def test_the_peak_is_optional(value: object, gflops: float | None) -> None:
    assert settings(peak_gflops=value).peak_gflops == gflops


@pytest.mark.parametrize("value", ["many", "0", -1, "inf", "nan", 0])
def test_a_bad_peak_is_an_error(value: object) -> None:
    with pytest.raises(UsageError, match="flamegate_peak_gflops"):
        settings(peak_gflops=value)


@pytest.mark.parametrize("name", ["auto", "perf", "py-spy", "none"])
def test_profiler(name: str) -> None:
    assert settings(profiler=name).profiler == name


@pytest.mark.parametrize(
    ("name", "value"),
    [("profiler", "vtune"), ("profiler", "PERF"), ("share_drift", "lax"), ("share_drift", "Cost")],
)
def test_an_unknown_choice_is_an_error(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"flamegate_{name} is '{value}'") as raised:
        settings(**{name: value})
    assert raised.value.code == "E_BAD_OPTION"


@pytest.mark.parametrize(
    ("value", "yes"),
    [
        ("true", True),
        ("1", True),
        ("TRUE", True),
        ("yes", True),
        ("woodpecker", True),
        ("", False),
        ("0", False),
        ("false", False),
        ("False", False),
        ("no", False),
        (None, False),
    ],
)
def test_ci_is_recognised_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, value: str | None, yes: bool
) -> None:
    monkeypatch.delenv("CI", raising=False)
    if value is not None:
        monkeypatch.setenv("CI", value)
    assert is_ci() is yes
    assert settings().ci is yes


@pytest.mark.parametrize(
    ("ci", "values", "code"),
    [
        ("", {"update": True}, None),
        ("true", {"update": True}, "E_UPDATE_IN_CI"),
        ("true", {"update": True, "update_in_ci": True}, None),
        ("", {"update": True, "update_in_ci": True}, None),
        ("true", {"update_in_ci": True}, "E_BAD_OPTION"),
        ("", {"update_in_ci": True}, "E_BAD_OPTION"),
        ("", {"inject": "rms_norm:+10%"}, None),
        ("true", {"inject": "rms_norm:+10%"}, None),
        ("", {"inject": "rms_norm:+10%", "update": True}, "E_UPDATE_CONFLICT"),
        ("", {"against": "main", "update": True}, "E_UPDATE_CONFLICT"),
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


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"tokens_per_second": "5"}, "flamegate_tokens_per_second is '5'"),
        ({"tokens_per_second": "5pp"}, "flamegate_tokens_per_second is '5pp'"),
        ({"hotspots": "norm"}, "flamegate_hotspots is 'norm'"),
        ({"hotspots": "norm=3%"}, "flamegate_hotspots.norm is '3%'"),
    ],
)
def test_a_bad_threshold_is_an_error(values: Mapping[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told) as raised:
        settings(**values)
    assert raised.value.code == "E_BAD_THRESHOLD"


@pytest.mark.parametrize(
    ("text", "frame", "extra_pct"),
    [("rms_norm:+10%", "rms_norm", 10.0), ("std::exp:+2.5%", "std::exp", 2.5), (None, None, None)],
)
def test_injection(text: str | None, frame: str | None, extra_pct: float | None) -> None:
    found = settings(inject=text).inject
    assert found == (Injection(frame, extra_pct) if frame and extra_pct else None)


@pytest.mark.parametrize(
    "text",
    [
        "rms_norm",
        "rms_norm:10%",
        ":+10%",
        "rms_norm:+10",
        "rms_norm:+0%",
        f"x:+{'9' * 400}%",
        "x:+-1%",
    ],
)
def test_a_bad_injection_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="E_BAD_INJECTION"):
        settings(inject=text)


@pytest.mark.parametrize(
    ("given", "directory"),
    [
        (None, ROOT / ".flamegate"),
        ("", ROOT / ".flamegate"),
        ("out/perf", ROOT / "out" / "perf"),
        ("/var/perf", Path("/var/perf")),
    ],
)
def test_directory(given: str | None, directory: Path) -> None:
    assert settings(dir=given).directory == directory


@pytest.mark.parametrize("key", ["dir", "config"])
@pytest.mark.parametrize(
    ("given", "why"), [("~no-such-user/x", "no user of that name"), ("a\0b", "NUL character")]
)
def test_a_path_that_cannot_exist_is_an_error(key: str, given: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"flamegate_{key}.*{why}") as raised:
        settings(**{key: given})
    assert raised.value.code == "E_BAD_OPTION"


def test_a_workload_file_that_is_named_must_exist(tmp_path: Path) -> None:
    (tmp_path / "there.toml").touch()
    found = Settings.from_values({"config": "there.toml"}, root=tmp_path)
    assert found.config == tmp_path / "there.toml"
    for missing in ("missing.toml", ".", "x" * 300):
        with pytest.raises(UsageError) as raised:
            Settings.from_values({"config": missing}, root=tmp_path)
        assert raised.value.code == "E_NO_CONFIG"


def test_every_option_can_be_given_somewhere_and_has_its_names() -> None:
    assert all(option.cli or option.ini for option in OPTIONS)
    names = {(option.name, option.flag, option.ini_name) for option in OPTIONS}
    assert ("", "--flamegate", "flamegate") in names
    assert ("update_in_ci", "--flamegate-update-in-ci", "flamegate_update_in_ci") in names


# Through pytest


def test_option_before_environment_before_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nflamegate_profiler = perf\n")

    def profiler(*arguments: str) -> str:
        return Settings.from_pytest(pytester.parseconfig(*arguments)).profiler

    assert profiler() == "perf"
    monkeypatch.setenv("FLAMEGATE_PROFILER", "py-spy")
    assert profiler() == "py-spy"
    assert profiler("--flamegate-profiler=none") == "none"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ((), 5),
        (("--flamegate-bricks",), 20),
        (("--flamegate-bricks=3",), 3),
        (("--flamegate-bricks", "3"), 3),
        (("--flamegate-bricks", "--flamegate-budget=2"), 20),
        (("tests", "--flamegate-bricks"), 20),
    ],
)
def test_bricks_with_and_without_their_number(
    pytester: pytest.Pytester, arguments: tuple[str, ...], shown: int
) -> None:
    pytester.makeini("[pytest]\nflamegate_bricks = 5\n")
    pytester.mkdir("tests")
    assert Settings.from_pytest(pytester.parseconfig(*arguments)).bricks == shown


def test_a_path_after_bricks_is_an_error(pytester: pytest.Pytester) -> None:
    """The value is optional, so argparse takes the next word for it."""
    pytester.mkdir("tests")
    result = pytester.runpytest("--flamegate", "--flamegate-bricks", "tests")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: E_BAD_OPTION: *'tests'*--flamegate-bricks=20*"])


FILES = {
    "pytest.ini": "[pytest]\n{lines}",
    "tox.ini": "[pytest]\n{lines}",
    "setup.cfg": "[tool:pytest]\n{lines}",
}
LINES = """\
flamegate = yes
flamegate_budget = 2
flamegate_bricks = 3
flamegate_profiler = none
flamegate_dir = artifacts
flamegate_config = loads.toml
flamegate_strict = true
flamegate_share_drift = strict
flamegate_tokens_per_second = 3%
flamegate_hotspots =
    matmul_i2s = 2pp
    * = 4pp
"""
TOML = """\
flamegate = true
flamegate_budget = {budget}
flamegate_bricks = {bricks}
flamegate_profiler = "none"
flamegate_dir = "artifacts"
flamegate_config = "loads.toml"
flamegate_strict = true
flamegate_share_drift = "strict"
flamegate_tokens_per_second = "3%"
flamegate_hotspots = "matmul_i2s=2pp, *=4pp"
"""
NUMBERS = {"budget": 2, "bricks": 3}
FLOATS = {name: float(value) for name, value in NUMBERS.items()}
WORDS = {name: f'"{value}"' for name, value in NUMBERS.items()}
NATIVE = pytest.mark.skipif(
    pytest.version_tuple < (9,), reason="[tool.pytest] and its types came with pytest 9"
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, text.format(lines=LINES)) for name, text in FILES.items()),
        ("pyproject.toml", "[tool.pytest.ini_options]\n" + TOML.format(**NUMBERS)),
        ("pyproject.toml", "[tool.pytest.ini_options]\n" + TOML.format(**WORDS)),
        pytest.param("pyproject.toml", "[tool.pytest]\n" + TOML.format(**NUMBERS), marks=NATIVE),
        pytest.param("pyproject.toml", "[tool.pytest]\n" + TOML.format(**FLOATS), marks=NATIVE),
        pytest.param("pytest.toml", "[pytest]\n" + TOML.format(**NUMBERS), marks=NATIVE),
    ],
)
def test_keys_of_every_kind_of_file(pytester: pytest.Pytester, name: str, text: str) -> None:
    (pytester.path / name).write_text(text)
    (pytester.path / "loads.toml").touch()
    config = pytester.parseconfig()
    assert is_enabled(config)
    assert Settings.from_pytest(config) == Settings(
        root=pytester.path,
        directory=pytester.path / "artifacts",
        config=pytester.path / "loads.toml",
        profiler="none",
        budget_s=2.0,
        compare_budget_s=2.0,
        kernel_budgets_s=(2.0, 2.0),
        bricks=3,
        strict=True,
        share_drift="strict",
        thresholds=Thresholds(3.0, {"*": 4.0, "matmul_i2s": 2.0}),
    )


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("flamegate_budget = abc", "flamegate_budget"),
        ("flamegate_budget = 0", "flamegate_budget"),
        ("flamegate_bricks = 2.5", "flamegate_bricks"),
        ("flamegate_strict = perhaps", "flamegate_strict"),
        ("flamegate_profiler = vtune", "flamegate_profiler"),
        ("flamegate_share_drift = lax", "flamegate_share_drift"),
        ("flamegate_config = missing.toml", "missing.toml"),
        ("flamegate_tokens_per_second = 5", "flamegate_tokens_per_second"),
        ("flamegate_hotspots = norm", "flamegate_hotspots"),
    ],
)
def test_a_bad_key_is_named(pytester: pytest.Pytester, line: str, key: str) -> None:
    pytester.makeini(f"[pytest]\n{line}\n")
    with pytest.raises((UsageError, pytest.UsageError), match=f"E_.*{key}"):
        Settings.from_pytest(pytester.parseconfig())


@NATIVE
@pytest.mark.parametrize(
    "line",
    [
        'flamegate_budget = "2"',
        "flamegate_profiler = 3",
        "flamegate_strict = 1",
        "flamegate_tokens_per_second = 5",
        'flamegate_hotspots = ["a=3pp"]',
    ],
)
def test_a_native_key_of_the_wrong_type_is_named(pytester: pytest.Pytester, line: str) -> None:
    pytester.makepyprojecttoml(f"[tool.pytest]\n{line}\n")
    with pytest.raises(pytest.UsageError, match=line.partition(" ")[0]):
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
    said = ("--flamegate-dir=here", "--flamegate-config=loads.toml")
    config = pytester.parseconfig(*said)
    assert config.rootpath == pytester.path
    found = Settings.from_pytest(config)
    assert (found.directory, found.config) == (below / "here", below / "loads.toml")
    found = Settings.from_pytest(pytester.parseconfig())
    assert found.directory == pytester.path / "artifacts"
    assert found.config == pytester.path / "loads.toml"
