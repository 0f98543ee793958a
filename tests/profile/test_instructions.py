"""Instructions a token: two runs, and their difference."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Plan, Served, Streamed
from pytest_flamegate.observe import environment
from pytest_flamegate.profile.folded import fold_profile, parse_folded
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.profilers import instructions
from pytest_flamegate.profile.profilers.instructions import (
    C_FUNCTIONS,
    EVAL_LOOP,
    count_instructions,
)
from tests.profile.fake_valgrind import FakeValgrind
from tests.profile.fakes import Tools
from tests.tools import require

pytestmark = pytest.mark.measures

TARGETS = """
import os, sys

def work(prompt, max_tokens):
    for i in range(max_tokens):
        sum(range(100))
        yield i

def words(prompt, max_tokens):
    print("chatter")
    for i in range(max_tokens):
        yield f"word {i}"

def short(prompt, max_tokens):
    yield from range(min(max_tokens, 4))

def long(prompt, max_tokens):
    yield from range(max_tokens + 1)

def other(prompt, max_tokens):
    yield from [max_tokens] * max_tokens

def raises(prompt, max_tokens):
    raise RuntimeError("no weights")
    yield

def leaves(prompt, max_tokens):
    os._exit(0)
    yield

def dies(prompt, max_tokens):
    os._exit(3)
    yield
"""


def served(directory: Path, function: str, max_tokens: int = 20) -> tuple[Plan, Workload]:
    (directory / "targets.py").write_text(TARGETS)
    workload = Workload(
        name="w",
        engine="python",
        prompt="p",
        max_tokens=max_tokens,
        source="test",
        directory=directory,
        target=f"targets:{function}",
    )
    return engine("python").plan(workload, None), workload


def streamed(
    directory: Path, code: str, *arguments: str, **changes: Any
) -> tuple[Streamed, Workload]:
    workload = Workload(
        name="w",
        engine="command",
        prompt=changes.pop("prompt", "p"),
        max_tokens=changes.pop("max_tokens", 20),
        source="test",
        directory=directory,
        command=(sys.executable, "-I", "-S", "-c", code, *arguments),
        **changes,
    )
    plan = engine("command").plan(workload, None)
    assert isinstance(plan, Streamed)
    return plan, workload


TALK = "import sys; sys.stdout.write('x' * int(sys.argv[-1]))"


def counted(of: tuple[Plan, Workload]) -> instructions.InstructionCount:
    plan, workload = of
    return count_instructions(plan, workload, environment.make_environment(workload))


def own(found: instructions.InstructionCount) -> dict[str, int]:
    return {
        spot.name: spot.self_samples for spot in rank_hotspots(found.profile) if spot.self_samples
    }


@pytest.mark.parametrize("function", ["work", "words"])
def test_the_load_stays_out(function: str, tools: Tools, tmp_path: Path) -> None:
    FakeValgrind(tools, per_token=100, load=5000)
    found = counted(served(tmp_path, function))
    assert (found.per_token, found.profile.covers, found.tokens) == (100.0, "decode", (1, 9))
    assert own(found) == {"decode": 800}
    profile = found.profile
    assert (profile.unit, profile.event, profile.profiler) == ("instructions", "Ir", "callgrind")
    assert (profile.profiler_version, profile.python) == ("3.19.0", platform.python_version())
    assert C_FUNCTIONS in profile.degraded


def test_an_engine_of_another_environment_is_counted_in_it(tools: Tools, tmp_path: Path) -> None:
    """A revision's own interpreter loads its own packages, and this one's are not in its way."""
    fake = FakeValgrind(tools)
    other = tmp_path / "other-python"
    other.symlink_to(sys.executable)
    plan, workload = served(tmp_path, "work")
    assert isinstance(plan, Served)
    found = count_instructions(
        replace(plan, python=str(other)), workload, environment.make_environment(workload)
    )
    assert found.per_token == 100.0
    assert found.profile.python == platform.python_version()
    arguments, _ = fake.seen
    assert str(other) in arguments
    assert sys.executable not in arguments


def test_a_program_that_is_told_how_many_tokens(tools: Tools, tmp_path: Path) -> None:
    FakeValgrind(tools)
    found = counted(streamed(tmp_path, TALK, "{prompt}", "{max_tokens}", max_tokens=4))
    assert (found.per_token, found.profile.covers, found.tokens) == (100.0, "decode", (1, 4))


def test_a_program_that_is_not(tools: Tools, tmp_path: Path) -> None:
    FakeValgrind(tools)
    found = counted(streamed(tmp_path, TALK, "7", max_tokens=7))
    assert (found.per_token, found.profile.covers, found.tokens) == (5700 / 7, "process", (0, 7))
    assert own(found) == {"load": 5000, "decode": 700}
    assert (found.profile.python, C_FUNCTIONS in found.profile.degraded) == ("", False)
    assert instructions.NO_PLACEHOLDER in found.profile.degraded


def test_one_token_leaves_nothing_to_subtract(tools: Tools, tmp_path: Path) -> None:
    FakeValgrind(tools)
    for of in (
        served(tmp_path, "work", max_tokens=1),
        streamed(tmp_path, TALK, "{max_tokens}", max_tokens=1),
    ):
        found = counted(of)
        assert (found.per_token, found.profile.covers, found.tokens) == (5100.0, "process", (0, 1))
        assert instructions.ONE_TOKEN in found.profile.degraded


def test_more_threads_are_told(tools: Tools, tmp_path: Path) -> None:
    FakeValgrind(tools)
    found = counted(streamed(tmp_path, TALK, "{max_tokens}", threads=4))
    assert found.profile.degraded[0] == instructions.THREADS


def test_the_engine_gets_its_own_environment_and_leaves_no_bytecode(
    tools: Tools, tmp_path: Path
) -> None:
    fake = FakeValgrind(tools)
    counted(served(tmp_path, "work"))
    _, environment = fake.seen
    assert environment["PYTHONHASHSEED"] == "0"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert [path.name for path in tmp_path.iterdir() if path != tools.directory] == ["targets.py"]


def test_a_command_line_of_other_making_is_counted_whole(tools: Tools, tmp_path: Path) -> None:
    FakeValgrind(tools)
    _, workload = streamed(tmp_path, TALK, "{max_tokens}", max_tokens=7)
    others = (sys.executable, "-I", "-S", "-c", TALK, "5")
    assert counted((Streamed(others, "byte"), workload)).profile.covers == "process"
    assert counted((Streamed((*others, "5"), "byte"), workload)).profile.covers == "process"


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("short", "E_OTHER_TOKENS", "asked for 9 tokens and made 4"),
        ("long", "E_OTHER_TOKENS", "asked for 1 tokens and made 2"),
        ("other", "E_TOKENS_DIFFER", "do not begin with the same token"),
        ("raises", "E_ENGINE_RAISED", "RuntimeError: no weights"),
        ("leaves", "E_PROFILER_OUTPUT", "its answer has no end"),
        ("dies", "E_ENGINE_DIED", "ended with status 3"),
        ("absent", "E_TARGET_NOT_FOUND", "cannot be imported"),
    ],
)
def test_an_engine_that_fails(
    function: str, code: str, words: str, tools: Tools, tmp_path: Path
) -> None:
    FakeValgrind(tools)
    with pytest.raises(FlamegateError, match=f"^{code}:") as refused:
        counted(served(tmp_path, function))
    assert words in refused.value.problem


def test_tokens_that_cost_nothing_are_refused(tools: Tools, tmp_path: Path) -> None:
    FakeValgrind(tools, per_token=0)
    with pytest.raises(FlamegateError, match="E_PROFILE_CONTRADICTS") as refused:
        counted(served(tmp_path, "work"))
    assert "9 tokens took no more instructions (5000) than 1 (5000)" in refused.value.problem


def test_a_program_that_prints_nothing(tools: Tools, tmp_path: Path) -> None:
    FakeValgrind(tools)
    with pytest.raises(FlamegateError, match="E_NO_TOKENS"):
        counted(streamed(tmp_path, "pass", "7"))


def test_a_callable_of_this_process_is_refused(tmp_path: Path) -> None:
    _, workload = served(tmp_path, "work")
    plan = Served({}, call=lambda _prompt, tokens: range(tokens))
    with pytest.raises(UsageError, match="E_CANNOT_COUNT_CALLABLE"):
        count_instructions(plan, workload, os.environ)


LOOP = "i=0; while [ $i -lt $1 ]; do {} printf x; i=$((i+1)); done"


def shell(directory: Path, more: str) -> tuple[Plan, Workload]:
    program = (shutil.which("sh") or "sh", "-c", LOOP.replace("{}", more), "sh", "{max_tokens}")
    _, workload = streamed(directory, "")
    workload = replace(workload, command=program)
    return engine("command").plan(workload, None), workload


def test_real_counts_repeat_and_tell_more_work(tmp_path: Path) -> None:
    require(shutil.which("valgrind") is not None, "valgrind is not installed")
    twice = "j=$((i*3));" * 4
    first, again = counted(shell(tmp_path, twice)), counted(shell(tmp_path, twice))
    assert again.per_token == pytest.approx(first.per_token, rel=1e-3)
    assert first.profile.samples == pytest.approx(8 * first.per_token, rel=0.01)
    more = counted(shell(tmp_path, twice * 2))
    most = counted(shell(tmp_path, twice * 3))
    # Each round of the same work adds the same, whatever it adds it to.
    added = more.per_token - first.per_token
    assert added > 0.1 * first.per_token
    assert most.per_token - more.per_token == pytest.approx(added, rel=0.05)


def test_real_counts_of_a_python_engine(tmp_path: Path) -> None:
    """Starting Python takes some 100 million instructions; its tokens a few thousand each."""
    require(shutil.which("valgrind") is not None, "valgrind is not installed")
    found = counted(served(tmp_path, "work"))
    assert (found.profile.covers, found.tokens) == ("decode", (1, 9))
    assert 1000 < found.per_token < 1_000_000
    # What is left out is told, and is little even of a program that does next to nothing.
    assert found.profile.samples == pytest.approx(8 * found.per_token, rel=0.2)
    loops = [stack for stack in found.profile.stacks if stack[0].name == EVAL_LOOP]
    # sum() over range() is called by the loop that runs the generator.
    assert any("sum" in stack[-1].name or "range" in stack[-1].name for stack in loops)
    assert parse_folded(fold_profile(found.profile)) == found.profile.stacks
