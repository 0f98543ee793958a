"""Counting a program with a stand-in for valgrind: the sum, and every failure."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.profile.profilers import callgrind
from pytest_flamegate.profile.profilers.callgrind import CountedRun, count_program, probe_callgrind
from pytest_flamegate.profile.profilers.callgrind_file import CALLERS
from tests.profile.fake_valgrind import FakeValgrind
from tests.profile.fakes import Tools

OUT = "version: 1\nevents: Ir\nfn=(1) {name}\n1 {cost}\ntotals: {total}\n"
ILLEGAL = """vex amd64->IR: unhandled instruction bytes: 0x62 0xF1 0x7C 0x48
==1== valgrind: Unrecognised instruction at address 0x10914c.
==1== Process terminating with default action of signal 4 (SIGILL)
"""
NO_REDIRECTION = """==1==
valgrind:  Fatal error at startup: a function redirection
valgrind:  which is mandatory for this platform-tool combination
valgrind:  cannot be set up.  Details of the redirection are:
"""


def out(name: str, cost: int, total: int | None = None) -> str:
    return OUT.format(name=name, cost=cost, total=cost if total is None else total)


def python(code: str, *more: str, timeout_s: float = 20.0) -> CountedRun:
    argv = [sys.executable, "-I", "-S", "-c", code, *more]
    return count_program(argv, env=os.environ, cwd=None, timeout_s=timeout_s)


def test_the_counts_of_all_processes_are_added(tools: Tools) -> None:
    counts = {"1": out("main", 100), "2": out("main", 11), "3": out("decode", 1000)}
    FakeValgrind(tools, counts=counts)
    counted = python("print('hello')")
    assert counted.instructions == 1111
    assert {stack[-1].name: cost for stack, cost in counted.by_stack.items()} == {
        "main": 111,
        "decode": 1000,
    }
    assert counted.pids == (1, 2, 3)
    assert counted.stdout == b"hello\n"
    assert counted.valgrind_version == "3.19.0"
    assert counted.notes[0].startswith("3 processes counted together")


def test_the_options_of_valgrind(tools: Tools) -> None:
    """No settings of the user's, no simulated cache, children too, nothing beside the files."""
    fake = FakeValgrind(tools)
    python("pass", "--tool=none")
    arguments, _ = fake.seen
    assert arguments[:8] == [
        "--command-line-only=yes",
        "--tool=callgrind",
        "--vgdb=no",
        "--trace-children=yes",
        "--cache-sim=no",
        "--branch-sim=no",
        "--separate-threads=no",
        f"--separate-callers={CALLERS}",
    ]
    directory = Path(arguments[8].removeprefix("--callgrind-out-file=")).parent
    assert arguments[9] == f"--log-file={directory}/log.%p"
    assert arguments[10:] == [sys.executable, "-I", "-S", "-c", "pass", "--tool=none"]
    assert not directory.exists()


def test_a_machine_with_avx512_is_noted(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeValgrind(tools)
    for has in (True, False):
        monkeypatch.setattr(callgrind, "_has_avx512", lambda has=has: has)
        assert (callgrind.NO_AVX512 in python("pass").notes) == has


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "illegal instruction": (
        {"log": ILLEGAL, "code": 132},
        "E_VALGRIND_INSTRUCTION",
        "died of an instruction that valgrind lacks: Unrecognised instruction 0x62 0xF1",
    ),
    "no redirection": ({"log": NO_REDIRECTION, "code": 1}, "E_PROFILER_FAILED", "cannot be set up"),
    "another status": ({"code": 3}, "E_ENGINE_DIED", "ended with status 3 under valgrind."),
    "last words": (
        {"code": 1, "err": "loading\nout of memory\n"},
        "E_ENGINE_DIED",
        "Its last words: out of memory",
    ),
    "not started": (
        {"begun": False, "code": 127, "err": "valgrind: engine: No such file or directory\n"},
        "E_CANNOT_START",
        "engine: No such file or directory",
    ),
    "no tool": (
        {"begun": False, "code": 1, "err": "valgrind: failed to start tool 'callgrind'\n"},
        "E_PROFILER_FAILED",
        "failed to start tool",
    ),
    "silent": ({"begun": False, "code": 1}, "E_PROFILER_FAILED", "exit status 1, no words"),
    "no file": ({"counts": {}}, "E_PROFILER_OUTPUT", "it wrote no file"),
    "killed": ({"killed": ["2"]}, "E_PROFILER_OUTPUT", "1 of 2 processes were killed"),
    "empty": ({"counts": {"1": ""}}, "E_PROFILER_OUTPUT", "ends before its totals"),
    "binary": ({"counts": {"1": "\x00\x01"}}, "E_PROFILER_OUTPUT", "line 1"),
    "contradiction": (
        {"counts": {"1": out("main", 5, total=6)}},
        "E_PROFILER_OUTPUT",
        "add up to 5 instructions and its total says 6",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_failure_has_a_code(name: str, tools: Tools) -> None:
    plan, code, words = CASES[name]
    FakeValgrind(tools, **plan)
    with pytest.raises(ToolError, match=f"^{code}:") as caught:
        python("pass")
    assert words in caught.value.problem
    assert caught.value.remedy
    assert probe_callgrind().code == code


def test_a_program_that_hangs(tools: Tools) -> None:
    FakeValgrind(tools, hang=True)
    with pytest.raises(ToolError, match="E_TIMEOUT") as caught:
        python("pass", timeout_s=0.3)
    assert "did not finish within 0.3 s under valgrind" in caught.value.problem


def test_the_command_line_does_not_explain_a_failure(tools: Tools) -> None:
    FakeValgrind(tools, code=3)
    with pytest.raises(ToolError, match="E_ENGINE_DIED"):
        python("pass", "Unrecognised instruction")


def test_a_flood_of_output_is_an_error(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "OUTPUT_LIMIT_BYTES", 10)
    FakeValgrind(tools)
    with pytest.raises(ToolError, match="E_OUTPUT_FLOOD"):
        python("print('x' * 100)")


def test_without_valgrind_the_error_says_what_to_type(tools: Tools) -> None:
    with pytest.raises(ToolError, match="E_PROFILER_ABSENT") as caught:
        python("pass")
    assert "apt install valgrind" in caught.value.remedy
    seen = probe_callgrind()
    assert (seen.usable, seen.code) == (False, "E_PROFILER_ABSENT")
    assert "no program valgrind" in seen.reason


def test_the_probe_of_a_valgrind_that_works(tools: Tools) -> None:
    FakeValgrind(tools)
    seen = probe_callgrind()
    assert (seen.usable, seen.version, seen.event) == (True, "3.19.0", "Ir")
    assert (seen.sees_python, seen.sees_native) == (False, True)
