"""The settings of one run: every option, read from where it was given, and checked."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_flamegate.config import options
from pytest_flamegate.config.thresholds import (
    DEFAULT_THRESHOLDS,
    Thresholds,
    parse_hotspots,
    parse_thresholds,
)
from pytest_flamegate.config.workload import BENCHMARK_ENGINE, Injection, Workload, parse_injection
from pytest_flamegate.core import ARTIFACTS
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.files import is_file, real_path
from pytest_flamegate.core.text import suggest

if TYPE_CHECKING:
    import pytest


_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})
_PATHS = ("config", "dir", "report")


@dataclass(frozen=True, slots=True)
class Settings:
    """The values that one run uses.

    Attributes:
        root: pytest's root directory; paths in its configuration file start here.
        directory: Where artifacts are written.
        config: The workload file, if one was named.
        budget_s: Measuring time for each workload, in seconds; None if it was not given.
        bricks: The number of bricks to show; None if bricks were not asked for.
        base: The commit that ``against`` named before any code of the project ran, if known.
        ci: Whether this runs under CI, where an undecided verdict fails.
        least_grade: The grade that a receipt of a comparison has to reach; empty if any will do.
    """

    root: Path
    directory: Path
    config: Path | None = None
    profiler: str = "auto"
    budget_s: float | None = None
    against: str | None = None
    base: str | None = None
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
    least_grade: str = ""

    def budget_of(self, workload: Workload, *, compare: bool = False) -> float:
        """Return the measuring time for a workload, in seconds."""
        drop_pct = workload.thresholds.tokens_per_second_pct
        usual_s = options.DEFAULT_BUDGET_S, options.compare_budget_s(drop_pct)
        if workload.engine == BENCHMARK_ENGINE:
            usual_s = options.KERNEL_BUDGET_S, options.KERNEL_COMPARE_BUDGET_S
        return self.budget_s or usual_s[compare]

    @classmethod
    def from_pytest(cls, config: pytest.Config) -> Settings:
        """Read each option from the command line, the environment or the ini file, in this order.

        A path on the command line starts at the directory that pytest was called in, a path in
        the configuration file at the root directory.
        """
        values = {option.name: options.read_option(config, option) for option in options.OPTIONS}
        for name in _PATHS:
            if given := config.getoption(f"--flamegate-{name}"):
                values[name] = str(resolve_path(config.invocation_params.dir, given, name))
        for name in ("base", "ci"):
            values[name] = config.getoption(f"flamegate_{name}", None)
        return cls.from_values(values, root=config.rootpath)

    @classmethod
    def from_values(cls, values: dict[str, Any], *, root: Path) -> Settings:
        """Return the settings; UsageError for a bad value, or options that exclude each other."""
        ci = bool(values.get("ci")) or is_ci()
        _check_combinations(values, ci=ci)
        file, directory, report = (
            resolve_path(root, values[name], name) if values.get(name) else None for name in _PATHS
        )
        if file is not None and not is_file(file):
            raise UsageError(
                "E_BAD_OPTION",
                f"There is no workload file {file}.",
                "Check its path (--flamegate-config).",
            )
        name = values.get("dir") or ARTIFACTS
        directory = directory or root / name
        if real_path(root).is_relative_to(real_path(directory)):  # git is to ignore it
            raise UsageError(
                "E_BAD_OPTION",
                f"flamegate_dir is {name!r}, which contains the project itself.",
                "Name a directory for artifacts alone, such as .flamegate.",
            )
        bricks = read_number("bricks", values)
        inject, hotspots = values.get("inject"), values.get("hotspots") or ""
        return cls(
            root=root,
            directory=directory,
            config=file,
            profiler=_choice("profiler", values),
            budget_s=read_number("budget", values),
            against=values.get("against") or None,
            base=values.get("base") or None,
            report=report,
            bricks=None if bricks is None else int(bricks),
            update=bool(values.get("update")),
            inject=parse_injection(inject) if inject else None,
            instructions=bool(values.get("instructions")),
            strict=bool(values.get("strict")),
            share_drift=_choice("share_drift", values),
            thresholds=parse_thresholds(
                {
                    "tokens_per_second": values.get("tokens_per_second") or None,
                    "hotspots": parse_hotspots(hotspots, "flamegate_hotspots") or None,
                },
                "flamegate_",
            ),
            ci=ci,
            peak_gflops=read_number("peak_gflops", values),
        )


def is_ci() -> bool:
    """Whether the variable ``CI`` is set, and not to a word that means no."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def resolve_path(root: Path, path: str, name: str) -> Path:
    """Return ``path``, the value of the option ``name``, below ``root`` unless it is absolute.

    A leading ``~`` is a home directory. Raises ``UsageError`` ``E_BAD_OPTION`` for a path that
    cannot exist.
    """
    try:
        if "\0" not in path:
            return root / Path(path).expanduser()
        reason = "A path cannot hold a NUL character."
    except RuntimeError:
        reason = "There is no user of that name."
    raise UsageError("E_BAD_OPTION", f"flamegate_{name} is {path!r}. {reason}", "Use another path.")


def read_ini(directory: Path) -> tuple[Path, dict[str, Any]]:
    """Return pytest's root directory for ``directory``, and its file's values by option name.

    Without a configuration file the root is ``directory``. Raises ``UsageError``
    ``E_BAD_OPTION`` if the file cannot be read or a value has the wrong kind.
    """
    from _pytest.config.exceptions import UsageError as PytestUsageError
    from _pytest.config.findpaths import locate_config
    from _pytest.outcomes import Failed

    try:
        # pytest 9 returns a fourth value.
        root, path, table, *_ = locate_config(directory, [directory])
    except (OSError, ValueError, AttributeError, Failed, PytestUsageError) as error:
        raise UsageError(
            "E_BAD_OPTION",
            f"pytest's configuration file for {str(directory)!a} cannot be read: {error}.",
            "Correct the file: pytest does not accept it either.",
        ) from None
    values = {
        option.name: _ini_value(path, option, given)
        for option in options.OPTIONS
        if option.ini and (given := table.get(option.ini_name)) is not None
    }
    return root or directory, values


def _ini_value(path: Path | None, option: options.Option, given: object) -> object:
    # pytest 9 wraps a value together with its origin, and takes lists as before in the mode "ini".
    is_ini = getattr(given, "mode", "ini") == "ini"
    given = getattr(given, "value", given)
    word = str(given).lower()
    if option.kind == "flag" and word in _TRUE | _FALSE:
        return word in _TRUE
    is_list = option.name == "hotspots" and is_ini and isinstance(given, list)
    if option.kind == "text" and (isinstance(given, str) or is_list):
        return given
    if option.kind == "number" and isinstance(given, (str, int, float)):
        return given  # its range is checked with those from the command line
    raise UsageError(
        "E_BAD_OPTION",
        f"{option.ini_name} in {str(path)!a} is {given!r}.",
        options.EXPECTED[option.kind],
    )


def _check_combinations(values: dict[str, Any], *, ci: bool) -> None:
    """Raise UsageError for options that exclude or need each other."""
    update, update_in_ci = values.get("update"), values.get("update_in_ci")
    if update and ci and not update_in_ci:
        raise UsageError(
            "E_UPDATE_IN_CI",
            "A baseline is not accepted under CI, because no person sees the figures there.",
        )
    if update_in_ci and not update:
        raise UsageError(
            "E_BAD_OPTION",
            "--flamegate-update-in-ci has no effect alone.",
            "Add --flamegate-update.",
        )
    if update and values.get("inject"):
        raise UsageError(
            "E_BAD_OPTION",
            "A run with injected work cannot become the baseline.",
            "Remove --flamegate-inject or --flamegate-update.",
        )
    if update and values.get("against"):
        raise UsageError(
            "E_BAD_OPTION",
            "A run measured in pairs with another revision cannot become the baseline.",
            "Remove --flamegate-update or --flamegate-against. If pytest's file has the key "
            "flamegate_against, override it: -o flamegate_against= (flamegate run: --against=).",
        )


def _choice(name: str, values: dict[str, Any]) -> Any:
    option = options.BY_NAME[name]
    value = values.get(name) or option.default
    if value not in option.choices:
        raise UsageError(
            "E_BAD_OPTION", f"flamegate_{name} is {value!r}.", suggest(str(value), option.choices)
        )
    return value


def read_number(name: str, values: dict[str, Any]) -> float | None:
    """Return the number given for an option, None if there is none; raises ``E_BAD_OPTION``."""
    value = values.get(name)
    if value in (None, ""):
        return None
    low, high = options.BY_NAME[name].limits
    try:
        number = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = math.nan
    whole = isinstance(low, int)
    if low <= number <= high and (number.is_integer() or not whole):
        return number
    remedy = f"Use a {'whole ' if whole else ''}number from {low:g} to {high:g}."
    if (bare := options.BY_NAME[name].bare) is not None:
        # The value may be left out, and then pytest takes a path after the option for the value.
        remedy += f" If a path or a name follows the option, write --flamegate-{name}={bare}."
    raise UsageError("E_BAD_OPTION", f"flamegate_{name} is {value!r}.", remedy)
