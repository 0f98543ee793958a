"""An observer that gets no core for a while reads several tokens at one moment."""

import fcntl
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_flamegate.child import wire
from pytest_flamegate.core import clocks
from pytest_flamegate.core.process_system import wait_readable
from pytest_flamegate.observe import served, streamed
from pytest_flamegate.observe.pairs import PairObserver
from pytest_flamegate.receipt.metrics import figures, rate_of, tokens_per_second
from tests.observe.workloads import command_workload, forked, observer, sleepy

pytestmark = pytest.mark.measures

TOKEN_S = 0.002
UNSEEN = {"time_to_first_token_ms", "prefill_tokens_per_second", "inter_token_latency_ms"}
LATE_S = 0.03
"""At each read more than a dozen tokens are ready, on a machine that is not busy."""
FASTEST = 1 / TOKEN_S
"""No token comes in less than TOKEN_S, on any machine: a sleep is never shorter."""


def late(first_bytes: int = 0) -> Callable[[int, float], bool]:
    """Return a late ``wait_readable``; the first call waits until so many bytes are ready."""
    awaited = first_bytes

    def look(fd: int, timeout_s: float) -> bool:
        nonlocal awaited
        ready = wait_readable(fd, timeout_s)
        time.sleep(LATE_S)
        while int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder) < awaited:
            time.sleep(TOKEN_S)
        awaited = 0
        return ready

    return look


def test_a_late_read_loses_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = forked(tmp_path, sleepy)
    with watched.serve() as process:
        everything = 12 * (1 + 4) + 1
        monkeypatch.setattr(served, "wait_readable", late(everything * wire.RECORD.size))
        block = process.block(12)
        run = watched.record("timed", process, [block], process.counters())
    assert all(sum(gaps) == 0 for gaps in block.sequences_ns[1:])
    assert 12 * 4 * TOKEN_S * 1e9 <= sum(map(sum, block.sequences_ns)) <= block.interval.wall_ns
    rate = rate_of([run])
    assert rate is not None
    assert 0 < rate.tokens_per_second <= FASTEST
    # The time of a single token was not observed, so no figure reports it.
    names = {metric.name for metric in figures([run], "sequence", 5)}
    assert "tokens_per_second" in names
    assert not names & UNSEEN
    assert {metric.name for metric in figures([run], "sequence", 5, with_zero_times=True)} >= UNSEEN


def test_no_side_of_a_pair_is_faster_than_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, head = (forked(tmp_path, sleepy) for _ in range(2))
    pairs = PairObserver(base, head)
    monkeypatch.setattr(served, "wait_readable", late())
    pairs.pair()
    for side in (base, head):
        assert 0 < tokens_per_second(side.observation().runs).value <= FASTEST


STREAM = """\
import sys, time
for i in range(int(sys.argv[2])):
    time.sleep(0.002)
    sys.stdout.write(str(i) + " ")
    sys.stdout.flush()
time.sleep(0.002)
"""


def test_decode_begins_after_a_late_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "wait_readable", late(first_bytes=20))
    watched = observer(command_workload(tmp_path, STREAM, token_unit="word", max_tokens=100))
    (block,) = watched.run_timed(1).blocks
    (gaps,) = block.sequences_ns
    assert block.decode is not None
    assert gaps[1] == 0
    assert 0 < block.judged_tokens < 99
    assert block.judged_tokens == len([at for at in range(1, 100) if any(gaps[1 : at + 1])])
    # One token may have been on its way at the first read.
    spent_ns = block.decode.wall_ns
    assert spent_ns >= (block.judged_tokens - 1) * TOKEN_S * 1e9
    rate = tokens_per_second(watched.observation().runs).value
    assert rate == pytest.approx(block.judged_tokens / spent_ns * 1e9)
    assert rate <= FASTEST * block.judged_tokens / (block.judged_tokens - 1)


@pytest.mark.parametrize("at_start", [True, False])
def test_no_decode_is_faster_if_the_clocks_are_read_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_start: bool
) -> None:
    """Tokens come between a read of the output and the reading of the clocks that belongs to it."""
    plain = clocks.read_clocks
    readings: list[clocks.ClockReading] = []

    def read_slowly(pid: int) -> clocks.ClockReading:
        time.sleep(5 * LATE_S if at_start and len(readings) < 2 else 0)
        readings.append(plain(pid))
        time.sleep(5 * LATE_S if not at_start and len(readings) > 1 else 0)
        return readings[-1]

    monkeypatch.setattr(clocks, "read_clocks", read_slowly)
    watched = observer(command_workload(tmp_path, STREAM, token_unit="word", max_tokens=200))
    (block,) = watched.run_timed(1).blocks
    assert block.judged_tokens < 199 or not at_start
    assert block.decode is not None
    assert block.decode.wall_ns >= (block.judged_tokens - 1) * TOKEN_S * 1e9
