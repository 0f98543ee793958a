"""The observer: runs a workload in processes of its own and writes down what it sees."""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypedDict, TypeVar

from pytest_flamegate.bricks.record import BrickRun
from pytest_flamegate.core import clocks
from pytest_flamegate.core.clocks import sum_intervals
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.engines.base import Endpoint, Lasting
from pytest_flamegate.engines.tokens import Sameness, token_digest
from pytest_flamegate.observe import environment, streamed
from pytest_flamegate.observe.engine_process import (
    ALONE,
    ProcessTime,
    RunPlace,
    engine_changed_error,
    measure_sequence_s,
    warm_up_for_block,
)
from pytest_flamegate.observe.gpu_watch import DeviceWatch
from pytest_flamegate.observe.observation import Block, Observation, Role, Run
from pytest_flamegate.observe.served import ServedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_flamegate.bricks.record import Recorded
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.core.clocks import ProcessCounters
    from pytest_flamegate.engines.base import Plan, Streamed
    from pytest_flamegate.engines.figures import Report
    from pytest_flamegate.observe.engine_process import EngineProcess, Window
    from pytest_flamegate.observe.streamed import Clean, ProgramRun


NO_BRICKS_CODES = frozenset({"E_NO_BRICKS", "E_BRICKS_NOT_SERVED"})
"""What is no failure where bricks were only to be shown."""
_LEFT_OUT = (
    "The last token took more calls of bricks than are kept one by one, so bricks.json holds none "
    "of them; every total is whole."
)


def bricked(observer: Observer, seconds: float) -> tuple[Run, BrickRun, Recorded]:
    """Run one fresh served process for about ``seconds`` with its bricks clocked.

    The run is kept, and supplies no other figure. ``ToolError``: ``E_NO_BRICKS`` where the engine
    marks none, ``E_BAD_BRICKS`` where what it tells of them cannot be read.
    """
    with observer.serve() as served:
        assert isinstance(served, ServedProcess)
        sequences = warm_up_for_block(served, observer.workload, seconds)
        block, told = served.bricked_block(sequences)
        recorded = told.recorded
        if not recorded.totals:
            raise no_bricks_error(observer.workload.name)
        if told.left_out:
            observer.notes["W_BRICK_CALLS"] = _LEFT_OUT
        run = observer.keep("bricks", served, [block], served.counters())
    return run, _pass(run, block, recorded), recorded


def _pass(run: Run, block: Block, recorded: Recorded) -> BrickRun:
    return BrickRun(
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


def no_bricks_error(workload: str) -> ToolError:
    """Say how an engine is marked."""
    return ToolError(
        "E_NO_BRICKS",
        f"The engine of {workload!r} marked no brick, so there are none to show or to gate.",
        "Mark it in five lines: (1) from pytest_flamegate.bricks import brick; "
        "(2) around each norm: with brick('RmsNorm', layer=i): x = norm(x); "
        "(3) around attention: with brick('AttentionScore', layer=i): x = attention(x); "
        "(4) around each product: with brick('DownProjection', layer=i): x = down(x); "
        "(5) around the output: with brick('LmHead', elements=n): logits = head(x).",
    )


def bricks_not_served_error(workload: str, engine: str) -> ToolError:
    """Say that bricks are clocked in processes of this tool alone."""
    return ToolError(
        "E_BRICKS_NOT_SERVED",
        f"The engine {engine!r} of {workload!r} generates in no process of this tool, so its "
        "bricks cannot be clocked.",
        "Declare no bricks for it; those of the engines embedded and python can be clocked.",
    )


BLOCKS = 6
REFERENCE_TIMES = 15
PART_TOKENS = 32
PART_REFERENCE_TIMES = 8


def time_blocks(
    process: EngineProcess,
    workload: Workload,
    seconds: float,
    look: Callable[[], None],
) -> tuple[list[Block], ProcessCounters]:
    """Warm ``process`` up and run blocks for about ``seconds``; return them and its counters.

    ``look()`` is called after each block. Nobody runs the reference kernel in the process of a
    server. The peak memory is that before the reference kernel takes its own.
    """
    sequences = warm_up_for_block(process, workload, seconds / BLOCKS)
    end_s = time.monotonic() + seconds
    blocks: list[Block] = []

    def goes_on() -> bool:
        return not blocks or (len(blocks) < BLOCKS and time.monotonic() < end_s)

    if not isinstance(process, ServedProcess):
        while goes_on():
            blocks.append(process.block(sequences))
            look()
        return blocks, process.counters()
    peak_rss_bytes = process.counters().peak_rss_bytes
    process.reference(1)
    if process.stands_still and workload.max_tokens > PART_TOKENS:
        while goes_on():
            blocks.append(_by_parts(process))
    else:
        before = process.reference(REFERENCE_TIMES)
        while goes_on():
            block = process.block(sequences)
            look()
            after = process.reference(REFERENCE_TIMES)
            blocks.append(replace(block, reference=sum_intervals([before, after])))
            before = after
    return blocks, replace(process.counters(), peak_rss_bytes=peak_rss_bytes)


def _by_parts(process: ServedProcess) -> Block:
    """Generate one sequence in parts, the reference kernel before, between and after them."""
    sequence = process.parted()
    references = [process.reference(PART_REFERENCE_TIMES)]
    while not sequence.ended:
        sequence.part(PART_TOKENS)
        references.append(process.reference(PART_REFERENCE_TIMES))
    return sequence.block(sum_intervals(references))


_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_NO_MORE: Mapping[str, object] = MappingProxyType({})

T = TypeVar("T")


class _Common(TypedDict):
    token_digest: str
    tokens_per_sequence: int
    peak_rss_bytes: int | None
    read_bytes: int | None
    threads: int | None
    voluntary_switches: int | None
    involuntary_switches: int | None
    cpu_pressure_pct: float | None


@dataclass(slots=True)
class Observer:
    """Collects the runs of one workload; ``observation()`` freezes them."""

    workload: Workload
    plan: Plan
    python_flags: Sequence[str] = ()
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    served_pid: int | None = None
    """The served process begun last, even one that never became ready."""
    devices: DeviceWatch = field(default_factory=DeviceWatch)
    _runs: list[Run] = field(default_factory=list)
    _same: Sameness = field(default_factory=Sameness)
    _own_lines: bool = False
    _token_source: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    """What has to be known of how it was observed, by code."""
    _effective: Mapping[str, str] = field(default_factory=lambda: _NO_VARIABLES)
    _facts: Mapping[str, str] | None = None

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs so far, in order."""
        return tuple(self._runs)

    def timed(self, seconds: float) -> Run:
        """Run one fresh process: a program once, a served engine for about ``seconds`` of work.

        The reference kernel runs between a served engine's blocks. A program has none: in a
        process of its own the kernel varied by 15 % where the program varied by 2 %.
        """
        if not isinstance(self.plan, Lasting):
            return self.answer(ALONE)
        with self.serve() as served:
            blocks, counted = time_blocks(
                served, self.workload, seconds, lambda: self.devices.look(served.pid)
            )
            return self.keep("timed", served, blocks, counted)

    def answer(self, place: RunPlace) -> Run:
        """Run the program once, unprofiled."""
        assert not isinstance(self.plan, Lasting)
        run, _ = self._answer("timed", self.plan, place=place)
        self._runs.append(run)
        return run

    @contextmanager
    def serve(
        self,
        place: RunPlace = ALONE,
        python_flags: Sequence[str] = (),
        more: Mapping[str, object] = _NO_MORE,
    ) -> Iterator[EngineProcess]:
        """Start a process that generates on command, or find it; it ends with the context.

        ``more`` is told to a served engine's factory beside what the plan tells.
        """
        self.devices.before()
        served = self._start(place, python_flags, more)
        try:
            requested = environment.requested_variables(self.workload)
            self._effective = environment.read_variables(served.pid, requested)
            if self._facts not in (None, served.facts):
                raise engine_changed_error(self.workload)
            self._facts = served.facts
            self._token_source = served.token_source
            self.notes |= served.notes
            self.devices.begin(served.pid)
            yield served
        finally:
            served.close()

    def _start(
        self, place: RunPlace, python_flags: Sequence[str], more: Mapping[str, object]
    ) -> EngineProcess:
        plan = self.plan
        assert isinstance(plan, Lasting)
        common = (self.workload, environment.make_environment(self.workload), self._same.saw)
        if isinstance(plan, Endpoint):
            # Whoever measures no server loads nothing of the network.
            from pytest_flamegate.observe.endpoint import EndpointProcess

            return EndpointProcess(plan, *common, place.cpu, self._began)
        plan = replace(plan, load={**plan.load, **more})
        return ServedProcess(plan, *common, python_flags, place.cpu, self._began)

    def keep(
        self,
        role: Role,
        served: EngineProcess,
        blocks: Sequence[Block],
        counted: clocks.ProcessCounters,
        place: RunPlace = ALONE,
    ) -> Run:
        """Write down what a served process did; it still runs."""
        self.devices.end(served.pid)
        self.notes |= served.notes
        run = Run(
            role=role,
            pid=served.pid,
            started_ticks=clocks.read_start_ticks(served.pid),
            started_at=served.started_at,
            load_ns=served.load_ns,
            blocks=tuple(blocks),
            pair=place.pair,
            cpu=place.cpu,
            reported=served.reports(),
            **self._last(counted),
        )
        self._runs.append(run)
        return run

    def profiled(self, seconds: float, attach: Callable[[int], Window[T]]) -> tuple[Run, T]:
        """Run one fresh served process for about ``seconds`` with ``attach(pid)`` watching it.

        The watch begins after load and warm-up and ends before the process does.
        """
        assert isinstance(self.plan, Lasting)
        with self.serve(python_flags=self.python_flags) as served:
            sequences = warm_up_for_block(served, self.workload, seconds)
            window = attach(served.pid)
            blocks: list[Block] = []
            try:
                end_s = time.monotonic() + seconds
                while not blocks or time.monotonic() < end_s:
                    blocks.append(served.untold_block(sequences))
            except BaseException:
                window.close()
                raise
            seen = window.stop()
            return self.keep("profiled", served, blocks, served.counters()), seen

    def bricked(self, seconds: float) -> tuple[Run, BrickRun, Recorded]:
        """Run one fresh served process for about ``seconds`` with its bricks clocked.

        ``ToolError``: ``E_NO_BRICKS``, ``E_BAD_BRICKS``.
        """
        # NESTED

        return bricked(self, seconds)

    def traced(
        self, more: Mapping[str, object], read: Callable[[], tuple[Report, ...]]
    ) -> tuple[Report, ...]:
        """Run one fresh process that is told ``more``, for one sequence; its times are no figures.

        ``read()`` finds what it left of itself, after it has ended.
        """
        with self.serve(more=more) as served:
            block = served.untold_block(1)
            run = self.keep("traced", served, [block], served.counters())
            served.close(self.workload.timeout_s)
        reports = read()
        self._runs[-1] = replace(run, reported=(*run.reported, *reports))
        return reports

    def wrapped(self, argv: tuple[str, ...], clean: Clean | None = None) -> ProgramRun:
        """Run the program once as ``argv``, its command line with a profiler around it.

        ``clean`` takes what the profiler wrote out of the program's own output.
        """
        assert not isinstance(self.plan, Lasting)
        run, answer = self._answer("profiled", replace(self.plan, argv=argv), clean)
        self._runs.append(run)
        return answer

    def warm_up(self, *, reference: bool = True) -> ProcessTime:
        """Run once, unrecorded: the first process finds cold caches and a slow clock.

        ``reference`` warms the reference kernel up too; pairs do without one. Returns how long
        such a process takes.
        """
        began_s = time.monotonic()
        if not isinstance(self.plan, Lasting):
            self._answer("timed", self.plan)
            return ProcessTime(0.0, time.monotonic() - began_s, repeats=False)
        with self.serve() as served:
            sequence_s = measure_sequence_s(served, self.workload)
            # Every process starts, loads and warms up like this one.
            start_s = time.monotonic() - began_s
            if reference and isinstance(served, ServedProcess):
                served.reference(1)
        return ProcessTime(start_s, sequence_s, repeats=True)

    def observation(self) -> Observation:
        """Return all that was seen so far."""
        tokens = self._same.first or ()
        lasting = isinstance(self.plan, Lasting)
        return Observation(
            nonce=self.nonce,
            runs=self._alike(),
            tokens=tokens,
            token_digest=token_digest(tokens),
            token_source=self._source(),
            differs_at=self._same.differs_at,
            clock_scope="sequence" if lasting else "process",
            requested_environment=environment.requested_variables(self.workload),
            effective_environment=self._effective,
            device=self.devices.seen([run for run in self._runs if run.role == "timed"]),
            differs_to=self._same.differs_to,
            engine=self._facts or _NO_VARIABLES,
        )

    def _source(self) -> str:
        if isinstance(self.plan, Lasting):
            return self._token_source
        read = "stdout without own lines" if self._own_lines else "stdout"
        return f"{read}:{self.plan.token_unit}"

    def _answer(
        self,
        role: Role,
        plan: Streamed,
        clean: Clean | None = None,
        place: RunPlace = ALONE,
    ) -> tuple[Run, ProgramRun]:
        started_at = clocks.utc_now()
        with self.devices.beside() as began:
            seen = streamed.run_program(
                plan,
                self.workload,
                environment.make_environment(self.workload),
                wrapped=role == "profiled",
                clean=clean,
                cpu=place.cpu,
                began=began,
            )
        self._effective = seen.effective_environment
        self._same.saw(seen.tokens)
        self._own_lines = self._own_lines or seen.own_lines
        return Run(
            role=role,
            pid=seen.pid,
            started_ticks=seen.started_ticks,
            started_at=started_at,
            load_ns=None,
            blocks=(seen.block,),
            pair=place.pair,
            cpu=place.cpu,
            reported=seen.reported,
            **self._last(seen.counters),
        ), seen

    def _last(self, counted: clocks.ProcessCounters) -> _Common:
        """Return what is said alike of every run, of the one that has just ended."""
        return {
            "token_digest": token_digest(self._same.last),
            "tokens_per_sequence": len(self._same.last),
            "peak_rss_bytes": counted.peak_rss_bytes,
            "read_bytes": counted.read_bytes,
            "threads": counted.threads,
            "voluntary_switches": counted.voluntary_switches,
            "involuntary_switches": counted.involuntary_switches,
            "cpu_pressure_pct": clocks.read_cpu_pressure_pct(),
        }

    def _alike(self) -> tuple[Run, ...]:
        """Return the runs, with the decode of all timed ones told apart or of none."""
        timed = [block for run in self._runs if run.role == "timed" for block in run.blocks]
        if all(block.decode is not None for block in timed):
            return tuple(self._runs)
        return tuple(
            replace(run, blocks=tuple(block.undivided() for block in run.blocks))
            for run in self._runs
        )

    def _began(self, pid: int) -> None:
        url = self.plan.url if isinstance(self.plan, Endpoint) else None
        if url is not None and self.served_pid not in (None, pid):
            raise ToolError(
                "E_SERVER_CHANGED",
                f"The server at {url} was process {self.served_pid} and is process {pid} now.",
                "Leave it running while it is measured, and measure again.",
            )
        self.served_pid = pid
