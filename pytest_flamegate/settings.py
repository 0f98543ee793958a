"""The settings in force: what was given for each knob, checked."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_flamegate.errors import UsageError
from pytest_flamegate.knobs import (
    COMPARE_BUDGET_S,
    DEFAULT_BUDGET_S,
    KERNEL_BUDGET_S,
    KERNEL_COMPARE_BUDGET_S,
    KNOBS,
    PROFILERS,
    SHARE_DRIFT,
    value,
)
from pytest_flamegate.paths import is_file, real
from pytest_flamegate.workload.engines.benchmark import NAME as BENCHMARK
from pytest_flamegate.workload.injection import parse_injection
from pytest_flamegate.workload.thresholds import DEFAULTS, hotspots_of, thresholds

if TYPE_CHECKING:
    import pytest

    from pytest_flamegate.workload.spec import Injection, Thresholds

_BUDGET_S = (1.0, 86_400.0)


@dataclass(frozen=True, slots=True)
class Settings:
    """The values in force for one run."""

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
    thresholds: Thresholds = DEFAULTS
    ci: bool = False

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
        values = {knob.name: value(config, knob) for knob in KNOBS}
        for name in ("config", "dir", "report"):
            if given := config.getoption(f"--flamegate-{name}"):
                values[name] = str(under(config.invocation_params.dir, given, name))
        return cls.from_values(values, root=config.rootpath)

    @classmethod
    def from_values(cls, values: dict[str, Any], *, root: Path) -> Settings:
        """Check the values, however they were given; ``UsageError`` says which is wrong."""
        ci = under_ci()
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
            config=_existing(under(root, given, "config")) if given else None,
            profiler=_choice("profiler", values.get("profiler") or "auto", PROFILERS),
            budget_s=_budget(values.get("budget"), DEFAULT_BUDGET_S),
            compare_budget_s=_budget(values.get("budget"), COMPARE_BUDGET_S),
            kernel_budgets_s=(
                _budget(values.get("budget"), KERNEL_BUDGET_S),
                _budget(values.get("budget"), KERNEL_COMPARE_BUDGET_S),
            ),
            against=against,
            report=under(root, values["report"], "report") if values.get("report") else None,
            update=update,
            inject=parse_injection(values["inject"]) if values.get("inject") else None,
            instructions=bool(values.get("instructions")),
            strict=bool(values.get("strict")),
            share_drift=_choice("share_drift", values.get("share_drift") or "cost", SHARE_DRIFT),
            thresholds=_thresholds(values.get("tokens_per_second"), values.get("hotspots")),
            ci=ci,
        )


def under_ci() -> bool:
    """Whether ``CI`` is set to something that means yes."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def under(root: Path, path: str, name: str) -> Path:
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
    directory = under(root, given, "dir")
    if real(root).is_relative_to(real(directory)):
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
    table = hotspots_of(hotspots, "flamegate_hotspots") if hotspots else None
    return thresholds(tokens_per_second or None, table, "flamegate_")


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
