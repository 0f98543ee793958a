"""Every option, with its kind, default, values and help text; and the marker of gate tests.

Nothing else of the package is imported when pytest runs and nothing is gated, so this module is
cheap to import: a named tuple is created in a fraction of the time of a dataclass.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import pytest


SAMPLERS = ("py-spy", "perf")
"""Each is a file in ``profile/profilers``, without the hyphen, that has ``make_profiler``. ``auto``
tries them in this order for Python engines, and from the last to the first for other programs."""
COUNTER = "callgrind"
"""Asks for a count of instructions, in addition to a profiler that samples."""
PROFILERS = ("auto", *sorted(SAMPLERS), COUNTER, "none")
DEFAULT_BUDGET_S = 15.0
COMPARE_BUDGET_S = 50.0
FINE_COMPARE_BUDGET_S = 110.0
"""If the threshold is fine: in 50 s up to a fifth of the comparisons at 1 % stay open."""
FINE_PCT = 2.0
"""A threshold below this is fine."""
KERNEL_BUDGET_S = 6.0
"""Of one kernel benchmark: a project has many."""
KERNEL_COMPARE_BUDGET_S = 20.0
DEFAULT_BRICKS = 20


def compare_budget_s(drop_pct: float) -> float:
    """Return the usual measuring time against a revision, with that threshold in percent."""
    return FINE_COMPARE_BUDGET_S if drop_pct < FINE_PCT else COMPARE_BUDGET_S


class Option(NamedTuple):
    """One setting.

    Attributes:
        name: The key in ``Settings.from_values``; empty for ``--flamegate`` itself.
        kind: ``flag`` takes no value on the command line.
        help: The help text, written for ``pytest --help``.
        metavar: The name of the value in the help text.
        default: The value if the option is given nowhere.
        cli: Whether it is an option of the command line.
        ini: Whether it is a key of pytest's configuration file.
        env: The environment variable that sets it, if any.
        bare: The value of ``--flamegate-NAME`` without ``=VALUE``; None if a value is needed.
        choices: The texts that are accepted; empty for any text.
        limits: The smallest and the largest number that are accepted.
    """

    name: str
    kind: Literal["flag", "text", "number"]
    help: str
    metavar: str | None = None
    default: Any = None
    cli: bool = True
    ini: bool = True
    env: str | None = None
    bare: Any = None
    choices: tuple[str, ...] = ()
    limits: tuple[float, float] = (0.0, 0.0)

    @property
    def ini_name(self) -> str:
        """The key in a configuration file: ``flamegate_budget``."""
        return f"flamegate_{self.name}" if self.name else "flamegate"

    @property
    def flag(self) -> str:
        """The option of pytest's command line: ``--flamegate-update-in-ci``."""
        return "--" + self.ini_name.replace("_", "-")

    @property
    def arguments(self) -> dict[str, Any]:
        """What a parser of command lines is given besides the name of the option."""
        if self.kind == "flag":
            return {"action": "store_true", "help": self.help}
        optional = {} if self.bare is None else {"nargs": "?", "const": self.bare}
        return {"metavar": self.metavar, "help": self.help, **optional}


OPTIONS = (
    Option("", "flag", "measure, write receipts, and gate the performance of LLM inference"),
    Option("update", "flag", "accept this run's honest measurements as the baseline", ini=False),
    Option("update_in_ci", "flag", "let --flamegate-update work under CI", ini=False),
    Option(
        "against",
        "text",
        "compare with that revision: build it, and run it and the working tree in pairs",
        "REV",
    ),
    Option(
        "profiler",
        "text",
        f"which profiler: {', '.join(PROFILERS)} (callgrind counts instructions, and auto samples "
        "beside it)",
        "NAME",
        "auto",
        env="FLAMEGATE_PROFILER",
        choices=PROFILERS,
    ),
    Option(
        "budget",
        "number",
        f"measuring time for each workload in seconds (default {DEFAULT_BUDGET_S:g}; against a "
        f"revision it ends at the first answer, and after about {COMPARE_BUDGET_S:g}, or "
        f"{FINE_COMPARE_BUDGET_S:g} if the threshold is below {FINE_PCT:g} %%)",
        "SECONDS",
        limits=(1.0, 86_400.0),
    ),
    Option(
        "config", "text", "workload file (default: flamegate.toml, else pyproject.toml)", "PATH"
    ),
    Option("dir", "text", "where artifacts live (default: .flamegate)", "PATH", ".flamegate"),
    Option("report", "text", "write all workloads of the run as one HTML page", "PATH"),
    Option(
        "bricks",
        "number",
        "clock the bricks that the engine marks, in processes of their own, and show the N that "
        f"take most time (default {DEFAULT_BRICKS})",
        "N",
        bare=DEFAULT_BRICKS,
        limits=(1, 1000),
    ),
    Option(
        "inject",
        "text",
        "fake a slowdown to see the gate fail: FRAME of the embedded engine or of a Python "
        "workload really does that much more work",
        "FRAME:+10%",
        ini=False,
    ),
    Option(
        "instructions",
        "flag",
        "count instructions with valgrind too; a warning says if it cannot",
        cli=False,
    ),
    Option("strict", "flag", "undecided verdicts fail outside CI too", cli=False),
    Option(
        "share_drift",
        "text",
        "cost: a drifted share fails if its function certainly costs more; strict: any drift fails",
        default="cost",
        cli=False,
        choices=("cost", "strict"),
    ),
    Option(
        "tokens_per_second",
        "text",
        'how much slower is allowed if a workload sets no threshold of its own: "5%"',
        cli=False,
    ),
    Option(
        "hotspots",
        "text",
        "how far shares of the profile may drift if a workload sets no threshold of its own, in "
        'one line or one line for each frame: "rms_norm=3pp, *=5pp"',
        cli=False,
    ),
    Option(
        "require_grade",
        "text",
        "for flamegate check, read from the base: the least grade of evidence (default OBSERVED)",
        cli=False,
    ),
    Option(
        "peak_gflops",
        "number",
        "the most that this machine computes, in 10⁹ operations a second with the threads of a "
        "workload: for the roofline, never gated",
        cli=False,
        env="FLAMEGATE_PEAK_GFLOPS",
        limits=(1e-9, 1e15),
    ),
)
BY_NAME = {option.name: option for option in OPTIONS}
_PYTEST_COMMAND_OR_OPTION = (
    r"\bpytest(?: \S*[^\s.,:;])*? --flamegate(?![\w-])(?: --flamegate-\S+)*|--flamegate-"
)
EXPECTED = {"flag": "Use true or false.", "number": "Use a number.", "text": "Use text."}
"""The remedy for a value in a configuration file, by the kind of its option."""


def shorten_options(text: str) -> str:
    """Return advice for pytest as advice for a command: ``--flamegate-budget`` is ``--budget``.

    A command line of pytest in it keeps its words.

    Example:
        >>> shorten_options("Use --flamegate-dir, or: pytest --flamegate --flamegate-dir=x")
        'Use --dir, or: pytest --flamegate --flamegate-dir=x'
    """
    return re.sub(
        _PYTEST_COMMAND_OR_OPTION,
        lambda match: "--" if match[0] == "--flamegate-" else match[0],
        text,
    )


def is_enabled(config: pytest.Config) -> bool:
    """Whether this run gates: by ``--flamegate`` or its ini key."""
    return bool(read_option(config, OPTIONS[0]))


def read_option(config: pytest.Config, option: Option) -> Any:
    """Return the value of an option from the command line, the environment or the ini file."""
    if option.cli:
        given = config.getoption(option.flag)
        if given not in (None, False):
            return given
    if option.env and os.environ.get(option.env):
        return os.environ[option.env]
    if not option.ini:
        return None
    try:
        return config.getini(option.ini_name)
    except Exception as error:
        import pytest

        # pytest 8 lets the ValueError of a bad number through, pytest 9 wraps it without the key.
        raise pytest.UsageError(
            f"E_BAD_OPTION: {option.ini_name} in the configuration file is not valid: {error}. "
            f"{EXPECTED[option.kind]}"
        ) from None


# The marker

MARKER = "flamegate"
"""The name of the marker, and of the fixture."""
HOSTED = "flamegate-hosted"
"""The plugin in a process that runs pytest on one test, whose benchmark is being measured."""
BENCHMARK = "benchmark"
"""pytest-benchmark's fixture."""
EMBEDDED = "embedded"
"""The argument that selects the embedded workloads."""


def is_marked(item: pytest.Item) -> bool:
    """Whether ``item`` is a gate test."""
    return item.get_closest_marker(MARKER) is not None


def takes_fixture(item: pytest.Item) -> bool:
    """Whether ``item`` has the fixture ``flamegate``, in its arguments or through others."""
    return MARKER in getattr(item, "fixturenames", ())


def is_kernel_benchmark(item: pytest.Item) -> bool:
    """Whether ``item`` is a gate test whose workload is its benchmark.

    A workload that the marker or the fixture names comes before the benchmark.
    """
    return (
        is_marked(item)
        and BENCHMARK in getattr(item, "fixturenames", ())
        and not takes_fixture(item)
        and not any("workload" in marker.kwargs for marker in item.iter_markers(MARKER))
    )


def embedded_arguments(arguments: Iterable[str], directory: Path) -> list[str]:
    """Return the arguments that select embedded workloads: ``embedded`` and ``embedded::NAME``.

    ``embedded`` alone is a path if ``directory`` holds a file or directory of that name.

    Example:
        >>> embedded_arguments(["embedded::passage", "tests/test_one.py"], Path("/"))
        ['embedded::passage']
    """
    is_path = Path(directory, EMBEDDED).exists()
    return [
        argument
        for argument in arguments
        if argument.startswith(f"{EMBEDDED}::") or (argument == EMBEDDED and not is_path)
    ]
