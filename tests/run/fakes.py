"""A fake of the processes that a session measures: real objects, made up figures, no process.

``install`` replaces the observer, the observer of pairs and the profiler. Everything else of
``Session.gate`` is the product's own: it prepares, composes, seals, judges and publishes.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_flamegate.child.call_counts import CountedCalls
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Injection, Workload
from pytest_flamegate.core.json import replace
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.engines.base import Served
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.observe.engine_process import ALONE, ProcessTime, RunPlace
from pytest_flamegate.observe.observation import Observation, Run
from pytest_flamegate.observe.redact import Redactor
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers.base import Probe, Setup
from pytest_flamegate.receipt.baseline import Baseline
from pytest_flamegate.receipt.compose import Subject
from pytest_flamegate.run import calibration, instruments, measure, processes, schedule
from pytest_flamegate.run.open import recorded_profile
from pytest_flamegate.run.seal import ComposedRun, ComposedSide, seal
from pytest_flamegate.run.session import Session
from pytest_flamegate.run.stages import Measured, MeasuredSide, Prepared, PreparedSide
from tests import made

if TYPE_CHECKING:
    import pytest


TOKEN_NS = 1_950_000
SHARES = dict(made.SHARES)


def toy(root: Path, name: str = "toy", **changes: Any) -> Workload:
    """Return a workload of the python engine; nothing of it is ever run."""
    workload = Workload(
        name, "python", "2+2=", len(made.TOKENS), "flamegate.toml", root, target="toy:generate"
    )
    return replace(workload, **changes)


def settings(root: Path, **changes: Any) -> Settings:
    """Return settings for a project in ``root``."""
    return Settings(root, root / ".flamegate", **changes)


def session(root: Path, progress: Progress | None = None, **changes: Any) -> Session:
    """Return a session under those settings."""
    return Session(settings(root, **changes), progress or Progress())


class Lines(Progress):
    """Keeps what a run shows of its progress."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, workload: str) -> None:
        self.lines.append(f"begin {workload}")

    def announce(self, text: str) -> None:
        self.lines.append(f"announce {text}")

    def end(self) -> None:
        self.lines.append("end")

    def stop(self) -> None:
        self.lines.append("stop")


@dataclass
class World:
    """What the fake processes show. ``token_ns`` and ``shares`` belong to the side measured alone.

    ``base_token_ns`` and ``base_shares`` belong to the base of a comparison. ``on_process`` is
    called for each process, with its role.
    """

    token_ns: int = TOKEN_NS
    base_token_ns: int = TOKEN_NS
    shares: dict[str, float] = field(default_factory=lambda: dict(SHARES))
    base_shares: dict[str, float] = field(default_factory=lambda: dict(SHARES))
    samples: int | None = None
    """Samples of each profiled process; None takes as many as the process lasts."""
    jitter: float = 0.004
    tokens: tuple[str, ...] = made.TOKENS
    base_tokens: tuple[str, ...] = made.TOKENS
    notes: dict[str, str] = field(default_factory=dict)
    process_time: ProcessTime = field(default_factory=lambda: ProcessTime(0.1, 0.9, repeats=True))
    load: float = 0.0
    """How many processes compute on the machine, as the announcement of a run reads it."""
    now_s: float = 0.0
    """What the clock of the budget shows: each process takes as long as ``process_time`` says."""
    on_process: Callable[[str], None] = field(default=lambda role: None)
    started: list[str] = field(default_factory=list)
    """The role of every process, in order."""
    asked: list[int] = field(default_factory=list)
    """How many pairs at once were allowed, each time."""
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    # An hour ago: what is measured ends before it is written down.
    _began: datetime = field(default_factory=lambda: datetime.now(UTC) - timedelta(hours=1))
    _ended_s: float = 0.0

    def fail(self, error: BaseException, at: str = "", times: float = math.inf) -> None:
        """Raise ``error`` in the next ``times`` processes, or in those of the role ``at``."""
        left = times

        def on_process(role: str) -> None:
            nonlocal left
            if at in ("", role) and left > 0:
                left -= 1
                raise error

        self.on_process = on_process

    def process(
        self, role: str, *, base: bool = False, injection: Injection | None = None
    ) -> tuple[Run, Profile]:
        """Return the run of one more process, and its profile."""
        token_ns = self.base_token_ns if base else self.token_ns
        shares = self.base_shares if base else self.shares
        if injection is not None:
            more = {injection.frame: 1.0 + injection.extra_pct / 100.0}
            costs = {name: share * more.get(name, 1.0) for name, share in shares.items()}
            token_ns = round(token_ns * sum(costs.values()))
            shares = {name: cost / sum(costs.values()) for name, cost in costs.items()}
        number = next(self._numbers)
        self.started.append(role)
        self.now_s += self.process_time.process_s(0.0)
        self.on_process(role)
        tokens = self.base_tokens if base else self.tokens
        timed, profiled, profile = _made_runs(
            token_ns, tokens, tuple(shares.items()), self.jitter, number
        )
        run = timed if role == "timed" else profiled
        blocks_s = sum(block.interval.wall_ns for block in run.blocks) / 1e9
        pid, ticks = 5000 + number, made.BOOT_TICKS + round(self._ended_s * 100)
        started = self._began + timedelta(seconds=self._ended_s)
        self._ended_s += blocks_s + 0.5
        run = replace(
            run,
            pid=pid,
            started_ticks=ticks,
            started_at=started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        )
        if self.samples is not None:
            stacks = {next(iter(profile.stacks)): self.samples} if self.samples else {}
            profile = replace(profile, stacks=stacks, complete=self.samples)
        return run, replace(profile, pids=(pid,), started_ticks=(ticks,))


@lru_cache(maxsize=512)
def _made_runs(
    token_ns: int,
    tokens: tuple[str, ...],
    shares: tuple[tuple[str, float], ...],
    jitter: float,
    number: int,
) -> tuple[Run, Run, Profile]:
    """Return a timed run, a profiled one and its profile. Most tests want the same few."""
    bundle = made.bundle(
        engine="python",
        token_ns=token_ns,
        tokens=tokens,
        shares=dict(shares),
        jitter=jitter,
        timed=1,
        profiled=1,
        seed=number,
    )
    record = bundle.evidence.profile
    assert record is not None
    timed, profiled = bundle.evidence.runs
    return timed, profiled, recorded_profile(record, bundle.folded.decode())


@dataclass
class FakeObserver:
    """Stands in for ``Observer``."""

    world: ClassVar[World]

    workload: Workload
    plan: Any
    python_flags: Sequence[str] = ()
    nonce: str = ""
    served_pid: int | None = None
    notes: dict[str, str] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    is_base: bool = False

    def __post_init__(self) -> None:
        self.nonce = f"{random.getrandbits(128):032x}"
        self.notes = dict(self.world.notes)

    def warm_up(self) -> ProcessTime:
        self.world.now_s += self.world.process_time.process_s(0.0)
        self.world.on_process("warm up")
        return self.world.process_time

    def forget(self, role: str) -> None:
        self.runs = tuple(run for run in self.runs if run.role != role)

    def run_timed(self, seconds: float, pair: int | None = None) -> Run:
        run, _ = self._process("timed")
        run = replace(run, pair=pair)
        self.runs = (*self.runs, run)
        return run

    def run_profiled(
        self, seconds: float, attach: Any, place: RunPlace = ALONE
    ) -> tuple[Run, Profile]:
        run, profile = self._process("profiled")
        run = replace(run, pair=place.pair, cpu=place.cpu, shares_core=place.shares_core)
        self.runs = (*self.runs, run)
        return run, profile

    def run_bricks(self, seconds: float, place: RunPlace = ALONE) -> Any:
        self.world.now_s += 2.0
        self.world.started.append("bricks")
        self.world.on_process("bricks")
        return None, object(), None

    def count_calls(self) -> CountedCalls:
        self.world.now_s += 1.0
        self.world.started.append("calls")
        self.world.on_process("calls")
        return CountedCalls(tokens=4)

    def _process(self, role: str) -> tuple[Run, Profile]:
        return self.world.process(role, base=self.is_base, injection=self.workload.injection)

    def observation(self) -> Observation:
        tokens = self.world.base_tokens if self.is_base else self.world.tokens
        return Observation(
            nonce=self.nonce,
            runs=self.runs,
            tokens=tokens,
            token_digest=token_digest(tokens),
            token_source="yielded:byte",
            differs_at=None,
            clock_scope="sequence",
            requested_environment=made.ENVIRONMENT,
            effective_environment=made.ENVIRONMENT,
        )


@dataclass
class FakePairs:
    """Stands in for ``PairObserver``."""

    base: FakeObserver
    head: FakeObserver
    in_turn: bool = False
    pairs: int = 0
    shares_core: ClassVar[bool] = False
    at_once: ClassVar[int] = 1

    def run_both(self, calls: Sequence[Callable[..., object]], number: int, most: int = 1) -> None:
        for call, side in zip(calls, (self.base, self.head), strict=True):
            call(side, RunPlace(number, 0, shares_core=self.shares_core))

    def pair(self, most: int = 1) -> None:
        self.base.world.started += ["in turn"] * self.in_turn
        self.base.world.asked.append(most)
        self.base.is_base = True
        for observer in (self.base, self.head):
            observer.run_timed(0.5, self.pairs)
        self.pairs += 1


@dataclass(frozen=True)
class FakeProfiler:
    """Stands in for py-spy: the observer hands over the profile itself."""

    name: str = "py-spy"
    rate_hz: int = 100
    deeper: FakeProfiler | None = None
    python_flags: tuple[str, ...] = ()

    def parse(self, raw: Any, *_: Any) -> Profile:
        return raw  # type: ignore[no-any-return]


def install(monkeypatch: pytest.MonkeyPatch, *, profiled: bool = True, **changes: Any) -> World:
    """Replace every process; return what the processes show, to be changed at any time."""
    world = World(**changes)
    monkeypatch.setattr(FakeObserver, "world", world, raising=False)
    clock = SimpleNamespace(monotonic=lambda: world.now_s)
    for module in (schedule, measure, calibration):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(processes, "Observer", FakeObserver)
    monkeypatch.setattr(processes, "trim_stacks", lambda profile, root: profile)
    for pairs in (measure, calibration):
        monkeypatch.setattr(pairs, "PairObserver", FakePairs)
    monkeypatch.setattr(measure, "_shuffle", list)  # the base is first
    monkeypatch.setattr(os, "getloadavg", lambda: (world.load, 0.0, 0.0))
    profiler = FakeProfiler()

    def choose(name: str, setup: Setup, probes: dict[str, Probe]) -> FakeProfiler | None:
        probes[profiler.name] = Probe(profiler.name, "0.4.3", usable=True, sees_python=True)
        return profiler if profiled else None

    monkeypatch.setattr(instruments, "choose_profiler", choose)
    monkeypatch.setattr(instruments, "explain_fallbacks", lambda *_: [])
    return world


# Runs that were measured already


def prepared_side(bundle: made.Bundle, role: Any = None) -> PreparedSide:
    """Return the side whose run a bundle is."""
    evidence = bundle.evidence
    workload = toy(Path(), str(evidence.workload["name"]), engine=str(evidence.workload["engine"]))
    subject = Subject(
        workload=workload,
        model=evidence.model,
        machine=evidence.machine,
        commit=evidence.commit,
        flamegate_version=evidence.flamegate_version,
        prompt_tokens=made.PROMPT_TOKENS,
        side=role,
    )
    return PreparedSide(role, subject, workload, Served({}), None)


def run_side(bundle: made.Bundle) -> ComposedSide:
    """Return a bundle as a composed side."""
    record = bundle.evidence.profile
    profile = None if record is None else recorded_profile(record, bundle.folded.decode())
    return ComposedSide(bundle.receipt, bundle.evidence, profile, None, Redactor())


def sealed_run(
    head: made.Bundle, base: made.Bundle | None = None, *, baseline: Baseline | None = None
) -> ComposedRun:
    """Return a sealed run of a bundle, or of two that were measured in pairs."""
    sides = [(None, head)] if base is None else [("base", base), ("head", head)]
    measured = tuple(
        MeasuredSide(prepared_side(each, role), observation(each)) for role, each in sides
    )
    prepared = Prepared(
        tuple(side.side for side in measured),
        15.0,
        baseline=baseline,
        pair_counts=(5, 28) if base else (),
    )
    base_side = run_side(base) if base else None
    return seal(ComposedRun(Measured(prepared, measured), run_side(head), base_side))


def observation(bundle: made.Bundle) -> Observation:
    """Return the observation that a bundle's evidence was made of."""
    evidence = bundle.evidence
    names = Observation.__dataclass_fields__
    known = {name: getattr(evidence, name) for name in names if hasattr(evidence, name)}
    return Observation(**known)
