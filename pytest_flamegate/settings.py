"""Every knob, once: its name, kind, default and words.

Standard library only: this is imported wherever pytest runs, gated or not.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_flamegate.errors import UsageError

if TYPE_CHECKING:
    import pytest

PROFILERS = ("auto", "perf", "py-spy", "none")
SHARE_DRIFT = ("cost", "strict")
DEFAULT_BUDGET_S = 15.0
_BUDGET_S = (1.0, 86_400.0)

Kind = Literal["flag", "text", "number"]


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting. ``option`` and ``ini`` say where it can be given."""

    name: str
    kind: Kind
    help: str
    default: Any = None
    metavar: str | None = None
    option: bool = True
    ini: bool = True
    env: str | None = None

    @property
    def ini_name(self) -> str:
        """The name in a configuration file: ``flamegate_budget``."""
        return f"flamegate_{self.name}" if self.name else "flamegate"

    @property
    def flag(self) -> str:
        """The name on the command line: ``--flamegate-update-in-ci``."""
        return "--" + self.ini_name.replace("_", "-")


KNOBS = (
    Knob("", "flag", "measure, write receipts, and gate the performance of LLM inference"),
    Knob("update", "flag", "accept this run's honest measurements as the baseline", ini=False),
    Knob("update_in_ci", "flag", "let --flamegate-update work under CI", ini=False),
    Knob(
        "profiler",
        "text",
        f"which profiler: {', '.join(PROFILERS)}",
        "auto",
        "NAME",
        env="FLAMEGATE_PROFILER",
    ),
    Knob(
        "budget",
        "number",
        f"measuring time for each workload in seconds (default {DEFAULT_BUDGET_S:g})",
        DEFAULT_BUDGET_S,
        "SECONDS",
    ),
    Knob(
        "config",
        "text",
        "workload file (default: flamegate.toml, else pyproject.toml)",
        None,
        "PATH",
    ),
    Knob("dir", "text", "where artifacts live (default: .flamegate)", ".flamegate", "PATH"),
    Knob(
        "inject",
        "text",
        "falsification: make the embedded engine's FRAME really do that much more work",
        None,
        "FRAME:+10%",
        ini=False,
    ),
    Knob("strict", "flag", "undecided verdicts fail outside CI too", option=False),
    Knob(
        "share_drift",
        "text",
        "cost: a drifted share that costs no more passes when the whole got faster; "
        "strict: any drift fails",
        "cost",
        option=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The values in force for one run."""

    root: Path
    directory: Path
    config: Path | None = None
    profiler: str = "auto"
    budget_s: float = DEFAULT_BUDGET_S
    update: bool = False
    inject: str | None = None
    strict: bool = False
    share_drift: Literal["cost", "strict"] = "cost"
    ci: bool = False

    @classmethod
    def from_pytest(cls, config: pytest.Config) -> Settings:
        """Read options, environment and ini keys, in that order.

        A path on the command line starts where pytest was called, one in a
        configuration file at the root.
        """
        values = {knob.name: _value(config, knob) for knob in KNOBS}
        for name in ("config", "dir"):
            if given := config.getoption(f"--flamegate-{name}"):
                values[name] = str(_under(config.invocation_params.dir, given))
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
        given = values.get("config")
        return cls(
            root=root,
            directory=_under(root, values.get("dir") or ".flamegate"),
            config=_existing(_under(root, given)) if given else None,
            profiler=_choice("profiler", values.get("profiler") or "auto", PROFILERS),
            budget_s=_budget(values.get("budget")),
            update=update,
            inject=values.get("inject"),
            strict=bool(values.get("strict")),
            share_drift=_choice("share_drift", values.get("share_drift") or "cost", SHARE_DRIFT),
            ci=ci,
        )


def under_ci() -> bool:
    """Whether ``CI`` is set to something that means yes."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def ini_value(config: pytest.Config, knob: Knob) -> Any:
    """Return what the configuration file says; ``UsageError`` names the key it says it of."""
    try:
        return config.getini(knob.ini_name)
    except Exception as error:
        # pytest 8 lets the ValueError of a bad figure through, pytest 9 wraps it without the key.
        raise UsageError(
            "E_BAD_OPTION",
            f"The configuration file's {knob.ini_name} is not understood: {error}.",
            {"flag": "Say true or false.", "number": "Give a figure."}.get(
                knob.kind, "Give a text."
            ),
        ) from None


def is_on(config: pytest.Config) -> bool:
    """Whether this run gates: by ``--flamegate`` or its ini key."""
    return bool(_value(config, KNOBS[0]))


def _value(config: pytest.Config, knob: Knob) -> Any:
    if knob.option:
        given = config.getoption(knob.flag)
        if given not in (None, False):
            return given
    if knob.env and os.environ.get(knob.env):
        return os.environ[knob.env]
    return ini_value(config, knob) if knob.ini else None


def _under(root: Path, path: str) -> Path:
    return root / Path(path).expanduser()


def _existing(path: Path) -> Path:
    if not path.is_file():
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


def _budget(value: object) -> float:
    try:
        budget_s = DEFAULT_BUDGET_S if value in (None, "") else float(str(value))
    except ValueError:
        budget_s = math.nan
    if not _BUDGET_S[0] <= budget_s <= _BUDGET_S[1]:
        raise UsageError(
            "E_BAD_OPTION",
            f"flamegate_budget is {value!r}.",
            f"Give seconds from {_BUDGET_S[0]:g} to {_BUDGET_S[1]:g}.",
        )
    return budget_s
