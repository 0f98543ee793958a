"""Served engines and programs are clocked from outside, and their failures are coded errors."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Streamed
from pytest_flamegate.engines.tokens import token_digest
from tests.observe.workloads import (
    assert_nothing_left,
    command_workload,
    forked,
    make_workload,
    observer,
    sleepy,
)

TARGET = """
import time
def four(prompt, max_tokens):
    print("a line of the engine")
    for i in range(4):
        time.sleep(0.002)
        yield f"{prompt}{i}"
"""
AWAIT_READER = """
import fcntl, sys, termios, time
def await_reader():
    \"\"\"Wait until the observer has read everything: on a busy machine it may be late.\"\"\"
    sys.stdout.flush()
    while any(fcntl.ioctl(1, termios.FIONREAD, bytes(4))):
        time.sleep(0.001)
"""
STREAM = (
    AWAIT_READER
    + """
for i in range(int(sys.argv[2])):
    sys.stdout.write(sys.argv[1] + str(i) + " ")
    await_reader()
    time.sleep(0.01)
"""
)


# Served engines


@pytest.mark.measures
def test_a_served_run_is_clocked_token_by_token(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(TARGET)
    watched = observer(make_workload(tmp_path, "python", target="toy:four"))
    run = watched.run_timed(0.1)
    observation = watched.observation()
    assert observation.tokens == ("p0", "p1", "p2", "p3")
    assert observation.token_digest == token_digest(["p0", "p1", "p2", "p3"])
    assert observation.clock_scope == "sequence"
    assert run.tokens_per_sequence == 4
    assert run.started_ticks is not None
    for block in run.blocks:
        # Each token takes 2 ms or more; a late observer can move a gap, never a whole block.
        assert block.interval.wall_ns >= block.tokens * 2_000_000
        assert block.interval.wall_ns >= sum(map(sum, block.sequences_ns))
        assert block.interval.cpu_ns > 0
        assert all(len(gaps) == 4 for gaps in block.sequences_ns)
        assert block.reference is not None
        assert block.reference.cpu_ns > 0
    assert observation.effective_environment["OPENBLAS_NUM_THREADS"] == "1"
    assert_nothing_left()


def test_a_callable_is_measured_in_a_fork_with_the_workloads_variables(tmp_path: Path) -> None:
    here: list[str] = []

    def generate(prompt: str, max_tokens: int) -> Iterator[Any]:
        here.append(prompt)
        yield os.environ["OPENBLAS_NUM_THREADS"]
        yield os.getpid()

    watched = forked(tmp_path, generate, threads=3)
    watched.run_timed(0.01)
    first = watched.observation()
    assert (first.tokens[0], first.differs_at) == ("3", None)
    assert os.environ.get("OPENBLAS_NUM_THREADS") != "3"
    assert here == []
    watched.run_timed(0.01)
    assert watched.observation().differs_at == 1
    assert_nothing_left()


def faulty(after: Any) -> Any:
    """Return an engine that yields one token and then does something else."""

    def generate(*_: object) -> Iterator[int]:
        yield 1
        after()

    return generate


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda *_: [], "E_NO_TOKENS: .*nothing"),
        (lambda *_: itertools.count(), "E_TOO_MANY_TOKENS: .*4 were asked for"),
        (faulty(lambda: time.sleep(600)), "E_TIMEOUT: .*2 s"),
        (faulty(lambda: os._exit(9)), "E_ENGINE_DIED: .*status 9"),
        (faulty(lambda: 1 // 0), "E_ENGINE_RAISED: .*ZeroDivisionError"),
    ],
)
def test_a_fault_of_a_served_engine_has_a_code(call: Any, problem: str, tmp_path: Path) -> None:
    watched = forked(tmp_path, call, timeout_s=2.0 if "E_TIMEOUT" in problem else 60.0)
    with pytest.raises(FlamegateError, match=problem):
        watched.run_timed(0.05)
    assert_nothing_left()


def test_the_timeout_limits_each_sequence_not_the_process(tmp_path: Path) -> None:
    def slow(*_: object) -> Iterator[int]:
        time.sleep(0.4)
        yield 1

    with forked(tmp_path, slow).serve() as served:
        served._workload = replace(served._workload, timeout_s=1.0)  # it has loaded
        assert served.block(3).interval.wall_ns > 1_000_000_000


def test_work_of_a_child_that_no_profile_sees_is_noted(tmp_path: Path) -> None:
    def delegate(*_: object) -> Iterator[int]:
        subprocess.run([sys.executable, "-S", "-c", "sum(range(4_000_000))"], check=True)
        yield 1

    def attach(_: int) -> Any:
        return SimpleNamespace(stop=lambda: None)

    for call, is_noted in ((delegate, True), (sleepy, False)):
        watched = forked(tmp_path, call)
        watched.run_profiled(0.05, attach)
        assert ("W_WORK_BESIDE" in watched.notes) == is_noted


def test_a_profiler_is_attached_only_while_the_engine_works(tmp_path: Path) -> None:
    attached: list[int] = []

    def attach(pid: int) -> Any:
        assert psutil.Process(pid).is_running()
        attached.append(pid)
        return SimpleNamespace(stop=lambda: "samples")

    watched = forked(tmp_path, sleepy)
    run, samples = watched.run_profiled(0.05, attach)
    assert (attached, samples, run.role) == ([run.pid], "samples", "profiled")
    assert run.blocks[0].reference is None
    assert watched.observation().timed == ()


# Programs


@pytest.mark.measures
def test_a_program_is_clocked_from_its_output(tmp_path: Path) -> None:
    watched = observer(command_workload(tmp_path, STREAM, token_unit="word"))
    run = watched.run_timed(1)
    observation = watched.observation()
    assert [token.strip() for token in observation.tokens] == ["p0", "p1", "p2", "p3"]
    assert (observation.token_source, observation.clock_scope) == ("stdout:word", "process")
    (block,) = run.blocks
    assert block.interval.cpu_ns > 0
    assert block.reference is None
    assert run.load_ns is None
    assert run.peak_rss_bytes is not None
    assert 1_000_000 < run.peak_rss_bytes < 100_000_000
    # From the first token to the last, without start and load, with the sleeps.
    assert block.decode is not None
    assert block.decode.wall_ns == sum(block.sequences_ns[0][1:])
    assert 30_000_000 <= block.decode.wall_ns < block.interval.wall_ns
    assert block.decode.quiet_ns > block.decode.cpu_ns
    assert (block.tokens, block.judged_tokens) == (4, 3)
    assert_nothing_left()


@pytest.mark.measures
@pytest.mark.parametrize(
    ("script", "streams", "threads"),
    [
        ('OMP_NUM_THREADS=7 "$0" -c "$1"; exit', True, "7"),
        ('answer=$("$0" -c "$1"); echo "$answer"', False, "1"),
        ('for i in 4 3 2 1; do echo "$i"; "$0" -c "$1" | cat; done', True, "1"),
    ],
)
def test_behind_a_script_the_clocks_are_those_of_its_tree(
    script: str, streams: bool, threads: str, tmp_path: Path
) -> None:
    argv = ("sh", "-c", script, sys.executable, COMPUTES)
    workload = make_workload(tmp_path, "command", command=argv, token_unit="word", max_tokens=20)
    watched, began_ns = observer(workload), time.monotonic_ns()
    run = watched.run_timed(1)
    (block,) = run.blocks
    whole, decode = block.interval, block.decode
    # The script sleeps all the while; what it starts computes, and nothing of it counts twice.
    assert whole.wall_ns <= time.monotonic_ns() - began_ns
    assert whole.wall_ns + 20_000_000 > whole.cpu_ns > 0.5 * whole.quiet_ns > 20_000_000
    assert (decode is not None) == streams
    if decode is not None:
        assert whole.cpu_ns > decode.cpu_ns > 0.5 * decode.quiet_ns - 20_000_000
    if threads == "7":
        assert run.threads == 1  # the shell only waits
        assert run.peak_rss_bytes is not None
        assert run.peak_rss_bytes > 6_000_000  # more than that of a shell
    assert watched.observation().effective_environment["OMP_NUM_THREADS"] == threads
    assert_nothing_left()


COMPUTES = """
import os, sys
for i in range(4):
    os.write(1, b"%d " % i)
    sum(range(1_000_000))
os._exit(0)  # what the interpreter does at its end may sleep
"""


@pytest.mark.parametrize("sleeps", [False, True])
def test_a_program_that_never_sleeps_is_charged_for_its_cpu_time(
    sleeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it had waited for 5 ms before each reading, and the kernel had counted none yet."""
    real, waited_ns = clocks.read_clocks, itertools.count(0, 5_000_000)

    def read_late(pid: int) -> clocks.ClockReading:
        found = real(pid)
        return replace(found, at_ns=found.at_ns + next(waited_ns), run_delay_ns=0)

    monkeypatch.setattr(clocks, "read_clocks", read_late)
    code = COMPUTES
    if sleeps:
        code = COMPUTES.replace("    sum(", "    __import__('time').sleep(0.01)\n    sum(")
    watched = observer(command_workload(tmp_path, code, token_unit="word"))
    (block,) = watched.run_timed(1).blocks
    assert block.decode is not None
    idle_ns = block.decode.wall_ns - block.decode.cpu_ns
    assert idle_ns > 0
    assert block.decode.run_delay_ns == (0 if sleeps else idle_ns)


LEAVES = """
import os, time
sum(range(300_000))
for i in range(20):
    if i == {at} and os.fork():
        os._exit(0)
    os.write(1, b"%d " % i)
    sum(range(100_000))
    if i > 6:
        time.sleep(0.01)
os._exit(0)
"""


@pytest.mark.parametrize("at", [0, 5])
def test_tokens_of_a_child_that_is_left_behind_are_no_work_of_none(at: int, tmp_path: Path) -> None:
    code = LEAVES.format(at=at)
    watched = observer(command_workload(tmp_path, code, token_unit="word", max_tokens=20))
    (block,) = watched.run_timed(1).blocks
    assert block.judged.quiet_ns > 100_000_000  # what the child slept, after the program had ended
    if block.decode is not None:
        assert block.decode.cpu_ns <= 1.05 * block.decode.wall_ns


BESIDE = """
import os
for i in range(20):
    if i == 5 and not os.fork():
        os.setsid()
        sum(range({more}))
        os._exit(0)
    os.write(1, b"%d " % i)
    sum(range(100_000))
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
os._exit(0)
"""


def test_what_a_child_computes_that_nobody_waits_for_is_work_of_the_program(tmp_path: Path) -> None:
    """The program never sleeps in its decode, and the child is in a session of its own."""
    cpu_ns = []
    for more in (1, 8_000_000):
        code = BESIDE.format(more=more)
        watched = observer(command_workload(tmp_path, code, token_unit="word", max_tokens=20))
        (block,) = watched.run_timed(1).blocks
        cpu_ns.append(block.interval.cpu_ns)
    assert cpu_ns[1] > cpu_ns[0] + 50_000_000


def test_the_decode_is_separated_in_all_runs_or_in_none(tmp_path: Path) -> None:
    code = AWAIT_READER + (
        "import pathlib\n"
        "again = pathlib.Path('once').exists()\n"
        "pathlib.Path('once').touch()\n"
        "for i in range(4):\n"
        "    if not again: print(i, end=' '); await_reader()\n"
        "    time.sleep(0.005)\n"
        "if again: print('0 1 2 3 ', end='')\n"
    )
    watched = observer(command_workload(tmp_path, code, token_unit="word"))
    assert watched.run_timed(1).blocks[0].decode is not None
    assert all(run.blocks[0].decode is not None for run in watched.observation().runs)
    (whole,) = watched.run_timed(1).blocks
    assert (whole.decode, whole.judged, whole.judged_tokens) == (None, whole.interval, 4)
    # The sleeps before the output are part of the whole.
    assert whole.interval.run_delay_ns is not None
    assert whole.interval.quiet_ns >= 20_000_000 + whole.interval.cpu_ns / 2
    assert all(run.blocks[0].decode is None for run in watched.observation().runs)


@pytest.mark.measures
def test_inside_a_wrapper_the_clocks_are_the_programs(tmp_path: Path) -> None:
    workload = command_workload(tmp_path, STREAM, token_unit="word")
    busy = (
        "import subprocess,sys\n"
        "child = subprocess.Popen(sys.argv[1:])\n"
        "while child.poll() is None: pass\n"
    )
    watched = observer(workload)
    plan = engine("command").plan(workload, None)
    assert isinstance(plan, Streamed)
    program = watched.run_wrapped((sys.executable, "-c", busy, *plan.argv))
    assert program.decode is not None
    # The wrapper spins all the while; the program sleeps.
    assert program.decode.cpu_ns < program.interval.cpu_ns
    assert program.window_ns is not None
    assert program.window_ns[1] - program.window_ns[0] == program.decode.wall_ns
    assert watched.observation().runs[-1].role == "profiled"
    assert watched.observation().runs[-1].pid == program.pid


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("pass", "E_NO_TOKENS: .*nothing"),
        ("print('x' * 50)", "E_TOO_MANY_TOKENS: .*asked for"),
        ("import sys; print('no', file=sys.stderr); sys.exit(3)", "E_ENGINE_DIED: .*status 3.*no"),
        ("import os; os.kill(os.getpid(), 11)", "E_ENGINE_DIED: .*signal 11"),
        ("import time; print('x', flush=True); time.sleep(60)", "E_TIMEOUT: .*0.5 s"),
        ("import os,time; os.close(1); time.sleep(60)", "E_TIMEOUT: .*0.5 s"),
        # One that has closed its output could fill the disk until its timeout.
        (
            "import os; os.write(1, b'x'); os.close(1)\nwhile True: os.write(2, b'x' * 65536)",
            "E_OUTPUT_FLOOD: .*messages",
        ),
    ],
)
def test_a_fault_of_a_program_is_a_coded_error(program: str, problem: str, tmp_path: Path) -> None:
    timeout_s = 0.5 if "E_TIMEOUT" in problem else 60.0
    watched = observer(command_workload(tmp_path, program, timeout_s=timeout_s))
    with pytest.raises(FlamegateError, match=f"(?s){problem}"):
        watched.run_timed(1)
    assert_nothing_left()
