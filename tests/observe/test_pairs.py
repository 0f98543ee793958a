"""Pairs: both sides at the same time on one core, or in turn if they cannot share it."""

import hashlib
import math
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from statistics import mean

import pytest

from pytest_flamegate.bricks import brick
from pytest_flamegate.core import clocks, process_system
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.engines.base import Served
from pytest_flamegate.gate.pairs import pair_differences
from pytest_flamegate.observe import http, pairs, scratch, served
from pytest_flamegate.observe.gpu_watch import DeviceWatch
from pytest_flamegate.observe.machine import CpuQuota
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.pairs import PairObserver
from pytest_flamegate.receipt.metrics import figures
from tests.observe.workloads import (
    assert_nothing_left,
    command_workload,
    forked,
    make_workload,
    observer,
    server_workload,
)

BUSY_S = 0.002


@pytest.fixture(autouse=True)
def short_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "PAIR_S", 0.1)
    monkeypatch.setattr(pairs, "BLOCK_S", 0.03)


def _busy_s(seconds: float) -> None:
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def busy(prompt: str, max_tokens: int) -> Iterator[int]:
    for i in range(max_tokens):
        _busy_s(BUSY_S)
        yield i


def sleepy(prompt: str, max_tokens: int) -> Iterator[int]:
    for i in range(max_tokens):
        time.sleep(0.01)  # far more than waking takes on a busy machine
        yield i


def pair_of(base: Observer, head: Observer) -> PairObserver:
    made = PairObserver(base, head)
    made.pair()
    return made


@pytest.mark.measures
@pytest.mark.parametrize("most", [1, None])
def test_both_sides_run_at_the_same_time_on_one_core(tmp_path: Path, most: int | None) -> None:
    sides = [forked(tmp_path, busy) for _ in range(2)]
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(usable)[:most])  # as taskset does, or a cpuset
    try:
        pair_of(*sides)
    finally:
        os.sched_setaffinity(0, usable)
    (base,), (head,) = (side.runs for side in sides)
    assert base.shares_core
    assert head.shares_core
    assert base.pair == head.pair == 0
    assert base.cpu == head.cpu is not None
    assert len(base.blocks) == len(head.blocks) >= 1
    for run in (base, head):
        own = sum(block.interval.cpu_ns for block in run.blocks)
        wall = sum(block.interval.wall_ns for block in run.blocks)
        waited = sum(block.interval.run_delay_ns or 0 for block in run.blocks)
        # Each has about half of the core, and waits for the other half.
        assert own < 0.8 * wall
        assert waited > 0.1 * wall
        # What the other side used is in no figure.
        rate = next(each for each in figures([run], "sequence", 1) if each.unit == "tokens/s")
        assert rate.clock == "quiet"
        assert rate.value > 1.2 * run.tokens / wall * 1e9


COMPUTES = """
import sys, time
for token in range(int(sys.argv[2])):
    end = time.process_time() + 0.002
    while time.process_time() < end:
        pass
    print(token, end=" ", flush=True)
"""
LICENSED = f"""
import fcntl
for number in range(2):
    slot = open("slot%d" % number, "w")
    try:
        fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        pass
else:
    raise SystemExit("no licence is left")
{COMPUTES}
"""


def programs(directory: Path, code: str) -> list[Observer]:
    asked = command_workload(directory, code, token_unit="word", max_tokens=60)
    return [observer(asked) for _ in range(2)]


@pytest.mark.measures
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_two_pairs_run_at_once_each_on_a_core(tmp_path: Path) -> None:
    sides = programs(tmp_path, COMPUTES)
    made = PairObserver(sides[0], sides[1])
    made.pair(3)
    made.pair(1)
    assert made.pairs == 3
    base, head = (side.runs for side in sides)
    places = [{(run.pair, run.cpu) for run in side} for side in (base, head)]
    assert places[0] == places[1]
    assert len({cpu for pair, cpu in places[0] if pair in (0, 1)}) == 2
    began = {pair: min(r.started_ticks or 0 for r in base if r.pair == pair) for pair in range(3)}
    assert abs(began[1] - began[0]) < 50
    assert began[2] > max(began[0], began[1])
    assert all(run.shares_core for run in (*base, *head))
    assert sides[0].observation().differs_at is None


@pytest.mark.measures
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_an_engine_that_cannot_run_four_times_runs_one_pair_at_a_time(tmp_path: Path) -> None:
    sides = programs(tmp_path, LICENSED)
    made = PairObserver(sides[0], sides[1])
    assert made.at_once == 2
    made.pair(2)
    assert (made.pairs, made.at_once) == (1, 1)
    assert "no licence is left" in sides[1].notes["I_ONE_AT_A_TIME"]
    assert {run.pair for run in sides[0].runs} == {0}


@pytest.mark.parametrize(
    "reason", ["a device", "memory", "a quota", "one core", "it waits", "a copy of this process"]
)
def test_one_pair_runs_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    cores = {0} if reason == "one core" else {0, 1}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: None)
    monkeypatch.setattr(process_system, "_read_siblings", str)
    base, head = programs(tmp_path, COMPUTES)
    assert (PairObserver(base, head, _quota=None).at_once == 2) == (reason != "one core")
    if reason == "a device":
        monkeypatch.setattr(DeviceWatch, "has_device", True)
    elif reason == "memory":
        head.peak_rss_bytes = 1 << 50
    elif reason == "it waits":
        head.waits = True
    elif reason == "a copy of this process":
        base, head = (forked(tmp_path, busy) for _ in range(2))
    quota = CpuQuota(150_000, 100_000) if reason == "a quota" else None
    assert PairObserver(base, head, _quota=quota).at_once == 1


def test_threads_of_one_physical_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 4, 5})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: None)
    monkeypatch.setattr(process_system, "_read_siblings", lambda cpu: f"{cpu % 4},{cpu % 4 + 4}")
    for _ in range(20):
        chosen = process_system.choose_cpus(random.Random(), 4)
        assert sorted(cpu % 4 for cpu in chosen) == [0, 1]


def test_a_wait_before_the_first_token_is_in_no_later_gap() -> None:
    quiet = attrgetter("quiet_ns")
    whole, decode = Interval(1400, 200, 200), Interval(400, 200, 200)
    block = Block(whole, ((1000, 200, 200),), decode=decode).adjust(quiet)
    assert block.sequences_ns == ((1000, 100, 100),)
    assert (block.interval.wall_ns, block.judged.wall_ns) == (1200, 200)
    nothing = Interval(0, 0, 0)
    assert Block(nothing, ((0,),), decode=nothing).adjust(quiet).interval == nothing


def test_bricks_of_both_sides_are_clocked_at_the_same_time(tmp_path: Path) -> None:
    def marked(prompt: str, max_tokens: int) -> Iterator[int]:
        for token in busy(prompt, max_tokens):
            with brick("LmHead"):
                yield token

    sides = [forked(tmp_path, marked) for _ in range(2)]
    both = PairObserver(sides[0], sides[1])
    both.run_both([lambda side, place: side.run_bricks(0.05, place)] * 2, 3)
    for side in sides:
        (run,) = side.runs
        assert (run.role, run.pair, run.shares_core) == ("bricks", 3, True)
        assert sum(block.interval.run_delay_ns or 0 for block in run.blocks) > 0


@pytest.mark.parametrize(("limit", "value"), [("LONGEST_S", 0.1), ("MAX_ROUNDS", 2)])
def test_a_pair_ends_although_its_sides_are_hardly_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    monkeypatch.setattr(pairs, "PAIR_S", 100.0)
    monkeypatch.setattr(pairs, limit, value)
    sides = [forked(tmp_path, busy) for _ in range(2)]
    pair_of(*sides)
    assert all(1 <= len(side.runs[0].blocks) < 20 for side in sides)


ALTERNATES = {
    "it waits": (1, 1),
    "bound to a core": (1, 1),
    "several threads": (2, 2),
    "it declares several threads": (1, 2),
    "": (1, 1),
}
"""The reason that the note gives, and the threads of both sides. None is given if it was asked."""


@pytest.mark.parametrize("reason", ALTERNATES)
def test_sides_that_cannot_or_shall_not_share_a_core_alternate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def forbidden(pid: int, cpus: set[int]) -> None:
        raise PermissionError

    call = sleepy if reason == "it waits" else busy
    base, head = (forked(tmp_path, call, threads=count) for count in ALTERNATES[reason])
    if reason == "it waits":
        base.warm_up()
        head.warm_up()
    if reason == "bound to a core":
        monkeypatch.setattr(os, "sched_setaffinity", forbidden)
    PairObserver(base, head, in_turn=not reason).pair()
    runs = (*base.runs, *head.runs)
    assert not any(run.shares_core for run in runs)
    assert {run.cpu is None for run in runs} == {reason not in ("it waits", "")}
    note = head.notes.get("I_ALTERNATED", "")
    assert reason in note
    assert bool(note) == bool(reason)


@pytest.mark.measures
def test_each_pair_runs_a_fresh_copy_of_the_program(tmp_path: Path) -> None:
    home = tmp_path / "built"
    (home / "bin").mkdir(parents=True)
    (home / "words").write_text("one two three")
    program = home / "bin" / "program"
    shutil.copy2(shutil.which("bash") or "bash", program)
    # The copy finds the project's other files beside itself, and its name is as declared.
    script = 'e=$(readlink /proc/$$/exe); echo "$e" >> seen; cat "${e%/bin/*}/words"; echo " $0"'
    argv = ("bin/program", "-c", script, "bin/program")
    sides = [
        observer(make_workload(home, "command", command=argv, token_unit="word")) for _ in range(2)
    ]
    made = pair_of(*sides)
    made.pair()
    assert all(run.shares_core for side in sides for run in side.runs)
    assert sides[0].observation().tokens[-1].strip() == "bin/program"
    seen = (home / "seen").read_text().split()
    assert len(set(seen)) == 4
    assert not any(Path(each).exists() or Path(each) == program for each in seen)


def test_a_copied_program_has_copies_of_its_libraries(tmp_path: Path) -> None:
    libraries = ["build/bin/libnear.so", "build/lib/libx.so.1.2", "libtop.so"]
    names = [*libraries, "build/lib/data.so.txt", "words", "notes/a"]
    for name in ("build/bin/program", *names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\x7fELF")
    (tmp_path / "build/lib/libx.so").symlink_to("libx.so.1.2")
    with scratch.copy_program("build/bin/program", tmp_path) as copied:
        assert copied is not None
        home = Path(copied).parents[2]
        files = {name: (home / name).resolve() for name in names}
        assert {name for name in names if files[name] != tmp_path / name} == set(libraries)
        assert all(each.read_bytes() == b"\x7fELF" for each in files.values())
        assert (home / "build/lib/libx.so").resolve() == files["build/lib/libx.so.1.2"]
    assert not home.exists()


def test_a_directory_that_cannot_be_read_does_not_keep_a_program_from_being_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "build" / "private").mkdir(parents=True)
    (tmp_path / "build" / "program").write_bytes(b"\x7fELF")
    listed = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path.name == "private":
            raise PermissionError(path)
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with scratch.copy_program("build/program", tmp_path) as copied:
        assert copied is not None
        assert (Path(copied).parent / "private").resolve() == tmp_path / "build" / "private"


def test_a_served_side_gets_a_directory_for_copies_of_its_libraries(tmp_path: Path) -> None:
    with pairs._copied_files(forked(tmp_path, busy)) as plan:
        assert isinstance(plan, Served)
        home = Path(plan.load["copies"])
        assert home.is_dir()
    assert not home.exists()


@pytest.mark.parametrize("kind", ["busy", "server"])
def test_an_engine_does_not_wait_because_its_observer_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    side = forked(tmp_path, busy) if kind == "busy" else observer(server_workload())
    late_ns = 0

    def wait_late(fd: int, timeout_s: float) -> bool:
        """Wait, and get a core 30 ms later."""
        nonlocal late_ns
        found = process_system.wait_readable(fd, timeout_s)
        time.sleep(0.03)
        late_ns += 30_000_000
        return found

    monkeypatch.setattr(served if kind == "busy" else http, "wait_readable", wait_late)
    monkeypatch.setattr(clocks, "read_own_delay_ns", lambda: late_ns)
    side.warm_up()
    assert not side.waits


@pytest.mark.measures
def test_two_servers_share_a_core(tmp_path: Path) -> None:
    # Each request has a thread of its own: so long a one that its end is noticed under load.
    asked = [server_workload(way) for way in ("", "computes elsewhere")]
    sides = [observer(replace(each, max_tokens=24)) for each in asked]
    for side in sides:
        side.warm_up()
    made = pair_of(*sides)
    assert made.shares_core
    base, head = (side.runs[0] for side in sides)
    assert base.shares_core
    assert base.cpu == head.cpu is not None
    # A child of the other server computes too: it is clocked, but only one of both is profiled.
    assert head.pid != sides[1].served_pid or "W_WORK_BESIDE" in sides[1].notes
    cpu_ns = [sum(each.interval.cpu_ns for each in run.blocks) / run.tokens for run in (base, head)]
    assert cpu_ns[1] > 1.3 * cpu_ns[0]


_POOL: list[ThreadPoolExecutor] = []


def in_threads(parts: int, max_tokens: int) -> Iterator[int]:
    """Compute for each token in so many parts at a time, without Python's lock."""
    if not _POOL:
        _POOL.append(ThreadPoolExecutor(2))
    for i in range(max_tokens):
        work = [b" " * (4_000_000 // parts)] * parts
        yield from (i for _ in [*_POOL[0].map(hashlib.sha256, work)][:1])


@pytest.mark.measures
def test_one_thread_fewer_is_slower(tmp_path: Path) -> None:
    calls = [lambda _, tokens, parts=parts: in_threads(parts, tokens) for parts in (2, 1)]
    base, head = (forked(tmp_path, call, threads=2, max_tokens=16) for call in calls)
    made = pair_of(base, head)
    for _ in range(3):
        made.pair()
    found = pair_differences(base.observation(), head.observation())
    # The CPU time is the same, and under load so is the wall time.
    assert max(abs(each.cpu) for each in found) < 0.3
    # While other work takes both cores a second thread gains little, so not every pair shows it.
    assert max(each.quiet for each in found) > 0.4
    assert mean(each.quiet for each in found) > mean(each.cpu for each in found) + 0.1


@pytest.fixture
def quota() -> Iterator[None]:
    """Let this process and its children use a tenth of a core, as a container may."""
    groups = Path("/sys/fs/cgroup")
    limits = {groups / "cpu": {"cpu.cfs_quota_us": "10000"}, groups: {"cpu.max": "10000 100000"}}
    for top, files in limits.items():
        own = top / f"flamegate-test-{os.getpid()}"
        try:
            own.mkdir()
            for name, value in files.items():
                (own / name).write_text(value)
            (own / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            with suppress(OSError):
                own.rmdir()
            continue
        yield
        (top / "cgroup.procs").write_text(str(os.getpid()))
        own.rmdir()
        return
    pytest.skip("no control group may be made here")


def busier(prompt: str, max_tokens: int) -> Iterator[int]:
    for i in range(max_tokens):
        _busy_s(1.5 * BUSY_S)
        yield i


@pytest.mark.measures
@pytest.mark.usefixtures("quota")
def test_a_quota_does_not_change_the_result(tmp_path: Path) -> None:
    base, head = (forked(tmp_path, call, max_tokens=8) for call in (busy, busier))
    made = pair_of(base, head)
    assert made.shares_core
    (found,) = pair_differences(base.observation(), head.observation())
    assert math.exp(found.quiet) == pytest.approx(1.5, rel=0.15)
    assert "may use 0.1 cores and was stopped" in head.notes["I_THROTTLED"]


@pytest.mark.parametrize(("served", "most"), [(True, 1), (True, 2), (False, 1), (False, 2)])
def test_a_side_that_fails_ends_the_pair_and_its_neighbour(
    tmp_path: Path, served: bool, most: int
) -> None:
    def dies(prompt: str, max_tokens: int) -> Iterator[int]:
        yield 1
        os._exit(3)

    if served:
        sides = [forked(tmp_path, sleepy, max_tokens=30_000), forked(tmp_path, dies)]
    else:
        # Behind a shell, as behind any wrapper, the program is no child of this process.
        argv = ("sh", "-c", "sleep 60; true")
        endless = make_workload(tmp_path, "command", command=argv)
        sides = [observer(endless), observer(command_workload(tmp_path, "exit(3)"))]
    began_s = time.monotonic()
    with pytest.raises(FlamegateError, match="status 3"):
        PairObserver(sides[0], sides[1]).pair(most)
    assert time.monotonic() - began_s < 20.0
    assert_nothing_left()


@pytest.mark.parametrize(
    ("way", "code"), [("never listens", "E_TIMEOUT"), ("dies", "E_ENGINE_DIED")]
)
def test_a_server_that_fails_ends_the_pair(way: str, code: str) -> None:
    failing = replace(server_workload(way), timeout_s=3.0)
    with pytest.raises(FlamegateError, match=code):
        pair_of(observer(server_workload()), observer(failing))
    assert_nothing_left()


@pytest.mark.parametrize("most", [1, 2])
def test_an_interrupt_ends_both_sides(tmp_path: Path, most: int) -> None:
    endless = [observer(command_workload(tmp_path, "while True: pass")) for _ in range(2)]
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            PairObserver(endless[0], endless[1]).pair(most)
    finally:
        signal.signal(signal.SIGINT, earlier)
        timer.join()
    assert_nothing_left()


def helped(prompt: str, max_tokens: int) -> Iterator[int]:
    """Leave the work to a child process and spin, as a trick does, until it is done."""
    for i in range(max_tokens):
        pid = os.fork()
        if pid == 0:
            _busy_s(0.02)
            os._exit(0)
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.sched_yield()
        yield i


def threaded(prompt: str, max_tokens: int) -> Iterator[int]:
    """Compute each token in a thread of its own, which ends."""
    for i in range(max_tokens):
        thread = threading.Thread(target=_busy_s, args=(0.02,))
        thread.start()
        thread.join()
        yield i


def deferred(prompt: str, max_tokens: int) -> Iterator[int]:
    """Return at once and compute in a thread after the last token."""
    yield from range(max_tokens)
    threading.Thread(target=_busy_s, args=(0.08,), daemon=True).start()


def sleeping_child(prompt: str, max_tokens: int) -> Iterator[int]:
    """Hand the work to an orphan in a session of its own and sleep meanwhile."""
    read_fd, write_fd = os.pipe()
    for i in range(max_tokens):
        if (pid := os.fork()) == 0:
            if os.fork() == 0:
                os.setsid()
                _busy_s(0.02)
                os.write(write_fd, b"x")
            os._exit(0)
        os.waitpid(pid, 0)
        os.read(read_fd, 1)
        yield i


@pytest.mark.measures
@pytest.mark.parametrize("call", [helped, threaded, deferred, sleeping_child])
def test_work_in_helpers_and_after_the_last_token_counts(
    tmp_path: Path, call: Callable[[str, int], Iterator[int]]
) -> None:
    watched = forked(tmp_path, call)
    with watched.serve() as process:
        blocks, began_ns, end_s = [], process.read_clocks().cpu_ns, time.monotonic() + 20
        process.warm_up(4)
        for done in range(3):
            blocks.append(process.block(1))
            while process.read_clocks().cpu_ns - began_ns < 0.076e9 * (done + 2):
                assert time.monotonic() < end_s
                time.sleep(0.01)
    # 0.08 s of work a sequence, in whatever process or thread, and whenever it is done.
    cpu_s = sum(block.interval.cpu_ns for block in blocks) / 1e9
    quiet_s = sum(block.interval.quiet_ns for block in blocks) / 1e9
    assert cpu_s > 0.9 * 0.24
    assert quiet_s >= 0.6 * 0.24
    if call is threaded:  # however long it waited for a CPU
        assert quiet_s <= 1.1 * cpu_s
