"""Counting a program: what is added up, and every way it can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.profilers import callgrind
from pytest_flamegate.profile.profilers.callgrind import (
    CALLERS,
    Counted,
    count_program,
    probe_callgrind,
)
from pytest_flamegate.profile.profilers.instructions import build_instruction_profile
from tests.profile.fake_valgrind import FakeValgrind
from tests.profile.fakes import Tools
from tests.tools import require

pytestmark = pytest.mark.measures

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


def python(code: str, *more: str, timeout_s: float = 20.0) -> Counted:
    argv = [sys.executable, "-I", "-S", "-c", code, *more]
    return count_program(argv, env=os.environ, cwd=None, timeout_s=timeout_s)


def test_all_processes_are_added(tools: Tools) -> None:
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


def test_what_valgrind_is_asked(tools: Tools) -> None:
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


def test_avx512_is_told_where_the_machine_has_it(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    "killed": ({"killed": ["2"]}, "E_COUNT_INCOMPLETE", "1 of 2 processes were killed"),
    "empty": ({"counts": {"1": ""}}, "E_PROFILER_OUTPUT", "ends before its totals"),
    "binary": ({"counts": {"1": "\x00\x01"}}, "E_PROFILER_OUTPUT", "line 1"),
    "contradiction": (
        {"counts": {"1": out("main", 5, total=6)}},
        "E_PROFILE_CONTRADICTS",
        "add up to 5 instructions and its total says 6",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_failure_has_a_code(name: str, tools: Tools) -> None:
    plan, code, words = CASES[name]
    FakeValgrind(tools, **plan)
    with pytest.raises(ToolError, match=f"^{code}:") as refused:
        python("pass")
    assert words in refused.value.problem
    assert refused.value.remedy
    assert probe_callgrind().code == code


def test_a_program_that_hangs(tools: Tools) -> None:
    FakeValgrind(tools, hang=True)
    with pytest.raises(ToolError, match="E_TIMEOUT") as refused:
        python("pass", timeout_s=0.3)
    assert "did not finish within 0.3 s under valgrind" in refused.value.problem


def test_words_on_the_command_line_explain_nothing(tools: Tools) -> None:
    FakeValgrind(tools, code=3)
    with pytest.raises(ToolError, match="E_ENGINE_DIED"):
        python("pass", "Unrecognised instruction")


def test_a_flood_is_refused(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "OUTPUT_LIMIT_BYTES", 10)
    FakeValgrind(tools)
    with pytest.raises(ToolError, match="E_OUTPUT_FLOOD"):
        python("print('x' * 100)")


def test_no_valgrind_says_what_to_type(tools: Tools) -> None:
    with pytest.raises(ToolError, match="E_NO_VALGRIND") as refused:
        python("pass")
    assert "apt install valgrind" in refused.value.remedy
    seen = probe_callgrind()
    assert (seen.usable, seen.code) == (False, "E_NO_VALGRIND")
    assert "no program valgrind" in seen.reason


def test_the_probe_of_one_that_works(tools: Tools) -> None:
    FakeValgrind(tools)
    seen = probe_callgrind()
    assert (seen.usable, seen.version, seen.event) == (True, "3.19.0", "Ir")
    assert (seen.sees_python, seen.sees_native) == (False, True)


def test_a_real_wrapper_and_its_real_engine(tmp_path: Path) -> None:
    """A shell script that runs one program and becomes another: all three are counted."""
    require(shutil.which("valgrind") is not None, "valgrind is not installed")
    script = tmp_path / "wrapper"
    script.write_text('#!/bin/sh\n"$1" first\nexec "$1" second\n')
    script.chmod(0o755)
    echo = shutil.which("echo")
    assert echo is not None
    alone = count_program([echo, "second"], env=os.environ, cwd=None, timeout_s=60.0)
    wrapped = count_program(["./wrapper", echo], env=os.environ, cwd=tmp_path, timeout_s=60.0)
    assert alone.stdout == b"second\n"
    assert wrapped.stdout == b"first\nsecond\n"
    assert wrapped.instructions > 1.9 * alone.instructions
    assert sum(wrapped.by_stack.values()) == wrapped.instructions
    assert list(tmp_path.iterdir()) == [script]


SPLIT = """
#include <stdlib.h>
static volatile unsigned sink;
__attribute__((noinline)) void gemv(int n) { for (int i = 0; i < n; i++) sink = sink * 3 + i; }
__attribute__((noinline)) void norm(int n) { for (int i = 0; i < n; i++) sink = sink * 3 + i; }
__attribute__((noinline)) void walk(int depth, int n) {
    if (depth) { walk(depth - 1, n); sink++; } else gemv(n);
}
__attribute__((noinline)) void attention(int n) { gemv(n); sink++; }
int main(int argc, char **argv) {
    for (int token = atoi(argv[argc - 1]); token; token--) {
        attention(6000);
        walk(4, 3000);
        norm(1000);
    }
    return 0;
}
"""


def test_a_real_split_is_read_by_function_and_by_caller(tmp_path: Path) -> None:
    """Loops of 6, 3 and 1 thousand rounds: exact, whoever calls them, however deep."""
    require(shutil.which("valgrind") is not None, "valgrind is not installed")
    compiler = shutil.which("cc")
    require(compiler is not None, "no C compiler is installed")
    assert compiler is not None
    (tmp_path / "split.c").write_text(SPLIT)
    flags = ["-O1", "-fno-inline", "-fno-optimize-sibling-calls", "-o", "split", "split.c"]
    subprocess.run([compiler, *flags], cwd=tmp_path, check=True)
    few, many = (
        count_program(["./split", tokens], env=os.environ, cwd=tmp_path, timeout_s=60.0)
        for tokens in ("1", "9")
    )
    profile = build_instruction_profile(many, few, python="", notes=())
    assert profile.samples == many.instructions - few.instructions
    share = {spot.name: spot.self_share for spot in rank_hotspots(profile)}
    assert share["gemv"] == pytest.approx(0.9, abs=0.001)
    assert share["norm"] == pytest.approx(0.1, abs=0.001)
    inclusive = {spot.name: spot.inclusive_share for spot in rank_hotspots(profile)}
    assert inclusive["attention"] == pytest.approx(0.6, abs=0.001)
    assert inclusive["walk"] == pytest.approx(0.3, abs=0.001)
    assert profile.completeness > 0.999


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["/nowhere/engine"], "E_CANNOT_START"),
        (["sh", "-c", "echo alas >&2; exit 3"], "E_ENGINE_DIED"),
        (["sh", "-c", "kill -SEGV $$"], "E_ENGINE_DIED"),
    ],
)
def test_real_programs_that_fail(argv: list[str], code: str) -> None:
    require(shutil.which("valgrind") is not None, "valgrind is not installed")
    with pytest.raises(FlamegateError, match=code):
        count_program(argv, env=os.environ, cwd=None, timeout_s=60.0)
