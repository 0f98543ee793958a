"""The profile of decode alone, of a real program: what runs for it, and each error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.engines import engine
from pytest_flamegate.profile.model import Covers, Profile, Stack
from pytest_flamegate.profile.profilers.base import (
    Probe,
    Recording,
    RunningProfiler,
    WrappedCommand,
)
from pytest_flamegate.receipt.compose import Subject
from pytest_flamegate.run import decode
from pytest_flamegate.run.decode import decode_of, document
from pytest_flamegate.run.processes import Budget, SideProcesses
from pytest_flamegate.run.stages import Measured, Prepared, PreparedSide
from tests import made
from tests.profile.profiles import profile, python

pytestmark = pytest.mark.measures


PREFILL: Stack = (python("main"), python("prefill"))
DECODE: Stack = (python("main"), python("decode"))
TOKENS = 9
PROGRAM = """\
import sys
for _ in range(int(sys.argv[1])):
    for _ in range(600_000):
        pass
    sys.stdout.write({token!r})
    sys.stdout.flush()
"""


@dataclass
class Pretend:
    """A profiler that samples 30 times in the start of a program and 10 times in each token."""

    covers: Covers = "process"
    samples: int = 10
    name: str = "pretend"
    rate_hz: int = 100
    python_flags: tuple[str, ...] = ()
    ran: list[int] = field(default_factory=list)

    def probe(self) -> Probe:
        return Probe(self.name, "1", True, True, True)

    def attach(self, pid: int, directory: Path) -> RunningProfiler:
        raise NotImplementedError

    def wrap(self, argv: Sequence[str], directory: Path) -> WrappedCommand:
        self.ran.append(int(argv[-1]))
        return WrappedCommand(tuple(argv), Recording(directory / "raw"))

    def parse(
        self, recording: Recording, stderr: bytes = b"", window_ns: tuple[int, int] | None = None
    ) -> Profile:
        stacks: dict[Stack, int] = {PREFILL: 3 * self.samples, DECODE: self.samples * self.ran[-1]}
        return profile(stacks, covers=self.covers)

    def clean_up(self, pid: int) -> None:
        raise NotImplementedError


def measured(
    directory: Path,
    pretend: Pretend | None,
    token: str = "'x'",
    count: str = "{max_tokens}",
    *,
    wanted: bool = True,
) -> Measured:
    """Measure the program with the profiler, but not its decode alone."""
    workload = Workload(
        name="w",
        engine="command",
        prompt="p",
        max_tokens=TOKENS,
        source="test",
        directory=directory,
        command=(sys.executable, "-I", "-S", "-c", PROGRAM.replace("{token!r}", token), count),
        decode_profile=wanted,
    )
    subject = Subject(workload, {"path": "m"}, {}, None, "0", None)
    plan = engine("command").plan(workload, None)
    side = PreparedSide(None, subject, workload, plan, pretend)
    processes = SideProcesses(side, Budget(1.0))
    for _ in range(3):
        if pretend is None:
            processes.observer.run_timed(0.1)
        else:
            processes.profile_once(0.1)
    return Measured(Prepared((side,), 4.0), (processes.measured(),))


FICKLE = "'x' if int(sys.argv[1]) > 1 else '{}'"


def test_a_whole_program_less_one_of_one_token(tmp_path: Path) -> None:
    pretend = Pretend()
    found = decode_of(measured(tmp_path, pretend), Progress()).decode
    assert found is not None
    assert pretend.ran[:3] == [TOKENS] * 3
    assert set(pretend.ran[3:]) == {1}
    assert (found.tokens, found.samples[0]) == ((TOKENS, 1), 3 * (30 + 10 * TOKENS))
    assert found.samples[1] == 40 * len(pretend.ran[3:]) >= 200
    assert min(found.processes) >= 4
    assert 0.0 < found.prefill_share < 0.9
    rows = {row.name: row for row in found.rows}
    long_s = found.cpu_s_per_token * 8 / (1.0 - found.prefill_share)
    short_s = found.prefill_share * long_s
    assert rows["decode"].self_s == pytest.approx((long_s * 0.75 - short_s * 0.25) / 8)
    assert sum(row.self_s for row in found.rows) == pytest.approx(found.cpu_s_per_token)
    written: Any = json.loads(document(found, made.evidence()))
    assert written["tokens"] == {"long": TOKENS, "short": 1}
    assert [row["name"] for row in written["functions"]] == [row.name for row in found.rows]


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"pretend": None}, "E_NO_DECODE", "Profiling is off"),
        ({"pretend": Pretend("decode")}, "E_NO_DECODE", "decode alone already"),
        ({"count": str(TOKENS)}, "E_NO_DECODE", "does not contain {max_tokens}"),
        ({"token": FICKLE.format("y")}, "E_OUTPUT_VARIES", "of 9 tokens and of 1"),
        ({"token": FICKLE.format("yy")}, "E_TOO_MANY_TOKENS", "2"),
    ],
)
def test_an_error_is_a_note(
    tmp_path: Path, given: dict[str, object], code: str, words: str
) -> None:
    given = {"pretend": Pretend(), **given}
    found = decode_of(measured(tmp_path, **given), Progress())  # type: ignore[arg-type]
    assert found.decode is None
    (note,) = found.notes
    assert note.code == "W_NO_DECODE_PROFILE"
    assert f"There is no profile of decode alone: {code}: " in note.message
    assert words in note.message


def test_too_few_samples_are_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_FOR_SAMPLES", 20)
    pretend = Pretend(samples=40)
    taken = measured(tmp_path, pretend)
    pretend.samples = 1
    (note,) = decode_of(taken, Progress()).notes
    assert ": E_FEW_SAMPLES: " in note.message


def test_a_workload_that_does_not_ask_for_it_gets_none(tmp_path: Path) -> None:
    pretend = Pretend()
    taken = measured(tmp_path, pretend, wanted=False)
    assert decode_of(taken, Progress()) == taken
    assert set(pretend.ran) == {TOKENS}
