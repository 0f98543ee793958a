"""Every knob, once: its name, kind, default and words.

This is all that is imported where pytest runs and nothing is gated, so it is kept
light: a named tuple is made in a fraction of the time of a dataclass.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import pytest


PROFILERS = ("auto", "perf", "py-spy", "callgrind", "none")
SHARE_DRIFT = ("cost", "strict")
DEFAULT_BUDGET_S = 15.0
COMPARE_BUDGET_S = 50.0
DEFAULT_BRICKS = 20
KERNEL_BUDGET_S = 6.0
KERNEL_COMPARE_BUDGET_S = 20.0
"""Of one benchmark: there are many."""

Kind = Literal["flag", "text", "number"]


class Option(NamedTuple):
    """One setting. ``option`` and ``ini`` say where it can be given.

    ``bare`` is what the option means without a value, None where it needs one.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    metavar: str | None = None
    option: bool = True
    ini: bool = True
    env: str | None = None
    bare: Any = None

    @property
    def ini_name(self) -> str:
        """The name in a configuration file: ``flamegate_budget``."""
        return f"flamegate_{self.name}" if self.name else "flamegate"

    @property
    def flag(self) -> str:
        """The name on the command line: ``--flamegate-update-in-ci``."""
        return "--" + self.ini_name.replace("_", "-")


OPTIONS = (
    Option("", "flag", "measure, write receipts, and gate the performance of LLM inference"),
    Option("update", "flag", "accept this run's honest measurements as the baseline", ini=False),
    Option("update_in_ci", "flag", "let --flamegate-update work under CI", ini=False),
    Option(
        "against",
        "text",
        "compare with that revision: build and run it and the working tree in interleaved pairs",
        None,
        "REV",
    ),
    Option(
        "profiler",
        "text",
        f"which profiler: {', '.join(PROFILERS)} (callgrind counts instructions beside what "
        "auto samples)",
        "auto",
        "NAME",
        env="FLAMEGATE_PROFILER",
    ),
    Option(
        "budget",
        "number",
        f"measuring time for each workload in seconds (default {DEFAULT_BUDGET_S:g}; against a "
        f"revision it ends at the first answer, and after {COMPARE_BUDGET_S:g} at the latest)",
        None,
        "SECONDS",
    ),
    Option(
        "config",
        "text",
        "workload file (default: flamegate.toml, else pyproject.toml)",
        None,
        "PATH",
    ),
    Option("dir", "text", "where artifacts live (default: .flamegate)", ".flamegate", "PATH"),
    Option("report", "text", "write all workloads of the run as one HTML page", None, "PATH"),
    Option(
        "bricks",
        "number",
        "clock the bricks that the engine marks, in processes of their own, and show the N that "
        f"take most time (default {DEFAULT_BRICKS})",
        None,
        "N",
        bare=DEFAULT_BRICKS,
    ),
    Option(
        "inject",
        "text",
        "falsification: make FRAME of the embedded engine or of a Python workload really do "
        "that much more work",
        None,
        "FRAME:+10%",
        ini=False,
    ),
    Option(
        "instructions",
        "flag",
        "count instructions with valgrind too, where it can: a warning says where it cannot",
        option=False,
    ),
    Option("strict", "flag", "undecided verdicts fail outside CI too", option=False),
    Option(
        "share_drift",
        "text",
        "cost: a drifted share that costs no more passes when the whole got faster; "
        "strict: any drift fails",
        "cost",
        option=False,
    ),
    Option(
        "tokens_per_second",
        "text",
        'how much slower is allowed where a workload does not say: "5%"',
        option=False,
    ),
    Option(
        "hotspots",
        "text",
        "how far shares of the profile may drift where a workload does not say, in one line or "
        'one line a frame: "rms_norm=3pp, *=5pp"',
        option=False,
    ),
    Option(
        "peak_gflops",
        "number",
        "what this machine computes at most, in 10⁹ operations a second by the threads of a "
        "workload: for the roofline, never gated",
        option=False,
        env="FLAMEGATE_PEAK_GFLOPS",
    ),
)


def _ini_value(config: pytest.Config, knob: Option) -> Any:
    """Return what the configuration file says; the ``pytest.UsageError`` names the key."""
    try:
        return config.getini(knob.ini_name)
    except Exception as error:
        import pytest

        remedy = {"flag": "Say true or false.", "number": "Give a figure."}.get(
            knob.kind, "Give text."
        )
        # pytest 8 lets the ValueError of a bad figure through, pytest 9 wraps it without the key.
        raise pytest.UsageError(
            f"E_BAD_OPTION: The configuration file's {knob.ini_name} is not understood: {error}. "
            f"{remedy}"
        ) from None


def is_enabled(config: pytest.Config) -> bool:
    """Whether this run gates: by ``--flamegate`` or its ini key."""
    return bool(read_option(config, OPTIONS[0]))


def read_option(config: pytest.Config, knob: Option) -> Any:
    """Return what was given for a knob: on the command line, in the environment, in a file."""
    if knob.option:
        given = config.getoption(knob.flag)
        if given not in (None, False):
            return given
    if knob.env and os.environ.get(knob.env):
        return os.environ[knob.env]
    return _ini_value(config, knob) if knob.ini else None
