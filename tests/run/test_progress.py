"""The bar and the plain lines: phase, elapsed and remaining time."""

from types import SimpleNamespace

import pytest

from pytest_flamegate.core import progress
from pytest_flamegate.core.progress import LogProgress, TerminalProgress, clock_time


class Clock:
    now_s = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    return made


class Bar(TerminalProgress):
    """A bar of the workload ``decode``, and the text that it wrote."""

    def __init__(self) -> None:
        self.written: list[str] = []
        super().__init__(self.written.append)
        self.begin("decode")

    @property
    def lines(self) -> list[str]:
        """What stood in the line, one entry for each time it was rewritten."""
        parts = "".join(self.written).split("\r\x1b[K")
        return [part.strip() for part in parts if part.strip()]


def test_the_bar_has_phase_elapsed_and_remaining_time_and_ends_full(clock: Clock) -> None:
    bar = Bar()
    bar.update("building")
    clock.now_s += 7
    bar.update("timing", "5 processes", 7.0)
    clock.now_s += 8
    bar.end()
    building, timing, done = bar.lines
    assert building == f"decode             {'╌' * 14} building  0:00"
    half = "━" * 7 + "╌" * 7
    assert timing == f"decode             {half} timing  5 processes  0:07 of about 0:14"
    assert done == f"decode             {'━' * 14} 5 processes  0:15"
    assert bar.written[-1] == "\n"


def test_a_bar_is_not_full_while_anything_runs_and_does_not_move_backwards(clock: Clock) -> None:
    bar = Bar()
    clock.now_s += 5
    bar.update("timing", "", 5.0)
    bar.update("timing", "", 95.0)
    clock.now_s += 999
    bar.update("profiling", "", 1.0)
    bar.stop()
    assert [line.count("━") for line in bar.lines] == [7, 7, 13]
    assert "0:05 of about 1:40" in bar.lines[1]


def test_the_bar_of_a_measurement_that_failed_stays(clock: Clock) -> None:
    written: list[str] = []
    bar = TerminalProgress(written.append)
    for name in ("one", "two"):
        bar.begin(name)
        bar.update("timing", "1 process", 1.0)
    bar.stop()
    lines = [line.rpartition("\x1b[K")[2].split() for line in "".join(written).split("\n")]
    assert [line[:1] for line in lines] == [["one"], ["two"], []]


def test_each_workload_has_a_line_and_an_announcement_its_own(clock: Clock) -> None:
    written: list[str] = []
    bar = TerminalProgress(written.append)
    for name in ("one", "two"):
        bar.begin(name)
        bar.update("warming up")
        bar.announce(f"{name}: about 14 s")
        bar.announce("said once")
        clock.now_s += 1
        bar.update("timing", "1 process", 1.0)
        bar.end()
    bar.end()
    lines = [line.rpartition("\x1b[K")[2].split() for line in "".join(written).split("\n")]
    assert [" ".join(line[:2]) for line in lines if line and line[0] == "flamegate:"] == [
        "flamegate: one:",
        "flamegate: said",
        "flamegate: two:",
    ]
    assert [line[0] for line in lines if "━" * 14 in line] == ["one", "two"]


def test_a_log_has_a_line_for_each_phase_and_every_ten_seconds(clock: Clock) -> None:
    written: list[str] = []
    log = LogProgress(written.append)
    log.begin("decode")
    for _ in range(2):
        log.announce("waiting for process 7")
    log.update("building")
    for second in range(35):
        clock.now_s = 100.0 + second
        log.update("timing", f"{second} processes", 60.0 - second)
    clock.now_s += 30
    log.update("longer than announced: timing", "40 processes", 0.0)
    clock.now_s += 40
    log.update("profiling")
    log.end()
    assert written == [
        "flamegate: waiting for process 7\n",
        "flamegate: decode: building\n",
        "flamegate: decode: timing, 10 processes, 0:10 elapsed, about 0:50 left\n",
        "flamegate: decode: timing, 20 processes, 0:20 elapsed, about 0:40 left\n",
        "flamegate: decode: timing, 30 processes, 0:30 elapsed, about 0:30 left\n",
        "flamegate: decode: longer than announced: timing, 40 processes, 1:04 elapsed\n",
        "flamegate: decode: profiling, 1:44 elapsed\n",
    ]


def test_progress_is_quiet_from_then_on_when_its_reader_has_gone() -> None:
    asked: list[str] = []

    def write(text: str) -> None:
        asked.append(text)
        raise BrokenPipeError

    log = LogProgress(write)
    log.begin("decode")
    for text in ("one", "two"):
        log.announce(text)
    assert asked == ["flamegate: one\n"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.6, "1:00"), (3723, "1:02:03")],
)
def test_times(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text
