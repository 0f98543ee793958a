"""The observer: runs a workload in processes of its own and records its measurements."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar

from pytest_flamegate.bricks.record import BrickRun, Recorded
from pytest_flamegate.child.call_counts import CountedCalls
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import clocks
from pytest_flamegate.core.clocks import ProcessCounters
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import replace
from pytest_flamegate.engines.base import Endpoint, Lasting, Plan, Streamed
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.engines.tokens import SequenceComparison, token_digest
from pytest_flamegate.observe import streamed
from pytest_flamegate.observe.engine_process import (
    ALONE,
    WARM_TOKENS,
    EngineProcess,
    ProcessTime,
    RunPlace,
    Window,
    mostly_waits,
    no_bricks_error,
    read_variables,
    requested_variables,
)
from pytest_flamegate.observe.gpu_watch import DeviceWatch
from pytest_flamegate.observe.observation import Answer, Block, Observation, Role, Run
from pytest_flamegate.observe.prompts import PromptDeck, PromptQueue
from pytest_flamegate.observe.served import ServedProcess, time_blocks
from pytest_flamegate.observe.streamed import CleanOutput, ProgramRun

_CALLS_LEFT_OUT = (
    "The last token made more calls of bricks than are stored one by one, so bricks.json lists "
    "none of them. All totals are complete."
)
_EMPTY: Mapping[str, str] = MappingProxyType({})

T = TypeVar("T")


@dataclass(slots=True)
class Observer:
    """Collects the runs of one workload; ``observation()`` freezes them."""

    workload: Workload
    plan: Plan
    python_flags: Sequence[str] = ()
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    served_pid: int | None = None
    """The served process that was started last, even if it never became ready."""
    devices: DeviceWatch = field(default_factory=DeviceWatch)
    waits: bool = False
    """Whether the engine waited for a device or another process in the warm-up, not computed."""
    deck: PromptDeck = field(init=False)
    notes: dict[str, str] = field(default_factory=dict)
    """Remarks on how the workload was observed, by code."""
    sequence_s: float | None = None
    """How long a served process that runs alone took for a sequence in the warm-up."""
    peak_rss_bytes: int = 0
    """The most memory that a process had in the warm-up."""
    _runs: list[Run] = field(default_factory=list)
    _same: SequenceComparison = field(default_factory=SequenceComparison)
    _has_own_lines: bool = False
    _token_source: str = ""
    _effective: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    _facts: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Make a deck of the workload's prompts."""
        self.deck = PromptDeck(len(self.workload.all_prompts))

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs so far, in order."""
        return tuple(self._runs)

    def warm_up(self) -> ProcessTime:
        """Run once unrecorded, because caches are cold; return how long a process takes."""
        began_s = time.monotonic()
        if not isinstance(self.plan, Lasting):
            run, _ = self._run_streamed("timed", self.plan)
            decode = run.blocks[0].decode  # loading waits for the disk
            self.waits = decode is not None and mostly_waits(decode)
            self.peak_rss_bytes = run.peak_rss_bytes or 0
            return ProcessTime(0.0, time.monotonic() - began_s, repeats=False)
        with self.serve() as served:
            self.sequence_s = served.measure_sequence_s()
            # The least of several: a sequence may take no longer than an interruption.
            tries = (served.warm_up(WARM_TOKENS) for _ in range(3))
            self.waits = all(map(mostly_waits, tries))
            self.peak_rss_bytes = served.counters().peak_rss_bytes or 0
            start_s = time.monotonic() - began_s
        return ProcessTime(start_s, self.sequence_s, repeats=True)

    def branch(self, plan: Plan) -> Observer:
        """Return an observer of one pair without runs or notes, to be joined at its end."""
        return replace(self, plan=plan, notes={}, _runs=[], _same=SequenceComparison())

    def join(self, branch: Observer) -> None:
        """Take what a branch observed; one whose pair failed is left out whole."""
        self._check_facts(branch._facts)
        self.served_pid, self._effective = branch.served_pid, branch._effective
        self._token_source = branch._token_source
        self._has_own_lines |= branch._has_own_lines
        self.notes |= branch.notes
        self._runs += branch._runs
        self._same.join(branch._same)
        self.deck.note_used(chain(*(run.prompts for run in branch._runs)))

    def forget(self, role: Role) -> None:
        """Forget all runs of that role."""
        self._runs = [run for run in self._runs if run.role != role]

    def run_timed(self, seconds: float) -> Run:
        """Time one fresh process: a program once, a served engine for about ``seconds``.

        The reference kernel runs between a served engine's blocks, and never for a program: in a
        process of its own the kernel varied by 15 % when the program varied by 2 %.
        """
        if not isinstance(self.plan, Lasting):
            return self.run_program()
        with self.serve() as served:
            blocks, counters = time_blocks(
                served, seconds, lambda: self.devices.inspect(served.pid)
            )
            return self.record("timed", served, blocks, counters)

    def run_program(self, place: RunPlace = ALONE) -> Run:
        """Time the program once."""
        assert not isinstance(self.plan, Lasting)
        self._runs.append(self._run_streamed("timed", self.plan, place=place)[0])
        return self._runs[-1]

    def run_profiled(
        self, seconds: float, attach: Callable[[int], Window[T]], place: RunPlace = ALONE
    ) -> tuple[Run, T]:
        """Run a served process for ``seconds``; ``attach(pid)`` profiles it after its warm-up."""
        assert isinstance(self.plan, Lasting)
        with self.serve(place, self.python_flags) as served:
            sequences = self.warm_up_for(served, seconds, place)
            window = attach(served.pid)
            blocks: list[Block] = []
            try:
                began_s = ended_s = time.monotonic()
                last_s = 0.0
                # Another block begins only if it ends nearer to the wanted time than the last one.
                while ended_s - began_s + last_s / 2.0 < seconds:
                    blocks.append(served.profile_block(sequences))
                    last_s, ended_s = time.monotonic() - ended_s, time.monotonic()
            except BaseException:
                window.close()
                raise
            samples = window.stop()
            return self.record("profiled", served, blocks, served.counters(), place), samples

    def run_wrapped(
        self, argv: tuple[str, ...], clean: CleanOutput | None = None, place: RunPlace = ALONE
    ) -> ProgramRun:
        """Run the program inside a profiler's ``argv``; ``clean`` removes the profiler's output."""
        assert not isinstance(self.plan, Lasting)
        run, program = self._run_streamed("profiled", replace(self.plan, argv=argv), clean, place)
        self._runs.append(run)
        return program

    def run_bricks(self, seconds: float, place: RunPlace = ALONE) -> tuple[Run, BrickRun, Recorded]:
        """Run one fresh served process for about ``seconds`` with its bricks clocked.

        The run supplies no other figure. Raises ``ToolError`` ``E_NO_BRICKS`` if the engine marks
        none, ``E_BAD_BRICKS`` if its report of them cannot be read.
        """
        with self.serve(place) as served:
            assert isinstance(served, ServedProcess)
            sequences = self.warm_up_for(served, seconds, place)
            block, recorded = served.brick_block(sequences)
            if not recorded.totals:
                raise no_bricks_error(self.workload.name)
            if recorded.calls_left_out:
                self.notes["W_BRICK_CALLS"] = _CALLS_LEFT_OUT
            run = self.record("bricks", served, [block], served.counters(), place)
        bricks = BrickRun(
            pid=run.pid,
            started_ticks=run.started_ticks,
            sequences=len(block.sequences_ns),
            tokens=block.tokens,
            decode_tokens=block.tokens - len(block.sequences_ns),
            wall_ns=recorded.wall_ns,
            sync=recorded.sync,
            totals=recorded.totals,
            lanes=recorded.lanes,
            unended=recorded.unended,
        )
        return run, bricks, recorded

    def count_calls(self) -> CountedCalls:
        """Count the calls in a sequence of one fresh served process. It is recorded as no run."""
        with self.serve() as served:
            assert isinstance(served, ServedProcess)
            served.warm_up(WARM_TOKENS)
            return served.count_calls(WARM_TOKENS)

    def run_traced(
        self, options: Mapping[str, object], read: Callable[[], tuple[Report, ...]]
    ) -> tuple[Report, ...]:
        """Run one untimed sequence with load ``options``; return what ``read()`` finds after it."""
        with self.serve(options=options) as served:
            run = self.record("traced", served, [served.profile_block(1)], served.counters())
            served.close(self.workload.timeout_s)
        reports = read()
        self._runs[-1] = replace(run, reported=(*run.reported, *reports))
        return reports

    @contextmanager
    def serve(
        self,
        place: RunPlace = ALONE,
        python_flags: Sequence[str] = (),
        options: Mapping[str, object] = _EMPTY,
    ) -> Iterator[EngineProcess]:
        """Run a process that generates, or find the server; ``options`` extend the plan's own."""
        with closing(self.start(place, python_flags, options)) as served:
            self.await_ready(served)
            yield served

    def start(
        self,
        place: RunPlace = ALONE,
        python_flags: Sequence[str] = (),
        options: Mapping[str, object] = _EMPTY,
    ) -> EngineProcess:
        """Start a process as ``serve`` does and return it before it is ready."""
        self.devices.note_present()
        plan = self.plan
        assert isinstance(plan, Lasting)
        prompts = PromptQueue(self.workload, place.prompts or self.deck.draw())
        common = (self.workload, self._same.add, prompts)
        if isinstance(plan, Endpoint):
            # Imported late: only servers need http and ssl.
            from pytest_flamegate.observe.endpoint import EndpointProcess

            return EndpointProcess(plan, *common, place.cpu, self._note_start)
        plan = replace(plan, load={**plan.load, **options})
        return ServedProcess(plan, *common, python_flags, place.cpu, self._note_start)

    def await_ready(self, served: EngineProcess) -> None:
        """Wait until ``served`` can generate, and note its environment and identity."""
        served.await_ready()
        self._effective = read_variables(served.pid, self.workload)
        self._check_facts(served.facts)
        self._token_source = served.token_source
        self.notes |= served.notes
        self.devices.begin(served.pid)

    def warm_up_for(self, served: EngineProcess, seconds: float, place: RunPlace) -> int:
        """Warm ``served`` up; return how many sequences take about ``seconds``, at least one."""
        if self.sequence_s is None:
            return served.warm_up_for_block(seconds)
        served.warm_up(WARM_TOKENS)
        sequence_s = self.sequence_s * (2.0 if place.shares_core else 1.0)
        return max(1, math.floor(seconds / sequence_s))

    def record(
        self,
        role: Role,
        served: EngineProcess,
        blocks: Sequence[Block],
        counters: ProcessCounters,
        place: RunPlace = ALONE,
    ) -> Run:
        """Record the work of a served process, which must still be alive."""
        self.devices.end(served.pid)
        self.notes |= served.notes
        run = self._make_run(
            counters,
            place,
            role=role,
            pid=served.pid,
            started_ticks=clocks.read_start_ticks(served.pid),
            started_at=served.started_at,
            load_ns=served.load_ns,
            blocks=tuple(blocks),
            reported=served.reports(),
            prompts=served.prompts.measured,
        )
        self._runs.append(run)
        return run

    def observation(self) -> Observation:
        """Return everything observed so far."""
        tokens = self._same.first.get(0, ())
        runs, timed = tuple(self._runs), [run for run in self._runs if run.role == "timed"]
        if any(block.decode is None for run in timed for block in run.blocks):  # all or none
            runs = tuple(
                replace(run, blocks=tuple(block.without_decode() for block in run.blocks))
                for run in runs
            )
        token_source = self._token_source
        if not isinstance(self.plan, Lasting):
            source = "stdout without own lines" if self._has_own_lines else "stdout"
            token_source = f"{source}:{self.plan.token_unit}"
        return Observation(
            nonce=self.nonce,
            runs=runs,
            tokens=tokens,
            token_digest=token_digest(tokens),
            token_source=token_source,
            differs_at=self._same.differs_at,
            clock_scope="sequence" if isinstance(self.plan, Lasting) else "process",
            requested_environment=requested_variables(self.workload),
            effective_environment=self._effective,
            device=self.devices.observe(timed),
            differs_to=self._same.differs_to,
            engine=self._facts or _EMPTY,
            answers=tuple(
                Answer(prompt, len(answer), token_digest(answer))
                for prompt, answer in sorted(self._same.first.items())
                if self.workload.prompts
            ),
        )

    def _check_facts(self, facts: Mapping[str, str] | None) -> None:
        if self._facts not in (None, facts):
            raise ToolError(
                "E_ENGINE_CHANGED",
                f"The engine of {self.workload.name!r} was replaced while it was measured.",
            )
        self._facts = facts

    def _note_start(self, pid: int) -> None:
        url = self.plan.url if isinstance(self.plan, Endpoint) else None
        if url is not None and self.served_pid not in (None, pid):
            raise ToolError(
                "E_ENGINE_CHANGED",
                f"The server at {url} was process {self.served_pid} and is process {pid} now.",
            )
        self.served_pid = pid

    def _run_streamed(
        self, role: Role, plan: Streamed, clean: CleanOutput | None = None, place: RunPlace = ALONE
    ) -> tuple[Run, ProgramRun]:
        started_at = clocks.utc_now()
        order = place.prompts or self.deck.draw()
        # A pair may run each side several times.
        earlier = sum(run.pair == place.pair and run.role == role for run in self._runs)
        prompt = order[earlier % len(order) if place.prompts else 0]
        with self.devices.watch_program() as began:
            program = streamed.run_program(
                plan,
                self.workload,
                prompt=self.workload.all_prompts[prompt],
                wrapped=role == "profiled",
                clean=clean,
                cpu=place.cpu,
                began=began,
            )
        self._effective = program.effective_environment
        self._same.add(program.tokens, prompt)
        self._has_own_lines = self._has_own_lines or program.has_own_lines
        run = self._make_run(
            program.counters,
            place,
            role=role,
            pid=program.pid,
            started_ticks=program.started_ticks,
            started_at=started_at,
            load_ns=None,
            blocks=(program.block,),
            reported=program.reported,
            prompts=[prompt],
        )
        return run, program

    def _make_run(
        self, counters: ProcessCounters, place: RunPlace, prompts: Sequence[int], **values: Any
    ) -> Run:
        """Build the run that has just ended: ``values``, its counters and its last sequence."""
        self.deck.note_used(prompts)
        return Run(
            prompts=tuple(prompts) if self.workload.prompts else (),
            token_digest=token_digest(self._same.last),
            tokens_per_sequence=len(self._same.last),
            **asdict(counters),
            # The other side of a pair is pressure that was made on purpose.
            cpu_pressure_pct=None if place.shares_core else clocks.read_cpu_pressure_pct(),
            pair=place.pair,
            cpu=place.cpu,
            shares_core=place.shares_core,
            **values,
        )
