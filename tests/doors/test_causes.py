"""Why native functions cost more, on real runs: callgrind counts beside a profiler that samples.

The changes are far larger than any noise.
"""

from __future__ import annotations

import shutil
import sys

import pytest

from tests.doors.project import Project, require_profiler
from tests.tools import require

ENGINE = """\
#include <stdio.h>
#include <stdlib.h>
#define SIZE (1 << 22)
#define LARGE 16
#define LAYERS 4
#define ROUNDS 60000
static unsigned table[SIZE];
__attribute__((noinline)) unsigned gather(unsigned at)
{
    unsigned sum = 0;
    for (int i = 0; i < 20000; i++) {
        at = at * 1664525u + 1013904223u;
        sum += table[(at >> 8) % LARGE];
    }
    return sum;
}
__attribute__((noinline)) unsigned project(unsigned x)
{
    for (int i = 0; i < 60000; i++)
        x = x * 1664525u + 1013904223u;
    return x;
}
__attribute__((noinline)) unsigned norm(unsigned x)
{
    for (int i = 0; i < ROUNDS; i++)
        x = x * 22695477u + 1u;
    return x;
}
int main(int argc, char **argv)
{
    for (int i = 0; i < SIZE; i++)
        table[i] = i & argc;
    for (int i = 0, n = atoi(argv[2]); i < n; i++) {
        unsigned sum = gather(i) + norm(i);
        for (int layer = 0; layer < LAYERS; layer++)
            sum += project(i + layer);
        printf("%d ", sum == 1 ? -1 : i);
        fflush(stdout);
    }
    return 0;
}
"""
DECLARED = """
[workloads.causes]
command = ["./engine", "{prompt}", "{max_tokens}"]
build = ["cc", "-O1", "-g", "-fno-omit-frame-pointer", "-o", "engine", "engine.c"]
prompt = "x"
max_tokens = 1500
token_unit = "word"
"""
HEAD = {"LARGE 16": "LARGE SIZE", "LAYERS 4": "LAYERS 8", "ROUNDS 60000": "ROUNDS 180000"}


@pytest.mark.measures
@pytest.mark.nightly
def test_more_calls_more_work_and_slower_memory_are_separated(project: Project) -> None:
    require(shutil.which("cc") is not None, "there is no C compiler (cc)")
    require(shutil.which("valgrind") is not None, "valgrind is not installed")
    require_profiler("perf")
    project.declare(DECLARED)
    (project.path / ".gitignore").write_text("engine\n.flamegate\n")
    source = ENGINE
    (project.path / "engine.c").write_text(source)
    project.commit()
    for old, new in HEAD.items():
        source = source.replace(old, new)
    (project.path / "engine.c").write_text(source)
    project.commit()
    options = ("--flamegate-budget=15", "--flamegate-profiler=callgrind")
    project.run("--flamegate", "--flamegate-against=HEAD~1", *options)
    found = project.reasons("causes")["I_CAUSE"]
    assert "project: called 2.0 times as often" in found
    assert "gather: the same instructions, more time: memory, caches or waiting" in found
    assert "norm: 200 % more instructions in the same calls" in found


COUNTED = """
[workloads.counted]
target = "engine:generate"
prompt = "x"
max_tokens = 8
counts = { norm = "0" }
"""
PYTHON = """\
def norm(x):
    return x * 3 % 1009


def generate(prompt, max_tokens):
    for step in range(max_tokens):
        for _ in range(4000):
            norm(step)
        yield step
"""


@pytest.mark.measures
@pytest.mark.nightly
@pytest.mark.parametrize("is_more", [False, True])
def test_one_call_more_is_certain_or_not_counted(project: Project, *, is_more: bool) -> None:
    project.declare(COUNTED)
    for number, rounds in enumerate((4000, 4001 if is_more else 4000)):
        text = PYTHON.replace("4000", str(rounds))
        (project.path / "engine.py").write_text(f"{text}# revision {number}\n")
        project.commit()
    options = ("--flamegate-budget=4", "--flamegate-profiler=none")
    project.run("--flamegate", "--flamegate-against=HEAD~1", *options)
    reasons = project.reasons("counted")
    if sys.version_info < (3, 12):
        assert reasons["E_CALLS_NOT_COUNTED"].startswith(
            "counts limits calls of functions, and none"
        )
        assert project.verdict("counted")["verdict"] == "inconclusive"
    elif is_more:
        assert "norm: 4,000 → 4,001 calls a token" in reasons["E_CALLS_ROSE"]
        assert project.verdict("counted")["verdict"] == "regressed"
    else:
        assert "E_CALLS_ROSE" not in reasons
        assert "I_CALLS_COUNTED" in reasons
