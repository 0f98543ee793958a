"""What the doctor says of instruction counts, which are no profile."""

from __future__ import annotations

import pytest

from pytest_flamegate import profile
from pytest_flamegate.cli import main
from pytest_flamegate.profile import Probe, callgrind

SAMPLES = Probe("perf", "6.1", usable=True, sees_python=True, sees_native=True)
COUNTS = Probe(
    "callgrind", "3.19.0", usable=True, sees_python=False, sees_native=True, notes=("noted",)
)
NO_COUNTS = Probe(
    "callgrind",
    "",
    usable=False,
    sees_python=False,
    sees_native=False,
    code="E_NO_VALGRIND",
    reason="no program valgrind on PATH",
    todo="Install it: apt install valgrind",
)


class One:
    name = "perf"

    def __init__(self, seen: Probe) -> None:
        self.seen = seen

    def probe(self) -> Probe:
        return self.seen


def said(
    samples: Probe,
    counts: Probe,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, list[str]]:
    monkeypatch.setattr(profile, "profilers", lambda _: {"perf": One(samples)})
    monkeypatch.setattr(callgrind, "probe", lambda: counts)
    code = main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("callgrind"))
    return code, [" ".join(line.split()) for line in lines[at : at + 2]]


@pytest.mark.parametrize(
    ("counts", "lines"),
    [
        (COUNTS, ["callgrind ok 3.19.0, instruction counts available", "noted"]),
        (
            NO_COUNTS,
            [
                "callgrind -- E_NO_VALGRIND: no instruction counts: no program valgrind on PATH",
                "Install it: apt install valgrind",
            ],
        ),
    ],
)
def test_counts_are_available_or_not(
    counts: Probe,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said(SAMPLES, counts, monkeypatch, capsys) == (0, lines)


def test_counts_alone_are_no_profiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = Probe("perf", "", usable=False, sees_python=False, sees_native=False)
    assert said(nothing, COUNTS, monkeypatch, capsys)[0] == 5
