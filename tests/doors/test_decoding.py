"""Measuring decode alone: what runs beside the long sequences, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.json import loads
from pytest_flamegate.core.progress import NoProgress
from pytest_flamegate.engines import engine
from pytest_flamegate.profile.model import Profile, Stack
from pytest_flamegate.profile.profilers.base import Probe, RunningProfiler, WrappedCommand
from pytest_flamegate.run import decode
from pytest_flamegate.run.decode import decode_alone, decoded, document
from pytest_flamegate.run.measure import Measuring
from tests.profile.profiles import profile, python
from tests.report import factory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.profile.model import Covers


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
        return WrappedCommand(tuple(argv), directory / "raw")

    def parse(
        self, raw: Path, said: bytes = b"", window_ns: tuple[int, int] | None = None
    ) -> Profile:
        stacks: dict[Stack, int] = {PREFILL: 3 * self.samples, DECODE: self.samples * self.ran[-1]}
        return profile(stacks, covers=self.covers)


def measuring(
    directory: Path, pretend: Pretend | None, token: str = "x", count: str = "{max_tokens}"
) -> Measuring:
    workload = Workload(
        name="w",
        engine="command",
        prompt="p",
        max_tokens=TOKENS,
        source="test",
        directory=directory,
        command=(sys.executable, "-I", "-S", "-c", PROGRAM.replace("{token!r}", token), count),
        decode_profile=True,
    )
    plan = engine("command").plan(workload, None)
    found = Measuring(workload, plan, pretend, 1.0, NoProgress())
    for _ in range(3 if pretend else 0):
        assert pretend is not None
        found.profile_once(pretend, 0.1)
    return found


SEEN = replace(factory.evidence(), tokens=(str(ord("x")),) * TOKENS)
ALWAYS = "'x'"
FICKLE = "'x' if int(sys.argv[1]) > 1 else '{}'"


def test_a_whole_program_less_one_of_one_token(tmp_path: Path) -> None:
    pretend = Pretend()
    found = decode_alone(measuring(tmp_path, pretend, ALWAYS), SEEN)
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
    told: Any = loads(document(found, SEEN))
    assert told["tokens"] == {"long": TOKENS, "short": 1}
    assert [row["name"] for row in told["functions"]] == [row.name for row in found.rows]


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"pretend": None}, "E_NO_DECODE", "Profiling is off"),
        ({"pretend": Pretend("decode")}, "E_NO_DECODE", "decode alone already"),
        ({"count": str(TOKENS)}, "E_NO_DECODE", "does not say {max_tokens}"),
        (
            {"token": "'x' if int(sys.argv[1]) > 1 else 'y'"},
            "E_TOKENS_DIFFER",
            "of 9 tokens and of 1",
        ),
        ({"token": "'x' if int(sys.argv[1]) > 1 else 'yy'"}, "E_TOO_MANY_TOKENS", "2"),
    ],
)
def test_what_cannot_be_subtracted_is_refused(
    tmp_path: Path, given: dict[str, object], code: str, words: str
) -> None:
    asked = {"pretend": Pretend(), "token": ALWAYS, **given}
    taken = measuring(tmp_path, **asked)  # type: ignore[arg-type]
    with pytest.raises(FlamegateError) as refused:
        decode_alone(taken, SEEN)
    assert refused.value.code == code, refused.value
    assert words in refused.value.problem
    nothing, (told,) = decoded(taken, SEEN)
    assert nothing is None
    assert told.startswith("no profile of decode: ")
    assert refused.value.remedy in told


def test_too_few_samples_are_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MOST_FOR_SAMPLES", 20)
    pretend = Pretend(samples=40)
    taken = measuring(tmp_path, pretend, ALWAYS)
    pretend.samples = 1
    nothing, (told,) = decoded(taken, SEEN)
    assert nothing is None
    assert told.startswith("too few samples for a profile of decode alone: E_FEW_SAMPLES: ")


def test_nobody_asked(tmp_path: Path) -> None:
    pretend = Pretend()
    taken = measuring(tmp_path, pretend, ALWAYS)
    taken.workload = replace(taken.workload, decode_profile=False)
    assert decoded(taken, SEEN) == (None, ())
    assert set(pretend.ran) == {TOKENS}
