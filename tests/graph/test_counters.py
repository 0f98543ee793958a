"""A hit rate is made of two counters that counted, with their names, or it is absent."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import pytest

from pytest_flamegate.core import process
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.graph.tensors import (
    L2_EVENTS,
    Counter,
    HitRate,
    count_l2,
    l2_hit_rate,
    read_perf_stat,
)
from pytest_flamegate.profile.profilers import trial
from tests.tools import require

UNSUPPORTED = """\
<not supported>,,r064,0,100.00,,
<not supported>,,cache-misses:u,0,100.00,,
"""
"""As perf 6.1 wrote it on a virtual machine without counters."""
CLOCKS = """\
0.71,msec,task-clock,707262,100.00,0.419,CPUs utilized
49,,page-faults,707262,100.00,69.281,K/sec
"""
"""Likewise, of events that the kernel counts itself."""
UNKNOWN = """\
event syntax error: 'all_l2_cache_accesses,all_l2_cache_misses'
                     \\___ parser error
Run 'perf list' for a list of valid events
"""


def line(event: str, count: str, running: str = "100.00") -> str:
    return f"{count},,{event},1000,{running},,\n"


def pair(lookups: str, misses: str, running: str = "100.00", at: int = 0, suffix: str = "") -> str:
    lookup, miss = L2_EVENTS[at]
    return line(lookup + suffix, lookups, running) + line(miss + suffix, misses, running)


def test_recorded_text() -> None:
    assert read_perf_stat(UNSUPPORTED) == (
        Counter("r064", None, 100.0),
        Counter("cache-misses:u", None, 100.0),
    )
    assert read_perf_stat(CLOCKS) == (Counter("page-faults", 49, 100.0),)
    assert read_perf_stat(UNKNOWN) == ()


@pytest.mark.parametrize("at", range(len(L2_EVENTS)))
@pytest.mark.parametrize("suffix", ["", ":u"])
def test_a_rate_names_its_events(at: int, suffix: str) -> None:
    text = "warming up, please wait\n" + pair("1000", "250", at=at, suffix=suffix)
    assert l2_hit_rate(read_perf_stat(text)) == HitRate(0.75, 1000, 250, *L2_EVENTS[at])


@pytest.mark.parametrize(
    "text",
    [
        UNSUPPORTED,
        pair("<not supported>", "<not supported>"),
        pair("<not counted>", "5"),
        pair("1000", "<not counted>"),
        pair("0", "0"),
        pair("1000", "1001"),
        pair("1000", "250", "66.10"),
        pair("1000", "250", "nan"),
        line(L2_EVENTS[0][0], "1000"),
        line(L2_EVENTS[0][0], "1000") + line(L2_EVENTS[1][1], "5"),
        "",
    ],
)
def test_else_there_is_none(text: str) -> None:
    assert l2_hit_rate(read_perf_stat(text)) is None


def perf(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, str]) -> list[list[str]]:
    """Let perf answer so, one run after the other; return the commands that were run."""
    ran: list[list[str]] = []

    def run(argv: list[str], **_: Any) -> CompletedCommand:
        code, said = answers[len(ran)]
        ran.append(argv)
        return CompletedCommand(tuple(argv), code, b"", said.encode(), False, 0.1)

    monkeypatch.setattr(trial, "find", lambda *_: "perf")
    monkeypatch.setattr(process, "run", run)
    return ran


def test_the_next_pair_is_tried_where_one_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = perf(monkeypatch, (129, UNKNOWN), (0, pair("8", "2", at=1)))
    assert count_l2(["engine", "x"], timeout_s=1) == HitRate(0.75, 8, 2, *L2_EVENTS[1])
    assert [argv[-2:] for argv in ran] == [["engine", "x"]] * 2


def test_a_program_that_fails_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    perf(monkeypatch, *[(1, pair("8", "2", at=at)) for at in range(len(L2_EVENTS))])
    assert count_l2(["engine"], timeout_s=1) is None


def test_real_perf_gives_a_rate_or_none() -> None:
    require(shutil.which("perf") is not None, "no program perf on PATH")
    found = count_l2([sys.executable, "-c", "pass"], timeout_s=60)
    assert found is None or 0 <= found.rate <= 1
