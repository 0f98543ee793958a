"""Instructions of a token: two runs, and their difference."""

import os
import platform
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import UNIT, Endpoint, Plan, Served, Streamed
from pytest_flamegate.observe import engine_process
from pytest_flamegate.profile.calls import NativeWork
from pytest_flamegate.profile.model import Frame, Profile, Stack
from pytest_flamegate.profile.profilers import instructions
from pytest_flamegate.profile.profilers.callgrind import CALLERS, CountedRun
from tests.profile.fakes import FakeValgrind, Tools

COUNTS_UP = "yield from range(n)"
TALK = "import sys; sys.stdout.write('x' * int(sys.argv[-1]))"
Case = tuple[Plan, Workload]


def served(directory: Path, body: str = COUNTS_UP, **changes: Any) -> Case:
    """Return an engine whose function has ``body``; ``n`` is the number of tokens."""
    (directory / "target.py").write_text(f"import os\ndef run(prompt, n):\n    {body}\n")
    return planned("python", directory, target="target:run", **changes)


def streamed(directory: Path, *arguments: str, **changes: Any) -> Case:
    command = (sys.executable, "-I", "-S", "-c", TALK, *arguments)
    return planned("command", directory, command=command, **changes)


def planned(name: str, directory: Path, max_tokens: int = 20, **changes: Any) -> Case:
    workload = Workload("w", name, "p", max_tokens, "test", directory=directory, **changes)
    return engine(name).plan(workload, None), workload


def counted(of: Case) -> instructions.InstructionCount:
    plan, workload = of
    return instructions.count_instructions(
        plan, workload, engine_process.make_environment(workload)
    )


def own(found: instructions.InstructionCount) -> dict[str, int]:
    return {stack[-1].name: count for stack, count in found.profile.stacks.items()}


@pytest.mark.parametrize("token", ["at", "print('chatter') or f'word {at}'"])
def test_loading_is_not_counted(token: str, tools: Tools, tmp_path: Path) -> None:
    fake = FakeValgrind(tools, per_token=100, load=5000)
    found = counted(served(tmp_path, f"yield from ({token} for at in range(n))"))
    assert (found.per_token, found.profile.covers, found.tokens) == (100.0, "decode", (1, 9))
    assert own(found) == {"decode": 800}
    assert found.by_function == {"decode": NativeWork(100.0)}
    profile = found.profile
    assert (profile.unit, profile.event, profile.profiler) == ("instructions", "Ir", "callgrind")
    assert (profile.profiler_version, profile.python) == ("3.19.0", platform.python_version())
    assert instructions.C_FUNCTIONS in profile.degraded
    # The engine gets its own environment, and leaves no bytecode.
    _, environment = fake.seen
    assert environment["PYTHONHASHSEED"] == "0"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert [path.name for path in tmp_path.iterdir() if path != tools.directory] == ["target.py"]


def test_an_engine_of_another_environment_is_counted_in_it(tools: Tools, tmp_path: Path) -> None:
    """A revision's own interpreter loads its own packages, and this one's are not in its way."""
    fake = FakeValgrind(tools)
    other = tmp_path / "other-python"
    other.symlink_to(sys.executable)
    plan, workload = served(tmp_path)
    assert isinstance(plan, Served)
    found = counted((replace(plan, python=str(other)), workload))
    assert (found.per_token, found.profile.python) == (100.0, platform.python_version())
    arguments, _ = fake.seen
    assert str(other) in arguments
    assert sys.executable not in arguments


def test_a_program_is_counted_whole_unless_its_number_of_tokens_can_be_set(
    tools: Tools, tmp_path: Path
) -> None:
    FakeValgrind(tools)
    found = counted(streamed(tmp_path, "{prompt}", "{max_tokens}", max_tokens=4, threads=4))
    assert (found.per_token, found.profile.covers, found.tokens) == (100.0, "decode", (1, 4))
    assert found.profile.degraded[0] == instructions.THREADS
    found = counted(streamed(tmp_path, "7", max_tokens=7))
    assert (found.per_token, found.profile.covers, found.tokens) == (5700 / 7, "process", (0, 7))
    assert own(found) == {"load": 5000, "decode": 700}
    assert found.by_function == {"load": NativeWork(5000 / 7), "decode": NativeWork(100.0)}
    assert (found.profile.python, instructions.C_FUNCTIONS in found.profile.degraded) == ("", False)
    assert instructions.NO_PLACEHOLDER in found.profile.degraded


def test_one_token_leaves_nothing_to_subtract(tools: Tools, tmp_path: Path) -> None:
    FakeValgrind(tools)
    for of in (served(tmp_path, max_tokens=1), streamed(tmp_path, "{max_tokens}", max_tokens=1)):
        found = counted(of)
        assert (found.per_token, found.profile.covers, found.tokens) == (5100.0, "process", (0, 1))
        assert instructions.ONE_TOKEN in found.profile.degraded


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("yield from range(min(n, 4))", "E_OTHER_TOKENS", "asked for 9 tokens and made 4"),
        ("yield from range(n + 1)", "E_OTHER_TOKENS", "asked for 1 tokens and made 2"),
        ("yield from [n] * n", "E_OTHER_TOKENS", "do not begin with the same token"),
        ("raise RuntimeError('no weights')", "E_ENGINE_RAISED", "RuntimeError: no weights"),
        ("os._exit(0)", "E_PROFILER_OUTPUT", "its answer has no end"),
        ("os._exit(3)", "E_ENGINE_DIED", "ended with status 3"),
        ("del run\ndel run", "E_TARGET_NOT_FOUND", "cannot be imported"),
    ],
)
def test_an_engine_that_fails(
    body: str, code: str, words: str, tools: Tools, tmp_path: Path
) -> None:
    FakeValgrind(tools)
    with pytest.raises(FlamegateError, match=f"^{code}:.*{words}"):
        counted(served(tmp_path, body))


def test_tokens_that_cost_nothing_are_an_error(tools: Tools, tmp_path: Path) -> None:
    FakeValgrind(tools, per_token=0)
    with pytest.raises(FlamegateError, match=r"E_PROFILER_OUTPUT.*\(5000\) than 1 \(5000\)"):
        counted(served(tmp_path))


def test_a_callable_a_server_and_reported_tokens_cannot_be_counted(tmp_path: Path) -> None:
    plan, workload = streamed(tmp_path, "{max_tokens}")
    assert isinstance(plan, Streamed)
    for other, words in (
        (Served({}, call=lambda _prompt, tokens: range(tokens)), "a running process"),
        (replace(plan, token_unit=UNIT), "reports its tokens itself"),
        (Endpoint(("server",)), "asks a server"),
    ):
        with pytest.raises(UsageError, match=f"E_PROFILER_BLIND.*{words}"):
            instructions.count_instructions(other, workload, os.environ)


# The difference of two counts as a profile.


def stack(path: str) -> Stack:
    return tuple(Frame(name, "engine", "native") for name in path.split(">"))


def run(counts: dict[str, int]) -> CountedRun:
    by_stack = {stack(path): cost for path, cost in counts.items()}
    return CountedRun(sum(counts.values()), by_stack, {}, (7,), "3.19.0", (), b"")


def taken(long: dict[str, int], short: dict[str, int] | None = None) -> Profile:
    before = None if short is None else run(short)
    return instructions.build_instruction_profile(run(long), before, python="", notes=("noted",))


def paths(profile: Profile) -> dict[str, int]:
    return {">".join(f.name for f in each): count for each, count in profile.stacks.items()}


def test_less_in_one_stack_is_taken_off_another_of_the_same_function() -> None:
    before = {"main>a>look": 1000, "main>b>look": 100, "main>free": 190}
    long = {"main>a>look": 940, "main>b>look": 400, "main>free": 100, "main>gemv": 8760}
    profile = taken(long, before)
    assert paths(profile) == {"main>b>look": 240, "main>gemv": 8760}
    assert (profile.covers, profile.rate_hz) == ("decode", 0)
    assert profile.call_graph == f"callers,{CALLERS}"
    assert profile.degraded[0] == "noted"
    assert profile.degraded[1].endswith("are left out: 90 instructions, 1.00%")


def test_small_stacks_keep_their_function_and_lose_their_callers() -> None:
    small = {f"main>{index}>look": 3 for index in range(50)}
    profile = taken({**small, "main>gemv": round(100 / instructions.SMALLEST)})
    assert paths(profile) == {"look": 150, "main>gemv": round(100 / instructions.SMALLEST)}


def test_stacks_begin_at_the_innermost_eval_loop_and_are_whole_then() -> None:
    profile = taken(
        {
            f"main>{instructions.EVAL_LOOP}>call>{instructions.EVAL_LOOP}>matmul>sgemv": 500,
            f"vectorcall>{instructions.EVAL_LOOP}": 300,
            "main>init": 100,
            "deep>deeper": 100,
        }
    )
    assert paths(profile) == {
        f"{instructions.EVAL_LOOP}>matmul>sgemv": 500,
        instructions.EVAL_LOOP: 300,
        "main>init": 100,
        "deep>deeper": 100,
    }
    assert profile.completeness == pytest.approx(0.9)


COUNTS = st.dictionaries(
    st.sampled_from(["m>a", "m>b", "m>a>b", "m>b>a", "c>a", "c>b", "m>c", "c"]),
    st.integers(0, 1000),
)


@given(COUNTS, COUNTS)
def test_the_count_of_each_function_is_exact(long: dict[str, int], short: dict[str, int]) -> None:
    """Only a function that took less is not in it."""
    own: Counter[str] = Counter()
    for counts, sign in ((long, 1), (short, -1)):
        for path, cost in counts.items():
            own[path.rpartition(">")[2]] += sign * cost
    profile = taken(long, short)
    assert all(count > 0 for count in profile.stacks.values())
    found: Counter[str] = Counter()
    for each, count in profile.stacks.items():
        found[each[-1].name] += count
    assert found == +own
    assert any("left out" in note for note in profile.degraded) == bool(-own)
