"""The observer: runs a workload in processes of its own and writes down what it sees."""

from __future__ import annotations

import math
import secrets
import time
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload import clocks, determinism, streamed
from pytest_flamegate.workload.device_watch import Watch
from pytest_flamegate.workload.digest import first_difference, token_digest
from pytest_flamegate.workload.engines.base import Endpoint, Lasting, Served
from pytest_flamegate.workload.observation import Block, Observation, Role, Run, total
from pytest_flamegate.workload.served import ServedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_flamegate.workload.endpoint import EndpointProcess
    from pytest_flamegate.workload.engines.base import Plan, Streamed
    from pytest_flamegate.workload.reported import Report
    from pytest_flamegate.workload.spec import Workload
    from pytest_flamegate.workload.streamed import Answer, Clean

WARM_TOKENS = 32
BLOCKS = 6
REFERENCE_TIMES = 15
PART_TOKENS = 32
PART_REFERENCE_TIMES = 8
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_NO_MORE: Mapping[str, object] = MappingProxyType({})

T_co = TypeVar("T_co", covariant=True)


class Window(Protocol[T_co]):
    """Something that watches a process for a while: a profiler that is attached."""

    def stop(self) -> T_co:
        """End the watch and return what it saw."""

    def close(self) -> None:
        """End the watch; what it saw is abandoned."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a timed run has its place: in which pair, and bound to which core."""

    pair: int | None = None
    cpu: int | None = None


ALONE = Place()


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
    devices: Watch = field(default_factory=Watch)
    _runs: list[Run] = field(default_factory=list)
    _tokens: tuple[str, ...] | None = None
    _last_tokens: tuple[str, ...] = ()
    _differs_at: int | None = None
    _own_lines: bool = False
    _differs_to: str | None = None
    _token_source: str | None = None
    notes: dict[str, str] = field(default_factory=dict)
    """What has to be known of how it was observed, by code."""
    _effective: Mapping[str, str] = field(default_factory=lambda: _NO_VARIABLES)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs so far, in order."""
        return tuple(self._runs)

    def timed(self, seconds: float) -> Run:
        """Run one fresh process: a program once, a served engine for about ``seconds`` of work.

        The reference kernel runs between a served engine's blocks. A program has none: in a
        process of its own the kernel varied by 15 % where the program varied by 2 %.
        """
        if isinstance(self.plan, Served):
            return self._timed_served(self.plan, seconds)
        if isinstance(self.plan, Endpoint):
            return self._timed_endpoint(seconds)
        return self.answer(ALONE)

    def answer(self, place: Place) -> Run:
        """Run the program once, unprofiled."""
        assert not isinstance(self.plan, Lasting)
        run, _ = self._answer("timed", self.plan, place=place)
        self._runs.append(run)
        return run

    def serve(
        self,
        place: Place = ALONE,
        python_flags: Sequence[str] = (),
        more: Mapping[str, object] = _NO_MORE,
    ) -> ServedProcess | EndpointProcess:
        """Start a process that generates on command, or find it; the caller closes it.

        ``more`` is told to a served engine's factory beside what the plan tells.
        """
        assert isinstance(self.plan, Lasting)
        self.devices.before()
        served: ServedProcess | EndpointProcess
        if isinstance(self.plan, Endpoint):
            served = self._endpoint(self.plan, place)
        else:
            plan = replace(self.plan, load={**self.plan.load, **more})
            served = self._served(plan, place, python_flags)
        self._effective = determinism.effective(served.pid, determinism.requested(self.workload))
        self.devices.begin(served.pid)
        return served

    def _served(self, plan: Served, place: Place, python_flags: Sequence[str]) -> ServedProcess:
        return ServedProcess(
            plan,
            self.workload,
            self._environment(),
            self._saw,
            python_flags,
            place.cpu,
            self._began,
        )

    def _endpoint(self, plan: Endpoint, place: Place) -> EndpointProcess:
        # Whoever measures no server loads nothing of the network.
        from pytest_flamegate.workload.endpoint import EndpointProcess

        served = EndpointProcess(
            plan, self.workload, self._environment(), self._saw, place.cpu, self._began
        )
        self.notes |= served.notes
        if plan.url is not None:
            self.notes["I_ONE_PROCESS"] = (
                f"All runs are windows of one process ({served.pid}), which ran before: nothing "
                "is known of how its figures differ from one start to the next."
            )
        self._token_source = served.token_source
        return served

    def keep(
        self,
        role: Role,
        served: ServedProcess | EndpointProcess,
        blocks: Sequence[Block],
        counted: clocks.Counters,
        place: Place = ALONE,
    ) -> Run:
        """Write down what a served process did; it still runs."""
        self.devices.end(served.pid)
        if not isinstance(served, ServedProcess):
            self.notes |= served.notes
        run = Run(
            role=role,
            pid=served.pid,
            started_ticks=clocks.started_ticks(served.pid),
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
            sequences = self.warm(served, seconds)
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

    def wrapped(self, argv: tuple[str, ...], clean: Clean | None = None) -> Answer:
        """Run the program once as ``argv``, its command line with a profiler around it.

        ``clean`` takes what the profiler wrote out of the program's own output.
        """
        assert not isinstance(self.plan, Lasting)
        run, answer = self._answer("profiled", replace(self.plan, argv=argv), clean)
        self._runs.append(run)
        return answer

    def warm_up(self, *, reference: bool = True) -> None:
        """Run once, unrecorded: the first process finds cold caches and a slow clock.

        ``reference`` warms the reference kernel up too; pairs do without one.
        """
        if isinstance(self.plan, Lasting):
            with self.serve() as served:
                served.warm_up(WARM_TOKENS)
                if reference and isinstance(served, ServedProcess):
                    served.reference(1)
        else:
            self._answer("timed", self.plan)

    def observation(self) -> Observation:
        """Return all that was seen so far."""
        tokens = self._tokens or ()
        lasting = isinstance(self.plan, Lasting)
        return Observation(
            nonce=self.nonce,
            runs=self._alike(),
            tokens=tokens,
            token_digest=token_digest(tokens),
            token_source=self._source(),
            differs_at=self._differs_at,
            clock_scope="sequence" if lasting else "process",
            requested_environment=determinism.requested(self.workload),
            effective_environment=self._effective,
            device=self.devices.seen([run for run in self._runs if run.role == "timed"]),
            differs_to=self._differs_to,
        )

    def _source(self) -> str:
        if isinstance(self.plan, Endpoint):
            return self._token_source or "sse"
        read = "stdout without own lines" if self._own_lines else "stdout"
        return f"{'yielded' if isinstance(self.plan, Served) else read}:{self.plan.token_unit}"

    def _timed_endpoint(self, seconds: float) -> Run:
        """Ask a server for about ``seconds``; nobody runs a reference kernel in its process."""
        with self.serve() as served:
            sequences = self.warm(served, seconds / BLOCKS)
            end_s = time.monotonic() + seconds
            blocks: list[Block] = []
            while not blocks or (len(blocks) < BLOCKS and time.monotonic() < end_s):
                blocks.append(served.block(sequences))
                self.devices.look(served.pid)
            return self.keep("timed", served, blocks, served.counters())

    def _timed_served(self, plan: Served, seconds: float) -> Run:
        with self.serve() as served:
            assert isinstance(served, ServedProcess)
            sequences = self.warm(served, seconds / BLOCKS)
            end_s = time.monotonic() + seconds
            peak_rss_bytes = served.counters().peak_rss_bytes
            served.reference(1)
            blocks: list[Block] = []
            if plan.stands_still and self.workload.max_tokens > PART_TOKENS:
                while not blocks or (len(blocks) < BLOCKS and time.monotonic() < end_s):
                    blocks.append(_beside_reference(served))
            else:
                blocks = self._blocks(served, sequences, end_s)
            counted = replace(served.counters(), peak_rss_bytes=peak_rss_bytes)
            return self.keep("timed", served, blocks, counted)

    def _blocks(self, served: ServedProcess, sequences: int, end_s: float) -> list[Block]:
        """Run blocks with the reference kernel on both sides of each."""
        blocks: list[Block] = []
        before = served.reference(REFERENCE_TIMES)
        while not blocks or (len(blocks) < BLOCKS and time.monotonic() < end_s):
            block = served.block(sequences)
            self.devices.look(served.pid)
            after = served.reference(REFERENCE_TIMES)
            blocks.append(replace(block, reference=total([before, after])))
            before = after
        return blocks

    def warm(self, served: ServedProcess | EndpointProcess, block_s: float) -> int:
        """Warm the process up; return how many sequences fill about ``block_s``."""
        served.warm_up(WARM_TOKENS)
        began = time.monotonic()
        served.warm_up(WARM_TOKENS)
        took_s = max(time.monotonic() - began, 1e-6)
        part = max(1.0, self.workload.max_tokens / WARM_TOKENS)
        return max(1, math.floor(block_s / (took_s * part)))

    def _answer(
        self,
        role: Role,
        plan: Streamed,
        clean: Clean | None = None,
        place: Place = ALONE,
    ) -> tuple[Run, Answer]:
        started_at = clocks.utc_now()
        with self.devices.beside() as began:
            seen = streamed.answer(
                plan,
                self.workload,
                self._environment(),
                wrapped=role == "profiled",
                clean=clean,
                cpu=place.cpu,
                began=began,
            )
        self._effective = seen.effective_environment
        self._saw(seen.tokens)
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

    def _last(self, counted: clocks.Counters) -> _Common:
        """Return what is said alike of every run, of the one that has just ended."""
        return {
            "token_digest": token_digest(self._last_tokens),
            "tokens_per_sequence": len(self._last_tokens),
            "peak_rss_bytes": counted.peak_rss_bytes,
            "read_bytes": counted.read_bytes,
            "threads": counted.threads,
            "voluntary_switches": counted.voluntary_switches,
            "involuntary_switches": counted.involuntary_switches,
            "cpu_pressure_pct": clocks.cpu_pressure_pct(),
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

    def _saw(self, tokens: tuple[str, ...]) -> None:
        """Hold every sequence against the first one."""
        self._last_tokens = tokens
        if self._tokens is None:
            self._tokens = tokens
        elif self._differs_at is None and tokens != self._tokens:
            self._differs_at = first_difference(self._tokens, tokens)
            self._differs_to = next(iter(tokens[self._differs_at :]), None)

    def _began(self, pid: int) -> None:
        url = self.plan.url if isinstance(self.plan, Endpoint) else None
        if url is not None and self.served_pid not in (None, pid):
            raise ToolError(
                "E_SERVER_CHANGED",
                f"The server at {url} was process {self.served_pid} and is process {pid} now.",
                "Leave it running while it is measured, and measure again.",
            )
        self.served_pid = pid

    def _environment(self) -> dict[str, str]:
        return determinism.environment(self.workload)


def _beside_reference(served: ServedProcess) -> Block:
    """Generate one sequence in parts, the reference kernel before, between and after them."""
    sequence = served.parted()
    references = [served.reference(PART_REFERENCE_TIMES)]
    while not sequence.ended:
        sequence.part(PART_TOKENS)
        references.append(served.reference(PART_REFERENCE_TIMES))
    return sequence.block(total(references))
