"""The settings in force: what was given for each knob, checked."""

from __future__ import annotations

import configparser
import math
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_flamegate.config.options import (
    COMPARE_BUDGET_S,
    DEFAULT_BRICKS,
    DEFAULT_BUDGET_S,
    KERNEL_BUDGET_S,
    KERNEL_COMPARE_BUDGET_S,
    OPTIONS,
    PROFILERS,
    SHARE_DRIFT,
    Option,
    read_option,
)
from pytest_flamegate.config.thresholds import DEFAULT_THRESHOLDS, parse_hotspots, parse_thresholds
from pytest_flamegate.config.workload import NAME as BENCHMARK
from pytest_flamegate.config.workload import parse_injection
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.paths import is_file, real_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from pytest_flamegate.config.workload import Injection, Thresholds


_PYPROJECT = "pyproject.toml"
# In pytest's order; these are its files even where they say nothing.
_ALWAYS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
_FILES = (*_ALWAYS, _PYPROJECT, "tox.ini", "setup.cfg")
_YES = frozenset({"y", "yes", "t", "true", "on", "1"})
_NO = frozenset({"n", "no", "f", "false", "off", "0"})


def read_ini(directory: Path) -> tuple[Path, dict[str, Any]]:
    """Return pytest's root for ``directory`` and what its file says, by the knobs' names.

    The root is ``directory`` itself where no file is found in it or above. Raises
    ``UsageError`` where the file cannot be read or a value is not understood.
    """
    root = None
    for base in (directory, *directory.parents):
        for name in _FILES:
            path = base / name
            if not path.is_file():
                continue
            table = _table(path)
            if table is not None:
                return base, _values(path, table)
            if name == _PYPROJECT and root is None:
                root = base
    return root or directory, {}


def _table(path: Path) -> Mapping[str, Any] | None:
    """Return what ``path`` holds for pytest; None where that is nothing."""
    try:
        text = path.read_text("utf-8")
        found = _toml(path, text) if path.suffix == ".toml" else _ini(path, text)
    except (OSError, ValueError, configparser.Error) as error:
        raise UsageError(
            "E_BAD_OPTION",
            f"{str(path)!a} cannot be read: {error}.",
            "Repair the file: pytest does not understand it either.",
        ) from None
    return {} if found is None and path.name in _ALWAYS else found


def _toml(path: Path, text: str) -> Mapping[str, Any] | None:
    document = tomllib.loads(text)
    if path.name != _PYPROJECT:
        found: Any = document.get("pytest")
    else:
        tool = document.get("tool")
        found = tool.get("pytest") if isinstance(tool, dict) else None
        if isinstance(found, dict):
            found = found.get("ini_options", found)
    return found if isinstance(found, dict) else None


def _ini(path: Path, text: str) -> Mapping[str, Any] | None:
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    section = "tool:pytest" if path.name == "setup.cfg" else "pytest"
    return dict(parser[section]) if parser.has_section(section) else None


def _values(path: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        knob.name: _value(path, knob, table[knob.ini_name])
        for knob in OPTIONS
        if knob.ini and knob.ini_name in table
    }


def _value(path: Path, knob: Option, given: object) -> object:
    word = str(given).lower()
    if knob.kind == "flag" and word in _YES | _NO:
        return word in _YES
    if knob.kind == "text" and isinstance(given, str):
        return given
    if knob.kind == "number" and isinstance(given, (str, int, float)):
        return given  # what is no figure is refused where all of them are checked
    remedy = {"flag": "Say true or false.", "number": "Give a figure."}.get(knob.kind, "Give text.")
    raise UsageError(
        "E_BAD_OPTION", f"{knob.ini_name} in {str(path)!a} is not understood: {given!r}.", remedy
    )


_BUDGET_S = (1.0, 86_400.0)
_BRICKS = (1, 1000)


@dataclass(frozen=True, slots=True)
class Settings:
    """The values in force for one run.

    ``bricks`` is how many bricks are shown, None where they were not asked for.
    """

    root: Path
    directory: Path
    config: Path | None = None
    profiler: str = "auto"
    budget_s: float = DEFAULT_BUDGET_S
    compare_budget_s: float = COMPARE_BUDGET_S
    kernel_budgets_s: tuple[float, float] = (KERNEL_BUDGET_S, KERNEL_COMPARE_BUDGET_S)
    against: str | None = None
    report: Path | None = None
    update: bool = False
    inject: Injection | None = None
    instructions: bool = False
    bricks: int | None = None
    strict: bool = False
    share_drift: Literal["cost", "strict"] = "cost"
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    ci: bool = False
    peak_gflops: float | None = None

    def budget_of(self, engine: str, *, compare: bool = False) -> float:
        """Return the measuring time for a workload of that engine, in seconds."""
        if engine == BENCHMARK:
            return self.kernel_budgets_s[compare]
        return self.compare_budget_s if compare else self.budget_s

    @classmethod
    def from_pytest(cls, config: pytest.Config) -> Settings:
        """Read options, environment and ini keys, in that order.

        A path on the command line starts where pytest was called, one in a
        configuration file at the root.
        """
        values = {knob.name: read_option(config, knob) for knob in OPTIONS}
        for name in ("config", "dir", "report"):
            if given := config.getoption(f"--flamegate-{name}"):
                values[name] = str(resolve_path(config.invocation_params.dir, given, name))
        return cls.from_values(values, root=config.rootpath)

    @classmethod
    def from_values(cls, values: dict[str, Any], *, root: Path) -> Settings:
        """Check the values, however they were given; ``UsageError`` says which is wrong."""
        ci = is_ci()
        update = bool(values.get("update"))
        if update and ci and not values.get("update_in_ci"):
            raise UsageError(
                "E_UPDATE_IN_CI",
                "A baseline is not accepted under CI, where nobody looks at what is accepted.",
                "Accept it on a machine of the same class, or say --flamegate-update-in-ci too.",
            )
        if values.get("update_in_ci") and not update:
            raise UsageError(
                "E_UPDATE_IN_CI",
                "--flamegate-update-in-ci does nothing alone.",
                "Say --flamegate-update as well.",
            )
        if values.get("inject") and update:
            raise UsageError(
                "E_INJECT_UPDATE",
                "A run with injected work cannot become the baseline.",
                "Drop --flamegate-inject or --flamegate-update.",
            )
        against = values.get("against") or None
        if against and update:
            raise UsageError(
                "E_AGAINST_UPDATE",
                "What was measured against a revision is no baseline: it ran beside that revision.",
                "Drop --flamegate-against or --flamegate-update.",
            )
        given = values.get("config")
        return cls(
            root=root,
            directory=_artifacts(root, values.get("dir") or ".flamegate"),
            config=_existing(resolve_path(root, given, "config")) if given else None,
            profiler=_choice("profiler", values.get("profiler") or "auto", PROFILERS),
            budget_s=_budget(values.get("budget"), DEFAULT_BUDGET_S),
            compare_budget_s=_budget(values.get("budget"), COMPARE_BUDGET_S),
            kernel_budgets_s=(
                _budget(values.get("budget"), KERNEL_BUDGET_S),
                _budget(values.get("budget"), KERNEL_COMPARE_BUDGET_S),
            ),
            against=against,
            report=resolve_path(root, values["report"], "report") if values.get("report") else None,
            bricks=_bricks(values.get("bricks")),
            update=update,
            inject=parse_injection(values["inject"]) if values.get("inject") else None,
            instructions=bool(values.get("instructions")),
            strict=bool(values.get("strict")),
            share_drift=_choice("share_drift", values.get("share_drift") or "cost", SHARE_DRIFT),
            thresholds=_thresholds(values.get("tokens_per_second"), values.get("hotspots")),
            ci=ci,
            peak_gflops=_peak(values.get("peak_gflops")),
        )


def is_ci() -> bool:
    """Whether ``CI`` is set to something that means yes."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def resolve_path(root: Path, path: str, name: str) -> Path:
    """Return ``path``, given for the knob ``name``, from ``root`` on; ``UsageError`` if it is none.

    A leading ``~`` is somebody's home.
    """
    try:
        if "\0" not in path:
            return root / Path(path).expanduser()
        why = "No path holds a NUL character."
    except RuntimeError:
        why = "There is no such user."
    raise UsageError(
        "E_BAD_OPTION", f"flamegate_{name} is {path!r}.", f"{why} Give a path that there can be."
    )


def _artifacts(root: Path, given: str) -> Path:
    """Return where artifacts go: a directory of its own, for git is told to ignore all in it."""
    directory = resolve_path(root, given, "dir")
    if real_path(root).is_relative_to(real_path(directory)):
        raise UsageError(
            "E_BAD_OPTION",
            f"flamegate_dir is {given!r}, in which the project itself lies.",
            "Name a directory for artifacts alone, such as .flamegate.",
        )
    return directory


def _existing(path: Path) -> Path:
    if not is_file(path):
        raise UsageError(
            "E_NO_CONFIG", f"There is no workload file {path}.", "Check --flamegate-config."
        )
    return path


def _choice(name: str, value: str, choices: tuple[str, ...]) -> Any:
    if value not in choices:
        raise UsageError(
            "E_BAD_OPTION",
            f"flamegate_{name} is {value!r}.",
            f"Use one of: {', '.join(choices)}.",
        )
    return value


def _thresholds(tokens_per_second: object, hotspots: Any) -> Thresholds:
    table = parse_hotspots(hotspots, "flamegate_hotspots") if hotspots else None
    return parse_thresholds(tokens_per_second or None, table, "flamegate_")


def _budget(value: object, default_s: float) -> float:
    try:
        budget_s = default_s if value in (None, "") else float(str(value))
    except ValueError:
        budget_s = math.nan
    if not _BUDGET_S[0] <= budget_s <= _BUDGET_S[1]:
        raise UsageError(
            "E_BAD_OPTION",
            f"flamegate_budget is {value!r}.",
            f"Give seconds from {_BUDGET_S[0]:g} to {_BUDGET_S[1]:g}.",
        )
    return budget_s


def _bricks(value: object) -> int | None:
    """Return how many bricks to show; None where nothing was said."""
    if value in (None, ""):
        return None
    try:
        shown = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        shown = math.nan
    if shown.is_integer() and _BRICKS[0] <= shown <= _BRICKS[1]:
        return int(shown)
    # The option's value may be left out, so that a word behind it is taken for the value.
    raise UsageError(
        "E_BAD_OPTION",
        f"flamegate_bricks is {value!r}.",
        f"Give a whole number from {_BRICKS[0]} to {_BRICKS[1]}; where a path or a "
        f"name follows the option, say its number too: --flamegate-bricks={DEFAULT_BRICKS}.",
    )


def _peak(value: object) -> float | None:
    if value in (None, ""):
        return None
    try:
        peak_gflops = float(str(value))
    except ValueError:
        peak_gflops = math.nan
    if not 0 < peak_gflops < math.inf:
        raise UsageError(
            "E_BAD_OPTION",
            f"flamegate_peak_gflops is {value!r}.",
            "Give 10⁹ operations a second, above 0, or leave it out.",
        )
    return peak_gflops
