"""The file of callgrind: names by number, positions by difference, calls that are no cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.profile.model import Frame
from pytest_flamegate.profile.profilers.callgrind_file import CALLERS, parse_callgrind
from pytest_flamegate.profile.profilers.tools import ProfilerError

HEAD = """# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 7
cmd:  engine --prompt fn=(1) totals: 3
part: 1


desc: I1 cache:
desc: Trigger: Program termination

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
fl=(2)
fn=(2)
0 300
jump=3 +1
0
jcnd=1/3 -1
+1

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
    found = parse_callgrind(text.splitlines(keepends=True))
    return {">".join(frame.name for frame in stack): cost for stack, cost in found.items()}


def test_self_cost_of_every_function() -> None:
    assert parse(f"{HEAD}{BODY}totals: {TOTAL}\n") == {
        "std::vector<float, std::allocator<float> >::push_back": 700,
        "<T as core::fmt::Display>::fmt": 300,
        "(below main)": 100,
        "[libm.so.6]": 30,
        "walk": 40,
    }


def test_parts_are_added_and_keep_their_names() -> None:
    second = "part: 2\nevents: Ir\nsummary: 5\n\nob=(1)\nfn=(6)\n9 5\ntotals: 5\n"
    whole = parse_callgrind(f"{HEAD}{BODY}totals: {TOTAL}\n{second}".splitlines())
    assert sum(whole.values()) == TOTAL + 5
    walks = {frame.module: n for (frame,), n in whole.items() if frame.name == "walk"}
    assert walks == {"libm.so.6": 40, "libllama.so": 5}


def test_names_written_out_every_time() -> None:
    text = "version: 1\nevents: Ir\nfn=a (b) c\n1 2\ncfn=(anonymous namespace)::d\ncalls=1 5\n1 7\n"
    assert parse(f"{text}fn=(anonymous namespace)::d\n5 7\ntotals: 9\n") == {
        "a (b) c": 2,
        "(anonymous namespace)::d": 7,
    }


def test_several_events_and_positions() -> None:
    """Zeros at the end of a line are left out; Ir need not be the first."""
    text = "version: 1\npositions: instr line\nevents: Dr Ir Dw\nfn=(1) f\n"
    costs = "0x401000 12 5 70 3\n+3 * 4\n* -2\n+0x10 +1 1 30\ntotals: 10 100 3\n"
    assert parse(text + costs) == {"f": 100}


CALLED = """version: 1
events: Ir
ob=(1) engine
fn=(1) gemv'attention'layer'main
1 100
ob=(2) libblas.so
fn=(2) gemv'dot
1 7
fn=(3) walk'2'layer
1 5
fn=(4) walk'layer
1 3
ob=(1)
fn=(5) layer'0x0000000000001230'main
1 1
fn=(6) main
1 1
fn=(7) <&'a str as Show>::show'main
1 9
fn=(8) attention'layer
1 0
ob=(3) ???
fn=(9) 0x0000000000001230'main
1 2
totals: 128
"""


def test_callers_make_stacks() -> None:
    """Depths and nameless jumps are left out; a lifetime of Rust's is no caller."""
    assert parse(CALLED) == {
        "main>layer>attention>gemv": 100,
        "dot>gemv": 7,
        "layer>walk": 8,
        "main>layer": 1,
        "main": 1,
        "main><&'a str as Show>::show": 9,
        "layer>attention": 0,
        "main>[unknown]": 2,
    }


def test_a_caller_belongs_to_the_library_in_which_it_costs_most() -> None:
    found = parse_callgrind(CALLED.splitlines())
    frames = {frame for stack in found for frame in stack if frame.name in ("layer", "gemv", "dot")}
    assert frames == {
        Frame("layer", "engine", "native"),
        Frame("gemv", "engine", "native"),
        Frame("gemv", "libblas.so", "native"),
        Frame("dot", "unknown", "native"),
    }


def test_no_more_callers_are_read_than_were_asked_for() -> None:
    """Otherwise a forged file of 64 KiB makes a stack of 30,000 frames for each library."""
    name = "'".join(f"f{number}" for number in range(10_000))
    libraries = "".join(f"ob=({n}) lib{n}\nfn=(1)\n1 1\n" for n in range(50))
    text = f"version: 1\nevents: Ir\nfn=(1) {name}\n1 1\n{libraries}totals: 51\n"
    found = parse_callgrind(text.splitlines())
    assert {stack[-1].name for stack in found} == {"f0"}
    assert len(found) == 51
    assert max(map(len, found)) <= 2 * (CALLERS + 1)


def test_characters_that_no_name_may_hold_are_escaped() -> None:
    text = "version: 1\nevents: Ir\nfn=(1) a;b\x1b[31m\udcff\n1 2\ntotals: 2\n"
    assert parse(text) == {"a\\x3bb\\x1b[31m\\udcff": 2}


@pytest.mark.parametrize("stated", [TOTAL - 1, TOTAL + 1, 0])
def test_functions_that_do_not_add_up_are_an_error(stated: int) -> None:
    with pytest.raises(ProfilerError, match="E_PROFILER_OUTPUT") as caught:
        parse(f"{HEAD}{BODY}totals: {stated}\n")
    assert f"add up to {TOTAL} instructions and its total says {stated}" in caught.value.problem


def test_a_lost_cost_line_is_noticed() -> None:
    lines = f"{HEAD}{BODY}totals: {TOTAL}\n".splitlines()
    # The line after a call costs nothing, and a bare position neither.
    costs = [
        at
        for at, line in enumerate(lines)
        if line[:1] in "0123456789+-*" and " " in line and "99999" not in line
    ]
    assert len(costs) == 10
    for at in costs:
        with pytest.raises(ProfilerError, match="E_PROFILER_OUTPUT"):
            parse("\n".join(lines[:at] + lines[at + 1 :]))


START = "version: 1\nevents: Ir\nfn=(1) f\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ends before its totals"),
        ("\n\n", "ends before its totals"),
        ("hello\n", "line 1: it does not begin like a file of callgrind's"),
        (HEAD + BODY, "ends before its totals"),
        (f"{START}1 2\ntotals: 2\npart: 2\n", "ends before its totals"),
        (f"{START}1 2\ntotals: 2\nfn=(1)\n1 2\n", "ends before its totals"),
        ("version: 1\nevents: Ir\ntotals: 0\n", "it counted nothing"),
        ("version: 1\nfn=(1) f\n1 2\n", "line 3: a cost that belongs to no event"),
        ("version: 1\nevents: Ir\n1 2\n", "line 3: a cost that belongs to no event or no function"),
        ("version: 1\nevents: Cycles\n", "line 2: it holds no event Ir"),
        ("version: 1\nevents: Ir\nfn=(9)\n", "line 3: no name was given the number 9"),
        (f"{START}1 2x\n", "line 4: it is no cost line"),
        (f"{START}1 -2\n", "line 4: it holds no figures of events"),
        (f"{START}1..2 2\n", "line 4: it is no cost line"),
        (f"{START}1 {'9' * 5000}\n", "line 4: it is no cost line"),
        (f"{START}calls=x\n", "line 4: it is no call"),
        (f"{START}calls=1 1\nfn=(2) g\n", "line 5: a call without its cost"),
        (f"{START}xyz=1\n", "line 4: xyz= is unknown"),
        (f"{START}totals: many\n", "line 4: it holds no figures of events"),
        ("version: 1\ntotals: 3\n", "line 2: it holds no figures of events"),
    ],
)
def test_a_malformed_file_is_an_error(text: str, words: str) -> None:
    with pytest.raises(ProfilerError, match="E_PROFILER_OUTPUT") as caught:
        parse(text)
    assert words in caught.value.problem


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10**12)), min_size=1))
def test_the_sum_is_the_total_whatever_the_order(costs: list[tuple[int, int]]) -> None:
    lines, seen = ["version: 1", "events: Ir"], set[int]()
    for function, cost in costs:
        lines.append(f"fn=({function})" + ("" if function in seen else f" f{function}"))
        lines += [f"+3 {cost}", f"cfn=({function})", "calls=2 9", f"* {cost + 1}"]
        seen.add(function)
    total = sum(cost for _, cost in costs)
    found = parse_callgrind([*lines, f"totals: {total}"])
    assert sum(found.values()) == total
    assert {frame.name for (frame,) in found} == {f"f{function}" for function in seen}
