"""An L2 hit rate comes from two counters that ran all the time, or there is none."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import pytest

from pytest_flamegate.core import process
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.graph import counters
from pytest_flamegate.graph.counters import L2_EVENTS, HitRate, count_l2, parse_l2_hit_rate
from tests.tools import require

# Recorded from perf 6.1 on a virtual machine without counters.
UNSUPPORTED = """\
<not supported>,,l2_rqsts.references,0,100.00,,
<not supported>,,l2_rqsts.miss:u,0,100.00,,
"""
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


@pytest.mark.parametrize("at", range(len(L2_EVENTS)))
@pytest.mark.parametrize("suffix", ["", ":u"])
def test_rate_names_its_events(at: int, suffix: str) -> None:
    text = "warming up, please wait\n" + pair("1000", "250", at=at, suffix=suffix)
    assert parse_l2_hit_rate(text) == HitRate(0.75, 1000, 250, *L2_EVENTS[at])


@pytest.mark.parametrize(
    "text",
    [
        UNSUPPORTED,
        UNKNOWN,
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
def test_other_output_gives_no_rate(text: str) -> None:
    assert parse_l2_hit_rate(text) is None


def fake_perf(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, str]) -> list[list[str]]:
    """Let perf answer so, one run after the other; return the commands that were run."""
    commands: list[list[str]] = []

    def run(argv: list[str], **_: Any) -> CompletedCommand:
        code, stderr = answers[len(commands)]
        commands.append(argv)
        return CompletedCommand(tuple(argv), code, b"", stderr.encode(), False, 0.1)

    monkeypatch.setattr(counters, "find_program", lambda *_: "perf")
    monkeypatch.setattr(process, "run", run)
    return commands


def test_next_pair_is_tried_if_one_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = fake_perf(monkeypatch, (129, UNKNOWN), (0, pair("8", "2", at=1)))
    assert count_l2(["engine", "x"], timeout_s=1) == HitRate(0.75, 8, 2, *L2_EVENTS[1])
    assert [argv[-2:] for argv in commands] == [["engine", "x"]] * 2


def test_program_that_fails_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_perf(monkeypatch, *[(1, pair("8", "2", at=at)) for at in range(len(L2_EVENTS))])
    assert count_l2(["engine"], timeout_s=1) is None


def test_real_perf_gives_a_rate_or_none() -> None:
    require(shutil.which("perf") is not None, "no program perf on PATH")
    found = count_l2([sys.executable, "-c", "pass"], timeout_s=60)
    assert found is None or 0 <= found.rate <= 1
