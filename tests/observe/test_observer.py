from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.observe.observer import Observer

pytestmark = pytest.mark.measures

TARGET = """
import os, sys, time
def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
def four(prompt, max_tokens):
    for i in range(4):
        spin(0.002)
        yield f"{prompt}{i}"
def nothing(prompt, max_tokens):
    return []
def endless(prompt, max_tokens):
    while True:
        yield 1
def stuck(prompt, max_tokens):
    yield 1
    time.sleep(600)
def crash(prompt, max_tokens):
    yield 1
    os._exit(9)
def raises(prompt, max_tokens):
    yield 1
    raise RuntimeError("out of tensors")
def noisy(prompt, max_tokens):
    print("chatter")
    yield 1
def random(prompt, max_tokens):
    yield 1
    yield os.getpid()
number = 3
"""


def python_workload(directory: Path, function: str, **given: object) -> Workload:
    (directory / "target_module.py").write_text(TARGET)
    values: dict[str, object] = {
        "name": "w",
        "engine": "python",
        "prompt": "p",
        "max_tokens": 4,
        "source": "test",
        "directory": directory,
        "target": f"target_module:{function}",
        **given,
    }
    return Workload(**values)  # type: ignore[arg-type]


def observer(workload: Workload) -> Observer:
    kind = engine(workload.engine)
    kind.validate(workload)
    return Observer(workload, kind.plan(workload, kind.model(workload)))


def command_workload(directory: Path, code: str, **given: object) -> Workload:
    values: dict[str, object] = {
        "name": "w",
        "engine": "command",
        "prompt": "p",
        "max_tokens": 4,
        "source": "test",
        "directory": directory,
        "command": (sys.executable, "-c", code, "{prompt}", "{max_tokens}"),
        **given,
    }
    return Workload(**values)  # type: ignore[arg-type]


def assert_nothing_left() -> None:
    assert psutil.Process().children(recursive=True) == []


def test_a_served_run_is_clocked_token_by_token(tmp_path: Path) -> None:
    watched = observer(python_workload(tmp_path, "four"))
    run = watched.run_timed(0.1)
    seen = watched.observation()
    assert seen.tokens == ("p0", "p1", "p2", "p3")
    assert seen.token_digest == token_digest(["p0", "p1", "p2", "p3"])
    assert seen.differs_at is None
    assert seen.clock_scope == "sequence"
    assert run.tokens_per_sequence == 4
    assert run.started_ticks is not None
    for block in run.blocks:
        # Each token spins 2 ms of wall time; a late look can move a gap, never a whole block.
        assert block.interval.wall_ns >= block.tokens * 2_000_000
        assert block.interval.wall_ns >= sum(map(sum, block.sequences_ns))
        assert block.interval.cpu_ns > 0
        assert all(len(gaps) == 4 for gaps in block.sequences_ns)
        assert block.reference is not None
        assert block.reference.cpu_ns > 0
    assert seen.effective_environment["OPENBLAS_NUM_THREADS"] == "1"
    assert "PATH" not in seen.effective_environment
    assert_nothing_left()


def test_a_callable_of_this_process_is_measured_in_a_fork(tmp_path: Path) -> None:
    here: list[str] = []

    def generate(prompt: str, max_tokens: int) -> Iterator[int]:
        here.append(prompt)
        for i in range(max_tokens):
            time.sleep(0.001)
            yield i

    workload = python_workload(tmp_path, "four", max_tokens=3)
    watched = Observer(workload, Served({}, generate))
    watched.run_timed(0.05)
    assert watched.observation().tokens == ("0", "1", "2")
    assert here == []
    assert_nothing_left()


def test_what_a_callable_loads_in_the_fork_finds_the_knobs(tmp_path: Path) -> None:
    def generate(prompt: str, max_tokens: int) -> Iterator[str]:
        yield os.environ["OPENBLAS_NUM_THREADS"]

    workload = python_workload(tmp_path, "four", threads=3)
    watched = Observer(workload, Served({}, generate))
    watched.run_timed(0.01)
    assert watched.observation().tokens == ("3",)
    assert os.environ.get("OPENBLAS_NUM_THREADS") != "3"


def test_output_that_differs_between_processes_is_seen(tmp_path: Path) -> None:
    watched = observer(python_workload(tmp_path, "random"))
    watched.run_timed(0.02)
    assert watched.observation().differs_at is None
    watched.run_timed(0.02)
    assert watched.observation().differs_at == 1


SERVED_FAULTS = [
    ("nothing", "E_NO_TOKENS", "nothing"),
    ("endless", "E_TOO_MANY_TOKENS", "4 were asked for"),
    ("stuck", "E_TIMEOUT", "2 s"),
    ("crash", "E_ENGINE_DIED", "status 9"),
    ("raises", "E_ENGINE_RAISED", "RuntimeError: out of tensors"),
    ("absent", "E_TARGET_NOT_FOUND", "absent"),
    ("number", "E_TARGET_NOT_FOUND", "no function"),
]


@pytest.mark.parametrize(("function", "code", "word"), SERVED_FAULTS)
def test_faults_of_a_served_engine(tmp_path: Path, function: str, code: str, word: str) -> None:
    watched = observer(python_workload(tmp_path, function, timeout_s=2.0))
    with pytest.raises(FlamegateError) as refused:
        watched.run_timed(0.05)
    assert refused.value.code == code
    assert word in str(refused.value)
    assert_nothing_left()


def test_an_engine_that_prints_does_not_disturb_the_pipe(tmp_path: Path) -> None:
    watched = observer(python_workload(tmp_path, "noisy", max_tokens=1))
    watched.run_timed(0.02)
    assert watched.observation().tokens == ("1",)


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


def test_a_program_is_clocked_from_its_output(tmp_path: Path) -> None:
    watched = observer(command_workload(tmp_path, STREAM, token_unit="word"))
    run = watched.run_timed(1)
    seen = watched.observation()
    assert [token.strip() for token in seen.tokens] == ["p0", "p1", "p2", "p3"]
    assert (seen.token_source, seen.clock_scope) == ("stdout:word", "process")
    (block,) = run.blocks
    assert block.interval.cpu_ns > 0
    assert block.reference is None
    assert run.load_ns is None
    assert run.peak_rss_bytes is not None
    assert 1_000_000 < run.peak_rss_bytes < 100_000_000
    # From the first token to the last, start and load left out; the sleeps are in it.
    assert block.decode is not None
    assert block.decode.wall_ns == sum(block.sequences_ns[0][1:])
    assert 30_000_000 <= block.decode.wall_ns < block.interval.wall_ns
    assert block.decode.quiet_ns > 2 * block.decode.cpu_ns
    assert (block.tokens, block.judged_tokens) == (4, 3)
    assert_nothing_left()


AT_ONCE = "import time; time.sleep(0.02); print('p0 p1 p2 p3')"


def test_output_in_one_piece_tells_no_decode_apart(tmp_path: Path) -> None:
    watched = observer(command_workload(tmp_path, AT_ONCE, token_unit="word"))
    (block,) = watched.run_timed(1).blocks
    assert block.decode is None
    assert block.judged == block.interval
    assert block.judged_tokens == 4
    # The sleep before the output is part of the whole, and seen.
    assert block.interval.run_delay_ns is not None
    assert block.interval.quiet_ns >= 20_000_000 + block.interval.cpu_ns / 2


def test_the_decode_of_all_runs_is_told_apart_or_of_none(tmp_path: Path) -> None:
    code = (
        AWAIT_READER + "import pathlib\n"
        "once = pathlib.Path('once').exists()\n"
        "pathlib.Path('once').touch()\n"
        "for i in range(4):\n"
        "    if not once: print(i, end=' '); await_reader()\n"
        "    time.sleep(0.005)\n"
        "if once: print('0 1 2 3 ', end='')\n"
    )
    watched = observer(command_workload(tmp_path, code, token_unit="word"))
    assert watched.run_timed(1).blocks[0].decode is not None
    assert all(run.blocks[0].decode is not None for run in watched.observation().runs)
    assert watched.run_timed(1).blocks[0].decode is None
    assert all(run.blocks[0].decode is None for run in watched.observation().runs)


def test_inside_a_wrapper_the_clocks_are_those_of_the_program(tmp_path: Path) -> None:
    workload = command_workload(tmp_path, STREAM, token_unit="word")
    busy = (
        "import subprocess,sys,time\n"
        "child = subprocess.Popen(sys.argv[1:])\n"
        "while child.poll() is None: pass\n"
    )
    watched = observer(workload)
    plain = watched.run_timed(1)
    argv = engine("command").plan(workload, None).argv  # type: ignore[union-attr]
    answer = watched.run_wrapped((sys.executable, "-c", busy, *argv))
    assert plain.blocks[0].decode is not None
    assert answer.decode is not None
    # The wrapper spins all the while; the program sleeps.
    assert answer.decode.cpu_ns < answer.decode.wall_ns / 2
    assert answer.interval.cpu_ns > answer.decode.wall_ns / 4
    assert answer.window_ns is not None
    assert answer.window_ns[1] - answer.window_ns[0] == answer.decode.wall_ns
    assert watched.observation().profiled[0].pid == answer.pid


def test_descriptors_beyond_1023_are_waited_for(tmp_path: Path) -> None:
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        served = observer(python_workload(tmp_path, "four"))
        served.run_timed(0.02)
        program = observer(command_workload(tmp_path, STREAM, token_unit="word"))
        program.run_timed(1)
    finally:
        for fd in many:
            os.close(fd)
    assert len(served.observation().tokens) == len(program.observation().tokens) == 4


def test_the_time_out_is_for_each_answer_not_for_the_process(tmp_path: Path) -> None:
    watched = observer(python_workload(tmp_path, "four", timeout_s=1.0))
    run = watched.run_timed(3.0)
    assert sum(block.interval.wall_ns for block in run.blocks) > 1_000_000_000


COMMAND_FAULTS = [
    ("pass", "E_NO_TOKENS", "nothing"),
    ("print('x' * 50)", "E_TOO_MANY_TOKENS", "asked for"),
    ("import sys; print('no', file=sys.stderr); sys.exit(3)", "E_ENGINE_DIED", "status 3"),
    ("import os; os.kill(os.getpid(), 11)", "E_ENGINE_DIED", "signal 11"),
    ("import time; print('x', flush=True); time.sleep(60)", "E_TIMEOUT", "2 s"),
    ("import os,time; os.close(1); time.sleep(60)", "E_TIMEOUT", "2 s"),
    ("import sys\nwhile True: sys.stderr.write('x' * 65536)", "E_OUTPUT_FLOOD", "messages"),
]


@pytest.mark.parametrize(("code_text", "code", "word"), COMMAND_FAULTS)
def test_faults_of_a_program(tmp_path: Path, code_text: str, code: str, word: str) -> None:
    watched = observer(command_workload(tmp_path, code_text, timeout_s=2.0))
    with pytest.raises(FlamegateError) as refused:
        watched.run_timed(1)
    assert refused.value.code == code
    assert word in str(refused.value)
    assert_nothing_left()


@pytest.mark.parametrize("prompt", ["'; touch pwned; '", "two\nlines", "$(id)", "x" * 100_000])
def test_a_prompt_reaches_a_program_as_it_is(tmp_path: Path, prompt: str) -> None:
    code = "import hashlib,sys; print(hashlib.sha256(sys.argv[1].encode()).hexdigest(), end='')"
    watched = observer(command_workload(tmp_path, code, prompt=prompt, max_tokens=64))
    watched.run_timed(1)
    import hashlib

    text = "".join(chr(int(token)) for token in watched.observation().tokens)
    assert text == hashlib.sha256(prompt.encode()).hexdigest()
    assert sorted(os.listdir(tmp_path)) == []


def test_a_profiled_run_is_watched_only_while_it_works(tmp_path: Path) -> None:
    events: list[str] = []

    class Watch:
        def stop(self) -> str:
            events.append("stop")
            return "seen"

        def close(self) -> None:
            events.append("close")

    def attach(pid: int) -> Watch:
        assert psutil.Process(pid).is_running()
        events.append("attach")
        return Watch()

    watched = observer(python_workload(tmp_path, "four"))
    run, seen = watched.run_profiled(0.05, attach)
    assert (events, seen, run.role) == (["attach", "stop"], "seen", "profiled")
    assert run.blocks[0].reference is None
    assert watched.observation().timed == ()
    assert_nothing_left()


def test_a_long_sequence_of_an_engine_that_stands_still_is_interleaved(tmp_path: Path) -> None:
    def generate(prompt: str, max_tokens: int) -> Iterator[int]:
        for i in range(max_tokens):
            time.sleep(0.0005)
            yield i

    workload = python_workload(tmp_path, "four", max_tokens=80)
    watched = Observer(workload, Served({}, generate, stands_still=True))
    run = watched.run_timed(0.05)
    assert watched.observation().tokens == tuple(str(i) for i in range(80))
    for block in run.blocks:
        assert [len(gaps) for gaps in block.sequences_ns] == [80]
        assert block.interval.wall_ns >= 80 * 500_000
        # The pauses for the reference kernel are in no gap and in no interval.
        assert sum(block.sequences_ns[0]) <= block.interval.wall_ns
        assert block.reference is not None


@pytest.mark.parametrize("tokens", [64, 63, 33])
def test_interleaving_ends_with_the_sequence(tmp_path: Path, tokens: int) -> None:
    def generate(prompt: str, max_tokens: int) -> Iterator[int]:
        yield from range(tokens)

    workload = python_workload(tmp_path, "four", max_tokens=200)
    watched = Observer(workload, Served({}, generate, stands_still=True))
    run = watched.run_timed(0.02)
    assert run.tokens_per_sequence == tokens
    assert len(watched.observation().tokens) == tokens
