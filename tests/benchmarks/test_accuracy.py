from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.accuracy import Reading, error_pp, row
from benchmarks.known_split import c_program, parts, python_program
from pytest_flamegate.core.errors import ToolError
from tests.profile.profiles import native, python
from tests.tools import require

pytestmark = pytest.mark.measures

MAIN, WORK = native("main", "x"), python("sixty", "x.py")


def test_parts_are_of_the_three_alone() -> None:
    stacks = {
        (MAIN, WORK): 5,
        (MAIN, WORK, native("add", "libc.so")): 1,
        (MAIN, native("thirty", "x")): 2,
        (MAIN,): 90,
    }
    assert parts(stacks) == {"sixty": 0.75, "thirty": 0.25, "ten": 0.0}
    assert parts({(MAIN,): 1}) == {"sixty": 0.0, "thirty": 0.0, "ten": 0.0}


def test_the_python_program_runs(tmp_path: Path) -> None:
    subprocess.run([*python_program(tmp_path), "2"], check=True)


def test_the_c_program_runs(tmp_path: Path) -> None:
    argv = c_program(tmp_path)
    require(argv is not None, "there is no C compiler")
    assert argv is not None
    subprocess.run([*argv, "2"], check=True)


def test_the_error_is_that_of_the_worst_part() -> None:
    assert error_pp({"sixty": 0.61, "thirty": 0.265, "ten": 0.125}) == pytest.approx(3.5)


def test_a_row_holds_means_and_the_worst_run() -> None:
    readings = iter(
        [
            Reading(100, {"sixty": 0.63, "thirty": 0.27, "ten": 0.10}),
            Reading(300, {"sixty": 0.59, "thirty": 0.31, "ten": 0.10}),
        ]
    )
    shown = row("x", 2, lambda: next(readings))
    assert shown == ("x", "200", "61.00", "29.00", "10.00", "1.00", "3.00", "NO")


def test_a_profiler_that_cannot_is_named_with_its_code() -> None:
    def read() -> Reading:
        raise ToolError("E_PROFILER_ABSENT", "No perf.", "Install it.")

    assert row("x", 2, read)[1] == "not usable: E_PROFILER_ABSENT"
