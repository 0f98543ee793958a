"""Counting a program with a stand-in for valgrind: the sum, and every failure."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.profile.profilers import callgrind
from pytest_flamegate.profile.profilers.tools import ProfilerError
from tests.profile.fakes import FakeValgrind, Tools

ILLEGAL = """vex amd64->IR: unhandled instruction bytes: 0x62 0xF1 0x7C 0x48
==1== valgrind: Unrecognised instruction at address 0x10914c.
"""
NO_REDIRECTION = "valgrind:  cannot be set up.  Details of the redirection are:\n"


def out(name: str, cost: int) -> str:
    return f"version: 1\nevents: Ir\nfn=(1) {name}\n1 {cost}\ntotals: {cost}\n"


def python(code: str, *more: str, timeout_s: float = 20.0) -> callgrind.CountedRun:
    argv = [sys.executable, "-I", "-S", "-c", code, *more]
    return callgrind.count_program(argv, env=os.environ, cwd=None, timeout_s=timeout_s)


def test_the_counts_of_all_processes_are_added(tools: Tools) -> None:
    counts = {"1": out("main", 100), "2": out("main", 11), "3": out("decode", 1000)}
    FakeValgrind(tools, counts=counts)
    counted = python("print('hello')")
    assert counted.instructions == 1111
    by_name = {stack[-1].name: cost for stack, cost in counted.by_stack.items()}
    assert by_name == {"main": 111, "decode": 1000}
    assert (counted.pids, counted.stdout) == ((1, 2, 3), b"hello\n")
    assert counted.valgrind_version == "3.19.0"
    assert counted.notes[0].startswith("3 processes counted together")


def test_the_options_of_valgrind(tools: Tools) -> None:
    """No settings of the user's, children too, and nothing stays beside the result."""
    fake = FakeValgrind(tools)
    python("pass", "--tool=none")
    arguments, _ = fake.seen
    assert {"--command-line-only=yes", "--trace-children=yes"} < {*arguments[:8]}
    directory = Path(arguments[8].removeprefix("--callgrind-out-file=")).parent
    assert arguments[10:] == [sys.executable, "-I", "-S", "-c", "pass", "--tool=none"]
    assert not directory.exists()


def test_a_machine_with_avx512_is_noted(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeValgrind(tools)
    for widest in ("AVX-512", "AVX2"):
        monkeypatch.setattr(callgrind, "find_instruction_set", lambda widest=widest: widest)
        assert (callgrind.NO_AVX512 in python("pass").notes) == (widest == "AVX-512")


ABSENT = "valgrind: engine: No such file or directory\n"
NO_TOOL = "valgrind: failed to start tool 'callgrind'\n"
BYTES = "an instruction that valgrind lacks: Unrecognised instruction 0x62 0xF1"


@pytest.mark.parametrize(
    ("plan", "code", "words"),
    [
        ({"log": ILLEGAL, "code": 132}, "E_PROFILER_BLIND", BYTES),
        ({"log": NO_REDIRECTION, "code": 1}, "E_PROFILER_FAILED", "cannot be set up"),
        ({"code": 3}, "E_ENGINE_DIED", "ended with status 3 under valgrind."),
        ({"code": 1, "err": "loading\nlost\n"}, "E_ENGINE_DIED", "Its last words: lost"),
        ({"begun": False, "code": 127, "err": ABSENT}, "E_CANNOT_START", "engine: No such file"),
        ({"begun": False, "code": 1, "err": NO_TOOL}, "E_PROFILER_FAILED", "failed to start tool"),
        ({"begun": False, "code": 1}, "E_PROFILER_FAILED", "exit status 1, no words"),
        ({"counts": {}}, "E_PROFILER_OUTPUT", "it wrote no file"),
        ({"killed": ["2"]}, "E_PROFILER_OUTPUT", "1 of 2 processes were killed"),
        ({"counts": {"1": "\x00\x01"}}, "E_PROFILER_OUTPUT", "line 1"),
    ],
)
def test_every_failure_has_a_code(
    plan: dict[str, Any], code: str, words: str, tools: Tools
) -> None:
    FakeValgrind(tools, **plan)
    with pytest.raises(ToolError, match=f"^{code}:.*{words}") as caught:
        python("pass")
    assert caught.value.remedy
    assert callgrind.probe_callgrind().code == code


def test_a_program_that_hangs(tools: Tools) -> None:
    FakeValgrind(tools, hang=True)
    with pytest.raises(ToolError, match=r"E_TIMEOUT.*did not finish within 0\.3 s under valgrind"):
        python("pass", timeout_s=0.3)


def test_the_command_line_does_not_explain_a_failure(tools: Tools) -> None:
    FakeValgrind(tools, code=3)
    with pytest.raises(ToolError, match="E_ENGINE_DIED"):
        python("pass", "Unrecognised instruction")


def test_the_probe_of_an_absent_valgrind_and_of_one_that_works(tools: Tools) -> None:
    absent = callgrind.probe_callgrind()
    assert (absent.usable, absent.code) == (False, "E_PROFILER_ABSENT")
    assert "no program valgrind" in absent.reason
    assert "apt install valgrind" in absent.remedy
    FakeValgrind(tools)
    works = callgrind.probe_callgrind()
    assert (works.usable, works.version, works.event) == (True, "3.19.0", "Ir")
    assert (works.sees_python, works.sees_native) == (False, True)


HEAD = """# callgrind format
version: 1
cmd:  engine --prompt fn=(1) totals: 3
part: 1

positions: line
events: Ir
summary: 1170

"""
BODY = """
ob=(1) /usr/lib/libllama.so
fl=(1) kernels.cpp
fn=(1) std::vector<float, std::allocator<float> >::push_back(float const&)
16 400
+4 100
-2 50
* 50
cob=(2) /usr/lib/libm.so.6
cfi=(2) ???
cfn=(2) <T as core::fmt::Display>::fmt::h0123456789abcdef
calls=10 0
* 99999
fi=(3) inlined.h
7 100
fe=(1)

ob=(2)
fn=(2)
0 300
jump=3 +1
0
fn=(3) (below main)
3 100
fn=(4) 0x0000000000001230
0 30
fn=(5) walk'2
0 20
fn=(6) walk
0 20

"""
TOTAL = 1170


def parse(text: str) -> dict[str, int]:
    """Read ``text``; stacks are written root first: ``main>layer``."""
    found = callgrind.parse_callgrind(text.splitlines(keepends=True)).stacks
    return {">".join(frame.name for frame in stack): cost for stack, cost in found.items()}


def test_self_costs_of_all_parts_are_added() -> None:
    first = f"{HEAD}{BODY}totals: {TOTAL}\n"
    assert parse(first) == {
        "std::vector<float, std::allocator<float> >::push_back": 700,
        "<T as core::fmt::Display>::fmt": 300,
        "(below main)": 100,
        "[libm.so.6]": 30,
        "walk": 40,
    }
    second = "part: 2\nevents: Ir\nsummary: 5\n\nob=(1)\nfn=(6)\n9 5\ntotals: 5\n"
    whole = callgrind.parse_callgrind(f"{first}{second}".splitlines()).stacks
    walks = {frame.module: n for (frame,), n in whole.items() if frame.name == "walk"}
    assert walks == {"libm.so.6": 40, "libllama.so": 5}


def test_names_written_out_every_time() -> None:
    text = "version: 1\nevents: Ir\nfn=a (b) c\n1 2\ncfn=(anonymous namespace)::d\ncalls=1 5\n1 7\n"
    found = parse(f"{text}fn=(anonymous namespace)::d\n5 7\ntotals: 9\n")
    assert found == {"a (b) c": 2, "(anonymous namespace)::d": 7}


def test_several_events_and_positions() -> None:
    """Zeros at the end of a line are left out; Ir need not be the first."""
    text = "version: 1\npositions: instr line\nevents: Dr Ir Dw\nfn=(1) f\n"
    costs = "0x401000 12 5 70 3\n+3 * 4\n* -2\n+0x10 +1 1 30\ntotals: 10 100 3\n"
    assert parse(text + costs) == {"f": 100}


CALLED = (
    ("engine", "gemv'attention'layer'main", 100, "main>layer>attention>gemv"),
    ("libblas.so", "gemv'dot", 7, "dot>gemv"),
    ("libblas.so", "walk'2'layer", 5, "layer>walk"),
    ("libblas.so", "walk'layer", 3, "layer>walk"),
    ("engine", "layer'0x0000000000001230'main", 1, "main>layer"),
    ("engine", "main", 1, "main"),
    ("engine", "<&'a str as Show>::show'main", 9, "main><&'a str as Show>::show"),
    ("engine", "attention'layer", 0, "layer>attention"),
    ("???", "0x0000000000001230'main", 2, "main>[unknown]"),
)


def test_callers_make_stacks() -> None:
    """Depths and nameless jumps are left out; a lifetime of Rust's is no caller."""
    lines = "".join(f"ob={file}\nfn={name}\n1 {cost}\n" for file, name, cost, _ in CALLED)
    text = f"version: 1\nevents: Ir\n{lines}totals: 128\n"
    expected: Counter[str] = Counter()
    for _, _, cost, path in CALLED:
        expected[path] += cost
    assert parse(text) == dict(expected)
    # A caller belongs to the library in which it costs most.
    stacks = callgrind.parse_callgrind(text.splitlines()).stacks
    found = {frame[:2] for stack in stacks for frame in stack}
    assert {module for name, module in found if name == "layer"} == {"engine"}
    assert {module for name, module in found if name == "gemv"} == {"engine", "libblas.so"}
    assert ("dot", "unknown") in found


def test_calls_are_those_of_a_function_by_all_its_callers() -> None:
    edges = (("(2) gemv'layer", 3), ("(3) gemv'2'layer", 2), ("(4) norm'layer", 7), ("(2)", 1))
    lines = "".join(f"cfn={callee}\ncalls={number} 5\n1 9\n" for callee, number in edges)
    text = f"version: 1\nevents: Ir\nfn=(1) layer\n1 4\n{lines}totals: 4\n"
    assert callgrind.parse_callgrind(text.splitlines()).calls == {"gemv": 6, "norm": 7}


def test_no_more_callers_are_read_than_were_asked_for() -> None:
    """Otherwise a forged file makes a stack of 10,000 frames for each of its libraries."""
    name = "'".join(f"f{number}" for number in range(10_000))
    text = f"{START[:-2]}{name}\n1 1\ntotals: 1\n"
    (stack,) = callgrind.parse_callgrind(text.splitlines()).stacks
    assert stack[-1].name == "f0"
    assert len(stack) <= 2 * (callgrind.CALLERS + 1)


START = "version: 1\nevents: Ir\nfn=(1) f\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\n\n", "ends before its totals"),
        ("hello\n", "line 1: it does not begin like a file of callgrind's"),
        (HEAD + BODY, "ends before its totals"),
        (f"{START}1 2\ntotals: 2\npart: 2\n", "ends before its totals"),
        (f"{START}1 2\ntotals: 2\nfn=(1)\n1 2\n", "ends before its totals"),
        ("version: 1\nevents: Ir\ntotals: 0\n", "it counted nothing"),
        ("version: 1\nevents: Ir\n1 2\n", "line 3: a cost that belongs to no event or no function"),
        ("version: 1\nevents: Cycles\n", "line 2: it holds no event Ir"),
        ("version: 1\nevents: Ir\nfn=(9)\n", "line 3: no name was given the number 9"),
        (f"{START}1 2x\n", "line 4: it is no cost line"),
        (f"{START}1 -2\n", "line 4: it holds no figures of events"),
        (f"{START}1 {'9' * 5000}\n", "line 4: it is no cost line"),
        (f"{START}calls=x\n", "line 4: it is no call"),
        (f"{START}calls=1 1\nfn=(2) g\n", "line 5: a call without its cost"),
        (f"{START}xyz=1\n", "line 4: xyz= is unknown"),
        (f"{START}totals: many\n", "line 4: it holds no figures of events"),
        ("version: 1\ntotals: 3\n", "line 2: it holds no figures of events"),
        (f"{START}1 2\n1 3\ntotals: 6\n", "add up to 5 instructions and its total says 6"),
        (f"{START}1 2\ntotals: 0\n", "add up to 2 instructions and its total says 0"),
    ],
)
def test_a_malformed_file_is_an_error(text: str, words: str) -> None:
    with pytest.raises(ProfilerError, match=f"E_PROFILER_OUTPUT.*{words}"):
        parse(text)
